//! Registers the driver with the kubelet, as the external registrar does.
//!
//! The kubelet watches a directory for sockets. At each it calls `GetInfo`, then the node service at the endpoint it
//! got there, and reports how that went by `NotifyRegistrationStatus`. If it went wrong, the socket is offered again
//! after a pause, and a check tells people: the process goes on, because it may be formatting a disk. It is offered
//! again, too, when the answers of the node service changed.
//!
//! The kubelet forgets a driver whose socket is removed, so it is made again if somebody else removed it.

#[rustfmt::skip]
mod proto;

use std::{future::pending, path::PathBuf, sync::Arc, time::Duration};

use daemon::{
    admin::Check,
    supervise::{self, Shutdown},
};
use tokio::{
    sync::{Notify, mpsc},
    time::sleep,
};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use self::proto::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::{Registration, RegistrationServer},
};
use crate::{
    DRIVER, args,
    serve::{CannotServe, Server, Services},
};

/// How often the socket is looked for.
const PERIOD: Duration = Duration::from_secs(5);
/// How long to wait after a refusal: longer each time, and not longer than a person waits.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// The version of CSI that kubelets look for.
const VERSION: &str = "1.0.0";

/// The driver is not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRegistered {
    #[error(transparent)]
    Socket(#[from] CannotServe),
    #[error("cannot serve the registration")]
    Io(#[from] std::io::Error),
}

/// Keeps the driver registered until `shutdown`, which ends the registration too. `again` has it registered anew.
pub(crate) async fn keep(
    paths: args::Registration,
    check: Check,
    again: Arc<Notify>,
    shutdown: Shutdown,
) -> Result<(), NotRegistered> {
    let args::Registration { endpoint, directory } = paths;
    let socket = directory.join(format!("{DRIVER}-reg.sock"));
    let (answers, mut answered) = mpsc::channel(1);
    let service = Service { endpoint, answers };
    let [shortest, longest] = PAUSES;
    let mut pause = shortest;
    while !shutdown.is_requested() {
        let services = Services::default().with(RegistrationServer::new(service.clone()));
        let server = Server::bind(&socket, services).await?;
        let is_found = server.is_found();
        let lost = async {
            while is_found() {
                sleep(PERIOD).await;
            }
        };
        let (stop, asked) = supervise::shutdown();
        let mut running = Box::pin(server.run(asked));
        let refused = async {
            loop {
                match answered.recv().await {
                    Some(Err(problem)) => return problem,
                    Some(Ok(())) => {
                        check.pass("");
                        pause = shortest;
                    }
                    None => pending().await,
                }
            }
        };
        let refusal = tokio::select! {
            ended = &mut running => return Ok(ended?),
            () = shutdown.requested() => None,
            () = lost => {
                warn!(socket = %socket.display(), "registration socket was removed; making it again");
                None
            }
            () = again.notified() => None,
            problem = refused => Some(problem),
        };
        drop(stop);
        // The kubelet gets its answer first.
        running.await?;
        if let Some(problem) = refusal {
            warn!(
                error = problem,
                seconds = pause.as_secs(),
                "driver not registered; trying again"
            );
            check.fail(format!("the kubelet refused the driver: {problem}"));
            tokio::select! {
                _ = shutdown.unless(sleep(pause)) => {}
                () = again.notified() => {}
            }
            pause = (2 * pause).min(longest);
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Service {
    endpoint: PathBuf,
    answers: mpsc::Sender<Result<(), String>>,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(
        &self,
        _request: Request<InfoRequest>,
    ) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER.to_owned(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec![VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let answer = if status.plugin_registered {
            info!("driver registered with the kubelet");
            Ok(())
        } else {
            Err(status.error)
        };
        // Nobody takes it any more when the program ends.
        self.answers.send(answer).await.unwrap_or_default();
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use daemon::{
        admin::{Checks, Weight},
        supervise::Stop,
    };
    use lab::{Wait, until};
    use tempfile::TempDir;
    use tokio::task::JoinSet;

    use super::*;
    use crate::client::Client;

    /// Generous: the machine may be busy with other things.
    const BOUND: Duration = Duration::from_secs(60);
    const ENDPOINT: &str = "/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock";

    fn start(directory: &Path, checks: &Checks) -> (Stop, JoinSet<Result<(), NotRegistered>>) {
        start_with(directory, checks, Arc::default())
    }

    fn start_with(
        directory: &Path,
        checks: &Checks,
        again: Arc<Notify>,
    ) -> (Stop, JoinSet<Result<(), NotRegistered>>) {
        let (stop, asked) = supervise::shutdown();
        let paths =
            args::Registration { endpoint: ENDPOINT.into(), directory: directory.to_owned() };
        let mut running = JoinSet::new();
        let check = checks.register("registration", Weight::Readiness);
        running.spawn(keep(paths, check, again, asked));
        (stop, running)
    }

    /// Connects as soon as the socket is there, as a kubelet does.
    async fn connect(directory: &Path) -> Client {
        let socket = directory.join("csi.vsphere.vmware.com-reg.sock");
        let connected = until("the registration is served", BOUND, || async {
            Ok(match Client::connect(&socket).await {
                Ok(client) => Wait::Done(client),
                Err(error) => Wait::NotYet(error.to_string()),
            })
        });
        connected.await.unwrap()
    }

    async fn notify(client: &mut Client, error: &str) {
        let status =
            RegistrationStatus { plugin_registered: error.is_empty(), error: error.to_owned() };
        let method = "/pluginregistration.Registration/NotifyRegistrationStatus";
        client.call::<_, RegistrationStatusResponse>(method, status).await.unwrap();
    }

    #[tokio::test]
    async fn a_kubelet_learns_name_and_endpoint_and_the_socket_goes_at_the_end() {
        let directory = TempDir::new().unwrap();
        let (stop, mut running) = start(directory.path(), &Checks::default());
        let mut client = connect(directory.path()).await;
        let method = "/pluginregistration.Registration/GetInfo";
        let info: PluginInfo = client.call(method, InfoRequest {}).await.unwrap();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER));
        assert_eq!(
            (info.endpoint.as_str(), info.supported_versions),
            (ENDPOINT, vec!["1.0.0".to_owned()])
        );
        notify(&mut client, "").await;
        drop(stop);
        running.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn after_a_refusal_the_driver_is_offered_again_and_a_check_tells_why() {
        let directory = TempDir::new().unwrap();
        let checks = Checks::default();
        let (stop, mut running) = start(directory.path(), &checks);
        let socket = directory.path().join("csi.vsphere.vmware.com-reg.sock");
        notify(&mut connect(directory.path()).await, "no such file or directory").await;
        let gone = until("the socket is taken away", BOUND, || async {
            Ok(if socket.exists() { Wait::NotYet(String::new()) } else { Wait::Done(()) })
        });
        gone.await.unwrap();
        let told = async |text: &str| {
            let waited = until(text, BOUND, || async {
                let report = format!("{checks:?}");
                Ok(if report.contains(text) { Wait::Done(()) } else { Wait::NotYet(report) })
            });
            waited.await.unwrap();
        };
        told("the kubelet refused the driver: no such file or directory").await;
        notify(&mut connect(directory.path()).await, "").await;
        told("standing: Ok(").await;
        drop(stop);
        running.join_next().await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn when_the_answers_of_the_node_change_the_driver_is_offered_again() {
        let directory = TempDir::new().unwrap();
        let again = Arc::new(Notify::new());
        let (_stop, _running) =
            start_with(directory.path(), &Checks::default(), Arc::clone(&again));
        let mut first = connect(directory.path()).await;
        notify(&mut first, "").await;
        let socket = directory.path().join("csi.vsphere.vmware.com-reg.sock");
        let made = || std::fs::metadata(&socket).and_then(|found| found.modified()).ok();
        let before = made();
        again.notify_one();
        until("the socket is a new one", BOUND, || async {
            let now = made().filter(|now| Some(*now) != before);
            Ok(now.map_or(Wait::NotYet("it is the old one".to_owned()), Wait::Done))
        })
        .await
        .unwrap();
        notify(&mut connect(directory.path()).await, "").await;
    }

    #[tokio::test]
    async fn a_socket_that_somebody_removed_is_made_again() {
        let directory = TempDir::new().unwrap();
        let (_stop, _running) = start(directory.path(), &Checks::default());
        connect(directory.path()).await;
        std::fs::remove_file(directory.path().join("csi.vsphere.vmware.com-reg.sock")).unwrap();
        notify(&mut connect(directory.path()).await, "").await;
    }
}
