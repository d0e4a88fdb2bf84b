//! gRPC over a unix socket: what kubelet and the sidecars call.
//!
//! Every call has a span with its method, an id and the volume it concerns, and is logged with its code and how long
//! it took. A message has at most 4 MiB, which is what every peer keeps to.
//!
//! The socket belongs to the process's user, and its group may use it too: sidecars of the controller run as its
//! group or as root, and on a node everybody who may call is root. The socket of a process that is dead, or does not
//! answer, is replaced; one that somebody still serves is not.
//!
//! A panic ends the process in a release build, as in every program of the suite: the container is started again,
//! callers try again, and every operation is safe to repeat.
//!
//! Deliberately absent: TCP, TLS, compression, reflection, `grpc.health` (CSI has `Probe`).

mod authority;
mod socket;

use std::{
    collections::{HashMap, hash_map::RandomState},
    convert::Infallible,
    future::Future,
    hash::{BuildHasher as _, Hasher as _},
    io,
    path::Path,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use daemon::supervise::Shutdown;
use hyper::{
    body::Incoming,
    http::{Request, Response},
    rt::Executor,
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::UnixStream, task::JoinSet, time::timeout};
use tonic::{
    Code, Status,
    body::Body,
    codegen::{BoxFuture, Service},
    server::NamedService,
};
use tracing::{Instrument as _, Span, debug, field::Empty, info, info_span, warn};

pub use self::socket::CannotServe;
use self::{authority::AnyAuthority, socket::Socket};

/// How long calls that are being answered may take when the program ends.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// How long peers may take to close their connections after that.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Calls that change nothing and are made again and again: they are logged only if they fail.
const READS: &[&str] = &[
    "Probe",
    "GetPluginInfo",
    "GetPluginCapabilities",
    "NodeGetCapabilities",
    "NodeGetVolumeStats",
    "ControllerGetCapabilities",
    "ControllerGetVolume",
    "GetCapacity",
    "ListVolumes",
    "ValidateVolumeCapabilities",
];

type Call = Box<dyn Fn(Request<Incoming>) -> BoxFuture<Response<Body>, Infallible> + Send + Sync>;

/// The services behind a socket, by their names.
pub struct Services {
    by_name: HashMap<&'static str, Call>,
    /// Differs between two processes, so that ids of calls do not repeat in the log of a pod.
    process: u64,
    calls: AtomicU64,
}

impl Default for Services {
    fn default() -> Self {
        let process = RandomState::new().build_hasher().finish();
        Self { by_name: HashMap::new(), process, calls: AtomicU64::new(0) }
    }
}

impl Services {
    /// Adds a generated service.
    #[must_use]
    pub fn with<S>(mut self, service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let call = move |request| {
            let mut service = service.clone();
            let answer: BoxFuture<_, _> = Box::pin(async move { service.call(request).await });
            answer
        };
        self.by_name.insert(S::NAME, Box::new(call));
        self
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or((&path, ""));
        let id = self.calls.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:08x}-{id}", self.process & 0xffff_ffff);
        let span = info_span!("call", rpc = method, id, volume = Empty);
        let Some(call) = self.by_name.get(service) else {
            let what = format!("there is no service {service} at this socket");
            span.in_scope(|| warn!(code = ?Code::Unimplemented, error = what, "call refused"));
            return Status::unimplemented(what).into_http();
        };
        let mut timed = Timed { span, began: Instant::now(), is_answered: false };
        let Ok(response) = call(request).instrument(timed.span.clone()).await;
        timed.answered(method, Status::from_header_map(response.headers()));
        response
    }
}

/// Names the volume that the current call is about in its span. It is named before the request is checked, so that
/// every refusal can be found by it.
pub(crate) fn about_volume(volume: &str) {
    const LONGEST: usize = 256;
    Span::current().record("volume", &volume[..volume.floor_char_boundary(LONGEST)]);
}

/// A call that is being answered; dropped before its end if its caller gave up.
struct Timed {
    span: Span,
    began: Instant,
    is_answered: bool,
}

impl Timed {
    /// Logs how it ended: refusals have their status in the headers, which are all that they have.
    fn answered(&mut self, method: &str, status: Option<Status>) {
        let milliseconds = self.milliseconds();
        let _entered = self.span.enter();
        self.is_answered = true;
        match status.filter(|status| status.code() != Code::Ok) {
            None if READS.contains(&method) => debug!(milliseconds, "call answered"),
            None => info!(milliseconds, "call answered"),
            Some(status) => {
                let (code, error) = (status.code(), status.message());
                warn!(?code, milliseconds, error, "call refused");
            }
        }
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        if !self.is_answered {
            let milliseconds = self.milliseconds();
            self.span.in_scope(|| warn!(milliseconds, "call given up by its caller"));
        }
    }
}

/// A server that listens, and answers once it is run.
pub struct Server {
    socket: Socket,
    services: Arc<Services>,
}

impl Server {
    /// Listens at a path.
    pub async fn bind(path: &Path, services: Services) -> Result<Self, CannotServe> {
        Ok(Self { socket: Socket::bind(path).await?, services: Arc::new(services) })
    }

    /// A function that tells whether callers still find this server at its path.
    pub(crate) fn is_found(&self) -> impl Fn() -> bool + Send + use<> {
        self.socket.is_found()
    }

    /// Serves until `shutdown`; then the socket is removed, and calls that are being answered may finish.
    pub async fn run(self, shutdown: Shutdown) -> io::Result<()> {
        let Self { socket, services } = self;
        info!(socket = %socket.path().display(), "serving gRPC");
        let calls = Calls::default();
        let mut connections = JoinSet::new();
        while let Some(accepted) = shutdown.unless(socket.accept()).await {
            let services = Arc::clone(&services);
            connections.spawn(converse(accepted?, services, calls.clone(), shutdown.clone()));
            // Nobody waits for the calls of others: the kubelet opens a connection for each call, and some hang.
            while connections.try_join_next().is_some() {}
        }
        drop(socket);
        if timeout(DRAIN_WITHIN, calls.ended()).await.is_err() {
            warn!("calls that were being answered are given up");
        }
        let closed = async { while connections.join_next().await.is_some() {} };
        timeout(CLOSE_WITHIN, closed).await.unwrap_or_default();
        connections.shutdown().await;
        calls.take().shutdown().await;
        Ok(())
    }
}

async fn converse(stream: UnixStream, services: Arc<Services>, calls: Calls, shutdown: Shutdown) {
    let service = service_fn(move |request| {
        let services = Arc::clone(&services);
        async move { Ok::<_, Infallible>(services.answer(request).await) }
    });
    let connection = http2::Builder::new(calls)
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(AnyAuthority::new(stream)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection failed");
    }
}

/// The tasks of calls, which hyper starts for each stream of a connection.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<JoinSet<()>>>);

impl Calls {
    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        // Nothing can panic while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> JoinSet<()> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns when no call is left; dropped before that, it gives up those that it waits for.
    async fn ended(&self) {
        loop {
            let mut tasks = self.take();
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, task: F) {
        let mut tasks = self.lock();
        tasks.spawn(task);
        while tasks.try_join_next().is_some() {}
    }
}

#[cfg(test)]
mod tests;
