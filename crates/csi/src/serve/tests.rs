//! Calls over real sockets.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use daemon::{
    supervise::{Stop, shutdown},
    telemetry::{self, Format},
};
use lab::{Wait, log::Log, until};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixSocket, UnixStream},
    sync::Notify,
    task::JoinSet,
};
use tonic::{Code, Request, Response, Status};
use tracing::subscriber::DefaultGuard;

use super::{Server, Services};
use crate::{
    client::Client,
    proto::{
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
        GetPluginInfoResponse, ProbeRequest, ProbeResponse,
        identity_server::{Identity, IdentityServer},
    },
    rpc,
};

/// Generous: the machine may be busy with other things.
const BOUND: Duration = Duration::from_secs(60);
const PROBE: &str = "/csi.v1.Identity/Probe";

/// A server of this service, and what ends it.
struct Served {
    directory: TempDir,
    stop: Stop,
    running: JoinSet<std::io::Result<()>>,
    log: Log,
    /// Calls run on this thread, and log here.
    _logging: DefaultGuard,
}

impl Served {
    async fn start<S: Identity>(service: S) -> Self {
        let directory = TempDir::new().unwrap();
        let services = Services::default().with(IdentityServer::new(service));
        let server = Server::bind(&directory.path().join("csi.sock"), services).await.unwrap();
        let (stop, asked) = shutdown();
        let log = Log::default();
        let writer = log.clone();
        let (subscriber, _verbosity) =
            telemetry::subscriber(Format::Json, 4, move || writer.clone());
        let logging = tracing::subscriber::set_default(subscriber);
        let running = background(server.run(asked));
        Self { directory, stop, running, log, _logging: logging }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("csi.sock")
    }

    async fn client(&self) -> Client {
        Client::connect(&self.socket()).await.unwrap()
    }

    async fn until_logged(&self, text: &str) -> serde_json::Value {
        let waited = until(text, BOUND, || async {
            let all = self.log.text();
            let line = all.lines().find(|line| line.contains(text));
            Ok(match line {
                Some(line) => Wait::Done(serde_json::from_str(line)?),
                None => Wait::NotYet(all),
            })
        });
        waited.await.unwrap()
    }
}

/// Runs beside the test, and ends with it.
fn background<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinSet<T> {
    let mut tasks = JoinSet::new();
    tasks.spawn(task);
    tasks
}

async fn probe(client: &mut Client) -> Result<ProbeResponse, Status> {
    client.call(PROBE, ProbeRequest {}).await
}

/// Answers a call for its capabilities when it is allowed to, and panics when it is asked for its name.
#[derive(Clone, Default)]
struct Slow {
    called: Arc<Notify>,
    allowed: Arc<Notify>,
}

#[tonic::async_trait]
impl Identity for Slow {
    async fn get_plugin_info(
        &self,
        _request: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        panic!("an index out of range")
    }

