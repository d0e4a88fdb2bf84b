//! The Nodes as the API last told them, and which of them changed since somebody looked.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event};
use tracing::warn;

use super::lean::{self, Lean};

/// All Nodes, by name.
#[derive(Default)]
pub(super) struct Nodes {
    known: HashMap<String, Node>,
    /// Those of a list that is not complete yet.
    incoming: HashMap<String, Node>,
    synced: bool,
    changed: HashSet<String>,
}

impl Nodes {
    /// Takes in what the watch told.
    pub(super) fn take(&mut self, event: Option<Result<Event<Lean>, watcher::Error>>) {
        match event {
            Some(Ok(Event::Init)) => self.incoming.clear(),
            Some(Ok(Event::InitApply(Lean(node)))) => {
                self.incoming.insert(name(&node), node);
            }
            Some(Ok(Event::InitDone)) => {
                self.known = std::mem::take(&mut self.incoming);
                self.changed = self.known.keys().cloned().collect();
                self.synced = true;
            }
            Some(Ok(Event::Apply(Lean(node)))) => {
                let name = name(&node);
                if self.learn(node) {
                    self.changed.insert(name);
                }
            }
            Some(Ok(Event::Delete(Lean(node)))) => {
                let name = name(&node);
                self.known.remove(&name);
                self.changed.remove(&name);
            }
            Some(Err(error)) => warn!(%error, "Nodes cannot be watched"),
            None => {}
        }
    }

    /// Keeps the newer of two states: our own writes come back before the watch tells them. True if that is
    /// another one than was known.
    pub(super) fn learn(&mut self, node: Node) -> bool {
        let name = name(&node);
        let known = self.known.get(&name).filter(|known| known.metadata.uid == node.metadata.uid);
        if known.is_some_and(|known| version(known) > version(&node)) {
            return false;
        }
        let news = known.is_none_or(|known| !lean::same(known, &node));
        self.known.insert(name, node);
        news
    }

    /// Whether all Nodes are known.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Whether Nodes changed that nobody has looked at.
    pub(super) fn have_news(&self) -> bool {
        self.synced && !self.changed.is_empty()
    }

    /// The names of those that changed, which counts as having looked at them.
    pub(super) fn take_changed(&mut self) -> HashSet<String> {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.known.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.known.values()
    }
}

/// The name of a Node.
pub(super) fn name(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

/// The version of a Node; of two, the larger is the newer.
fn version(node: &Node) -> Option<u64> {
    node.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::{Lean, Nodes};

    fn node(version: u64, label: &str) -> Lean {
        let metadata = json!({
            "name": "node-1", "uid": "u-1", "resourceVersion": version.to_string(), "labels": {"a": label},
        });
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn a_node_is_news_once_and_not_when_the_watch_tells_what_we_wrote() {
        let mut nodes = Nodes::default();
        nodes.take(Some(Ok(Event::Init)));
        nodes.take(Some(Ok(Event::InitApply(node(1, "x")))));
        assert!(!nodes.is_synced() && !nodes.have_news());
        nodes.take(Some(Ok(Event::InitDone)));
        assert!(nodes.is_synced() && nodes.have_news());
        assert_eq!(nodes.take_changed().len(), 1);

        nodes.learn(node(3, "ours").0);
        nodes.take(Some(Ok(Event::Apply(node(2, "older")))));
        nodes.take(Some(Ok(Event::Apply(node(3, "ours")))));
        nodes.take(Some(Ok(Event::Apply(node(4, "ours")))));
        assert!(!nodes.have_news());
        nodes.take(Some(Ok(Event::Apply(node(5, "theirs")))));
        assert!(nodes.have_news());
        nodes.take(Some(Ok(Event::Delete(node(6, "theirs")))));
        assert!(!nodes.have_news() && nodes.get("node-1").is_none());
    }
}
