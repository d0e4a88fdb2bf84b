//! The controller: volumes of the cluster.
//!
//! ```text
//!   configuration ─► cluster id ─► vCenter, followed ─► Site ─► Volumes ─┬─ gRPC
//!        └── changes: the next Site takes the place of the last one      └─ attach controller, under the lease
//! ```
//!
//! A change of user or password alone is taken in place: the session that works stays until the new ones do.
//!
//! gRPC is served from the start to the end. While no configuration is in force, calls are Unavailable.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use cloud_config::{CredentialSource, CsiConfig, Inline, Problems, Reader};
use daemon::{
    admin::{Check, Checks, Weight},
    events::recorder,
    lease::{self, Elector, Timing},
    reload::{self, Contents, Followed},
    supervise::{Shutdown, Supervisor, Tasks},
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{sync::watch, time::sleep};
use tracing::{info, warn};
use vcenter::{Interests, Sessions, StorageInterest};
use vsphere::proxy::Proxy;

use super::{Failure, GRACE, serve_health};
use crate::{
    args::{self, ConfigFile, Environment, PROGRAM, Settings},
    attach, cluster_id,
    metrics::Metrics,
    proto::{controller_server::ControllerServer, identity_server::IdentityServer},
    rpc::{ControllerService, Identity},
    serve::{Server, Services},
    volumes::{
        Site, Volumes,
        journal::{self, Journal},
        nodes,
    },
};

/// How long tasks, and then operations, may take to end: together with logging out less than a pod has, 30 seconds.
const ENDS_WITHIN: Duration = Duration::from_secs(12);
const FINISHES_WITHIN: Duration = Duration::from_secs(5);
/// What events name as their source.
const COMPONENT: &str = "vsphere-csi-controller";
/// How soon the cluster id is read again after the API server did not answer.
const RETRY: Duration = Duration::from_secs(2);
/// The same after the ConfigMap contradicted the configuration, until somebody deletes one of the two names.
const RETRY_LASTING: Duration = Duration::from_secs(30);

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

    let (csinodes, nodes) = nodes::follow(client.clone());
    tasks.work.spawn("csinodes", |shutdown| csinodes.run(shutdown));
    let journal = Journal::new(client.clone(), &settings.namespace);
    let (publish, sites) = watch::channel(None);
    let volumes =
        Volumes::new(sites, nodes, journal.clone(), controller.settle, controller.overcommit);
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
enum InvalidConfig {
    #[error("the file is missing or the directory is empty")]
    NoFile,
    #[error("it names {0} vCenters, and this version of the driver serves one; remove the others")]
    SeveralVCenters(usize),
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
                 datastores that every node reaches"
            );
        }
        match accepted.config.vcenters.len() {
            0 | 1 => Ok(accepted.config),
            several => Err(InvalidConfig::SeveralVCenters(several)),
        }
    }
}

/// The directory with credentials when the configuration names none, as for the cloud controller manager.
fn secrets_directory() -> Option<std::path::PathBuf> {
    let directory = Path::new("/etc/cloud/secrets");
    directory.is_dir().then(|| directory.to_owned())
}

/// Serves one configuration after the other.
struct Run {
    client: Client,
    namespace: String,
    config: Followed<CsiConfig, InvalidConfig>,
    metrics: Metrics,
    checks: Checks,
    check: Check,
    sessions: Sessions,
    journal: Journal,
    publish: watch::Sender<Option<Arc<Site>>>,
}

impl Run {
    async fn run(mut self, shutdown: Shutdown) -> Result<(), Failure> {
        while !shutdown.is_requested() {
            let now = self.config.usable()?;
            let mut tasks = Tasks::default();
            let follows = self.follow(&now, &mut tasks);
            match shutdown.unless(follows).await {
                None => break,
                Some(false) => continue,
                Some(true) => {}
            }
            let vcenters: Vec<_> = now.vcenters.iter().map(|one| one.vcenter.clone()).collect();
            let authorities = vcenter::authorities(&vcenters);
            let site = self.publish.borrow().clone();
            let logins = follow_login(self.config.clone(), &now, site.as_deref());
            let is_in_use = |next: &CsiConfig| *next == *now || new_login(&now, next).is_some();
            tokio::select! {
                ended = tasks.ended_early() => return Err(ended.into()),
                () = shutdown.requested() => {}
                never = logins => match never {},
                why = reload::replaced(&mut self.config, is_in_use, authorities) => {
                    info!(why, "configuration reloaded");
                }
            }
            self.publish.send_replace(None);
            tasks.stop(GRACE).await?;
        }
        Ok(())
    }

    /// Follows the vCenter of a configuration, and lets operations use it. Returns whether the configuration is still
    /// the current one.
    async fn follow(&mut self, config: &CsiConfig, tasks: &mut Tasks) -> bool {
        let Some(first) = config.vcenters.first() else { return true };
        let cluster = loop {
            let error = match cluster_id::find(&self.client, &self.namespace, config).await {
                Ok(cluster) => break cluster,
                Err(error) => error,
            };
            warn!(%error, "cluster id not known; no volume is served until it is");
            self.check.fail(error.to_string());
            let changed = async {
                while self.config.state().value.as_deref().is_none_or(|value| value == config) {
                    self.config.changed().await;
                }
            };
            let pause = if error.is_lasting() { RETRY_LASTING } else { RETRY };
            tokio::select! {
                () = changed => return false,
                () = sleep(pause) => {}
            }
        };
        self.check.pass(cluster.to_string());
        info!(cluster = %cluster, vcenter = first.vcenter.name, "serving volumes");
        let storage = Some(StorageInterest { auth_check: config.intervals.auth_check });
        let interests = Interests { storage, ..Interests::default() };
        let vcenters = [first.vcenter.clone()];
        vcenter::describe(&vcenters);
        let views = vcenter::follow(
            &self.client,
            &vcenters,
            &interests,
            &self.metrics.vsphere,
            &self.sessions,
            tasks,
        );
        vcenter::report_health(&views, &self.checks, &self.metrics.vcenters, tasks);
        let (journal, every) = (self.journal.clone(), config.intervals.operation_cleanup);
        tasks.spawn("journal", |shutdown| journal::keep_clean(journal, every, shutdown));
        for view in views {
            let distribution = config.cluster_distribution.as_deref();
            let site = Site::new(view, &first.vcenter.server, &cluster.to_string(), distribution);
            self.publish.send_replace(Some(Arc::new(site)));
        }
        true
    }
}

/// Takes credentials in place that alone differ from the configuration in use: a mistyped password must not end a
/// session that works.
async fn follow_login(
    mut config: Followed<CsiConfig, InvalidConfig>,
    now: &CsiConfig,
    site: Option<&Site>,
) -> Infallible {
    loop {
        let next = config.state().value.clone();
        let login = next.as_deref().and_then(|next| new_login(now, next));
        if let (Some(site), Some(login)) = (site, login) {
            site.replace_login(login);
        }
        config.changed().await;
    }
}

/// The credentials of a configuration, if it differs from the one in use in nothing else.
fn new_login<'a>(now: &CsiConfig, next: &'a CsiConfig) -> Option<&'a Inline> {
    let ([known], [new]) = (&*now.vcenters, &*next.vcenters) else { return None };
    let CredentialSource::Inline(login) = &new.vcenter.credentials else { return None };
    let source = &known.vcenter.credentials;
    let mut others = next.clone();
    for one in &mut others.vcenters {
        one.vcenter.credentials = source.clone();
    }
    (matches!(source, CredentialSource::Inline(_)) && others == *now).then_some(login)
}
