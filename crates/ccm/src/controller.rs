//! Keeps the Nodes of a cluster true to their VMs: observe → plan → apply → report.
//!
//! ```text
//!   watch of Nodes ─┐                 ┌─► node::plan ──────┐
//!                   ├─► observe ─► queue                   ├─► budget ─► apply ─► report
//!   vcenter::View ──┘                 └─► lifecycle::plan ─┘                 └──► observe (what was written)
//! ```
//!
//! A round plans the Nodes in the queue: those that changed, those whose VM changed, and at every tick those that
//! wait for time to pass. Changes that arrive within [`BATCH`] are one round. A Node is planned once per change and
//! the plan is applied as it is; only a Node that another client changed meanwhile is planned again. Lifecycle is
//! planned for all Nodes together, at every tick and after changes while a Node is not ready.
//!
//! The loop never waits for a request: writes and requests to vCenter run beside it.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use daemon::{client, supervise::Shutdown};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::{
    apply::{NodeWriter, NotWritten, Receipt, Work, budget::Budget},
    observe::{Observer, discovery::Finding, nodes, removals::Removals},
    plan::{
        lifecycle::{self, Decision, History, Moment, Subject},
        node,
    },
    report::Reporter,
    settings::Settings,
};

/// Changes that arrive within this time are planned together.
const BATCH: Duration = Duration::from_millis(100);
/// Writes in flight.
const CONCURRENT_WRITES: usize = 16;
/// How soon a Node whose write failed is planned again; doubled with each failure in a row.
const RETRY: Duration = Duration::from_secs(3);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// The shortest time between two lifecycle plans that changes cause.
const LIFECYCLE_PAUSE: Duration = Duration::from_secs(1);
/// All Nodes are planned this often, whatever changed.
const RESYNC: Duration = Duration::from_secs(300);

/// What outlives a reload of the configuration: since when Nodes are not ready, how many were deleted lately, and
/// how often each was written.
#[derive(Debug, Clone, Default)]
pub struct Memory(Arc<Mutex<Remembered>>);

#[derive(Debug, Default)]
struct Remembered {
    lifecycle: History,
    writes: Budget,
}

pub(crate) struct Controller {
    observer: Observer,
    removals: Removals,
    writer: NodeWriter,
    reporter: Reporter,
    settings: Settings,
    memory: Memory,
    queue: Queue,
    /// Lifecycle decisions that wait for a slot; replaced by each plan.
    decisions: VecDeque<(Arc<str>, Decision)>,
    writes: FuturesUnordered<BoxFuture<'static, Receipt>>,
    in_flight: HashSet<Arc<str>>,
    /// Nodes that changed while a write of theirs was in flight.
    changed_in_flight: HashSet<Arc<str>>,
    /// Nodes whose write failed: when they may be planned again, and how often it failed in a row.
    failed: HashMap<Arc<str>, (Instant, u32)>,
    /// Nodes whose plan depends on the time, or whose write waits for budget or retry: planned at every tick.
    unsettled: BTreeSet<Arc<str>>,
    last_lifecycle: Instant,
    last_resync: Instant,
}

/// Names of Nodes to plan, each once, in the order in which they came.
#[derive(Default)]
struct Queue {
    order: VecDeque<Arc<str>>,
    queued: HashSet<Arc<str>>,
}

impl Queue {
    fn extend(&mut self, names: impl IntoIterator<Item = Arc<str>>) {
        for name in names {
            if self.queued.insert(Arc::clone(&name)) {
                self.order.push_back(name);
            }
        }
    }

    fn pop(&mut self) -> Option<Arc<str>> {
        let name = self.order.pop_front()?;
        self.queued.remove(&name);
        Some(name)
    }
}

