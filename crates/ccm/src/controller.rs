//! Keeps the Nodes of a cluster: observes, plans, applies and reports, again and again.
//!
//! A round looks at the Nodes that changed, and at all when a vCenter changed or the clock says so; a little
//! later, so that changes which come together are one round. Lifecycle is looked at by the clock, and when
//! something changed while a Node is not ready. Plans are pure and cheap, requests are made only for
//! differences. A Node that somebody else changed meanwhile is planned anew. While a round writes, the watch of
//! Nodes is read on: who lets it wait is cut off.

mod apply;
mod evidence;
mod lean;
mod nodes;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use daemon::{pauses::Pauses, supervise::Shutdown};
use futures::{
    Stream, StreamExt,
    future::select_all,
    stream::{self, FuturesUnordered},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

pub use self::apply::Apply;
pub(crate) use self::apply::Hand;
use self::{apply::Kept, evidence::Inquiry, lean::Lean, nodes::Nodes};
use crate::{
    args::Controllers,
    discovery::{Census, Finding, Wanted},
    lifecycle::{self, Decision, History, Subject},
    node::{self, NodeChange, Observed},
    site::{Snapshot, View},
    zones::Categories,
};

/// Nodes that are written at once.
const AT_ONCE: usize = 16;
/// Changes that come within this time are one round.
const TOGETHER: Duration = Duration::from_millis(100);
/// How soon a Node that could not be written is tried again. Less than between two looks by the clock, so that it
/// is tried at the next one.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

/// Between two looks at lifecycle that changes cause: vCenters are asked about VMs that are gone.
const LIFECYCLE_APART: Duration = Duration::from_secs(1);

/// What the controller needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) node: node::Settings,
    pub(crate) lifecycle: lifecycle::Settings,
    pub(crate) categories: Categories,
    /// How long a guest must tell the same before it is believed against what a Node has.
    pub(crate) steady_after: SignedDuration,
    pub(crate) controllers: Controllers,
    pub(crate) lifecycle_every: Duration,
}

/// The controller of Nodes.
pub(crate) struct Controller {
    hand: Hand,
    views: Vec<View>,
    settings: Settings,
    nodes: Nodes,
    /// Nodes that could not be written, and until when they are left alone.
    paused: HashMap<String, Instant>,
    history: History,
    inquiry: Inquiry,
    /// What was last told about the lifecycle of a Node, by its name.
    told: HashMap<String, node::Event>,
    /// When lifecycle was last looked at.
    lived: Instant,
}

/// What a watch of Nodes tells.
type Told = Result<Event<Lean>, watcher::Error>;

/// What all vCenters say in one round.
struct Observation<'a> {
    snapshots: &'a [Arc<Snapshot>],
    census: Census<'a>,
    settings: &'a Settings,
    now: Timestamp,
}

impl Controller {
    pub(crate) fn new(hand: Hand, views: Vec<View>, settings: Settings) -> Self {
        Self {
            hand,
            views,
            settings,
            nodes: Nodes::default(),
            paused: HashMap::new(),
            history: History::default(),
            inquiry: Inquiry::default(),
            told: HashMap::new(),
            lived: Instant::now(),
        }
    }

