//! The loop: what happened since the last turn, what is planned because of it, and what runs meanwhile.
//!
//! The loop never waits for a request. Writes and operations run beside it, one per VolumeAttachment at a time; when
//! one ends, its VolumeAttachment is planned again. Operations on the VMs of all nodes are started as they come:
//! [`Volumes`] orders those of one VM and joins them into few calls.

mod finish;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    convert::Infallible,
    pin::pin,
    sync::Arc,
};

use daemon::{client, supervise::Shutdown};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tracing::info;

use super::{
    apply::{Writer, Written},
    limits::{self, Limits},
    observe::{
        Changed, Observer,
        trimmed::{Attachment, Volume},
    },
    plan::{self, Operation, Progress, Step},
    problem::Problem,
    queue::{Queue, Timers},
    report::{Reporter, Trouble},
    verify::{self, Claimed},
};
use crate::{
    metrics,
    refusal::{Kind, Refusal},
    volumes::Volumes,
};

/// Writes to the API in flight.
const CONCURRENT_WRITES: usize = 64;
/// Operations in flight. Most of them wait for their turn at their VM.
const CONCURRENT_OPERATIONS: usize = 1000;
/// An operation without an answer after this time counts as failed, and is tried again.
const OPERATION_WITHIN: Duration = Duration::from_secs(300);
/// How often what waits is counted, and failed releases of PersistentVolumes are tried again.
const TICK: Duration = Duration::from_secs(5);

pub(crate) struct Controller {
    observer: Observer,
    volumes: Volumes,
    writer: Writer,
    reporter: Reporter,
    limits: Limits,
    verification: verify::Schedule,
    tracked: HashMap<Arc<str>, Tracked>,
    queue: Queue,
    timers: Timers,
    /// VolumeAttachments whose next step waits for a free slot.
    waiting_writes: Queue,
    waiting_operations: Queue,
    /// PersistentVolumes that may have to be released.
    volumes_due: BTreeSet<Arc<str>>,
    volumes_failed: BTreeSet<Arc<str>>,
    /// VolumeAttachments with a write or an operation in flight.
    busy: HashSet<Arc<str>>,
    writes: usize,
    operations: usize,
    /// Whether what the last leader may have begun is noted.
    took_over: bool,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
}

/// What is remembered about a VolumeAttachment.
struct Tracked {
    uid: String,
    progress: Progress,
    trouble: Option<Trouble>,
}

/// Something that ran beside the loop has ended.
enum Done {
    Wrote(Subject, Step, Written<Attachment>),
    Operated(Subject, Operation, Result<String, Problem>),
    Released(Arc<str>, Written<Volume>),
    Limited(limits::Published),
    Verified(Vec<Claimed>, Result<Published, Refusal>),
}

/// The volumes of each node.
type Published = BTreeMap<String, BTreeSet<String>>;

/// The VolumeAttachment that it was about.
struct Subject {
    name: Arc<str>,
    uid: String,
    node: Arc<str>,
}

impl Controller {
    pub(crate) fn new(volumes: Volumes, writer: Writer, reporter: Reporter) -> Self {
        Self {
            observer: Observer::default(),
            volumes,
            writer,
            reporter,
            limits: Limits::default(),
            verification: verify::Schedule::new(Instant::now()),
            tracked: HashMap::new(),
            queue: Queue::default(),
            timers: Timers::default(),
            waiting_writes: Queue::default(),
            waiting_operations: Queue::default(),
            volumes_due: BTreeSet::new(),
            volumes_failed: BTreeSet::new(),
            busy: HashSet::new(),
            writes: 0,
            operations: 0,
            took_over: false,
            work: FuturesUnordered::new(),
        }
    }

