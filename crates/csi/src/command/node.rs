//! A node: its disks become volumes of pods.

use std::sync::Arc;

use daemon::{
    admin::{Checks, Weight},
    client::InvalidKubernetes,
    supervise::Supervisor,
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::{Failure, GRACE, serve_health};
use crate::{
    args::{self, PROGRAM, Settings},
    machine::Machine,
    node::Node,
    proto::{identity_server::IdentityServer, node_server::NodeServer},
    registration,
    rpc::{Identity, NodeService},
    serve::{Server, Services},
    topology::NodeTopology,
};

pub(super) async fn work(settings: Settings, node: args::Node) -> Result<(), Failure> {
    let client = client(&settings).await?;
    if node.name.is_none() {
        warn!("the variable NODE_NAME is missing; this node reports the default number of volumes");
    }
    // Who the VM is will be found out when the kubelet asks: the API may not answer, and nothing else needs it.
    let api = client.zip(node.name);
    let again = Arc::new(Notify::new());
    let topology =
        NodeTopology::new(api.clone(), node.registration.as_ref().map(|_| Arc::clone(&again)));
    let machine = Machine::new(api);
    let services = Services::default()
        .with(IdentityServer::new(Identity::default()))
        .with(NodeServer::new(NodeService::new(Node::default(), machine, topology.clone())));
    let mut tasks = Supervisor::new()?;
    let server = Server::bind(&settings.endpoint, services).await?;
    let checks = Checks::default();
    serve_health(&settings, &checks, Registry::default(), &mut tasks).await?;
    tasks.work.spawn("grpc", |shutdown| server.run(shutdown));
    if let Some(paths) = node.registration {
        let check = checks.register("registration", Weight::Readiness);
        tasks
            .work
            .spawn("registration", |shutdown| registration::keep(paths, check, again, shutdown));
        tasks.work.spawn("topology", |shutdown| topology.follow(shutdown));
    }
    Ok(tasks.run(GRACE).await?)
}

/// The API, if there is one: volumes are mounted without it too.
async fn client(settings: &Settings) -> Result<Option<Client>, Failure> {
    match settings.kubernetes.client(PROGRAM).await {
        Ok(client) => Ok(Some(client)),
        Err(InvalidKubernetes::NoPod(reason)) => {
            info!(reason, "working without the Kubernetes API");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
