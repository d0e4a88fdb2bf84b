//! How often a Node may be written.
//!
//! Whatever goes wrong elsewhere (a guest whose address flaps, a vCenter whose error text alternates), the API
//! server gets a bounded number of writes per Node. The total is bounded by the client's `--kube-api-qps`.

use std::{collections::HashMap, sync::Arc};

use tokio::time::{Duration, Instant};

/// Writes of one Node that may follow each other at once, and the time after which one more is allowed.
const WRITES: Rate = Rate { burst: 10, every: Duration::from_secs(10) };
/// The same for writes that change nothing but the wording of a condition.
const REWORDINGS: Rate = Rate { burst: 3, every: Duration::from_secs(300) };

struct Rate {
    burst: u32,
    every: Duration,
}

/// A token bucket, empty of debt when new.
#[derive(Debug)]
struct Bucket {
    /// When the bucket is, or was, full again.
    full_at: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    fn take(&mut self, rate: &Rate, now: Instant) -> bool {
        let next = self.full_at.max(now) + rate.every;
        let allowed = next <= now + rate.every * rate.burst;
        if allowed {
            self.full_at = next;
        }
        allowed
    }
}

/// The writes of all Nodes.
#[derive(Debug, Default)]
pub(crate) struct Budget(HashMap<Arc<str>, (Bucket, Bucket)>);

impl Budget {
    /// Whether the Node may be written now; counts the write if so.
    pub(crate) fn admit(&mut self, node: &Arc<str>, rewording: bool, now: Instant) -> bool {
        let buckets = self.0.entry(Arc::clone(node));
        let (writes, rewordings) = buckets.or_insert_with(|| (Bucket::new(now), Bucket::new(now)));
        (!rewording || rewordings.take(&REWORDINGS, now)) && writes.take(&WRITES, now)
    }

    /// Forgets Nodes whose buckets are full.
    pub(crate) fn forget_idle(&mut self, now: Instant) {
        self.0.retain(|_, (writes, rewordings)| writes.full_at > now || rewordings.full_at > now);
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Duration, Instant, REWORDINGS, WRITES};

    fn admitted(budget: &mut Budget, rewording: bool, seconds: u64, now: Instant) -> usize {
        let ticks = (0..seconds).map(|second| now + Duration::from_secs(second));
        ticks.filter(|at| budget.admit(&"node-1".into(), rewording, *at)).count()
    }

    #[test]
    fn a_node_that_always_changes_is_written_at_a_bounded_rate() {
        let now = Instant::now();
        assert_eq!(admitted(&mut Budget::default(), false, 600, now), 10 + 59);
        assert_eq!(admitted(&mut Budget::default(), true, 600, now), 4);
    }

    #[test]
    fn nodes_do_not_use_up_each_others_budget_and_idle_ones_are_forgotten() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        assert_eq!(admitted(&mut budget, false, 1, now), 1);
        assert!(budget.admit(&"node-2".into(), true, now));
        budget.forget_idle(now + WRITES.every);
        assert_eq!(budget.0.len(), 1);
        budget.forget_idle(now + REWORDINGS.every);
        assert!(budget.0.is_empty());
    }
}
