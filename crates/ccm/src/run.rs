//! The cloud controller manager as one call: a site per vCenter, the controller of Nodes, and their end.

use std::{collections::BTreeMap, time::Duration};

use cloud_config::Config;
use daemon::{admin::Checks, events::recorder, supervise::Shutdown};
use jiff::SignedDuration;
use kube::Client;
use tokio::task::{JoinError, JoinSet};

use crate::{
    addresses,
    args::Controllers,
    controller::{self, Apply, Controller, Hand},
    credentials, health, lifecycle,
    metrics::Metrics,
    node,
    site::{Sessions, site},
    zones::{Categories, Policy},
};

/// What events name as their source.
const COMPONENT: &str = "cloud-node-controller";

/// How the manager runs, beside what the configuration says.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether decisions are written.
    pub apply: Apply,
    /// Where this process runs, for events.
    pub host: String,
    /// Where to count.
    pub metrics: Metrics,
    /// Where it is said how each vCenter stands.
    pub checks: Checks,
    /// Where connections are, should this not be let finish.
    pub sessions: Sessions,
    /// Which controllers run.
    pub controllers: Controllers,
    /// How often lifecycle is looked at.
    pub lifecycle_every: Duration,
    /// Labels for every Node that is initialised.
    pub labels: BTreeMap<String, String>,
    /// When Nodes are tainted and deleted.
    pub lifecycle: lifecycle::Settings,
    /// What happens when zones change later.
    pub zones: Policy,
    /// Whether Nodes get labels that say their host, cluster and datacenter.
    pub place_labels: bool,
    /// Whether Nodes without provider id are initialised although nobody tainted them.
    pub adopt: bool,
    /// How long a vCenter may be silent before Nodes say so.
    pub patience: SignedDuration,
    /// How long a guest must tell the same before it is believed against what a Node has.
    pub steady_after: SignedDuration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            apply: Apply::default(),
            host: String::new(),
            metrics: Metrics::default(),
            checks: Checks::default(),
            sessions: Sessions::default(),
            controllers: Controllers::default(),
            lifecycle_every: Duration::from_secs(5),
            labels: BTreeMap::new(),
            lifecycle: lifecycle::Settings::default(),
            zones: Policy::default(),
            place_labels: false,
            adopt: false,
            patience: SignedDuration::from_mins(2),
            steady_after: SignedDuration::from_mins(1),
        }
    }
}

/// Why the manager ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A task ended early.
    #[error("a task of the cloud controller manager ended")]
    Task(#[source] Option<JoinError>),
}

/// Runs the cloud controller manager until `shutdown`. When it returns, all sessions are logged out.
///
/// # Errors
/// When one of its tasks ends without having been asked to.
pub async fn run(
    client: Client,
    config: &Config,
    options: Options,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let mut tasks = JoinSet::new();
    let logins = credentials::follow(&client, config, &mut tasks, &shutdown);
    let mut views = Vec::new();
    for (vcenter, login) in config.vcenters.iter().zip(logins) {
        let (metrics, sessions) = (options.metrics.vsphere.clone(), options.sessions.clone());
        let (site, view) = site(vcenter.clone(), &config.labels, login, metrics, sessions);
        tasks.spawn(site.run(shutdown.clone()));
        views.push(view);
    }
    let snapshots = views.iter().map(|view| view.snapshot.clone()).collect();
    let (checks, metrics) = (options.checks.clone(), options.metrics.clone());
    tasks.spawn(health::report(snapshots, checks, metrics, shutdown.clone()));
    let (recorder, writer) = recorder(client.clone(), COMPONENT, &options.host);
    tasks.spawn(writer.run(shutdown.clone()));
    let settings = settings(config, &options);
    let hand = Hand::new(client, options.apply, recorder, options.metrics);
    let controller = Controller::new(hand, views, settings);
    let early = tokio::select! {
        () = controller.run(&shutdown) => None,
        joined = tasks.join_next() => joined,
    };
    let died = early.and_then(Result::err);
    if died.is_some() || !shutdown.is_requested() {
        return Err(RunError::Task(died));
    }
    while let Some(joined) = tasks.join_next().await {
        if let Err(error) = joined {
            return Err(RunError::Task(Some(error)));
        }
    }
    Ok(())
}

fn settings(config: &Config, options: &Options) -> controller::Settings {
    let families = config.vcenters.iter().map(|one| (one.name.clone(), one.ip_families.clone()));
    let addresses = addresses::Settings {
        families: families.collect(),
        internal: config.nodes.internal.clone(),
        external: config.nodes.external.clone(),
    };
    controller::Settings {
        node: node::Settings {
            addresses,
            zones: options.zones,
            labels: options.labels.clone(),
            place_labels: options.place_labels,
            adopt: options.adopt,
            patience: options.patience,
        },
        lifecycle: options.lifecycle.clone(),
        categories: Categories {
            zone: config.labels.zone.clone(),
            region: config.labels.region.clone(),
        },
        steady_after: options.steady_after,
        controllers: options.controllers,
        lifecycle_every: options.lifecycle_every,
    }
}
