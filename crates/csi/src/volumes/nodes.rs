//! Which nodes have the driver, which VM each of them is, and where it is: from CSINodes, and from the labels of Nodes.
//!
//! The segment of a node are the labels that its CSINode names as the driver's topology keys. The kubelet writes both, by
//! what the driver on the node reports, whichever driver that is. A node that lacks one of these labels is in no segment:
//! Kubernetes leads no pod with a volume there.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
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
use k8s_openapi::api::{core::v1::Node, storage::v1::CSINode};
use kube::{
    Api, Client, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use tokio::sync::watch;
use vsphere::inventory::Uuid;

use super::topology::Segment;
use crate::DRIVER;

/// A node that has the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    uuid: Uuid,
    /// Whether the driver reported a topology.
    has_topology: bool,
    segment: Option<Segment>,
}

/// The nodes of the cluster at one moment. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KnownNodes {
    nodes: Arc<BTreeMap<String, Known>>,
    /// Whether the labels of Nodes were read.
    has_labels: bool,
}

/// The nodes as they are now; nothing before they were read.
#[derive(Debug, Clone)]
pub(crate) struct Nodes(watch::Receiver<Option<KnownNodes>>);

/// What the watch asks of the API server.
pub(crate) fn permissions() -> Vec<Permission> {
    let verbs = ["get", "list", "watch"];
    vec![
        Permission::new(Scope::Cluster, ("storage.k8s.io", "csinodes"), &verbs),
        Permission::new(Scope::Cluster, ("", "nodes"), &["list", "watch"]),
    ]
}

impl KnownNodes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Uuid)> {
        self.nodes.iter().map(|(name, node)| (name.as_str(), node.uuid))
    }

    /// The UUID of a node, which callers may name by either.
    pub(crate) fn uuid(&self, node: &str) -> Option<Uuid> {
        self.nodes.get(node).map(|known| known.uuid).or_else(|| node.parse().ok())
    }

    /// The name of the node with this UUID.
    pub(crate) fn name(&self, uuid: Uuid) -> Option<&str> {
        self.iter().find(|(_, known)| known.matches(uuid)).map(|(name, _)| name)
    }

    /// The topology that a node reports.
    pub(crate) fn segment(&self, node: &str) -> Option<&Segment> {
        self.nodes.get(node)?.segment.as_ref()
    }

    /// Whether any node reports a topology.
    pub(crate) fn have_topology(&self) -> bool {
        self.nodes.values().any(|node| node.has_topology)
    }

    /// Whether it is known where those nodes are that report a topology.
    pub(crate) fn are_located(&self) -> bool {
        self.has_labels || !self.have_topology()
    }

    /// Whether a node is in this segment.
    pub(crate) fn have(&self, segment: &Segment) -> bool {
        let is_within =
            |node: &Known| node.segment.as_ref().is_some_and(|one| one.is_within(segment));
        self.nodes.values().any(is_within)
    }

    /// Only those that satisfy a condition on their UUID.
    pub(crate) fn filtered(&self, mut is_kept: impl FnMut(Uuid) -> bool) -> Self {
        let kept = self.nodes.iter().filter(|(_, node)| is_kept(node.uuid));
        let nodes = kept.map(|(name, node)| (name.clone(), node.clone())).collect();
        Self { nodes: Arc::new(nodes), has_labels: self.has_labels }
    }
}

impl Nodes {
    /// Nothing before the first answer of the API server.
    pub(crate) fn current(&self) -> Option<KnownNodes> {
        self.0.borrow().clone()
    }
}

/// The watch, to be run, and what it sees.
pub(crate) fn follow(client: Client) -> (Watch, Nodes) {
    let (sender, receiver) = watch::channel(None);
    (Watch { client, sender }, Nodes(receiver))
}

/// The watch of CSINodes, and of the labels of Nodes.
pub(crate) struct Watch {
    client: Client,
    sender: watch::Sender<Option<KnownNodes>>,
}

