//! Zones of nodes: how a node, which has no access to vCenter, learns the labels of its topology.
//!
//! ```text
//!   node pod     NodeGetInfo ─► CSINodeTopology: nodeID, nodeuuid
//!                               CSINodeTopology: status ─► accessible topology ─► kubelet: CSINode and labels of the Node
//!   controller   CSINodeTopologies ─┐
//!                vCenters: tags ────┼─► plan (pure) ─► status: Success with labels, or Error with the reason
//!                the Node's labels ─┘             └──► events on the Node
//! ```
//!
//! The custom resource is the Go driver's, whose objects are used as they are. The controller works under the lease of the
//! Go driver's syncer, so that never both answer.
//!
//! What never happens:
//! - a label that the Node has is contradicted: the kubelet would refuse to register the driver. What the tags say
//!   instead is an event on the Node;
//! - a change that leaves volumes without any node that may use them;
//! - an answer that depends on another node: one that cannot be placed hinders nobody else.

mod affinity;
mod answers;
mod controller;
mod node;
mod place;
mod plan;
mod record;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use cloud_config::{CsiConfig, TopologyCategory};
use daemon::{
    events::Recorder,
    lease::{self, Leadership},
    permissions::{Permission, Scope},
    supervise::Shutdown,
};
use kube::Client;
use tokio::sync::watch;

pub use self::node::NodeTopology;
use self::{answers::Answers, controller::Controller, record::PLURAL};
use crate::volumes::Site;

/// The lease of the Go driver's syncer, which answers there.
pub(crate) const LEASE: &str = "vsphere-syncer";

/// Labels by their keys.
pub(crate) type Labels = BTreeMap<String, String>;

/// By what zones are decided. Nothing while no configuration is in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    /// The categories of the configuration in force.
    rules: Option<Arc<Rules>>,
    vcenters: Arc<[Arc<Site>]>,
    /// Servers that are about to be followed, or not any more.
    changing: Arc<[String]>,
}

/// What the configuration says about zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) categories: Vec<TopologyCategory>,
    pub(crate) nearest: bool,
}

impl World {
    pub(crate) fn new(config: &CsiConfig, vcenters: impl IntoIterator<Item = Arc<Site>>) -> Self {
        let rules = Rules { categories: config.topology.clone(), nearest: config.nearest_tag };
        Self {
            rules: Some(Arc::new(rules)),
            vcenters: vcenters.into_iter().collect(),
            changing: Arc::default(),
        }
    }

    /// The same, while these servers are being followed anew or given up.
    pub(crate) fn while_changing(self, servers: impl IntoIterator<Item = String>) -> Self {
        Self { changing: servers.into_iter().collect(), ..self }
    }
}

/// Answers nodes from the moment this process leads until `shutdown`.
pub(crate) async fn run(
    client: Client,
    world: watch::Receiver<World>,
    leadership: Leadership,
    events: Recorder,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    if shutdown.unless(leadership.acquired()).await.is_none() {
        return Ok(());
    }
    Controller::new(Answers::new(&client, leadership), events, world).run(shutdown).await
}

/// What the controller calls, with its lease in `namespace`.
pub(crate) fn permissions(namespace: &str) -> Vec<Permission> {
    let all =
        |group, resource, verbs: &[&str]| Permission::new(Scope::Cluster, (group, resource), verbs);
    let mut permissions = vec![
        all(record::GROUP, PLURAL, &["get", "list", "watch", "update"]),
        all("", "nodes", &["get"]),
        all("", "persistentvolumes", &["list"]),
    ];
    permissions.extend(lease::permissions(namespace, LEASE));
    permissions
}

/// What a node calls.
pub(crate) fn node_permissions() -> Vec<Permission> {
    let all =
        |group, resource, verbs: &[&str]| Permission::new(Scope::Cluster, (group, resource), verbs);
    vec![
        all(record::GROUP, PLURAL, &["get", "create", "patch", "watch"]),
        // The object belongs to the Node.
        all("", "nodes", &["get"]),
    ]
}
