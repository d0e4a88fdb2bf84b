//! Registers the driver with the kubelet, as the external registrar does.
//!
//! The kubelet watches a directory for sockets. At each it calls `GetInfo`, then the node service at the endpoint it
//! got there, and reports how that went by `NotifyRegistrationStatus`. If it went wrong the process ends: the next
//! one tries again, and until then the container's state tells people.
//!
//! The kubelet forgets a driver whose socket is removed, so it is made again if somebody else removed it.

#[rustfmt::skip]
mod proto;

use std::{path::PathBuf, time::Duration};

use daemon::supervise::{self, Shutdown};
use tokio::{sync::mpsc, time::sleep};
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
/// The version of CSI that kubelets look for.
const VERSION: &str = "1.0.0";

/// The driver is not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRegistered {
    #[error("the kubelet refused the driver: {0}")]
    Refused(String),
    #[error(transparent)]
    Socket(#[from] CannotServe),
    #[error("cannot serve the registration")]
    Io(#[from] std::io::Error),
}

/// Keeps the driver registered until `shutdown`, which ends the registration too.
pub(crate) async fn keep(
    paths: args::Registration,
    shutdown: Shutdown,
) -> Result<(), NotRegistered> {
    let args::Registration { endpoint, directory } = paths;
    let socket = directory.join(format!("{DRIVER}-reg.sock"));
    let (refusals, mut refused) = mpsc::channel(1);
    let service = Service { endpoint, refusals };
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
        let refusal = tokio::select! {
            ended = &mut running => return Ok(ended?),
            () = shutdown.requested() => None,
            () = lost => {
                warn!(socket = %socket.display(), "registration socket was removed; making it again");
                None
            }
            refusal = refused.recv() => refusal,
        };
        drop(stop);
        // The kubelet gets its answer first.
        running.await?;
        if let Some(problem) = refusal {
            return Err(NotRegistered::Refused(problem));
        }
    }
    Ok(())
}

#[derive(Clone)]
struct Service {
    endpoint: PathBuf,
    refusals: mpsc::Sender<String>,
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
        if status.plugin_registered {
            info!("driver registered with the kubelet");
        } else {
            warn!(error = status.error, "driver not registered");
            // Of several refusals the first one ends the process.
            self.refusals.try_send(status.error).unwrap_or_default();
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use daemon::supervise::Stop;
    use lab::{Wait, until};
    use tempfile::TempDir;
    use tokio::task::JoinSet;

    use super::*;
    use crate::client::Client;

    /// Generous: the machine may be busy with other things.
    const BOUND: Duration = Duration::from_secs(60);
    const ENDPOINT: &str = "/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock";

    fn start(directory: &Path) -> (Stop, JoinSet<Result<(), NotRegistered>>) {
        let (stop, asked) = supervise::shutdown();
        let paths =
            args::Registration { endpoint: ENDPOINT.into(), directory: directory.to_owned() };
        let mut running = JoinSet::new();
        running.spawn(keep(paths, asked));
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
        let (stop, mut running) = start(directory.path());
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
    async fn a_refusal_of_the_kubelet_ends_the_process_with_its_reason() {
        let directory = TempDir::new().unwrap();
        let (_stop, mut running) = start(directory.path());
        notify(&mut connect(directory.path()).await, "no such file or directory").await;
        let error = running.join_next().await.unwrap().unwrap().unwrap_err();
        let text = "the kubelet refused the driver: no such file or directory";
        assert_eq!(error.to_string(), text);
    }

    #[tokio::test]
    async fn a_socket_that_somebody_removed_is_made_again() {
        let directory = TempDir::new().unwrap();
        let (_stop, _running) = start(directory.path());
        connect(directory.path()).await;
        std::fs::remove_file(directory.path().join("csi.vsphere.vmware.com-reg.sock")).unwrap();
        notify(&mut connect(directory.path()).await, "").await;
    }
}