    async fn get_plugin_capabilities(
        &self,
        _request: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        self.called.notify_one();
        self.allowed.notified().await;
        Ok(Response::new(GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(
        &self,
        _request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        Err(Status::failed_precondition("the answer is\nno"))
    }
}

#[tokio::test]
async fn calls_are_answered_and_what_is_not_there_is_unimplemented() {
    let served = Served::start(rpc::Identity::default()).await;
    let mut client = served.client().await;
    assert_eq!(probe(&mut client).await.unwrap().ready, Some(true));
    for unknown in ["/csi.v1.Identity/Guess", "/csi.v1.Controller/CreateVolume", "/Probe", "/"] {
        let status = client.call::<_, ProbeResponse>(unknown, ProbeRequest {}).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{unknown}: {status}");
    }
    // A message with more bytes than anybody sends is refused, and the connection goes on.
    let huge = GetPluginInfoResponse { name: "x".repeat(5 << 20), ..Default::default() };
    let status = client.call::<_, ProbeResponse>(PROBE, huge).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    probe(&mut client).await.unwrap();
}

#[tokio::test]
async fn every_call_is_logged_with_its_id_code_and_duration() {
    let served = Served::start(Slow::default()).await;
    let mut client = served.client().await;
    let status = probe(&mut client).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "the answer is\nno"));
    let line = served.until_logged("call refused").await;
    assert_eq!(line["code"], "FailedPrecondition");
    assert_eq!(line["error"], "the answer is\nno");
    assert!(line["milliseconds"].is_u64(), "{line}");
    assert_eq!(line["span"]["rpc"], "Probe");
    let id = line["span"]["id"].as_str().unwrap().to_owned();
    drop(served.log.take());
    probe(&mut client).await.unwrap_err();
    let line = served.until_logged("call refused").await;
    assert_ne!(line["span"]["id"], id, "ids do not repeat");
}

#[tokio::test]
async fn a_panic_in_a_call_harms_no_other_one() {
    let service = Slow::default();
    let (called, allowed) = (Arc::clone(&service.called), Arc::clone(&service.allowed));
    let served = Served::start(service).await;
    let mut client = served.client().await;
    let mut waiting = client.clone();
    let mut waits = background(async move {
        let request = GetPluginCapabilitiesRequest {};
        waiting
            .call::<_, GetPluginCapabilitiesResponse>(
                "/csi.v1.Identity/GetPluginCapabilities",
                request,
            )
            .await
    });
    called.notified().await;
    let request = GetPluginInfoRequest {};
    let broken =
        client.call::<_, GetPluginInfoResponse>("/csi.v1.Identity/GetPluginInfo", request).await;
    broken.unwrap_err();
    assert_eq!(probe(&mut client).await.unwrap_err().code(), Code::FailedPrecondition);
    allowed.notify_one();
    waits.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_call_may_finish_when_the_program_ends_and_nobody_can_call_any_more() {
    let service = Slow::default();
    let (called, allowed) = (Arc::clone(&service.called), Arc::clone(&service.allowed));
    let mut served = Served::start(service).await;
    let mut client = served.client().await;
    let socket = served.socket();
    let mut waits = background(async move {
        let method = "/csi.v1.Identity/GetPluginCapabilities";
        let request = GetPluginCapabilitiesRequest {};
        client.call::<_, GetPluginCapabilitiesResponse>(method, request).await
    });
    called.notified().await;
    drop(served.stop);
    let gone = until("the socket is removed", BOUND, || async {
        Ok(if socket.exists() { Wait::NotYet(String::new()) } else { Wait::Done(()) })
    });
    gone.await.unwrap();
    allowed.notify_one();
    waits.join_next().await.unwrap().unwrap().unwrap();
    served.running.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_caller_that_gives_up_is_logged() {
    let service = Slow::default();
    let called = Arc::clone(&service.called);
    let served = Served::start(service).await;
    let mut client = served.client().await;
    let method = "/csi.v1.Identity/GetPluginCapabilities";
    let call =
        client.call::<_, GetPluginCapabilitiesResponse>(method, GetPluginCapabilitiesRequest {});
    tokio::select! {
        _ = call => panic!("it was not allowed to"),
        () = called.notified() => {}
    }
    let line = served.until_logged("call given up by its caller").await;
    assert_eq!(line["span"]["rpc"], "GetPluginCapabilities");
}

#[tokio::test]
async fn connections_that_hang_keep_nobody_from_calling() {
    let served = Served::start(rpc::Identity::default()).await;
    let mut idle = Vec::new();
    for _ in 0..150 {
        idle.push(UnixStream::connect(served.socket()).await.unwrap());
    }
    let called = async { probe(&mut served.client().await).await };
    tokio::time::timeout(BOUND, called).await.unwrap().unwrap();
}

async fn bind(path: &Path) -> Result<Server, String> {
    Server::bind(path, Services::default()).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_socket_is_for_its_owner_and_group_and_a_stale_one_is_replaced() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("csi.sock");
    // What a process leaves that is killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = bind(&path).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let is_found = server.is_found();
    let (stop, asked) = shutdown();
    let mut running = background(server.run(asked));
    let refused = bind(&path).await.err().unwrap();
    assert!(refused.contains("another process serves there"), "{refused}");
    // Somebody else's socket is left alone.
    assert!(is_found());
    fs::remove_file(&path).unwrap();
    let successor = bind(&path).await.unwrap();
    assert!(!is_found());
    drop(stop);
    running.join_next().await.unwrap().unwrap().unwrap();
    assert!(path.exists());
    drop(successor);
    assert!(!path.exists());
}

#[tokio::test]
async fn the_socket_of_a_process_that_does_not_answer_is_taken() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("csi.sock");
    // A process that waits for a disk: killed, not gone, and its socket takes connections until its backlog is full.
    for is_full in [false, true] {
        let predecessor = UnixSocket::new_stream().unwrap();
        predecessor.bind(&path).unwrap();
        // A longer one would need more files than ordinary users may open.
        let _predecessor = predecessor.listen(4).unwrap();
        let mut waiting = Vec::new();
        while is_full && let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
        }
        let successor = bind(&path).await.unwrap();
        assert!(successor.is_found()());
        drop(successor);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_served_is_refused_with_its_reason() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("precious");
    fs::write(&file, "data").unwrap();
    let long = directory.path().join("x".repeat(120));
    for (path, text) in [
        (file.clone(), "something else than a socket"),
        (directory.path().join("missing/csi.sock"), "is not a directory"),
        (file.join("csi.sock"), "is not a directory"),
        (long, "use a shorter one"),
    ] {
        let refused = bind(&path).await.err().unwrap();
        assert!(refused.contains(text) && refused.contains("cannot serve at"), "{refused}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "data");
}

/// The kind of the first frame that is of one of these kinds.
async fn first_frame(stream: &mut UnixStream, kinds: &[u8]) -> u8 {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        if kinds.contains(&head[3]) {
            return head[3];
        }
    }
}

#[tokio::test]
async fn kubelets_which_send_a_path_as_authority_are_answered() {
    let served = Served::start(rpc::Identity::default()).await;
    let mut stream = UnixStream::connect(served.socket()).await.unwrap();
    stream.write_all(&super::authority::tests::recorded()).await.unwrap();
    // Headers, or a reset.
    let first = tokio::time::timeout(BOUND, first_frame(&mut stream, &[1, 3])).await;
    assert_eq!(first.unwrap(), 1);
}
