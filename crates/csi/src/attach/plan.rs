//! Decides what is to be done next about one VolumeAttachment. Pure; time is an argument.
//!
//! ```text
//!   wanted:   Prepare ─► Operate(Attach) ─► MarkAttached ─► Rest
//!   deleted:  Operate(Detach) ─► Release ─► (MarkDetached, if finalizers of others keep it) ─► gone
//!   failed:   Show ─► Wait ─► Operate …
//! ```
//!
//! One step at a time, each safe to repeat: a process that is killed between any two leaves a state from which the
//! next one goes on. Before a volume is attached, the VolumeAttachment has the finalizer and the place where the
//! volume will be; so what was attached is detached before the object is gone, whether or not the
//! PersistentVolume and the CSINode still exist.

mod progress;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use tokio::time::{Duration, Instant};

pub(crate) use self::progress::Progress;
use crate::{
    attach::{observe::trimmed::Attachment, problem::Problem},
    refusal::Kind,
};

/// The shortest time between two errors that are written to one VolumeAttachment.
pub(crate) const ERROR_PAUSE: Duration = Duration::from_secs(10);
/// How long a node may take to let go of a volume after its VolumeAttachment was deleted before that is shown: the
/// watch of Nodes may be behind the one of VolumeAttachments.
const LET_GO: Duration = Duration::from_secs(2);
/// Failures in a row after which a problem that usually passes by itself is shown.
const PASSING: u32 = 4;
/// How soon it is looked again whether what an operation waits for came true, besides at every change.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A volume and the node (by node id) that has it, or will.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) volume: String,
    pub(crate) node: String,
}

/// Something to be done in vCenter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    Attach(Place),
    Detach(Place),
}

/// What was observed about one VolumeAttachment.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    pub(crate) attachment: &'a Attachment,
    /// Where the volume should be, by PersistentVolume and CSINode.
    pub(crate) wanted: Result<Place, Problem>,
    /// Where it may be. `None` if it was never attached.
    pub(crate) recorded: Result<Option<Place>, Problem>,
    /// Why it must not be taken away: a node that runs has it mounted.
    pub(crate) held: Option<Problem>,
}

/// One of the two errors in the status of a VolumeAttachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    AttachError,
    DetachError,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Nothing before this time, unless something changes.
    Wait(Instant),
    /// Write the finalizer and the place.
    Prepare(Place),
    Operate(Operation),
    /// Write that the volume is attached, as this disk.
    MarkAttached(String),
    /// Write that it is not attached.
    MarkDetached,
    /// Write an error.
    Show(Field, Problem),
    /// Remove the finalizer.
    Release,
}

/// What is done next, and what is wrong at present.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) step: Step,
    pub(crate) problem: Option<Problem>,
}

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Self { step, problem: None }
    }
}

/// Plans the next step.
pub(crate) fn next(facts: &Facts<'_>, progress: &Progress, now: Instant) -> Plan {
    if let Some(until) = progress.paused(now) {
        return Step::Wait(until).into();
    }
    if progress.released {
        return Step::Rest.into();
    }
    if facts.attachment.deleting {
        detach(facts, progress, now)
    } else {
        attach(facts, progress, now)
    }
}

fn detach(facts: &Facts<'_>, progress: &Progress, now: Instant) -> Plan {
    let Attachment { finalizer, attached, .. } = facts.attachment;
    if !finalizer {
        // Detached: the finalizer is removed after that and not before.
        return if *attached { Step::MarkDetached } else { Step::Rest }.into();
    }
    let planner = Planner { facts, progress, now, field: Field::DetachError };
    match &facts.recorded {
        Ok(Some(place)) => match planner.operate(Operation::Detach(place.clone())) {
            Ok(_) => Step::Release.into(),
            Err(plan) => plan,
        },
        Ok(None) => Step::Release.into(),
        Err(problem) => planner.blocked(problem),
    }
}

