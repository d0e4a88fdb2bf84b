//! Reports what was applied: a log line, events that `kubectl describe node` shows, and metrics.

use std::{collections::HashMap, sync::Arc};

use daemon::events::{Kind, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use tracing::{info, warn};

use crate::{
    apply::{NotWritten, Receipt, Work},
    metrics::Metrics,
    plan::{
        lifecycle::{self, Decision},
        node::{self, Event, NodeChange},
    },
};

/// The event of a Node that was initialised; it is recorded when the taint is gone, not before.
const SYNCED: &str = "Synced";

pub(crate) struct Reporter {
    recorder: Recorder,
    metrics: Metrics,
    /// Events are left out in a dry run.
    muted: bool,
    /// The last event about the lifecycle of a Node: the same decision is reported once.
    last_event: HashMap<Arc<str>, Event>,
}

impl Reporter {
    pub(crate) fn new(recorder: Recorder, metrics: Metrics, muted: bool) -> Self {
        Self { recorder, metrics, muted, last_event: HashMap::new() }
    }

    /// Reports a write that succeeded, in part or as a whole, or failed.
    pub(crate) fn report(&self, receipt: &Receipt) {
        match (&receipt.work, &receipt.result) {
            (_, Err(NotWritten::Printed | NotWritten::NotLeading | NotWritten::Gone)) => {}
            (Work::Change(change), result) => self.changed(receipt, change, result),
            (Work::Lifecycle(decision), Ok(())) => {
                info!(node = %receipt.name, decision = decision.word(), "node lifecycle applied");
                self.metrics.decided(decision.word());
            }
            (Work::Lifecycle(_), Err(NotWritten::Conflict)) => {}
            (Work::Lifecycle(decision), Err(error)) => {
                warn!(node = %receipt.name, decision = decision.word(), %error, "node lifecycle write failed");
                if let (Decision::Delete(_), Some(node)) = (decision, &receipt.node) {
                    self.record(node, &lifecycle::deletion_failed(&receipt.name, error));
                }
            }
        }
    }

    fn changed(&self, receipt: &Receipt, change: &NodeChange, result: &Result<(), NotWritten>) {
        let (name, summary) = (&receipt.name, &change.summary);
        match result {
            Ok(()) if summary.initialised => {
                info!(node = %name, change = %summary, "node initialised");
            }
            Ok(()) => info!(node = %name, change = %summary, "node updated"),
            Err(NotWritten::Conflict) => {}
            Err(error) => warn!(node = %name, %error, "node write failed; retrying"),
        }
        let Some(node) = &receipt.node else { return };
        let status = receipt.status_written || result.is_ok();
        let due = |event: &&Event| if event.reason == SYNCED { result.is_ok() } else { status };
        for event in change.events.iter().filter(due) {
            self.record(node, event);
        }
        if receipt.status_written && summary.addresses.is_some() {
            self.metrics.decided("addresses");
        }
        if result.is_ok() && summary.initialised {
            self.metrics.decided("initialise");
            let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
            self.metrics.initialised(created, Timestamp::now());
        }
    }

    /// Reports decisions about the lifecycle of all Nodes, each when it is another than the last time.
    pub(crate) fn decisions<'a>(&mut self, all: impl Iterator<Item = (&'a Node, &'a Decision)>) {
        let mut last = HashMap::new();
        for (node, decision) in all {
            let name = crate::observe::nodes::name(node);
            let Some(event) = decision.event(&name) else { continue };
            if self.last_event.get(&name) != Some(&event) {
                self.record(node, &event);
            }
            last.insert(name, event);
        }
        self.last_event = last;
    }

    pub(crate) fn count<'a>(&self, nodes: impl Iterator<Item = &'a Node>) {
        self.metrics.count_nodes(nodes.map(node::standing));
    }

    fn record(&self, node: &Node, event: &Event) {
        if self.muted {
            return;
        }
        let name = node.metadata.name.clone();
        // The uid is the name, as kubelets have it: `kubectl describe node` finds events by that.
        let regarding = ObjectReference {
            kind: Some("Node".to_owned()),
            api_version: Some("v1".to_owned()),
            uid: name.clone(),
            name,
            ..ObjectReference::default()
        };
        let kind = if event.warning { Kind::Warning } else { Kind::Normal };
        self.recorder.record(&regarding, kind, event.reason, &event.message);
    }
}