    /// Keeps Nodes until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: &Shutdown) {
        let api: Api<Lean> = self.hand.nodes().clone();
        let watched = watcher(api, watcher::Config::default());
        let mut events = pin!(watched.backoff(Pauses::default()));
        let mut clock = interval(self.settings.lifecycle_every);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !shutdown.is_requested() {
            let (mut all, mut due) = (false, false);
            while !(all || due || self.nodes.have_news()) {
                tokio::select! {
                    () = shutdown.requested() => return,
                    event = events.next() => self.nodes.take(event),
                    () = changed(&mut self.views) => all = true,
                    () = self.inquiry.answered() => due = true,
                    _ = clock.tick() => due = true,
                }
            }
            let mut later = pin!(sleep(TOGETHER));
            loop {
                tokio::select! {
                    () = &mut later => break,
                    event = events.next() => self.nodes.take(event),
                }
            }
            if !self.nodes.is_synced() {
                continue;
            }
            let work = async {
                let changed = self.nodes.take_changed();
                if self.settings.controllers.nodes {
                    Box::pin(self.keep(&changed, all || due, &mut events)).await;
                }
                if self.settings.controllers.lifecycle && (due || self.may_live()) {
                    Box::pin(self.live()).await;
                }
            };
            // Each request is whole or not made: a round may end between any two.
            if shutdown.unless(work).await.is_none() {
                return;
            }
            if due {
                self.hand.metrics().count_nodes(self.nodes.iter().map(node::standing));
            }
        }
    }

    /// Whether lifecycle is worth a look before the clock says so: something changed, which may be what a Node
    /// that is not ready waits for.
    fn may_live(&self) -> bool {
        self.lived.elapsed() >= LIFECYCLE_APART && !self.nodes.iter().all(lifecycle::is_ready)
    }

    fn look(&self) -> Vec<Arc<Snapshot>> {
        self.views.iter().map(|view| Arc::clone(&view.snapshot.borrow())).collect()
    }

    /// Makes Nodes say the truth about their VMs: those that changed, or all.
    async fn keep(
        &mut self,
        changed: &HashSet<String>,
        mut all: bool,
        events: &mut (impl Stream<Item = Told> + Unpin),
    ) {
        for view in &mut self.views {
            all |= view.snapshot.has_changed().unwrap_or(false);
            // Before it is looked at: what changes from here on is for the next round.
            view.snapshot.mark_unchanged();
        }
        let snapshots = self.look();
        let observation = Observation::new(&snapshots, &self.settings);
        let of_round = |node: &&Node| all || changed.contains(&nodes::name(node));
        let looked: Vec<&Node> = self.nodes.iter().filter(of_round).collect();
        self.want(&observation, &looked, all);
        self.paused.retain(|_, until| *until > Instant::now());
        let (paused, observation) = (&self.paused, &observation);
        let free = looked.into_iter().filter(|node| !paused.contains_key(&nodes::name(node)));
        let changing = free.filter(|node| {
            let change = observation.plan(node);
            change.is_some_and(|change| !change.is_empty())
        });
        let mut waiting = changing.map(nodes::name).collect::<Vec<_>>().into_iter();
        let mut writing = FuturesUnordered::new();
        loop {
            while writing.len() < AT_ONCE
                && let Some(name) = waiting.next()
            {
                let node = self.nodes.get(&name).cloned();
                writing
                    .extend(node.map(|node| self.hand.keep(node, |node| observation.plan(node))));
            }
            tokio::select! {
                kept = writing.next() => match kept {
                    Some(Kept::Written(node)) => _ = self.nodes.learn(*node),
                    Some(Kept::Left) => {}
                    Some(Kept::Failed(name)) => {
                        self.paused.insert(name, Instant::now() + AGAIN_AFTER);
                    }
                    None => return,
                },
                event = events.next() => self.nodes.take(event),
            }
        }
    }

    /// Tells each vCenter which of its VMs are Nodes: by all of them, or by some more.
    fn want(&self, observation: &Observation<'_>, nodes: &[&Node], all: bool) {
        let mut wanted: HashMap<&str, BTreeSet<_>> = HashMap::new();
        for node in nodes {
            if let Finding::Found(machine, _) = observation.census.find(&Wanted::of(node)) {
                wanted.entry(machine.vcenter).or_default().insert(machine.vm.reference.clone());
            }
        }
        for (view, snapshot) in self.views.iter().zip(observation.snapshots) {
            let mut of_view = wanted.remove(snapshot.name.as_str()).unwrap_or_default();
            view.wanted.send_if_modified(|known| {
                if !all {
                    of_view.extend(known.iter().cloned());
                }
                // What a silent vCenter was asked for is not forgotten.
                let news = *known != of_view && !of_view.is_empty();
                if news {
                    *known = of_view;
                }
                news
            });
        }
    }

    /// Taints Nodes whose VM is off, and looks for those whose VM is gone.
    async fn live(&mut self) {
        self.lived = Instant::now();
        let snapshots = self.look();
        let observation = Observation::new(&snapshots, &self.settings);
        let nodes: Vec<&Node> = self.nodes.iter().collect();
        let findings: Vec<Finding<'_>> =
            nodes.iter().map(|node| observation.census.find(&Wanted::of(node))).collect();
        let evidence = self.inquiry.gather(&snapshots, &nodes, &findings).await;
        let subjects: Vec<Subject<'_>> = (nodes.iter().zip(&findings).zip(evidence))
            .map(|((node, finding), evidence)| Subject { node, finding, evidence })
            .collect();
        let now = Timestamp::now();
        let plan = lifecycle::plan(&subjects, &self.history, &self.settings.lifecycle, now);
        let mut told = HashMap::new();
        let mut writes = Vec::new();
        for (node, decision) in nodes.iter().copied().zip(&plan.decisions) {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            if let Some(event) = decision.event(name) {
                if self.told.get(name) != Some(&event) {
                    self.hand.tell(node, &event);
                }
                told.insert(name.to_owned(), event);
            }
            if !matches!(decision, Decision::Keep | Decision::Refuse(_)) {
                writes.push(self.hand.decide(node, decision));
            }
        }
        let written: Vec<Option<Node>> =
            stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        (self.history, self.told) = (plan.history, told);
        for node in written.into_iter().flatten() {
            self.nodes.learn(node);
        }
    }
}

impl<'a> Observation<'a> {
    fn new(snapshots: &'a [Arc<Snapshot>], settings: &'a Settings) -> Self {
        let vcenters: Vec<_> = snapshots.iter().map(|snapshot| snapshot.counted()).collect();
        let census = Census::new(&vcenters);
        Self { snapshots, census, settings, now: Timestamp::now() }
    }

    /// What must change on a Node; nothing is known while its guest has not been looked at.
    fn plan(&self, node: &Node) -> Option<NodeChange> {
        let finding = self.census.find(&Wanted::of(node));
        let Finding::Found(machine, _) = finding else {
            let observed = Observed {
                finding,
                nics: &[],
                steady: false,
                metadata: None,
                zones: Default::default(),
                place: Default::default(),
            };
            return Some(node::plan(node, &observed, &self.settings.node, self.now));
        };
        let snapshot = self.snapshots.iter().find(|one| one.name == machine.vcenter)?;
        let guest = snapshot.guests.get(&machine.vm.reference)?;
        let observed = Observed {
            finding,
            nics: &guest.nics,
            steady: guest.is_steady(self.settings.steady_after, self.now),
            metadata: guest.metadata(),
            zones: snapshot.zones(machine.vm, &self.settings.categories),
            place: snapshot.place(machine.vm),
        };
        Some(node::plan(node, &observed, &self.settings.node, self.now))
    }
}

/// Returns when a vCenter says something new.
async fn changed(views: &mut [View]) {
    let changes = views.iter_mut().map(|view| {
        Box::pin(async {
            // A site that ended says nothing new.
            if view.snapshot.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    });
    let changes: Vec<_> = changes.collect();
    if changes.is_empty() {
        return std::future::pending().await;
    }
    select_all(changes).await;
}