fn attach(facts: &Facts<'_>, progress: &Progress, now: Instant) -> Plan {
    let attachment = facts.attachment;
    let settled = attachment.attached && attachment.attach_error.is_none() && !progress.missing;
    let planner = Planner { facts, progress, now, field: Field::AttachError };
    let place = match &facts.wanted {
        Ok(place) => place,
        // What is attached stays so.
        Err(_) if settled => return Step::Rest.into(),
        Err(problem) => return planner.blocked(problem),
    };
    let operation = Operation::Attach(place.clone());
    if let Some(Ok(disk)) = progress.outcome(&operation) {
        let shown = settled && attachment.disk.as_ref() == Some(disk);
        let step = if shown { Step::Rest } else { Step::MarkAttached(disk.clone()) };
        return step.into();
    }
    if settled {
        return if attachment.finalizer { Step::Rest } else { Step::Prepare(place.clone()) }.into();
    }
    if let Some(elsewhere) = recorded_elsewhere(attachment, place)
        && let Err(plan) = planner.operate(Operation::Detach(elsewhere))
    {
        return plan;
    }
    if !is_prepared(attachment, place) {
        return Step::Prepare(place.clone()).into();
    }
    match planner.operate(operation) {
        // Reported above.
        Ok(_) => Step::Rest.into(),
        Err(plan) => plan,
    }
}

/// The place where an earlier attempt may have attached the volume, if that is not where it should be: a Node or a
/// PersistentVolume was made anew under its old name.
fn recorded_elsewhere(attachment: &Attachment, place: &Place) -> Option<Place> {
    let Attachment { recorded_node, recorded_volume, .. } = attachment;
    let recorded = Place {
        volume: recorded_volume.as_ref().unwrap_or(&place.volume).clone(),
        node: recorded_node.as_ref().unwrap_or(&place.node).clone(),
    };
    (recorded != *place).then_some(recorded)
}

fn is_prepared(attachment: &Attachment, place: &Place) -> bool {
    let Attachment { finalizer, recorded_node, recorded_volume, .. } = attachment;
    *finalizer
        && recorded_node.as_ref() == Some(&place.node)
        && recorded_volume.as_ref() == Some(&place.volume)
}

struct Planner<'a> {
    facts: &'a Facts<'a>,
    progress: &'a Progress,
    now: Instant,
    /// Where problems are shown.
    field: Field,
}

impl Planner<'_> {
    /// Whether the operation was done; otherwise what to do about that.
    fn operate(&self, operation: Operation) -> Result<&str, Plan> {
        let held = self.facts.held.as_ref();
        let held = held.filter(|_| matches!(operation, Operation::Detach(_)));
        match (self.progress.outcome(&operation), held) {
            (Some(Ok(disk)), _) => Ok(disk),
            (_, Some(problem)) => Err(self.held(problem)),
            (None, None) => Err(Step::Operate(operation).into()),
            (Some(Err(problem)), None) => {
                let passing = matches!(problem.kind, Kind::Busy | Kind::Unavailable);
                let step = if passing && self.progress.failures < PASSING {
                    Step::Wait(self.progress.retry_at)
                } else {
                    self.show(problem, self.progress.retry_at)
                };
                let due = self.now >= self.progress.retry_at;
                let retry = due && !matches!(step, Step::Show(..));
                let step = if retry { Step::Operate(operation) } else { step };
                Err(Plan { step, problem: Some(problem.clone()) })
            }
        }
    }

    /// The node has the volume mounted.
    fn held(&self, problem: &Problem) -> Plan {
        match self.progress.deleting_since.map(|since| since + LET_GO) {
            Some(until) if self.now < until => Step::Wait(until).into(),
            _ => self.blocked(problem),
        }
    }

    /// Nothing can be done before something else changes.
    fn blocked(&self, problem: &Problem) -> Plan {
        let step = self.show(problem, self.now + LOOK_AGAIN);
        Plan { step, problem: Some(problem.clone()) }
    }

    /// Shows the problem, unless the status has it, or was written a moment ago; else waits.
    fn show(&self, problem: &Problem, until: Instant) -> Step {
        let shown = match self.field {
            Field::AttachError => &self.facts.attachment.attach_error,
            Field::DetachError => &self.facts.attachment.detach_error,
        };
        if problem.is_shown(shown.as_ref()) {
            return Step::Wait(until);
        }
        match self.progress.error_written.map(|at| at + ERROR_PAUSE) {
            Some(free) if self.now < free => Step::Wait(until.min(free)),
            _ => Step::Show(self.field, problem.clone()),
        }
    }
}

/// The problem of a volume that a node which runs still has mounted.
pub(crate) fn held(node: &str, volume: &str) -> Problem {
    let text = format!(
        "volume {volume} is not detached from node {node}, because the node still reports it as in use and taking it \
         away would damage its file system; it is detached when the kubelet of {node} has unmounted it, when the VM \
         is powered off, or when the node is known to be down: kubectl taint node {node} \
         node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    );
    Problem::new(Kind::Precondition, text)
}
