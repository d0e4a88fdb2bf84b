//! The cloud controller manager as one call: a site per vCenter, the controller of Nodes, and their end.

use std::collections::HashMap;

use cloud_config::{Config, CredentialSource, Login};
use daemon::{events::recorder, supervise::Shutdown};
use jiff::SignedDuration;
use kube::Client;
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

use crate::{
    addresses,
    controller::{self, Apply, Controller},
    lifecycle, node,
    site::site,
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
    /// Logins by name of the vCenter, for those whose credentials are not in the configuration. They may come
    /// later, and change.
    pub logins: HashMap<String, watch::Receiver<Option<Login>>>,
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
            logins: HashMap::new(),
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
    mut options: Options,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let mut tasks = JoinSet::new();
    let mut views = Vec::new();
    for vcenter in &config.vcenters {
        let login = match &vcenter.credentials {
            CredentialSource::Inline(inline) => {
                watch::channel(Some(Login::Password(inline.clone()))).1
            }
            // Without a login the site says that it waits for one.
            CredentialSource::Secret(_) | CredentialSource::Directory(_) => {
                let given = options.logins.remove(&vcenter.name);
                given.unwrap_or_else(|| watch::channel(None).1)
            }
        };
        let (site, view) = site(vcenter.clone(), &config.labels, login);
        tasks.spawn(site.run(shutdown.clone()));
        views.push(view);
    }
    let (recorder, writer) = recorder(client.clone(), COMPONENT, &options.host);
    tasks.spawn(writer.run(shutdown.clone()));
    let settings = settings(config, &options);
    let controller = Controller::new(client, views, settings, options.apply, recorder);
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
            labels: Default::default(),
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
    }
}