impl Watch {
    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: Shutdown) -> Result<(), Infallible> {
        let drivers = watcher(Api::<CSINode>::all(self.client.clone()), client::watch());
        let mut drivers = pin!(drivers.backoff(client::backoff()));
        let nodes = watcher(Api::<PartialObjectMeta<Node>>::all(self.client), client::watch());
        let mut nodes = pin!(nodes.backoff(client::backoff()));
        let (mut registered, mut labels) = (Listed::default(), Listed::default());
        loop {
            let next = async {
                tokio::select! {
                    Some(event) = drivers.next() => registered.take("CSINodes", event, registration),
                    Some(event) = nodes.next() => labels.take("Nodes", event, labels_of),
                    else => std::future::pending().await,
                }
            };
            let Some(is_news) = shutdown.unless(next).await else { return Ok(()) };
            // Nodes are written all the time, and what is kept of them hardly ever changes.
            if is_news && registered.is_complete {
                self.sender.send_replace(Some(join(&registered.known, &labels)));
            }
        }
    }
}

/// What is kept of the objects of a kind, by their names.
struct Listed<T> {
    known: BTreeMap<String, T>,
    /// Whether a list was read to its end.
    is_complete: bool,
    /// Names in a list that is being read; those that are not in it are gone.
    listed: Option<HashSet<String>>,
    /// Whether anything changed since that was last reported.
    is_changed: bool,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        let known = BTreeMap::new();
        Self { known, is_complete: false, listed: None, is_changed: false }
    }
}

impl<T: PartialEq> Listed<T> {
    /// Takes in an event. Returns whether what is known is complete and changed.
    fn take<K: ResourceExt>(
        &mut self,
        kind: &str,
        event: Result<Event<K>, watcher::Error>,
        kept: fn(&K) -> Option<T>,
    ) -> bool {
        match event {
            Ok(Event::Init) => self.listed = Some(HashSet::new()),
            Ok(Event::InitApply(object)) => {
                self.listed.get_or_insert_default().insert(object.name_any());
                self.put(&object, kept(&object));
            }
            Ok(Event::InitDone) => {
                let listed = self.listed.take().unwrap_or_default();
                self.known.retain(|name, _| listed.contains(name));
                (self.is_complete, self.is_changed) = (true, true);
            }
            Ok(Event::Apply(object)) => self.put(&object, kept(&object)),
            Ok(Event::Delete(object)) => self.put(&object, None),
            Err(error) => tracing::warn!(kind, %error, "watch failed; starting again"),
        }
        self.listed.is_none() && std::mem::take(&mut self.is_changed)
    }

    fn put<K: ResourceExt>(&mut self, object: &K, kept: Option<T>) {
        let name = object.name_any();
        self.is_changed |= self.known.get(&name) != kept.as_ref();
        match kept {
            Some(kept) => self.known.insert(name, kept),
            None => self.known.remove(&name),
        };
    }
}

/// The driver of a node, as its kubelet registered it.
#[derive(PartialEq)]
struct Registration {
    uuid: Uuid,
    topology_keys: Vec<String>,
}

fn registration(node: &CSINode) -> Option<Registration> {
    let driver = node.spec.drivers.iter().find(|driver| driver.name == DRIVER)?;
    match driver.node_id.parse() {
        Ok(uuid) => {
            let topology_keys = driver.topology_keys.clone().unwrap_or_default();
            Some(Registration { uuid, topology_keys })
        }
        Err(error) => {
            let node = node.name_any();
            tracing::warn!(node, %error, "CSINode has a node id that is not a UUID");
            None
        }
    }
}

fn labels_of(node: &PartialObjectMeta<Node>) -> Option<BTreeMap<String, String>> {
    node.metadata.labels.clone()
}

