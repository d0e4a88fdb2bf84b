//! When a Node is tainted because its VM is off, and when it is deleted because its VM is gone.
//!
//! [`plan`] looks at all Nodes at once, because how many would go is a reason to let none go. Taints
//! follow from the power state alone. A Node is deleted on proof only: everybody answered and nobody has the
//! VM, the recorded reference is gone, the user could have seen it, somebody destroyed it; several times in a
//! row, for longer than the grace, and not too many at once. Everything else is a [`Refusal`] that says what
//! is missing.
//!
//! Deliberately absent: who asks vCenter. The caller keeps the [`History`] between two plans.

mod history;
mod proof;
mod taint;

use std::collections::HashSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

pub use self::{
    history::History,
    proof::{Evidence, Proof, Reference, Refusal, Removal},
};
use crate::{discovery::Finding, node::Event, provider_id::Reading};

/// On Nodes that are never deleted, whatever became of their VM.
pub const KEEP: &str = "ccm.vsphere.vmware.com/keep";

/// When Nodes are tainted and deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a Node must be seen not ready before it is deleted.
    pub grace: SignedDuration,
    /// How often the proof must hold in a row, each time from new answers.
    pub checks: u32,
    /// How old answers may be.
    pub freshness: SignedDuration,
    /// The percentage of Nodes that may go within the window; one may always.
    pub most_percent: usize,
    /// The time over which deletions are counted.
    pub window: SignedDuration,
    /// Whether nothing is ever deleted (`SKIP_NODE_DELETION`).
    pub skip_deletion: bool,
    /// Whether Nodes whose VM is off for certain are taken out of service, so that their volumes move.
    pub out_of_service: bool,
}

/// A Node, and what is known of its VM.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The Node.
    pub node: &'a Node,
    /// Which VM it is.
    pub finding: &'a Finding<'a>,
    /// What asking for the recorded VM gave, if none was found.
    pub evidence: Evidence,
}

/// What happens to a Node.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Nothing.
    Keep,
    /// It is tainted, because its VM is off. The patch holds the version it was decided on.
    TaintShutdown(Value),
    /// Taints of ours go, because the VM runs.
    Untaint(Value),
    /// It is deleted.
    Delete(Proof),
    /// It stays although no VM was found.
    Refuse(Refusal),
}

/// What happens to all Nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// A decision per subject, in their order.
    pub decisions: Vec<Decision>,
    /// What to hand to the next plan.
    pub history: History,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace: SignedDuration::from_secs(60),
            checks: 3,
            freshness: SignedDuration::from_secs(60),
            most_percent: 10,
            window: SignedDuration::from_mins(10),
            skip_deletion: false,
            out_of_service: false,
        }
    }
}

impl Decision {
    /// The decision in one word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::TaintShutdown(_) => "taint",
            Self::Untaint(_) => "untaint",
            Self::Delete(_) => "delete",
            Self::Refuse(_) => "refuse",
        }
    }

    /// What to tell the user, when the decision is another than the last time.
    pub fn event(&self, node: &str) -> Option<Event> {
        match self {
            Self::Keep | Self::TaintShutdown(_) | Self::Untaint(_) => None,
            Self::Delete(proof) => {
                let why = "because it does not exist in the cloud provider";
                let message = format!("Deleting node {node} {why}: {proof}");
                Some(Event { warning: false, reason: "DeletingNode", message })
            }
            // These are no news: the user asked for it, or it is about to be decided.
            Self::Refuse(
                Refusal::Disabled
                | Refusal::KeptByAnnotation
                | Refusal::RemovalNotAsked
                | Refusal::TooEarly,
            ) => None,
            Self::Refuse(refusal) => {
                let message = refusal.to_string();
                Some(Event { warning: true, reason: refusal.reason(), message })
            }
        }
    }
}

/// Decides about all Nodes. Nodes that are not among the subjects are forgotten.
pub fn plan(
    subjects: &[Subject<'_>],
    history: &History,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    // vCenters that show a VM of another Node would show this one's as well.
    let seen: HashSet<&str> = subjects.iter().filter_map(|subject| instance(subject)).collect();
    let mut next = history.aged(settings.window, now);
    let mut decisions = Vec::with_capacity(subjects.len());
    let mut due = Vec::new();
    let mut gone = HashSet::new();
    for (at, subject) in subjects.iter().enumerate() {
        let uid = subject.node.metadata.uid.as_deref().unwrap_or_default();
        let decision = match subject.finding {
            Finding::NotOurs => Decision::Keep,
            _ if is_foreign(subject.node) => Decision::Keep,
            _ if is_ready(subject.node) => taint::of_ready(subject.node),
            finding => {
                let mut watched = history.watched(uid, now);
                let decision = match finding {
                    Finding::Absent(absence) => {
                        let proven = proof::prove(subject, absence, &seen, settings, now);
                        watched.check(proven.is_ok().then_some(absence.asked_at), now);
                        gone.extend(proven.is_ok().then_some(uid));
                        proven.and_then(|proof| watched.is_due(proof, settings, now)).map_or_else(
                            Decision::Refuse,
                            |proof| {
                                due.push(at);
                                Decision::Delete(proof)
                            },
                        )
                    }
                    other => {
                        watched.check(None, now);
                        taint::of_unready(subject.node, other, settings, now)
                    }
                };
                next.watch(uid, watched);
                decision
            }
        };
        decisions.push(decision);
    }
    let would = gone.len() + next.deleted_besides(&gone);
    let most = (subjects.len() * settings.most_percent / 100).max(1);
    for at in due {
        if would > most {
            decisions[at] = Decision::Refuse(Refusal::TooMany { would, most });
        } else {
            next.delete(subjects[at].node.metadata.uid.as_deref().unwrap_or_default(), now);
        }
    }
    Plan { decisions, history: next }
}

/// The id of the vCenter in which a Node's VM was found.
fn instance<'a>(subject: &Subject<'a>) -> Option<&'a str> {
    match subject.finding {
        Finding::Found(machine, _) => machine.instance,
        _ => None,
    }
}

/// Whether the Node is a machine of another cloud, whoever was found.
fn is_foreign(node: &Node) -> bool {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    matches!(Reading::of(id), Reading::Foreign(_))
}

/// Whether the kubelet says so. No word is not a yes.
pub(crate) fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
