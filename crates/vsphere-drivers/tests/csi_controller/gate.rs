//! An API server whose writes can be held: a proxy in front of the real one, for a process that is to be killed there.

use std::{
    net::SocketAddr,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use http_body_util::BodyExt;
use hyper::{
    Request, Response,
    body::Incoming,
    header::{CONNECTION, TRANSFER_ENCODING},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use lab::{Wait, until};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinSet};

use crate::world::{BOUND, World};

/// What the controller writes on behalf of volumes; leases and events are left out.
const WATCHED: [&str; 2] = ["/cnsvolumeoperationrequests", "/volumeattachments"];

/// When a write is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The API server never gets it.
    Before,
    /// The API server has carried it out; its answer is held.
    After,
}

#[derive(Debug, Default)]
struct State {
    /// Methods and kinds of objects since the last look.
    writes: Vec<String>,
    /// How often one object was read since then.
    reads: usize,
    hold: Option<(usize, Moment)>,
    held: bool,
    /// The writes with these numbers are refused.
    refuse: Range<usize>,
}

/// The proxy. Dropping it ends it.
pub(crate) struct Gate {
    pub(crate) kubeconfig: PathBuf,
    state: Arc<Mutex<State>>,
    _server: JoinSet<()>,
}

impl Gate {
    pub(crate) async fn start(world: &World) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let kubeconfig = kubeconfig(world, listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, world.plane.client(), Arc::clone(&state)));
        Self { kubeconfig, state, _server: server }
    }

    /// Forgets what was written and holds the write of this number from now on.
    pub(crate) fn hold(&self, write: usize, moment: Moment) {
        let hold = Some((write, moment));
        *self.state.lock().unwrap() = State { hold, ..State::default() };
    }

    /// Forgets what was written and refuses the writes of these numbers from now on.
    pub(crate) fn refuse(&self, refuse: Range<usize>) {
        *self.state.lock().unwrap() = State { refuse, ..State::default() };
    }

    /// How often one object was read since the last look.
    pub(crate) fn reads(&self) -> usize {
        self.state.lock().unwrap().reads
    }

    /// Waits until so much was written since the last look.
    pub(crate) async fn until_written(&self, count: usize) {
        until("the controller has written", BOUND, || async {
            let state = self.state.lock().unwrap();
            let done = state.writes.len() >= count;
            Ok(if done { Wait::Done(()) } else { Wait::NotYet(format!("{state:?}")) })
        })
        .await
        .unwrap();
    }

    /// Holds nothing any more, and returns what was written since the last look.
    pub(crate) fn open(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.lock().unwrap()).writes
    }

    pub(crate) async fn until_held(&self) {
        until("a write is held", BOUND, || async {
            let state = self.state.lock().unwrap();
            Ok(if state.held { Wait::Done(()) } else { Wait::NotYet(format!("{state:?}")) })
        })
        .await
        .unwrap();
    }
}

fn kubeconfig(world: &World, at: SocketAddr) -> PathBuf {
    let cluster = json!({"name": "gate", "cluster": {"server": format!("http://{at}")}});
    let context = json!({"name": "gate", "context": {"cluster": "gate", "user": "gate"}});
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{"name": "gate", "user": {}}],
        "contexts": [context],
        "current-context": "gate",
    });
    world.write("gate.kubeconfig", &config.to_string())
}

async fn serve(listener: TcpListener, client: Client, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (client, state) = (client.clone(), Arc::clone(&state));
        connections.spawn(async move {
            let pass = service_fn(|request| pass(client.clone(), Arc::clone(&state), request));
            // A process that is killed breaks its connections.
            http1::Builder::new().serve_connection(TokioIo::new(stream), pass).await.ok();
        });
    }
}

async fn pass(
    client: Client,
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Body>, kube::Error> {
    let (mut head, body) = request.into_parts();
    let kind = WATCHED.iter().find(|kind| head.uri.path().contains(*kind));
    let moment = match kind {
        Some(kind) if head.method != "GET" => {
            let mut state = state.lock().unwrap();
            let number = state.writes.len();
            state.writes.push(format!("{} {}", head.method, &kind[1..]));
            if state.refuse.contains(&number) {
                return Ok(Response::builder().status(500).body(Body::empty()).unwrap());
            }
            state.hold.filter(|(held, _)| *held == number).map(|(_, moment)| moment)
        }
        Some(kind) => {
            let of_one = head.uri.path().contains(&format!("{kind}/"));
            state.lock().unwrap().reads += usize::from(of_one);
            None
        }
        None => None,
    };
    if moment == Some(Moment::Before) {
        return hold(&state).await;
    }
    let body = body.collect().await.map_err(kube::Error::HyperError)?.to_bytes();
    head.headers.remove(CONNECTION);
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    head.uri = path.parse().unwrap();
    let mut response = client.send(Request::from_parts(head, Body::from(body.to_vec()))).await?;
    if moment == Some(Moment::After) {
        return hold(&state).await;
    }
    response.headers_mut().remove(TRANSFER_ENCODING);
    Ok(response)
}

async fn hold<T>(state: &Mutex<State>) -> T {
    state.lock().unwrap().held = true;
    std::future::pending().await
}