fn join(
    registered: &BTreeMap<String, Registration>,
    labels: &Listed<BTreeMap<String, String>>,
) -> KnownNodes {
    // Nodes of one segment share it.
    let mut segments = BTreeSet::new();
    let mut shared = |segment: Segment| match segments.get(&segment) {
        Some(known) => Segment::clone(known),
        None => {
            segments.insert(segment.clone());
            segment
        }
    };
    let nodes = registered.iter().map(|(name, node)| {
        let labels = labels.known.get(name);
        let label = |key: &String| Some((key.clone(), labels?.get(key)?.clone()));
        let found: Option<Vec<_>> = node.topology_keys.iter().map(label).collect();
        let segment = found.and_then(Segment::new).map(&mut shared);
        let has_topology = !node.topology_keys.is_empty();
        (name.clone(), Known { uuid: node.uuid, has_topology, segment })
    });
    KnownNodes { nodes: Arc::new(nodes.collect()), has_labels: labels.is_complete }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{from_value, json};

    use super::{Listed, join, labels_of, registration};

    #[test]
    fn a_node_is_where_all_labels_say_that_its_driver_named() {
        let (mut drivers, mut labels) = (Listed::default(), Listed::default());
        let mut register = |name: &str, uuid: &str, keys: &[&str]| {
            let driver = json!({"name": crate::DRIVER, "nodeID": uuid, "topologyKeys": keys});
            let node = json!({"metadata": {"name": name}, "spec": {"drivers": [driver]}});
            drivers.take("CSINodes", Ok(Event::Apply(from_value(node).unwrap())), registration);
        };
        register("one", "4230b1a0-5eed-4000-8000-000000000001", &["zone", "region"]);
        register("two", "4230b1a0-5eed-4000-8000-000000000002", &["zone", "region"]);
        register("three", "4230b1a0-5eed-4000-8000-000000000003", &[]);
        register("four", "not a UUID", &["zone"]);
        let before = join(&drivers.known, &labels);
        assert!(before.have_topology() && !before.are_located());
        let mut label = |name: &str, with: serde_json::Value| {
            let node = json!({"metadata": {"name": name, "labels": with}});
            labels.take("Nodes", Ok(Event::Apply(from_value(node).unwrap())), labels_of);
        };
        label("one", json!({"zone": "a", "region": "north", "other": "x"}));
        label("two", json!({"zone": "a", "other": "x"}));
        label("three", json!({"zone": "a", "region": "north"}));
        labels.is_complete = true;
        let joined = join(&drivers.known, &labels);
        assert!(joined.are_located());
        assert_eq!(
            joined.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["one", "three", "two"]
        );
        let segment = |name| joined.segment(name).map(ToString::to_string);
        assert_eq!(segment("one").as_deref(), Some("region=north,zone=a"));
        assert_eq!(segment("two"), None, "one label is missing");
        assert_eq!(segment("three"), None, "its driver reports none");
        assert!(joined.have(joined.segment("one").unwrap()));
        let without = joined.filtered(|uuid| Some(uuid) != joined.uuid("one"));
        assert!(!without.have(joined.segment("one").unwrap()));
    }

    #[test]
    fn what_is_kept_is_news_when_it_changed_and_a_list_was_read_to_its_end() {
        let mut labels = Listed::default();
        let node = |name: &str, zone: &str| {
            from_value(json!({"metadata": {"name": name, "labels": {"zone": zone}}})).unwrap()
        };
        let mut take = |event| labels.take("Nodes", Ok(event), labels_of);
        let first = [
            Event::Init,
            Event::InitApply(node("one", "a")),
            Event::InitApply(node("two", "a")),
            Event::InitDone,
        ];
        assert_eq!(first.map(&mut take), [false, false, false, true]);
        assert!(!take(Event::Apply(node("one", "a"))), "as it was");
        assert!(take(Event::Apply(node("one", "b"))));
        // A node that a new list lacks is gone.
        let second = [Event::Init, Event::InitApply(node("two", "c")), Event::InitDone];
        assert_eq!(second.map(&mut take), [false, false, true]);
        assert!(take(Event::Delete(node("two", "c"))));
        assert!(!take(Event::Delete(node("two", "c"))));
        assert!(labels.known.is_empty());
    }
}
