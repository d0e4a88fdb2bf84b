//! Applies what was planned: patches a Node, or deletes it, and reports what became of it as a [`Receipt`].
//!
//! A plan is applied once, status first, then metadata and spec. When another client changed the Node in between,
//! the rest is not applied and the receipt has the Node's current state, so that it is planned again. Nothing is
//! written by a process that does not hold the lease.

pub(crate) mod budget;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use daemon::lease::Leadership;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};
use tracing::info;

use crate::{
    observe::{nodes::name, trimmed::TrimmedNode},
    plan::{lifecycle::Decision, node::NodeChange},
};

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether plans are written to the API server or printed.
#[derive(Debug, Clone, Default)]
pub enum Mode {
    /// Patches and deletions are sent.
    #[default]
    Write,
    /// They are sent here instead, a line each, and not again as long as they stay the same.
    Print(mpsc::UnboundedSender<String>),
}

/// Something planned for one Node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    Change(NodeChange),
    Lifecycle(Decision),
}

/// What became of a [`Work`].
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) name: Arc<str>,
    /// The Node's last known state; none after a deletion.
    pub(crate) node: Option<Node>,
    pub(crate) work: Work,
    /// Whether the status of a [`Work::Change`] was written, although the rest may not have been.
    pub(crate) status_written: bool,
    pub(crate) result: Result<(), NotWritten>,
}

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotWritten {
    #[error("printed instead (dry run)")]
    Printed,
    #[error("this process does not hold the lease")]
    NotLeading,
    #[error("the API server did not answer within {} s", WRITE_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the Node was changed by another client meanwhile")]
    Conflict,
    #[error("the Node was deleted meanwhile")]
    Gone,
    #[error(transparent)]
    Refused(kube::Error),
}

impl From<kube::Error> for NotWritten {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            _ => Self::Refused(error),
        }
    }
}

/// Writes Nodes. Clones share what was printed.
#[derive(Clone)]
pub(crate) struct NodeWriter {
    nodes: Api<TrimmedNode>,
    mode: Mode,
    leadership: Leadership,
    /// What was printed last, by Node and kind of work.
    printed: Arc<Mutex<HashMap<String, String>>>,
}

impl NodeWriter {
    pub(crate) fn new(client: Client, mode: Mode, leadership: Leadership) -> Self {
        Self { nodes: Api::all(client), mode, leadership, printed: Arc::default() }
    }

    /// The API that Nodes are watched through.
    pub(crate) fn nodes(&self) -> &Api<TrimmedNode> {
        &self.nodes
    }

    /// Applies what was planned for this state of the Node.
    pub(crate) async fn apply(self, node: Node, work: Work) -> Receipt {
        let name = name(&node);
        let mut receipt = Receipt {
            name,
            node: Some(node),
            work: work.clone(),
            status_written: false,
            result: Ok(()),
        };
        receipt.result = match work {
            _ if matches!(self.mode, Mode::Print(_)) => {
                self.print(&receipt);
                Err(NotWritten::Printed)
            }
            Work::Change(change) => self.write_change(&mut receipt, &change).await,
            Work::Lifecycle(decision) => self.write_decision(&mut receipt, &decision).await,
        };
        if matches!(receipt.result, Err(NotWritten::Conflict)) {
            match self.within(self.nodes.get(&receipt.name)).await {
                Ok(TrimmedNode(current)) => receipt.node = Some(current),
                Err(error) => receipt.result = Err(error),
            }
        }
        receipt
    }

    async fn write_change(
        &self,
        receipt: &mut Receipt,
        change: &NodeChange,
    ) -> Result<(), NotWritten> {
        let name = Arc::clone(&receipt.name);
        let mut patch = change.patch.clone();
        if let Some(status) = &change.status {
            let (params, status) = (PatchParams::default(), Patch::Strategic(status));
            let write = self.nodes.patch_status(&name, &params, &status);
            let TrimmedNode(written) = self.within(write).await?;
            receipt.status_written = true;
            // The rest was planned on the Node before this write; it holds if only the status changed.
            patch = match &receipt.node {
                Some(planned) => {
                    change.patch_after(planned, &written).ok_or(NotWritten::Conflict)?
                }
                None => patch,
            };
            receipt.node = Some(written);
        }
        if let Some(patch) = patch {
            receipt.node = Some(self.patch(&name, &patch).await?);
        }
        Ok(())
    }

    async fn write_decision(
        &self,
        receipt: &mut Receipt,
        decision: &Decision,
    ) -> Result<(), NotWritten> {
        match decision {
            Decision::Keep | Decision::Refuse(_) => {}
            Decision::TaintShutdown(patch) | Decision::Untaint(patch) => {
                receipt.node = Some(self.patch(&receipt.name, patch).await?);
            }
            Decision::Delete(_) => {
                let planned = receipt.node.clone().unwrap_or_default().metadata;
                let params = DeleteParams::default().preconditions(Preconditions {
                    uid: planned.uid,
                    resource_version: planned.resource_version,
                });
                self.within(self.nodes.delete(&receipt.name, &params)).await?;
                receipt.node = None;
            }
        }
        Ok(())
    }

    async fn patch(&self, name: &str, patch: &Value) -> Result<Node, NotWritten> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        Ok(self.within(self.nodes.patch(name, &params, &patch)).await?.0)
    }

    async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, NotWritten> {
        if !self.leadership.holds() {
            return Err(NotWritten::NotLeading);
        }
        timeout(WRITE_TIMEOUT, request).await.map_err(|_| NotWritten::TimedOut)?.map_err(Into::into)
    }

    fn print(&self, receipt: &Receipt) {
        let Mode::Print(lines) = &self.mode else { return };
        let name = &receipt.name;
        let (key, meaning, line) = match &receipt.work {
            Work::Change(change) => {
                let patches = change.status.iter().chain(&change.patch).map(Value::to_string);
                let patches: Vec<String> = patches.collect();
                let line = format!("patch node {name}: {}", patches.join(" then "));
                (name.to_string(), format!("{:?}", change.summary), line)
            }
            Work::Lifecycle(decision) => {
                let text = match decision {
                    Decision::TaintShutdown(patch) | Decision::Untaint(patch) => patch.to_string(),
                    Decision::Delete(proof) => proof.to_string(),
                    Decision::Keep | Decision::Refuse(_) => return,
                };
                let word = decision.word();
                (
                    format!("lifecycle of {name}"),
                    word.to_owned(),
                    format!("{word} node {name}: {text}"),
                )
            }
        };
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.get(&key) != Some(&meaning) {
            printed.insert(key, meaning);
            if lines.send(line).is_err() {
                info!(node = %name, "dry run output is closed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use daemon::lease::{Elector, Timing};
    use serde_json::json;

    use super::{Client, Mode, Node, NodeWriter, NotWritten, Work};
    use crate::plan::lifecycle::Decision;

    #[tokio::test]
    async fn a_process_that_does_not_hold_the_lease_writes_nothing() {
        // Nothing listens there: a request would be refused, not held back.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let seconds = Duration::from_secs;
        let timing = Timing::new(seconds(15), seconds(10), seconds(2)).unwrap();
        let elector = Elector::new(client.clone(), "ns", "lease", "me".to_owned(), timing);
        let writer = NodeWriter::new(client, Mode::Write, elector.leadership());
        let decision = Decision::Untaint(json!({"spec": {"taints": []}}));
        let receipt = writer.apply(Node::default(), Work::Lifecycle(decision)).await;
        assert!(matches!(receipt.result, Err(NotWritten::NotLeading)), "{receipt:?}");
    }
}
