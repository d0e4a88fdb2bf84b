//! Somebody who sees every state that a Node is ever in, and notes what must not be.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::task::JoinSet;

use lab::kubelet::{SHUTDOWN, UNINITIALIZED, has_taint, provider_id};

/// What was seen, and what may be.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The Nodes as they are, by name.
    pub(crate) nodes: HashMap<String, Node>,
    /// Nodes that may be deleted, because their VM is gone or the schedule is over.
    pub(crate) may_go: HashSet<String>,
    /// Nodes that may be said to be shut down, because their VM was.
    pub(crate) may_be_off: HashSet<String>,
    /// Nodes of others, in the version that they must keep.
    pub(crate) foreign: HashMap<String, Option<String>>,
    /// Everything that must not be.
    pub(crate) harm: Vec<String>,
    /// Nodes that once were uninitialised.
    fresh: HashSet<String>,
    incoming: HashMap<String, Node>,
}

/// The witness, who watches as long as it lives.
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    _watching: JoinSet<()>,
}

impl Witness {
    pub(crate) fn start(nodes: Api<Node>) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let reported = Arc::clone(&seen);
        let mut watching = JoinSet::new();
        watching.spawn(async move {
            let events = watcher(nodes, watcher::Config::default()).default_backoff();
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                let mut seen = reported.lock().unwrap_or_else(PoisonError::into_inner);
                if let Ok(event) = event {
                    seen.take(event);
                }
            }
        });
        Self { seen, _watching: watching }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn take(&mut self, event: Event<Node>) {
        match event {
            Event::Init => self.incoming.clear(),
            Event::InitApply(node) => {
                self.judge(&node);
                self.incoming.insert(name(&node), node);
            }
            Event::InitDone => {
                let now = std::mem::take(&mut self.incoming);
                let before = std::mem::replace(&mut self.nodes, now);
                let gone =
                    before.into_values().filter(|node| !self.nodes.contains_key(&name(node)));
                for node in gone.collect::<Vec<_>>() {
                    self.miss(&node);
                }
            }
            Event::Apply(node) => {
                self.judge(&node);
                self.nodes.insert(name(&node), node);
            }
            Event::Delete(node) => {
                self.nodes.remove(&name(&node));
                self.miss(&node);
            }
        }
    }

    fn judge(&mut self, node: &Node) {
        let name = name(node);
        // What is reported late is older than what the test made, and no harm.
        if let Some(version) = self.foreign.get(&name)
            && number(version.as_deref()) < number(node.metadata.resource_version.as_deref())
        {
            self.harm.push(format!("{name} is somebody else's and was changed: {node:?}"));
        }
        if has_taint(node, UNINITIALIZED) {
            self.fresh.insert(name);
        } else if self.fresh.contains(&name) && provider_id(node).is_none() {
            self.harm.push(format!("{name} lost its taint and has no provider id: {node:?}"));
        } else if has_taint(node, SHUTDOWN) && !self.may_be_off.contains(&name) {
            self.harm.push(format!("{name} is said to be shut down and never was: {node:?}"));
        }
    }

    fn miss(&mut self, node: &Node) {
        let name = name(node);
        if !self.may_go.contains(&name) {
            self.harm.push(format!("{name} was deleted although its VM exists: {node:?}"));
        }
    }
}

fn number(version: Option<&str>) -> Option<u64> {
    version?.parse().ok()
}

fn name(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}
