//! Reports what was done: log lines, metrics, and events on claims for what stays wrong.
//!
//! Kubernetes itself shows an attach error on the pod. The claim gets an event only if a problem lasts, and one when
//! it is over.

use std::time::Duration;

use daemon::events::{Kind as EventKind, Recorder};
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    apply::{NotWritten, Written},
    observe::trimmed::{Attachment, Claim},
    plan::{Operation, Plan, Step},
    problem::Problem,
};
use crate::metrics::Metrics;

/// Shorter problems are left to Kubernetes' own events.
const LASTS: Duration = Duration::from_secs(30);
/// The shortest time between two events about one VolumeAttachment whose texts differ.
const EVENT_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Reporter {
    recorder: Recorder,
    pub(crate) metrics: Metrics,
}

/// A problem of one VolumeAttachment that is not over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trouble {
    deleting: bool,
    since: Instant,
    /// When an event was recorded, and its text.
    event: Option<(Instant, String)>,
}

/// An event about a claim.
#[derive(Debug, PartialEq)]
struct Event {
    kind: EventKind,
    reason: &'static str,
    message: String,
}

impl Reporter {
    pub(crate) fn new(recorder: Recorder, metrics: Metrics) -> Self {
        Self { recorder, metrics }
    }

    pub(crate) fn wrote<T>(&self, kind: &'static str, name: &str, written: &Written<T>) {
        let result = match &written.result {
            Ok(()) => "ok",
            Err(NotWritten::Conflict) => "conflict",
            Err(NotWritten::Gone) => "gone",
            Err(error) => {
                warn!(kind, name, %error, "write failed; retrying");
                "failed"
            }
        };
        self.metrics.attach.wrote(result);
    }

    pub(crate) fn missing(&self, name: &str, volume: &str, node: &str) {
        warn!(attachment = name, volume, node, "vCenter lost an attached volume; attaching again");
        self.metrics.attach.corrected();
    }

    /// Follows the problem of a VolumeAttachment from plan to plan.
    pub(crate) fn planned(
        &self,
        trouble: &mut Option<Trouble>,
        plan: &Plan,
        (attachment, claim): (&Attachment, Option<&Claim>),
        now: Instant,
    ) {
        let event = follow(trouble, plan, attachment, now);
        let (Some(event), Some(claim)) = (event, claim) else { return };
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: Some(claim.namespace.clone()),
            name: Some(claim.name.clone()),
            uid: Some(claim.uid.clone()),
            ..ObjectReference::default()
        };
        self.recorder.record(&regarding, event.kind, event.reason, &event.message);
    }
}

/// Logs how an operation ended.
pub(crate) fn operated(name: &str, operation: &Operation, result: &Result<String, Problem>) {
    let (word, place) = match operation {
        Operation::Attach(place) => ("attach", place),
        Operation::Detach(place) => ("detach", place),
    };
    let (volume, node) = (&place.volume, &place.node);
    match result {
        Ok(_) => info!(attachment = name, volume, node, "{word} done"),
        Err(Problem { text, .. }) => {
            warn!(attachment = name, volume, node, problem = text, "{word} failed; retrying");
        }
    }
}

fn follow(
    trouble: &mut Option<Trouble>,
    plan: &Plan,
    attachment: &Attachment,
    now: Instant,
) -> Option<Event> {
    let (deleting, node) = (attachment.deleting, &attachment.node);
    trouble.take_if(|trouble| trouble.deleting != deleting);
    let Some(problem) = &plan.problem else {
        let over = matches!(plan.step, Step::Rest | Step::MarkAttached(_) | Step::Release);
        let ended = trouble.take_if(|_| over)?;
        let message = format!("attached to node {node}");
        let event = Event { kind: EventKind::Normal, reason: "Attached", message };
        return (ended.event.is_some() && !deleting).then_some(event);
    };
    let trouble = trouble.get_or_insert(Trouble { deleting, since: now, event: None });
    let new = match &trouble.event {
        None => now >= trouble.since + LASTS,
        Some((at, text)) => *text != problem.text && now >= *at + EVENT_PAUSE,
    };
    if !new {
        return None;
    }
    trouble.event = Some((now, problem.text.clone()));
    let (reason, from) = match deleting {
        false => ("AttachFailed", "not attached to"),
        true => ("DetachFailed", "not detached from"),
    };
    let message = format!("{from} node {node}: {}", problem.text);
    Some(Event { kind: EventKind::Warning, reason, message })
}

#[cfg(test)]
mod tests {
    use super::{Attachment, EVENT_PAUSE, EventKind, Instant, LASTS, Plan, Problem, Step, follow};
    use crate::{attach::observe::trimmed::Source, refusal::Kind};

    fn attachment(deleting: bool) -> Attachment {
        Attachment {
            node: "node-1".into(),
            source: Source::PersistentVolume("pv-1".into()),
            deleting,
            finalizer: true,
            others: false,
            recorded_node: None,
            recorded_volume: None,
            attached: false,
            disk: None,
            attach_error: None,
            detach_error: None,
        }
    }

    fn failing(text: &str, now: Instant) -> Plan {
        Plan { step: Step::Wait(now), problem: Some(Problem::new(Kind::Unavailable, text)) }
    }

    #[test]
    fn a_problem_is_an_event_when_it_lasts_and_another_when_it_is_over() {
        let (start, mut trouble, attachment) = (Instant::now(), None, attachment(false));
        let mut said = |plan: &Plan, now| follow(&mut trouble, plan, &attachment, now);
        assert_eq!(said(&failing("a", start), start), None);
        assert_eq!(said(&failing("a", start), start + LASTS / 2), None);
        let lasting = start + LASTS;
        let event = said(&failing("a", start), lasting).unwrap();
        assert_eq!((event.kind, event.reason), (EventKind::Warning, "AttachFailed"));
        assert_eq!(event.message, "not attached to node node-1: a");
        assert_eq!(said(&failing("a", start), lasting + EVENT_PAUSE * 2), None, "the same text");
        assert_eq!(said(&failing("b", start), lasting), None, "too soon");
        assert!(said(&failing("b", start), lasting + EVENT_PAUSE).is_some());
        assert_eq!(said(&Step::Wait(lasting).into(), lasting), None, "a write that failed");
        let over = said(&Step::MarkAttached("disk".to_owned()).into(), lasting).unwrap();
        assert_eq!((over.kind, over.reason), (EventKind::Normal, "Attached"));
        assert_eq!(said(&Step::Rest.into(), lasting), None);
    }

    #[test]
    fn a_problem_that_is_soon_over_is_no_event() {
        let (now, mut trouble) = (Instant::now(), None);
        let attached = attachment(false);
        assert_eq!(follow(&mut trouble, &failing("a", now), &attached, now), None);
        assert_eq!(follow(&mut trouble, &Step::Rest.into(), &attached, now + LASTS), None);
        assert_eq!(trouble, None);
    }

    #[test]
    fn a_detach_has_its_own_time_and_reason() {
        let (start, mut trouble) = (Instant::now(), None);
        let lasting = start + LASTS;
        follow(&mut trouble, &failing("a", start), &attachment(false), start);
        let (plan, deleted) = (failing("in use", start), attachment(true));
        assert_eq!(follow(&mut trouble, &plan, &deleted, lasting), None);
        let event = follow(&mut trouble, &plan, &deleted, lasting + LASTS).unwrap();
        assert_eq!(event.message, "not detached from node node-1: in use");
        assert_eq!(event.reason, "DetachFailed");
        assert_eq!(follow(&mut trouble, &Step::Release.into(), &deleted, lasting), None);
    }
}
