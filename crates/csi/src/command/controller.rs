//! The controller: volumes of the cluster.
//!
//! ```text
//!   configuration ─► cluster id ─► vCenters, followed ─┬─► Sites ─► Volumes ─┬─ gRPC
//!        └── changes: vcenters.rs                      │                     └─ attach controller, under its lease
//!                                                      └─► topology controller, under its lease
//! ```
//!
//! gRPC is served from the start to the end. While no configuration is in force, calls are Unavailable.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use cloud_config::{CsiConfig, Problems, Reader};
use daemon::{
    admin::{Checks, Weight},
    events::{Recorder, recorder},
    lease::{self, Elector, Leadership, Timing},
    reload::{self, Contents},
    supervise::{self, Shutdown, Supervisor},
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tracing::{info, warn};
use vcenter::Sessions;
use vsphere::proxy::Proxy;

use super::{Failure, kubernetes, serve_health, vcenters::Run};
use crate::{
    args::{self, ConfigFile, Environment, PROGRAM, Settings},
    attach,
    metrics::Metrics,
    proto::{controller_server::ControllerServer, identity_server::IdentityServer},
    rpc::{ControllerService, Identity},
    serve::{CannotServe, Server, Services},
    topology,
    volumes::{Sites, Volumes, journal::Journal, nodes, volume_infos::VolumeInfos},
};

/// How long tasks, and then operations, may take to end: together with logging out less than a pod has, 30 seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(12);
const FINISHES_WITHIN: Duration = Duration::from_secs(5);
/// What events name as their source.
const COMPONENT: &str = "vsphere-csi-controller";

pub(super) async fn work(
    settings: Settings,
    controller: args::Controller,
    environment: Environment,
) -> Result<(), Failure> {
    let path = controller.config.path().to_owned();
    let (files, config) = reload::files(vec![path], parser(controller.config, environment.clone()));
    let (is_zoned, zoned) = watch::channel(!config.usable()?.topology.is_empty());
    let client = settings.kubernetes.client(PROGRAM).await?;
    let mut registry = Registry::default();
    let metrics = Metrics::registered(&mut registry);
    let checks = Checks::default();
    let mut tasks = Supervisor::new()?;
    tasks.work.spawn("configuration", |shutdown| files.follow(shutdown));

    let (asked, check) = (client.clone(), kubernetes::check(&checks));
    tasks.work.spawn("kubernetes", |shutdown| kubernetes::report(asked, check, shutdown));
    let (csinodes, nodes) = nodes::follow(client.clone());
    tasks.work.spawn("csinodes", |shutdown| csinodes.run(shutdown));
    let journal = Journal::new(client.clone(), &settings.namespace);
    let volume_infos = VolumeInfos::new(client.clone(), &settings.namespace);
    let followed = volume_infos.clone();
    tasks.work.spawn("volume-infos", |shutdown| followed.follow(shutdown));
    let (publish, sites) = watch::channel(Sites::default());
    let records = (journal.clone(), volume_infos);
    let volumes = Volumes::new(sites, nodes, records, controller.settle, controller.overcommit);
    let service = ControllerService::new(volumes.clone(), metrics.clone());
    let mut grpc = Grpc { endpoint: settings.endpoint.clone(), service, is_zoned: zoned };
    let server = grpc.bind().await?;
    let me = lease::identity()?;
    let (events, writer) = recorder(client.clone(), COMPONENT, &me);
    tasks.foundation.spawn("events", |shutdown| writer.run(shutdown));
    let namespace = &settings.namespace;
    let leases = Leases { client: &client, namespace, me, events, checks: &checks };
    let attaching = controller.attach.then(|| (volumes.clone(), metrics.clone()));
    let topology = leases.lead(attaching, &mut registry, &mut tasks);
    serve_health(&settings, &checks, registry, &mut tasks).await?;
    tasks.work.spawn("grpc", |shutdown| grpc.serve(server, shutdown));
    let proxy = Proxy::from_variables(|name| environment.get(name).cloned());
    let sessions = Sessions::through(proxy);
    let run = Run {
        client,
        namespace: settings.namespace,
        config,
        metrics,
        check: checks.register("cluster-id", Weight::Readiness),
        checks,
        sessions: sessions.clone(),
        journal,
        publish,
        topology,
        is_zoned,
    };
    tasks.work.spawn("vcenter", |shutdown| run.run(shutdown));
    let ended = tasks.run(ENDS_WITHIN).await;
    if ended.is_err() {
        // The lease may be lost: what still runs must not reach vCenter any more.
        sessions.close().await;
    }
    volumes.finish(FINISHES_WITHIN).await;
    sessions.close().await;
    Ok(ended?)
}

/// What is served at the socket.
struct Grpc {
    endpoint: PathBuf,
    service: ControllerService,
    /// Whether zones are configured.
    is_zoned: watch::Receiver<bool>,
}

impl Grpc {
    async fn bind(&mut self) -> Result<Server, CannotServe> {
        let is_zoned = *self.is_zoned.borrow_and_update();
        let services = Services::default()
            .with(IdentityServer::new(Identity { is_zoned }))
            .with(ControllerServer::new(self.service.clone()));
        Server::bind(&self.endpoint, services).await
    }

    /// Serves until `shutdown`. When zones are added to the configuration or removed from it, connections are closed:
    /// sidecars read the capabilities of a driver when they start, and end at the next call after they lost their connection.
    async fn serve(mut self, mut server: Server, shutdown: Shutdown) -> Result<(), Failure> {
        loop {
            let (stop, requested) = supervise::shutdown();
            let mut running = Box::pin(server.run(requested));
            let is_over = tokio::select! {
                ended = &mut running => return Ok(ended?),
                () = shutdown.requested() => true,
                Ok(()) = self.is_zoned.changed() => false,
            };
            drop(stop);
            running.await?;
            if is_over {
                return Ok(());
            }
            info!(
                zones = *self.is_zoned.borrow(),
                "capabilities changed; sidecars have to connect again"
            );
            server = self.bind().await?;
        }
    }
}

/// The leases under which parts of the controller work.
struct Leases<'a> {
    client: &'a Client,
    namespace: &'a str,
    me: String,
    events: Recorder,
    checks: &'a Checks,
}

