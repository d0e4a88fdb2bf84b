//! What creations of volumes and of snapshots share: the task of an attempt is recorded, its end is waited for, and
//! no second attempt begins while the first one may still complete.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use vsphere::{
    cns::{Outcome, Started},
    error::{Cause, Error, Remedy},
};

use super::{
    Inner,
    journal::{self, Journal, Plan, Record},
    refused::proves_absence,
};
use crate::refusal::{Kind, Refusal};

/// How long a task may run before it is recorded: what ends earlier has its end recorded at once.
const RECORDED_AFTER: Duration = Duration::from_secs(1);
/// How soon a task is recorded again that could not be.
const RECORD_AGAIN: Duration = Duration::from_secs(1);

/// Waits for the end of a task and records the task meanwhile. What is held stays held until the task has ended, whatever
/// becomes of the record.
pub(super) async fn follow<T: Outcome>(
    journal: &Journal,
    name: &str,
    record: Record,
    started: &Started<T>,
) -> (Result<Record, Refusal>, Result<T, Error>) {
    let has_ended = CancellationToken::new();
    let waiting = async {
        let ended = started.wait(super::LIMIT).await;
        has_ended.cancel();
        ended
    };
    let recording = record_task(journal, name, record, started.task().value(), &has_ended);
    tokio::join!(recording, waiting)
}

/// Records the task of an attempt that runs for longer than a moment, also if the API server is away for a while. If
/// the process ends before that, the next one searches for what the attempt may have made.
async fn record_task(
    journal: &Journal,
    name: &str,
    record: Record,
    task: &str,
    has_ended: &CancellationToken,
) -> Result<Record, Refusal> {
    let mut pause = RECORDED_AFTER;
    // How a task ended is recorded by others.
    while has_ended.run_until_cancelled(sleep(pause)).await.is_some() {
        match journal.started(record.clone(), task).await {
            Err(refusal) if refusal.kind == Kind::Unavailable => {
                tracing::warn!(name, task, error = %refusal, "task not recorded; trying again");
            }
            written => return written.map_err(while_open),
        }
        pause = RECORD_AGAIN;
    }
    Ok(record)
}

/// Records that an attempt whose outcome is not known was under way until now.
pub(super) async fn note_under_way(journal: &Journal, name: &str, record: Option<Record>) {
    if let Some(record) = record
        && let Err(refusal) = journal.under_way(record).await
    {
        tracing::warn!(name, error = %refusal, "attempt not recorded as under way");
    }
}

/// Records that an attempt failed for a reason that does not prove that it made nothing.
pub(super) async fn note_doubt(
    journal: &Journal,
    name: &str,
    record: Record,
    plan: Option<&Plan>,
    error: &Error,
) {
    if let Err(refusal) = journal.doubted(record, plan, &error.to_string()).await {
        tracing::warn!(name, error = %refusal, "failed attempt not recorded");
    }
}

/// An attempt that did not succeed, as vCenter reported it.
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether nothing was made, and nothing will be.
    pub(super) is_proof: bool,
}

impl Failure {
    /// The call was refused, so that there is no task. Only a time-out or the like leaves it open what was begun.
    pub(super) fn of_call(error: Error) -> Self {
        Self { is_proof: error.remedy != Remedy::Retry, error }
    }

    /// The task has ended.
    pub(super) fn of_task(error: Error) -> Self {
        Self { is_proof: proves_absence(&error), error }
    }
}

/// Refuses to go on while a call that an earlier process made may still arrive.
pub(super) async fn wait_out(
    inner: &Inner,
    what: &str,
    vcenter: &str,
    (at, record): (Timestamp, Option<&Record>),
) -> Result<(), Refusal> {
    let age = Timestamp::now().duration_since(at);
    let settled = SignedDuration::try_from(inner.settle).unwrap_or(SignedDuration::ZERO);
    if age >= settled {
        return Ok(());
    }
    // A record from the future is one of a clock that is wrong, and as good as a new one.
    if age < SignedDuration::ZERO
        && let Some(record) = record
    {
        inner.journal.under_way(record.clone()).await.map_err(while_open)?;
    }
    let what = format!("{what}: an earlier attempt may still be under way at vCenter {vcenter}");
    let refusal = Refusal::new(Kind::Busy, what).remedy("it is tried again until that is settled");
    Err(match record.and_then(journal::reason) {
        Some(reason) => refusal.because(reason),
        None => refusal,
    })
}

/// Whether the task may still make what it was started for.
pub(super) fn is_running(error: &Error) -> bool {
    matches!(error.failure().cause, Cause::StillRunning(_) | Cause::Closed)
}

/// Whether the outcome of the task cannot be known from the task: only a fault of its own tells that it ended.
pub(super) fn is_lost(error: &Error) -> bool {
    !matches!(
        error.failure().cause,
        Cause::Fault(_) | Cause::TaskFailed(_) | Cause::Unplaced { .. } | Cause::NotDetached { .. }
    )
}

/// While the outcome is open, callers must not take the refusal for final and forget what was asked for.
pub(super) fn while_open(mut refusal: Refusal) -> Refusal {
    if !matches!(refusal.kind, Kind::Busy | Kind::Unfinished) {
        refusal.kind = Kind::Unavailable;
    }
    refusal
}
