//! The cloud controller manager under one configuration, as one call.

use std::time::Duration;

use cloud_config::Config;
use daemon::{
    admin::Checks,
    events::recorder,
    lease::Leadership,
    supervise::{Ended, Shutdown, Tasks},
};
use kube::Client;
use vcenter::{Interests, Sessions};

use crate::{
    apply::{Mode, NodeWriter},
    controller::{Controller, Memory},
    metrics::Metrics,
    observe::Observer,
    report::Reporter,
    settings::Settings,
};

/// What events name as their source.
const COMPONENT: &str = "cloud-node-controller";
/// How long tasks may take to end; logging out is bounded by less.
const GRACE: Duration = Duration::from_secs(15);

/// What a run shares with the process around it, and with the runs before and after it.
#[derive(Clone)]
pub struct Context {
    /// For all requests to the API server.
    pub client: Client,
    /// Whether plans are written or printed.
    pub mode: Mode,
    /// Asked before every write.
    pub leadership: Leadership,
    /// The name of this host, for events.
    pub host: String,
    /// What is counted.
    pub metrics: Metrics,
    /// Where the health of the vCenters is reported.
    pub checks: Checks,
    /// The connections of a run, for the case that it is aborted.
    pub sessions: Sessions,
    /// Kept over reloads of the configuration.
    pub memory: Memory,
}

impl Context {
    /// A context that writes without a lease; the fields are there to change that.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            mode: Mode::default(),
            leadership: Leadership::undisputed(),
            host: String::new(),
            metrics: Metrics::default(),
            checks: Checks::default(),
            sessions: Sessions::default(),
            memory: Memory::default(),
        }
    }
}

/// Runs the cloud controller manager until `shutdown`. When it returns, all sessions are logged out.
///
/// # Errors
/// When one of its tasks ends early, or has to be aborted.
pub async fn run(
    context: Context,
    config: &Config,
    settings: Settings,
    shutdown: Shutdown,
) -> Result<(), Ended> {
    let Context { client, mode, leadership, host, metrics, checks, sessions, memory } = context;
    let settings = settings.with(config);
    let mut tasks = Tasks::default();
    let categories = settings.categories.zone.iter().chain(&settings.categories.region);
    let interests = Interests { categories: categories.cloned().collect(), ..Interests::default() };
    let views = vcenter::follow(
        &client,
        &config.vcenters,
        &interests,
        &metrics.vsphere,
        &sessions,
        &mut tasks,
    );
    vcenter::report_health(&views, &checks, &metrics.vcenters, &mut tasks);
    let (recorder, events) = recorder(client.clone(), COMPONENT, &host);
    tasks.spawn("events", |shutdown| events.run(shutdown));
    let muted = matches!(mode, Mode::Print(_));
    let controller = Controller::new(
        Observer::new(views, settings.categories.clone(), settings.steady_after),
        NodeWriter::new(client, mode, leadership),
        Reporter::new(recorder, metrics, muted),
        settings,
        memory,
    );
    tasks.spawn("nodes", |shutdown| controller.run(shutdown));
    tokio::select! {
        ended = tasks.ended_early() => return Err(ended),
        () = shutdown.requested() => {}
    }
    tasks.stop(GRACE).await
}
