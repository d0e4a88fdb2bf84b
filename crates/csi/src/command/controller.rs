//! The controller: volumes of the cluster.
//!
//! ```text
//!   configuration ─► cluster id ─► vCenters, followed ─► Sites ─► Volumes ─┬─ gRPC
//!        └── changes: vcenters.rs                                          └─ attach controller, under the lease
//! ```
//!
//! gRPC is served from the start to the end. While no configuration is in force, calls are Unavailable.

use std::{path::Path, time::Duration};

use cloud_config::{CsiConfig, Problems, Reader};
use daemon::{
    admin::{Checks, Weight},
    events::recorder,
    lease::{self, Elector, Timing},
    reload::{self, Contents},
    supervise::Supervisor,
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tracing::warn;
use vcenter::Sessions;
use vsphere::proxy::Proxy;

use super::{Failure, kubernetes, serve_health, vcenters::Run};
use crate::{
    args::{self, ConfigFile, Environment, PROGRAM, Settings},
    attach,
    metrics::Metrics,
    proto::{controller_server::ControllerServer, identity_server::IdentityServer},
    rpc::{ControllerService, Identity},
    serve::{Server, Services},
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
    config.usable()?;
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
    let services = Services::default()
        .with(IdentityServer::new(Identity))
        .with(ControllerServer::new(ControllerService::new(volumes.clone(), metrics.clone())));
    let server = Server::bind(&settings.endpoint, services).await?;
    if controller.attach {
        let context = (client.clone(), volumes.clone(), metrics.clone());
        attach(&settings, context, &checks, &mut registry, &mut tasks)?;
    }
    serve_health(&settings, &checks, registry, &mut tasks).await?;
    tasks.work.spawn("grpc", |shutdown| server.run(shutdown));
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

/// Starts the attach controller, which works while it holds the lease.
fn attach(
    settings: &Settings,
    (client, volumes, metrics): (Client, Volumes, Metrics),
    checks: &Checks,
    registry: &mut Registry,
    tasks: &mut Supervisor,
) -> Result<(), Failure> {
    let me = lease::identity()?;
    let (events, writer) = recorder(client.clone(), COMPONENT, &me);
    tasks.foundation.spawn("events", |shutdown| writer.run(shutdown));
    let elector =
        Elector::new(client.clone(), &settings.namespace, attach::LEASE, me, Timing::default());
    let elector = elector.with_events(events.clone());
    elector.register(registry);
    let leadership = elector.leadership();
    let (reported, check) = (leadership.clone(), checks.register("leaderElection", Weight::Life));
    tasks.foundation.spawn("lease", |shutdown| elector.run(shutdown));
    tasks.work.spawn("lease-check", |shutdown| lease::report(reported, check, shutdown));
    tasks.work.spawn("attach", |shutdown| {
        attach::run(client, volumes, leadership, events, metrics, shutdown)
    });
    Ok(())
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
        if !accepted.config.topology.is_empty() {
            warn!(
                "zones are configured and this version of the driver does not know them: volumes are made only on \
                 datastores that every node of their vCenter reaches"
            );
        }
        Ok(accepted.config)
    }
}

/// The directory with credentials when the configuration names none, as for the cloud controller manager.
fn secrets_directory() -> Option<std::path::PathBuf> {
    let directory = Path::new("/etc/cloud/secrets");
    directory.is_dir().then(|| directory.to_owned())
}