impl Controller {
    pub(crate) fn new(
        observer: Observer,
        writer: NodeWriter,
        reporter: Reporter,
        settings: Settings,
        memory: Memory,
    ) -> Self {
        Self {
            observer,
            removals: Removals::new(settings.lifecycle_every),
            writer,
            reporter,
            settings,
            memory,
            queue: Queue::default(),
            decisions: VecDeque::new(),
            writes: FuturesUnordered::new(),
            in_flight: HashSet::new(),
            changed_in_flight: HashSet::new(),
            failed: HashMap::new(),
            unsettled: BTreeSet::new(),
            last_lifecycle: Instant::now(),
            last_resync: Instant::now(),
        }
    }

    /// Runs rounds until `shutdown`. A write in flight is dropped then; the API server carries it out or not.
    pub(crate) async fn run(mut self, shutdown: Shutdown) -> Result<(), Infallible> {
        let nodes = watcher(self.writer.nodes().clone(), client::watch());
        let mut events = pin!(nodes.backoff(client::backoff()));
        let mut ticks = interval(self.settings.lifecycle_every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round_at: Option<Instant> = None;
        let mut lifecycle_due = false;
        loop {
            let changed = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                event = events.next() => self.observer.nodes.take(event),
                changed = self.observer.vcenter_changed() => changed,
                Some(receipt) = self.writes.next() => self.finish(receipt),
                () = self.removals.answered() => {
                    lifecycle_due = true;
                    BTreeSet::new()
                }
                _ = ticks.tick() => {
                    lifecycle_due = true;
                    self.tick()
                }
                () = sleep_until(round_at.unwrap_or_else(Instant::now)), if round_at.is_some() => {
                    round_at = None;
                    self.round(std::mem::take(&mut lifecycle_due));
                    BTreeSet::new()
                }
            };
            let work = !changed.is_empty() || lifecycle_due;
            self.queue.extend(changed);
            if work && self.observer.nodes.is_synced() {
                round_at.get_or_insert_with(|| Instant::now() + BATCH);
            }
        }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.memory.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Housekeeping by the clock. Returns the Nodes to plan.
    fn tick(&mut self) -> BTreeSet<Arc<str>> {
        let now = Instant::now();
        self.observer.prune();
        self.remembered().writes.forget_idle(now);
        self.failed.retain(|name, _| self.observer.nodes.get(name).is_some());
        self.reporter.count(self.observer.nodes.iter().map(|(node, _)| node));
        if now.duration_since(self.last_resync) >= RESYNC {
            self.last_resync = now;
            self.unsettled.clear();
            return self.observer.nodes.names().cloned().collect();
        }
        std::mem::take(&mut self.unsettled)
    }

    /// Plans what is due and starts to write it.
    fn round(&mut self, lifecycle_due: bool) {
        let lifecycle = self.settings.controllers.lifecycle;
        if lifecycle && (lifecycle_due || self.waits_for_lifecycle()) {
            self.plan_lifecycle();
        }
        self.start_writes();
        self.observer.select_guests();
    }

    /// Whether lifecycle is worth a plan before the tick: something changed, which may be what a Node that is not
    /// ready waits for.
    fn waits_for_lifecycle(&self) -> bool {
        self.last_lifecycle.elapsed() >= LIFECYCLE_PAUSE
            && self.observer.nodes.iter().any(|(node, _)| !lifecycle::is_ready(node))
    }

    /// Decides which Nodes are tainted because their VM is off, and which are deleted because it is gone.
    fn plan_lifecycle(&mut self) {
        self.last_lifecycle = Instant::now();
        let snapshots = self.observer.snapshots();
        let (nodes, findings) = self.observer.findings();
        let evidence = self.removals.evidence(&snapshots, &nodes, &findings);
        let subjects = nodes.iter().zip(&findings).zip(evidence);
        let subjects: Vec<Subject<'_>> = subjects
            .map(|((node, finding), evidence)| Subject { node, finding, evidence })
            .collect();
        let mut memory = self.memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (history, settings) = (&mut memory.lifecycle, &self.settings.lifecycle);
        let plan = lifecycle::plan(&subjects, history, settings, Moment::now());
        *history = plan.history;
        self.reporter.decisions(nodes.iter().copied().zip(&plan.decisions));
        let acts = |decision: &Decision| !matches!(decision, Decision::Keep | Decision::Refuse(_));
        let decided = nodes.iter().map(|node| nodes::name(node)).zip(plan.decisions);
        self.decisions = decided.filter(|(_, decision)| acts(decision)).collect();
    }

    /// Plans Nodes of the queue and applies the plans, as long as there are free slots.
    fn start_writes(&mut self) {
        let now = Instant::now();
        while self.writes.len() < CONCURRENT_WRITES
            && let Some((name, decision)) = self.decisions.pop_front()
        {
            // Decided again with the next plan if this one cannot be applied now.
            let free = !self.in_flight.contains(&name);
            if free && self.remembered().writes.admit(&name, false, now) {
                self.write(name, Work::Lifecycle(decision));
            }
        }
        while self.writes.len() < CONCURRENT_WRITES
            && let Some(name) = self.queue.pop()
        {
            self.plan_node(name, now);
        }
    }

    fn plan_node(&mut self, name: Arc<str>, now: Instant) {
        if !self.settings.controllers.nodes {
            return;
        }
        if self.in_flight.contains(&name) {
            self.changed_in_flight.insert(name);
            return;
        }
        if self.failed.get(&name).is_some_and(|(until, _)| *until > now) {
            self.unsettled.insert(name);
            return;
        }
        let (settings, time) = (&self.settings.node, Timestamp::now());
        let planned = self.observer.observe(&name, time, |node, observed| {
            let settled = matches!(observed.finding, Finding::Found(..)) && observed.steady;
            (node::plan(node, observed, settings, time), settled)
        });
        let Some((change, settled)) = planned else {
            // Its guest has not been read, which is among the changes when it was.
            self.unsettled.insert(name);
            return;
        };
        if !settled {
            self.unsettled.insert(Arc::clone(&name));
        }
        if change.is_empty() {
            return;
        }
        if self.remembered().writes.admit(&name, change.rewords_condition, now) {
            self.write(name, Work::Change(change));
        } else {
            self.unsettled.insert(name);
        }
    }

    fn write(&mut self, name: Arc<str>, work: Work) {
        let Some((node, _)) = self.observer.nodes.get(&name) else { return };
        self.writes.push(self.writer.clone().apply(node.clone(), work).boxed());
        self.in_flight.insert(name);
    }

    /// Takes in what became of a write. Returns the Nodes to plan.
    fn finish(&mut self, receipt: Receipt) -> BTreeSet<Arc<str>> {
        self.reporter.report(&receipt);
        let Receipt { name, node, result, .. } = receipt;
        self.in_flight.remove(&name);
        if let Some(node) = node {
            self.observer.nodes.learn(node);
        }
        let mut again: BTreeSet<_> = self.changed_in_flight.take(&name).into_iter().collect();
        match result {
            Ok(()) => _ = self.failed.remove(&name),
            Err(NotWritten::Printed | NotWritten::Gone) => {}
            // The lease may be renewed: a clock that is set makes it look lost for a moment.
            Err(NotWritten::NotLeading) => _ = self.unsettled.insert(name),
            Err(NotWritten::Conflict) => _ = again.insert(name),
            Err(NotWritten::TimedOut | NotWritten::Refused(_)) => {
                let failures = self.failed.get(&name).map_or(0, |(_, failures)| *failures);
                let pause = RETRY.saturating_mul(1 << failures.min(10)).min(LONGEST_RETRY);
                let until = Instant::now() + pause;
                self.failed.insert(Arc::clone(&name), (until, failures.saturating_add(1)));
                self.unsettled.insert(name);
            }
        }
        self.start_writes();
        again
    }
}