    /// Runs until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: Shutdown) -> Result<(), Infallible> {
        let Writer { attachments, volumes, csi_nodes, nodes, .. } = self.writer.clone();
        let mut attachments =
            pin!(watcher(attachments, client::watch()).backoff(client::backoff()));
        let mut volumes = pin!(watcher(volumes, client::watch()).backoff(client::backoff()));
        let mut csi_nodes = pin!(watcher(csi_nodes, client::watch()).backoff(client::backoff()));
        let mut nodes = pin!(watcher(nodes, client::watch()).backoff(client::backoff()));
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        info!("attach controller running");
        loop {
            let wake = self.next_wake();
            let changed = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                event = attachments.next() => self.observer.take_attachment(event),
                event = volumes.next() => self.observer.take_volume(event),
                event = csi_nodes.next() => self.observer.take_csi_node(event),
                event = nodes.next() => self.observer.take_node(event),
                Some(done) = self.work.next() => self.finish(done),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Changed::default(),
                _ = ticks.tick() => self.tick(),
            };
            self.take(changed, Instant::now());
            if self.observer.is_synced() {
                self.take_over();
                self.start(Instant::now());
            }
        }
    }

    /// Notes the operations that the last leader may have begun: vCenter may still carry them out.
    fn take_over(&mut self) {
        if std::mem::replace(&mut self.took_over, true) {
            return;
        }
        for (_, known) in self.observer.attachments.iter() {
            let attachment = &known.value;
            let Some(place) = self.observer.place(attachment) else { continue };
            if attachment.deleting {
                self.volumes.inherit_detach(&place.volume, &place.node);
            }
            if attachment.finalizer && !attachment.attached {
                self.volumes.inherit_attach(&place.volume, &place.node);
            }
        }
    }

    /// When something is due that no event announces.
    fn next_wake(&self) -> Option<Instant> {
        let times = [self.timers.next(), self.limits.next_due(), self.verification.due()];
        times.into_iter().flatten().min().filter(|_| self.observer.is_synced())
    }

    fn take(&mut self, changed: Changed, now: Instant) {
        for name in changed.attachments {
            self.queue.push(name);
        }
        self.volumes_due.extend(changed.volumes);
        for name in changed.csi_nodes {
            let known = self.observer.csi_nodes.get(&name).map(|known| &known.value);
            self.limits.observe(&name, known, now);
        }
    }

    fn tick(&mut self) -> Changed {
        let all = || self.observer.attachments.iter().map(|(_, known)| &known.value);
        let attach = all().filter(|one| !one.deleting && !one.attached).count();
        let detach = all().filter(|one| one.deleting && one.finalizer).count();
        self.reporter.metrics.attach.pending(attach, detach);
        Changed { volumes: std::mem::take(&mut self.volumes_failed), ..Changed::default() }
    }

    /// Plans what is due, and starts it as far as there are free slots.
    fn start(&mut self, now: Instant) {
        while let Some(name) = self.timers.pop(now) {
            self.queue.push(name);
        }
        while let Some(name) = self.next_to_plan() {
            self.plan(name, now);
        }
        while self.writes < CONCURRENT_WRITES
            && let Some(name) = self.volumes_due.pop_first()
        {
            self.release_volume(name);
        }
        while let Some((name, node_id)) = self.limits.take_due(now) {
            let node = self.observer.csi_nodes.get(&name);
            let published = node.and_then(|known| known.value.limit.clone());
            let (volumes, writer) = (self.volumes.clone(), self.writer.clone());
            let work = limits::publish(volumes, writer, name, node_id, published);
            self.work.push(work.map(Done::Limited).boxed());
        }
        if self.verification.due().is_some_and(|due| due <= now) {
            self.verify();
        }
    }

    fn next_to_plan(&mut self) -> Option<Arc<str>> {
        if let Some(name) = self.queue.pop() {
            return Some(name);
        }
        if self.writes < CONCURRENT_WRITES
            && let Some(name) = self.waiting_writes.pop()
        {
            return Some(name);
        }
        if self.operations < CONCURRENT_OPERATIONS { self.waiting_operations.pop() } else { None }
    }

    /// Plans a VolumeAttachment and starts its next step.
    fn plan(&mut self, name: Arc<str>, now: Instant) {
        if self.busy.contains(&name) {
            // Planned again when that has ended.
            return;
        }
        let Some(known) = self.observer.attachments.get(&name) else {
            self.tracked.remove(&name);
            self.timers.set(&name, None);
            return;
        };
        let tracked =
            self.tracked.entry(Arc::clone(&name)).or_insert_with(|| Tracked::new("", now));
        if tracked.uid != known.uid {
            *tracked = Tracked::new(&known.uid, now);
        }
        if known.value.deleting {
            tracked.progress.seen_deleting(now);
        }
        let facts = self.observer.facts(known, |node| self.volumes.is_off(node));
        let plan = plan::next(&facts, &tracked.progress, now);
        let about = (&known.value, self.observer.claim(&known.value));
        self.reporter.planned(&mut tracked.trouble, &plan, about, now);
        let node = Arc::clone(&known.value.node);
        let (uid, version) = (known.uid.clone(), known.version.clone());
        let subject = Subject { name: Arc::clone(&name), uid, node };
        let wake = match plan.step {
            Step::Rest => None,
            Step::Wait(until) => Some(until),
            // The kubelet asks for the limit when it sees this; it must find the new one.
            Step::Show(_, problem)
                if problem.kind == Kind::Exhausted && self.limits.is_awaited(&subject.node) =>
            {
                None
            }
            Step::Operate(_) if self.operations >= CONCURRENT_OPERATIONS => {
                self.waiting_operations.push(name);
                return;
            }
            Step::Operate(operation) => self.operate(subject, operation, now),
            _ if self.writes >= CONCURRENT_WRITES => {
                self.waiting_writes.push(name);
                return;
            }
            step => {
                self.write(subject, version, step);
                None
            }
        };
        self.timers.set(&name, wake);
    }

    fn write(&mut self, subject: Subject, version: String, step: Step) {
        self.busy.insert(Arc::clone(&subject.name));
        self.writes += 1;
        let writer = self.writer.clone();
        let work = async move {
            let written = writer.apply(&subject.name, &version, &step).await;
            Done::Wrote(subject, step, written)
        };
        self.work.push(work.boxed());
    }

    /// Starts an operation. Returns when to plan it again if it may not be started.
    fn operate(&mut self, subject: Subject, operation: Operation, now: Instant) -> Option<Instant> {
        if !self.writer.leads() {
            return Some(now + Duration::from_secs(1));
        }
        self.busy.insert(Arc::clone(&subject.name));
        self.operations += 1;
        let (volumes, metrics) = (self.volumes.clone(), self.reporter.metrics.clone());
        let kind = match operation {
            Operation::Attach(_) => metrics::Operation::Attach,
            Operation::Detach(_) => metrics::Operation::Detach,
        };
        let work = async move {
            let result = metrics.start(kind).ended(run(&volumes, &operation).await);
            Done::Operated(subject, operation, result.map_err(Problem::from))
        };
        self.work.push(work.boxed());
        None
    }

    fn release_volume(&mut self, name: Arc<str>) {
        let Some(known) = self.observer.is_releasable(&name) else { return };
        let (writer, version) = (self.writer.clone(), known.version.clone());
        self.writes += 1;
        let work = async move {
            let written = writer.release_volume(&name, &version).await;
            Done::Released(name, written)
        };
        self.work.push(work.boxed());
    }

    fn verify(&mut self) {
        self.verification.started();
        let claimed = verify::claimed(&self.observer, |name| self.busy.contains(name));
        let volumes = self.volumes.clone();
        let work = async move {
            let nodes = verify::nodes(&claimed);
            let published = if nodes.is_empty() {
                Ok(BTreeMap::new())
            } else {
                volumes.published(&nodes).await
            };
            Done::Verified(claimed, published)
        };
        self.work.push(work.boxed());
    }

    /// What is remembered about a VolumeAttachment, if it is still that one.
    fn progress(&mut self, name: &str, uid: &str) -> Option<&mut Progress> {
        let tracked = self.tracked.get_mut(name).filter(|tracked| tracked.uid == uid);
        tracked.map(|tracked| &mut tracked.progress)
    }
}

impl Tracked {
    fn new(uid: &str, now: Instant) -> Self {
        Self { uid: uid.to_owned(), progress: Progress::new(now), trouble: None }
    }
}

/// Runs an operation. Returns the disk, if it was an attach.
async fn run(volumes: &Volumes, operation: &Operation) -> Result<String, Refusal> {
    let work = async {
        match operation {
            Operation::Attach(place) => {
                volumes.publish(&place.volume, &place.node).await.map(|published| published.disk)
            }
            Operation::Detach(place) => {
                volumes.unpublish(&place.volume, &place.node).await.map(|()| String::new())
            }
        }
    };
    let Ok(result) = timeout(OPERATION_WITHIN, work).await else {
        let text = format!("vCenter has not answered for {} s", OPERATION_WITHIN.as_secs());
        return Err(Refusal::new(Kind::Unfinished, text));
    };
    result
}