impl Leases<'_> {
    /// Starts what works under a lease. Returns where zones learn of the configuration and the vCenters.
    fn lead(
        &self,
        attaching: Option<(Volumes, Metrics)>,
        registry: &mut Registry,
        tasks: &mut Supervisor,
    ) -> watch::Sender<topology::World> {
        if let Some((volumes, metrics)) = attaching {
            let client = self.client.clone();
            let (leadership, events) = self.stand(attach::LEASE, "leaderElection", registry, tasks);
            tasks.work.spawn("attach", |shutdown| {
                attach::run(client, volumes, leadership, events, metrics, shutdown)
            });
        }
        let (topology, worlds) = watch::channel(topology::World::default());
        let client = self.client.clone();
        let (leadership, events) = self.stand(topology::LEASE, "topologyLease", registry, tasks);
        tasks.work.spawn("topology", |shutdown| {
            topology::run(client, worlds, leadership, events, shutdown)
        });
        topology
    }

    /// Stands for election, and returns what the work under the lease needs.
    fn stand(
        &self,
        lease: &str,
        check: &str,
        registry: &mut Registry,
        tasks: &mut Supervisor,
    ) -> (Leadership, Recorder) {
        let timing = Timing::default();
        let elector =
            Elector::new(self.client.clone(), self.namespace, lease, self.me.clone(), timing);
        let elector = elector.with_events(self.events.clone());
        elector.register(registry);
        let leadership = elector.leadership();
        let (reported, check) = (leadership.clone(), self.checks.register(check, Weight::Life));
        tasks.foundation.spawn(&format!("lease/{lease}"), |shutdown| elector.run(shutdown));
        tasks.work.spawn(&format!("lease-check/{lease}"), |shutdown| {
            lease::report(reported, check, shutdown)
        });
        (leadership, self.events.clone())
    }
}

/// Why a file is not a configuration of this program.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidConfig {
    #[error("the file is missing or the directory is empty")]
    NoFile,
    #[error(transparent)]
    Contents(#[from] Problems),
}

/// A parser of configurations that logs their warnings.
fn parser(
    file: ConfigFile,
    environment: Environment,
) -> impl Fn(&Contents) -> Result<CsiConfig, InvalidConfig> + Send + Sync + 'static {
    move |contents| {
        let (path, bytes) = contents.iter().next().ok_or(InvalidConfig::NoFile)?;
        let reader = Reader {
            strict: false,
            environment: environment.clone(),
            secrets_directory: secrets_directory(),
            ignore_load_balancing: true,
        };
        let name = path.display().to_string();
        let accepted = match file {
            ConfigFile::Own(_) => reader.read_csi(&name, bytes)?,
            ConfigFile::Shared(_) => reader.read_shared(&name, bytes)?,
        };
        for warning in &accepted.warnings {
            warn!(%warning, "configuration warning");
        }
        Ok(accepted.config)
    }
}

/// The directory with credentials when the configuration names none, as for the cloud controller manager.
fn secrets_directory() -> Option<PathBuf> {
    let directory = Path::new("/etc/cloud/secrets");
    directory.is_dir().then(|| directory.to_owned())
}
