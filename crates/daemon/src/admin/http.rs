//! HTTP/1.1 connections: accepted, bounded in number and time, and drained at the end.

use std::{convert::Infallible, future::Future, io, pin::pin, time::Duration};

use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    http::{Request, Response},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tracing::debug;

use crate::supervise::Shutdown;

/// A client has this long for its handshake, and again for its headers.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// A connection is closed after this time, whatever its client does; clients open another one.
const CONNECTION_LIVES: Duration = Duration::from_secs(300);
/// How long requests that are being answered may take when the program ends.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);
/// Connections at once; kubelet and Prometheus need two.
const CONNECTIONS: usize = 100;

/// Answers requests until `shutdown`; `connect` is the handshake of a connection, if it has one.
pub(super) async fn serve<S, C, A>(
    listener: &TcpListener,
    connect: impl Fn(TcpStream) -> C,
    answer: impl Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    shutdown: &Shutdown,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    C: Future<Output = io::Result<S>> + Send + 'static,
    A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    while let Some(accepted) = shutdown.unless(listener.accept()).await {
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) if is_passing(&error) => {
                // Out of files: accepting again at once would spin.
                debug!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        connections.spawn(converse(connect(socket), answer.clone(), shutdown.clone()));
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS {
            connections.join_next().await;
        }
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    timeout(DRAIN_WITHIN, drained).await.unwrap_or_default();
    connections.shutdown().await;
    Ok(())
}

/// Whether the error concerns one connection or a shortage, not the listening socket.
fn is_passing(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM have no kind of their own.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
        || matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted
        )
}

async fn converse<S, A>(
    connect: impl Future<Output = io::Result<S>>,
    answer: impl Fn(Request<Incoming>) -> A,
    shutdown: Shutdown,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Future<Output = Response<Full<Bytes>>>,
{
    let stream = match shutdown.unless(timeout(HEADERS_WITHIN, connect)).await {
        Some(Ok(Ok(stream))) => TokioIo::new(stream),
        Some(Ok(Err(error))) => return debug!(%error, "TLS handshake failed"),
        Some(Err(_)) => return debug!("TLS handshake timed out"),
        None => return,
    };
    let service = service_fn(|request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = timeout(CONNECTION_LIVES, shutdown.requested()) => {
            // The request that is being answered may finish.
            connection.as_mut().graceful_shutdown();
            timeout(DRAIN_WITHIN, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection failed");
    }
}
