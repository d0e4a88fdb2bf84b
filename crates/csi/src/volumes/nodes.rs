//! Which nodes have the driver, and which VM each of them is: from the CSINodes of the cluster.

use std::{
    collections::{BTreeMap, HashSet},
    convert::Infallible,
    pin::pin,
    sync::Arc,
};

use daemon::{
    client,
    permissions::{Permission, Scope},
    supervise::Shutdown,
};
use futures::StreamExt;
use k8s_openapi::api::storage::v1::CSINode;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;
use vsphere::inventory::Uuid;

use crate::DRIVER;

/// The UUIDs of nodes by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeIds(Arc<BTreeMap<String, Uuid>>);

/// The nodes as they are now; nothing before they were read.
#[derive(Debug, Clone)]
pub(crate) struct Nodes(watch::Receiver<Option<NodeIds>>);

/// What the watch asks of the API server.
pub(crate) fn permissions() -> Vec<Permission> {
    let verbs = ["get", "list", "watch"];
    vec![Permission::new(Scope::Cluster, ("storage.k8s.io", "csinodes"), &verbs)]
}

impl NodeIds {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Uuid)> {
        self.0.iter().map(|(name, uuid)| (name.as_str(), *uuid))
    }

    /// The UUID of a node, which callers may name by either.
    pub(crate) fn uuid(&self, node: &str) -> Option<Uuid> {
        self.0.get(node).copied().or_else(|| node.parse().ok())
    }

    /// The name of the node with this UUID.
    pub(crate) fn name(&self, uuid: Uuid) -> Option<&str> {
        self.iter().find(|(_, known)| known.matches(uuid)).map(|(name, _)| name)
    }
}

impl FromIterator<(String, Uuid)> for NodeIds {
    fn from_iter<T: IntoIterator<Item = (String, Uuid)>>(nodes: T) -> Self {
        Self(Arc::new(nodes.into_iter().collect()))
    }
}

impl Nodes {
    /// Nothing before the first answer of the API server.
    pub(crate) fn current(&self) -> Option<NodeIds> {
        self.0.borrow().clone()
    }
}

/// The watch, to be run, and what it sees.
pub(crate) fn follow(client: Client) -> (Watch, Nodes) {
    let (sender, receiver) = watch::channel(None);
    (Watch { client, sender }, Nodes(receiver))
}

/// The watch of CSINodes.
pub(crate) struct Watch {
    client: Client,
    sender: watch::Sender<Option<NodeIds>>,
}

impl Watch {
    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: Shutdown) -> Result<(), Infallible> {
        let nodes = watcher(Api::<CSINode>::all(self.client), client::watch());
        let mut events = pin!(nodes.backoff(client::backoff()));
        let mut known: BTreeMap<String, Uuid> = BTreeMap::new();
        // Nodes of a list that is being read; those that are not in it are gone.
        let mut listed: Option<HashSet<String>> = None;
        while let Some(Some(event)) = shutdown.unless(events.next()).await {
            match event {
                Ok(watcher::Event::Init) => listed = Some(HashSet::new()),
                Ok(watcher::Event::InitApply(node)) => {
                    listed.get_or_insert_default().insert(node.name_any());
                    take(&mut known, &node);
                }
                Ok(watcher::Event::InitDone) => {
                    let listed = listed.take().unwrap_or_default();
                    known.retain(|name, _| listed.contains(name));
                }
                Ok(watcher::Event::Apply(node)) => take(&mut known, &node),
                Ok(watcher::Event::Delete(node)) => {
                    known.remove(&node.name_any());
                }
                Err(error) => {
                    tracing::warn!(%error, "watch of CSINodes failed; starting again");
                    continue;
                }
            }
            if listed.is_none() {
                self.sender.send_replace(Some(NodeIds(Arc::new(known.clone()))));
            }
        }
        Ok(())
    }
}

fn take(known: &mut BTreeMap<String, Uuid>, node: &CSINode) {
    let name = node.name_any();
    let driver = node.spec.drivers.iter().find(|driver| driver.name == DRIVER);
    match driver.map(|driver| driver.node_id.parse::<Uuid>()) {
        Some(Ok(uuid)) => {
            known.insert(name, uuid);
        }
        Some(Err(error)) => {
            tracing::warn!(node = name, %error, "CSINode has a node id that is not a UUID");
            known.remove(&name);
        }
        None => {
            known.remove(&name);
        }
    }
}
