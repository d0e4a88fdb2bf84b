//! Keeps the Nodes of a cluster: observes, plans, applies and reports, again and again.
//!
//! A round looks at all Nodes whenever a Node or a vCenter changed, a little later so that changes which come
//! together are one round; lifecycle is looked at by the clock. Plans are pure and cheap, requests are made
//! only for differences. A Node that somebody else changed meanwhile is planned anew.

mod apply;
mod evidence;

use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use daemon::{pauses::Pauses, supervise::Shutdown};
use futures::{StreamExt, future::select_all, stream};
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
use tracing::warn;

pub use self::apply::Apply;
pub(crate) use self::apply::Hand;
use self::{apply::Kept, evidence::Inquiry};
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
    nodes: HashMap<String, Node>,
    /// Nodes of a list that is not complete yet.
    incoming: HashMap<String, Node>,
    synced: bool,
    /// Nodes that could not be written, and until when they are left alone.
    paused: HashMap<String, Instant>,
    history: History,
    inquiry: Inquiry,
    /// What was last told about the lifecycle of a Node, by its name.
    told: HashMap<String, node::Event>,
}

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
            nodes: HashMap::new(),
            incoming: HashMap::new(),
            synced: false,
            paused: HashMap::new(),
            history: History::default(),
            inquiry: Inquiry::default(),
            told: HashMap::new(),
        }
    }

    /// Keeps Nodes until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: &Shutdown) {
        let api: Api<Node> = self.hand.nodes().clone();
        let watched = watcher(api, watcher::Config::default());
        let mut events = pin!(watched.backoff(Pauses::default()));
        let mut clock = interval(self.settings.lifecycle_every);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !shutdown.is_requested() {
            let mut due = false;
            tokio::select! {
                () = shutdown.requested() => return,
                event = events.next() => self.take(event),
                () = changed(&mut self.views) => {}
                _ = clock.tick() => due = true,
            }
            let mut later = pin!(sleep(TOGETHER));
            loop {
                tokio::select! {
                    () = &mut later => break,
                    event = events.next() => self.take(event),
                }
            }
            if !self.synced {
                continue;
            }
            let work = async {
                if self.settings.controllers.nodes {
                    Box::pin(self.keep()).await;
                }
                if due && self.settings.controllers.lifecycle {
                    Box::pin(self.live()).await;
                }
            };
            // Each request is whole or not made: a round may end between any two.
            if shutdown.unless(work).await.is_none() {
                return;
            }
            if due {
                self.hand.metrics().count_nodes(self.nodes.values().map(node::standing));
            }
        }
    }

    fn take(&mut self, event: Option<Result<Event<Node>, watcher::Error>>) {
        let name = |node: &Node| node.metadata.name.clone().unwrap_or_default();
        match event {
            Some(Ok(Event::Init)) => self.incoming.clear(),
            Some(Ok(Event::InitApply(node))) => _ = self.incoming.insert(name(&node), node),
            Some(Ok(Event::InitDone)) => {
                self.nodes = std::mem::take(&mut self.incoming);
                self.synced = true;
            }
            Some(Ok(Event::Apply(node))) => self.learn(node),
            Some(Ok(Event::Delete(node))) => _ = self.nodes.remove(&name(&node)),
            Some(Err(error)) => warn!(%error, "Nodes cannot be watched"),
            None => {}
        }
    }

    /// Keeps the newer of two states: our own writes come back before the watch tells them.
    fn learn(&mut self, node: Node) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let known = self.nodes.get(&name).filter(|known| known.metadata.uid == node.metadata.uid);
        if known.is_none_or(|known| version(known) <= version(&node)) {
            self.nodes.insert(name, node);
        }
    }

    fn look(&mut self) -> Vec<Arc<Snapshot>> {
        let views = self.views.iter_mut();
        views.map(|view| Arc::clone(&view.snapshot.borrow_and_update())).collect()
    }

    /// Makes all Nodes say the truth about their VMs.
    async fn keep(&mut self) {
        let snapshots = self.look();
        let observation = Observation::new(&snapshots, &self.settings);
        self.want(&observation);
        let observation = &observation;
        self.paused.retain(|_, until| *until > Instant::now());
        let free = self.nodes.iter().filter(|(name, _)| !self.paused.contains_key(*name));
        let changing = free.map(|(_, node)| node).filter(|node| {
            let change = observation.plan(node);
            change.is_some_and(|change| !change.is_empty())
        });
        let hand = &self.hand;
        let writes: Vec<_> =
            changing.map(|node| hand.keep(node.clone(), |node| observation.plan(node))).collect();
        let kept: Vec<Kept> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        for one in kept {
            match one {
                Kept::Written(node) => self.learn(*node),
                Kept::Left => {}
                Kept::Failed(name) => _ = self.paused.insert(name, Instant::now() + AGAIN_AFTER),
            }
        }
    }

    /// Tells each vCenter which of its VMs are Nodes.
    fn want(&self, observation: &Observation<'_>) {
        let mut wanted: HashMap<&str, BTreeSet<_>> = HashMap::new();
        for node in self.nodes.values() {
            if let Finding::Found(machine, _) = observation.census.find(&Wanted::of(node)) {
                wanted.entry(machine.vcenter).or_default().insert(machine.vm.reference.clone());
            }
        }
        for (view, snapshot) in self.views.iter().zip(observation.snapshots) {
            let of_view = wanted.remove(snapshot.name.as_str()).unwrap_or_default();
            view.wanted.send_if_modified(|known| {
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
        let snapshots = self.look();
        let observation = Observation::new(&snapshots, &self.settings);
        let nodes: Vec<&Node> = self.nodes.values().collect();
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
            self.learn(node);
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

/// The version of a Node; of two, the larger is the newer.
fn version(node: &Node) -> Option<u64> {
    node.metadata.resource_version.as_ref()?.parse().ok()
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
