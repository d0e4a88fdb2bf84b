//! The Nodes as the API server last reported them, indexed by what their VMs are found by.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event};
use tracing::warn;

use super::{
    discovery::{Key, Lookup},
    trimmed::{TrimmedNode, same},
};

/// An event of the watch of Nodes; `None` when it ended.
pub(crate) type NodeEvent = Option<Result<Event<TrimmedNode>, watcher::Error>>;

#[derive(Default)]
pub(crate) struct Nodes {
    known: HashMap<Arc<str>, Box<Known>>,
    /// Nodes of a list that is not complete yet.
    #[expect(clippy::vec_box, reason = "Nodes are large: lists and tables that grow copy boxes")]
    incoming: Vec<Box<Node>>,
    synced: bool,
    by_key: HashMap<Key, Vec<Arc<str>>>,
}

struct Known {
    node: Node,
    lookup: Lookup,
}

impl Nodes {
    /// Takes in an event. Returns the Nodes that are to be planned because of it.
    pub(crate) fn take(&mut self, event: NodeEvent) -> BTreeSet<Arc<str>> {
        match event {
            Some(Ok(Event::Init)) => self.incoming.clear(),
            Some(Ok(Event::InitApply(TrimmedNode(node)))) => self.incoming.push(Box::new(node)),
            Some(Ok(Event::InitDone)) => return self.replace_all(),
            Some(Ok(Event::Apply(TrimmedNode(node)))) => {
                return self.insert(node).into_iter().collect();
            }
            Some(Ok(Event::Delete(TrimmedNode(node)))) => self.remove(&name(&node)),
            Some(Err(error)) => warn!(%error, "watch of Nodes failed; retrying"),
            None => {}
        }
        BTreeSet::new()
    }

    fn replace_all(&mut self) -> BTreeSet<Arc<str>> {
        let listed = std::mem::take(&mut self.incoming);
        let names: BTreeSet<Arc<str>> = listed.iter().map(|node| name(node)).collect();
        let gone = self.known.keys().filter(|name| !names.contains(*name)).cloned();
        for name in gone.collect::<Vec<_>>() {
            self.remove(&name);
        }
        for node in listed {
            self.insert(*node);
        }
        self.synced = true;
        names
    }

    /// Keeps the newer of two states: the result of our own write arrives before its watch event. Returns the
    /// name if anything but the resource version is new.
    fn insert(&mut self, node: Node) -> Option<Arc<str>> {
        let name = name(&node);
        let known = self.known.get(&name).filter(|it| it.node.metadata.uid == node.metadata.uid);
        if known.is_some_and(|known| version(&known.node) > version(&node)) {
            return None;
        }
        let changed = known.is_none_or(|known| !same(&known.node, &node));
        let lookup = Lookup::of(&node);
        if self.known.get(&name).is_none_or(|known| known.lookup != lookup) {
            self.unindex(&name);
            for key in lookup.keys().collect::<HashSet<_>>() {
                let named = self.by_key.entry(key).or_insert_with(|| Vec::with_capacity(1));
                named.push(Arc::clone(&name));
            }
        }
        self.known.insert(Arc::clone(&name), Box::new(Known { node, lookup }));
        changed.then_some(name)
    }

    /// Takes in the result of our own write. A Node that was deleted meanwhile, or made anew, stays so.
    pub(crate) fn learn(&mut self, node: Node) {
        let known = self.known.get(&name(&node));
        if known.is_some_and(|known| known.node.metadata.uid == node.metadata.uid) {
            self.insert(node);
        }
    }

    fn remove(&mut self, name: &str) {
        self.unindex(name);
        self.known.remove(name);
    }

    fn unindex(&mut self, name: &str) {
        let Some(known) = self.known.get(name) else { return };
        for key in known.lookup.keys() {
            if let Some(names) = self.by_key.get_mut(&key) {
                names.retain(|held| **held != *name);
                if names.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn get(&self, name: &str) -> Option<(&Node, &Lookup)> {
        self.known.get(name).map(|known| (&known.node, &known.lookup))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Node, &Lookup)> {
        self.known.values().map(|known| (&known.node, &known.lookup))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.known.keys()
    }

    /// The Nodes whose VM may be one with this key.
    pub(crate) fn with_key(&self, key: &Key) -> &[Arc<str>] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }
}

pub(crate) fn name(node: &Node) -> Arc<str> {
    node.metadata.name.as_deref().unwrap_or_default().into()
}

/// The larger of two is the newer.
fn version(node: &Node) -> Option<u64> {
    node.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::{Nodes, TrimmedNode};

    fn node(version: u64, label: &str) -> TrimmedNode {
        let metadata = json!({
            "name": "node-1", "uid": "u-1", "resourceVersion": version.to_string(), "labels": {"a": label},
        });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn listed() -> Nodes {
        let mut nodes = Nodes::default();
        assert!(nodes.take(Some(Ok(Event::Init))).is_empty());
        assert!(nodes.take(Some(Ok(Event::InitApply(node(1, "x"))))).is_empty());
        assert!(!nodes.is_synced());
        assert_eq!(nodes.take(Some(Ok(Event::InitDone))).len(), 1);
        assert!(nodes.is_synced());
        nodes
    }

    #[test]
    fn a_watch_event_for_our_own_write_plans_nothing() {
        let mut nodes = listed();
        nodes.learn(node(3, "ours").0);
        for (version, label) in [(2, "older"), (3, "ours"), (4, "ours")] {
            assert!(nodes.take(Some(Ok(Event::Apply(node(version, label))))).is_empty());
        }
        assert_eq!(nodes.take(Some(Ok(Event::Apply(node(5, "theirs"))))).len(), 1);
    }

    #[test]
    fn a_write_that_returns_after_the_deletion_does_not_bring_the_node_back() {
        let mut nodes = listed();
        nodes.take(Some(Ok(Event::Delete(node(2, "x")))));
        nodes.learn(node(3, "ours").0);
        assert!(nodes.get("node-1").is_none());
    }

    #[test]
    fn a_node_that_a_new_list_lacks_is_forgotten_with_its_keys() {
        let mut nodes = listed();
        let keys: Vec<_> = nodes.get("node-1").unwrap().1.keys().collect();
        assert!(keys.iter().all(|key| nodes.with_key(key).len() == 1));
        nodes.take(Some(Ok(Event::Init)));
        nodes.take(Some(Ok(Event::InitDone)));
        assert!(nodes.get("node-1").is_none());
        assert!(keys.iter().all(|key| nodes.with_key(key).is_empty()));
    }
}
