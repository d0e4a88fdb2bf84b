//! A loopback port of the machine that leads into a world's network namespace.
//!
//! A socket belongs to the namespace of the thread that made it: the listener is made on the machine,
//! the thread then moves into the namespace and makes its connections there.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener},
    os::fd::AsFd,
    thread::JoinHandle,
};

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::{io::copy_bidirectional, net::TcpStream, sync::oneshot, task::JoinSet};

/// Dropping it closes the port and all connections through it.
#[derive(Debug)]
pub(crate) struct Forward {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Forward {
    /// Listens on `from` of the machine and connects to `to` inside `namespace`.
    pub(crate) fn start(from: SocketAddr, namespace: File, to: SocketAddr) -> Result<Self> {
        let listener =
            TcpListener::bind(from).with_context(|| format!("cannot listen on {from}"))?;
        listener.set_nonblocking(true)?;
        let (stop, stopped) = oneshot::channel();
        let (report, started) = std::sync::mpsc::channel();
        let thread =
            std::thread::Builder::new().name(format!("forward {from}")).spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
                let entered =
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
                match (runtime, entered) {
                    (Ok(runtime), Ok(())) => {
                        report.send(Ok(())).ok();
                        runtime.block_on(serve(listener, to, stopped));
                    }
                    (Err(error), _) => {
                        report.send(Err(error)).ok();
                    }
                    (_, Err(error)) => {
                        report.send(Err(error.into())).ok();
                    }
                }
            })?;
        started.recv()?.with_context(|| format!("cannot forward {from} into the lab's network"))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, mut stopped: oneshot::Receiver<()>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                // A connection that fails is closed; its client sees that and tries again.
                if let Ok((mut client, _)) = accepted {
                    connections.spawn(async move {
                        let mut server = TcpStream::connect(to).await?;
                        copy_bidirectional(&mut client, &mut server).await
                    });
                }
            }
        }
    }
}
