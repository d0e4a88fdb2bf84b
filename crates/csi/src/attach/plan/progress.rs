//! What this process did about one VolumeAttachment, and when it may do more. Nothing of it outlives the process:
//! what must not be forgotten is in the VolumeAttachment.

use tokio::time::{Duration, Instant};

use super::{Operation, Step};
use crate::attach::problem::Problem;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Progress {
    /// The last operation and what it ended with: the disk, if it was an attach. Counts for the same operation only,
    /// so that whatever changes it makes it start anew.
    last: Option<(Operation, Result<String, Problem>)>,
    /// How often it failed in a row.
    pub(super) failures: u32,
    /// When a failed operation may be tried again.
    pub(super) retry_at: Instant,
    /// When an error was written last.
    pub(super) error_written: Option<Instant>,
    /// How often writes failed in a row, and until when none is tried.
    writes: (u32, Instant),
    /// When the deletion of the object was seen.
    pub(super) deleting_since: Option<Instant>,
    /// Whether vCenter does not have what the status says is attached.
    pub(super) missing: bool,
    /// Whether the object is gone, although the watch has not said so yet.
    pub(super) released: bool,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            last: None,
            failures: 0,
            retry_at: now,
            error_written: None,
            writes: (0, now),
            deleting_since: None,
            missing: false,
            released: false,
        }
    }

    pub(super) fn outcome(&self, operation: &Operation) -> Option<&Result<String, Problem>> {
        let (last, result) = self.last.as_ref()?;
        (last == operation).then_some(result)
    }

    /// Until when nothing is tried because writes failed.
    pub(super) fn paused(&self, now: Instant) -> Option<Instant> {
        (now < self.writes.1).then_some(self.writes.1)
    }

    /// The object is being deleted.
    pub(crate) fn seen_deleting(&mut self, now: Instant) {
        self.deleting_since.get_or_insert(now);
    }

    /// An operation ended. `spread` is a factor around 1, so that what failed together is not tried again together.
    pub(crate) fn operated(
        &mut self,
        operation: Operation,
        result: Result<String, Problem>,
        spread: f64,
        now: Instant,
    ) {
        if result.is_ok() {
            self.failures = 0;
            self.missing &= !matches!(operation, Operation::Attach(_));
        } else {
            let again = self.last.as_ref().is_some_and(|(last, _)| *last == operation);
            self.failures = if again { self.failures.saturating_add(1) } else { 1 };
            self.retry_at = now + pause(self.failures).mul_f64(spread);
        }
        self.last = Some((operation, result));
    }

    /// A step was written to the API.
    pub(crate) fn wrote(&mut self, step: &Step, now: Instant) {
        self.writes = (0, now);
        match step {
            // From here on vCenter is asked, not the memory.
            Step::MarkAttached(_) => self.last = None,
            Step::Show(..) => self.error_written = Some(now),
            _ => {}
        }
    }

    /// A write failed.
    pub(crate) fn not_written(&mut self, now: Instant) {
        let failures = self.writes.0.saturating_add(1);
        self.writes = (failures, now + pause(failures));
    }

    /// The object has no finalizer left.
    pub(crate) fn released(&mut self) {
        self.released = true;
    }

    /// vCenter does not have what the status says is attached.
    pub(crate) fn found_missing(&mut self) {
        (self.missing, self.last) = (true, None);
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_RETRY.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_RETRY)
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, LONGEST_RETRY, Operation, Problem, Progress};
    use crate::{attach::plan::Place, refusal::Kind};

    fn attach(node: &str) -> Operation {
        Operation::Attach(Place { volume: "v-1".to_owned(), node: node.to_owned() })
    }

    #[test]
    fn pauses_grow_to_a_minute_and_start_anew_with_another_operation() {
        let now = Instant::now();
        let mut progress = Progress::new(now);
        let failed = || Err(Problem::new(Kind::Unavailable, "no answer"));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            progress.operated(attach("a"), failed(), 1.0, now);
            pauses.push((progress.retry_at - now).as_secs_f64());
        }
        assert_eq!(pauses, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
        progress.operated(attach("b"), failed(), 1.0, now);
        assert_eq!(progress.retry_at - now, Duration::from_millis(500));
        assert!(progress.outcome(&attach("a")).is_none());
    }

    #[test]
    fn nothing_is_tried_for_a_while_after_a_write_failed() {
        let now = Instant::now();
        let mut progress = Progress::new(now);
        assert_eq!(progress.paused(now), None);
        for _ in 0..100 {
            progress.not_written(now);
        }
        assert_eq!(progress.paused(now), Some(now + LONGEST_RETRY));
        assert_eq!(progress.paused(now + LONGEST_RETRY), None);
    }
}
