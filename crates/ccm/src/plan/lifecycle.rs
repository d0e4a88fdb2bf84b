//! When a Node is tainted because its VM is off, and when it is deleted because its VM is gone.
//!
//! [`plan`] takes all Nodes at once, because deletions are limited. Taints follow from the power state alone.
//! A Node is deleted on proof only: every vCenter answered and none has the VM, the recorded reference is
//! gone, the user could have seen it, vCenter recorded that it was destroyed; several times in a row and for
//! longer than the grace. Everything else is a [`Refusal`] that names what is missing.
//!
//! In any window no more Nodes are deleted than the limit. The others wait for the next window: the limit
//! gives people time to stop a mistake and never blocks a deletion for good.
//!
//! Deliberately absent: requests to vCenter. The caller keeps the [`History`] between two plans.

mod history;
mod proof;
mod taint;

use std::{collections::HashSet, fmt, time::Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

pub(crate) use self::{
    history::History,
    proof::{Evidence, Proof, Reference, Refusal, Removal},
};
use crate::{
    observe::discovery::Finding,
    plan::{
        node::{self, Event},
        taints::{self, UNINITIALIZED},
    },
    provider_id::{self, Reading},
};

/// On Nodes that are never deleted, whatever became of their VM.
const KEEP: &str = "ccm.vsphere.vmware.com/keep";

/// Nodes that may be deleted within a window in the smallest of clusters.
const ALWAYS_ALLOWED: usize = 3;

/// When Nodes are tainted and deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a Node must be seen not ready before it is deleted.
    pub grace: SignedDuration,
    /// How often the proof must hold in a row, each time from new answers.
    pub checks: u32,
    /// How old answers may be.
    pub freshness: SignedDuration,
    /// The percentage of Nodes that may be deleted within the window, but never fewer than three.
    pub most_percent: usize,
    /// The time over which deletions are counted.
    pub window: SignedDuration,
    /// Whether nothing is ever deleted (`SKIP_NODE_DELETION`).
    pub skip_deletion: bool,
    /// Whether Nodes whose VM is off for certain are taken out of service, so that their volumes move.
    pub out_of_service: bool,
}

/// A Node and what is known of its VM.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) node: &'a Node,
    pub(crate) finding: &'a Finding<'a>,
    /// What vCenter answered about the recorded VM, if none was found.
    pub(crate) evidence: Evidence,
}

/// A point in time. Durations that decide a deletion are measured on the monotonic clock, which cannot be set;
/// the wall clock is for comparing with answers of vCenters, and for people.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Instant,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    Keep,
    /// Because its VM is off. The patch holds the resource version it was planned on, as in `Untaint`.
    TaintShutdown(Value),
    /// Because the VM runs.
    Untaint(Value),
    Delete(Proof),
    /// The Node stays although no VM was found.
    Refuse(Refusal),
}
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// One per subject, in their order.
    pub(crate) decisions: Vec<Decision>,
    /// For the next plan.
    pub(crate) history: History,
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

impl Moment {
    pub(crate) fn now() -> Self {
        Self { wall: Timestamp::now(), monotonic: Instant::now() }
    }

    fn since(self, earlier: Instant) -> SignedDuration {
        let elapsed = self.monotonic.saturating_duration_since(earlier);
        SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX)
    }
}

/// The event about a Node that the API server did not delete.
pub(crate) fn deletion_failed(node: &str, error: &dyn fmt::Display) -> Event {
    let message = format!("Deleting node {node} failed: {error}");
    Event { warning: true, reason: "DeletingNodeFailed", message }
}

impl Decision {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::TaintShutdown(_) => "taint",
            Self::Untaint(_) => "untaint",
            Self::Delete(_) => "delete",
            Self::Refuse(_) => "refuse",
        }
    }

    /// To be recorded when it is another than the last one about the Node.
    pub(crate) fn event(&self, node: &str) -> Option<Event> {
        match self {
            Self::Keep | Self::TaintShutdown(_) | Self::Untaint(_) => None,
            Self::Delete(proof) => {
                let why = "because it does not exist in the cloud provider";
                let message = format!("Deleting node {node} {why}: {proof}");
                Some(Event { warning: false, reason: "DeletingNode", message })
            }
            // Not worth an event: the user wants it so, or it is decided soon.
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

/// Nodes that are not among the subjects are forgotten.
pub(crate) fn plan(
    subjects: &[Subject<'_>],
    history: &History,
    settings: &Settings,
    now: Moment,
) -> Plan {
    // A vCenter that shows the VM of another Node would show this one's as well.
    let visible: HashSet<&str> = subjects.iter().filter_map(|subject| instance(subject)).collect();
    let mut next = history.carried_over(subjects.iter().map(uid), settings.window, now);
    let mut decisions: Vec<Decision> = subjects
        .iter()
        .map(|subject| decide(subject, &visible, history, &mut next, settings, now))
        .collect();
    let mut due: Vec<usize> =
        (0..subjects.len()).filter(|at| matches!(decisions[*at], Decision::Delete(_))).collect();
    // Nodes whose deletion failed before come last, so that they hold up no others.
    due.sort_by_key(|at| next.deletion_of(uid(&subjects[*at])));
    let limit = (subjects.len() * settings.most_percent / 100).max(ALWAYS_ALLOWED);
    for at in due {
        if !next.delete(uid(&subjects[at]), limit, settings.window, now) {
            decisions[at] = Decision::Refuse(Refusal::TooMany);
        }
    }
    Plan { decisions, history: next }
}

/// The decision about one Node as if it were the only one.
fn decide(
    subject: &Subject<'_>,
    visible: &HashSet<&str>,
    history: &History,
    next: &mut History,
    settings: &Settings,
    now: Moment,
) -> Decision {
    let Subject { node, finding, .. } = subject;
    let reading = Reading::of(provider_id::of(node));
    if matches!(finding, Finding::NotOurs) || matches!(reading, Reading::Foreign(_)) {
        return Decision::Keep;
    }
    if is_ready(node) {
        return taint::of_ready(node);
    }
    // A Node without provider id that waits for none is not ours, as on bare metal.
    let unmanaged = reading == Reading::Absent && !taints::has(node, UNINITIALIZED);
    if matches!(finding, Finding::Absent(_)) && unmanaged {
        return Decision::Keep;
    }
    let mut unready = history.unready(uid(subject), now);
    let decision = match finding {
        Finding::Absent(absence) => {
            let proof = proof::prove(subject, absence, visible, settings, now.wall);
            unready.check(proof.is_ok().then_some(absence.asked_at), now);
            proof
                .and_then(|proof| unready.is_due(proof, settings, now))
                .map_or_else(Decision::Refuse, Decision::Delete)
        }
        other => {
            unready.check(None, now);
            taint::of_unready(node, other, settings, now.wall)
        }
    };
    next.keep(uid(subject), unready);
    decision
}

fn uid<'a>(subject: &Subject<'a>) -> &'a str {
    subject.node.metadata.uid.as_deref().unwrap_or_default()
}

/// The id of the vCenter in which a Node's VM was found.
fn instance<'a>(subject: &Subject<'a>) -> Option<&'a str> {
    match subject.finding {
        Finding::Found(machine, _) => machine.instance,
        _ => None,
    }
}

/// Whether the kubelet reports that the Node is ready. No report means no.
pub(crate) fn is_ready(node: &Node) -> bool {
    node::condition(node, "Ready").is_some_and(|ready| ready.status == "True")
}

#[cfg(test)]
mod tests;
