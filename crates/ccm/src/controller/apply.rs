//! Writes what was decided to the API, and says so.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use daemon::events::{Kind, Recorder};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::Value;
use tokio::{sync::mpsc, time::timeout};
use tracing::{Instrument, info, info_span, warn};

use super::lean::Lean;
use crate::{
    lifecycle::Decision,
    metrics::Metrics,
    node::{Event, NodeChange, Summary},
};

const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// Writes of one Node in one round: its status, itself, and both again if somebody was faster.
const MOST_WRITES: usize = 6;

/// What happens to decisions.
#[derive(Debug, Clone, Default)]
pub enum Apply {
    /// They are written.
    #[default]
    Write,
    /// They are told here instead, a line for each, once as long as they stay the same.
    Print(mpsc::UnboundedSender<String>),
}

/// Who writes.
pub(crate) struct Hand {
    nodes: Api<Lean>,
    apply: Apply,
    recorder: Recorder,
    metrics: Metrics,
    /// What was printed last, by name of the Node and without versions and times.
    printed: Mutex<HashMap<String, String>>,
}

/// What became of a Node.
pub(super) enum Kept {
    /// It was written and is now this.
    Written(Box<Node>),
    /// Nothing was written.
    Left,
    /// It could not be written; this is its name.
    Failed(String),
}

/// Where a patch goes.
#[derive(Clone, Copy)]
enum Part {
    Status,
    Whole,
}

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
enum NotWritten {
    #[error("the API did not answer")]
    Late,
    #[error("somebody else changes it as often as we do")]
    Contested,
    #[error(transparent)]
    Refused(#[from] kube::Error),
}

impl NotWritten {
    fn code(&self) -> u16 {
        match self {
            Self::Refused(kube::Error::Api(status)) => status.code,
            _ => 0,
        }
    }
}

impl Hand {
    pub(crate) fn new(client: Client, apply: Apply, recorder: Recorder, metrics: Metrics) -> Self {
        let printed = Mutex::default();
        Self { nodes: Api::all(client), apply, recorder, metrics, printed }
    }

    /// Where to count.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub(super) fn nodes(&self) -> &Api<Lean> {
        &self.nodes
    }

    /// Writes until there is nothing left to change: the status first, then the rest, each planned on what
    /// the Node was after the last write.
    pub(super) async fn keep(
        &self,
        node: Node,
        plan: impl Fn(&Node) -> Option<NodeChange>,
    ) -> Kept {
        let name = node.metadata.name.clone().unwrap_or_default();
        let span = info_span!("node", name);
        async {
            match self.write_all(&name, node, plan).await {
                Ok(Some(node)) => Kept::Written(Box::new(node)),
                Ok(None) => Kept::Left,
                Err(error) if error.code() == 404 => Kept::Left,
                Err(error) => {
                    warn!(%error, "the Node could not be written; it is tried again");
                    Kept::Failed(name.clone())
                }
            }
        }
        .instrument(span)
        .await
    }

    async fn write_all(
        &self,
        name: &str,
        mut node: Node,
        plan: impl Fn(&Node) -> Option<NodeChange>,
    ) -> Result<Option<Node>, NotWritten> {
        let mut events: Vec<Event> = Vec::new();
        for _ in 0..MOST_WRITES {
            let change = plan(&node).unwrap_or_default();
            let (part, patch) = match (&change.status, &change.patch) {
                (Some(status), _) => (Part::Status, status),
                (None, Some(patch)) => (Part::Whole, patch),
                (None, None) => {
                    for event in &events {
                        self.tell(&node, event);
                    }
                    return Ok(Some(node));
                }
            };
            if let Apply::Print(lines) = &self.apply {
                self.print(lines, name, format!("{:?}", change.summary), &written(name, &change));
                return Ok(None);
            }
            match self.patch(name, part, patch).await {
                Ok(written) => {
                    info!(summary = ?change.summary, "Node written");
                    self.count(&written, part, &change.summary);
                    let news: Vec<Event> =
                        change.events.into_iter().filter(|event| !events.contains(event)).collect();
                    events.extend(news);
                    node = written;
                }
                Err(error) if error.code() == 409 => {
                    node = within(self.nodes.get(name)).await?.0;
                }
                Err(error) => return Err(error),
            }
        }
        Err(NotWritten::Contested)
    }

    fn count(&self, node: &Node, part: Part, summary: &Summary) {
        if let (Part::Status, Some(_)) = (part, &summary.addresses) {
            self.metrics.decided("addresses");
        }
        if let (Part::Whole, true) = (part, summary.initialised) {
            self.metrics.decided("initialise");
            let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
            self.metrics.initialised(created, Timestamp::now());
        }
    }

    fn print(
        &self,
        lines: &mpsc::UnboundedSender<String>,
        about: &str,
        meaning: String,
        line: &str,
    ) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.get(about) != Some(&meaning) {
            printed.insert(about.to_owned(), meaning);
            if lines.send(line.to_owned()).is_err() {
                info!(line, "nobody reads what would be done");
            }
        }
    }

    async fn patch(&self, name: &str, part: Part, patch: &Value) -> Result<Node, NotWritten> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(patch));
        let Lean(node) = match part {
            Part::Status => within(self.nodes.patch_status(name, &params, &patch)).await?,
            Part::Whole => within(self.nodes.patch(name, &params, &patch)).await?,
        };
        Ok(node)
    }

    /// Carries out a decision about the lifecycle of a Node. One that comes too late is decided anew.
    pub(super) async fn decide(&self, node: &Node, decision: &Decision) -> Option<Node> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Apply::Print(lines) = &self.apply {
            let text = match decision {
                Decision::TaintShutdown(patch) | Decision::Untaint(patch) => patch.to_string(),
                Decision::Delete(proof) => proof.to_string(),
                Decision::Keep | Decision::Refuse(_) => return None,
            };
            let kind = decision.word();
            let line = format!("{kind} node {name}: {text}");
            self.print(lines, &format!("lifecycle of {name}"), kind.to_owned(), &line);
            return None;
        }
        let done = match decision {
            Decision::Keep | Decision::Refuse(_) => return None,
            Decision::TaintShutdown(patch) | Decision::Untaint(patch) => {
                self.patch(name, Part::Whole, patch).await.map(Some)
            }
            Decision::Delete(_) => {
                let (uid, version) = (&node.metadata.uid, &node.metadata.resource_version);
                let preconditions =
                    Preconditions { uid: uid.clone(), resource_version: version.clone() };
                let params = DeleteParams::default().preconditions(preconditions);
                within(self.nodes.delete(name, &params)).await.map(|_| None)
            }
        };
        match done {
            Ok(written) => {
                info!(node = name, ?decision, "done");
                self.metrics.decided(decision.word());
                written
            }
            Err(error) => {
                warn!(node = name, %error, ?decision, "not done; it is decided anew");
                None
            }
        }
    }

    /// Records an event about a Node.
    pub(super) fn tell(&self, node: &Node, event: &Event) {
        if matches!(self.apply, Apply::Print(_)) {
            return;
        }
        let name = node.metadata.name.clone();
        // As kubelets do: events of Nodes are found by the name.
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

/// The patches of a change, in the order in which they would be sent.
fn written(name: &str, change: &NodeChange) -> String {
    let patches: Vec<String> =
        change.status.iter().chain(&change.patch).map(Value::to_string).collect();
    format!("patch node {name}: {}", patches.join(" then "))
}

async fn within<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, NotWritten> {
    Ok(timeout(WRITE_WITHIN, request).await.map_err(|_| NotWritten::Late)??)
}
