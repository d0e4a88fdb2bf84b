//! The loop: which nodes have to be answered, because they ask or because something changed in a vCenter.
//!
//! Where a node is is computed from memory whenever a vCenter changes, and a node is planned only if that or its object
//! changed. Requests run beside the loop, one per node at a time, so that no node waits for another.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    pin::pin,
    sync::Arc,
};

use daemon::{
    client,
    events::{Kind, Recorder},
    supervise::Shutdown,
};
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending, select_all},
    stream::FuturesUnordered,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until},
};
use tracing::{debug, info, warn};
use vcenter::Changes;

use super::{
    Labels, World,
    answers::{Answers, NotAnswered, Outcome, Question},
    place::Place,
    plan::{self, Event},
    record::{self, Answer, Record},
};

/// Changes of vCenters come in bursts.
const BURST: Duration = Duration::from_secs(1);
/// How long a node that asks waits for a vCenter before it hears that this does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests at once.
const CONCURRENT: usize = 16;
/// The pause after the first failure; it doubles with each one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often an answer that the tags contradict is looked at again: the labels of its Node may have been changed.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// How soon the API server is asked again for a kind that it does not know.
const ABSENT_FOR: Duration = Duration::from_secs(60);

/// A node that asked.
#[derive(Debug)]
struct Tracked {
    uuid: String,
    version: String,
    answer: Option<Answer>,
    recorded: Labels,
    /// Since when it is in this version.
    since: Instant,
    place: Place,
    /// The version and the place that the last step was planned on; `None` when it has to be planned.
    planned: Option<(String, Place)>,
    /// When it is looked at again, whatever changes.
    due: Option<Instant>,
    is_running: bool,
    failures: u32,
    /// The last event, so that it is told once.
    told: Option<Event>,
}

type Done = (Arc<str>, String, Place, Result<Outcome, NotAnswered>);

pub(super) struct Controller {
    answers: Answers,
    events: Recorder,
    worlds: watch::Receiver<World>,
    world: World,
    nodes: HashMap<Arc<str>, Tracked>,
    /// Nodes of a list that is being read.
    listed: Option<HashSet<Arc<str>>>,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
}

impl Controller {
    pub(super) fn new(answers: Answers, events: Recorder, worlds: watch::Receiver<World>) -> Self {
        Self {
            answers,
            events,
            worlds,
            world: World::default(),
            nodes: HashMap::new(),
            listed: None,
            running: FuturesUnordered::new(),
        }
    }

    /// Runs until `shutdown`.
    pub(super) async fn run(mut self, shutdown: Shutdown) -> Result<(), Infallible> {
        let records = watcher(self.answers.records.clone(), client::watch());
        let mut records = pin!(records.backoff(client::backoff()));
        let mut absent_until: Option<Instant> = None;
        let mut changes = self.enter_world();
        // When the places of all nodes are computed.
        let mut survey: Option<Instant> = None;
        info!("topology controller running");
        loop {
            let now = Instant::now();
            self.start_due(now);
            absent_until = absent_until.filter(|until| *until > now);
            let wake = [self.next_due(), survey, absent_until].into_iter().flatten().min();
            let is_surveyed = survey.is_none();
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                event = records.next(), if absent_until.is_none() => {
                    absent_until = event.and_then(|event| self.take(event));
                }
                Some(done) = self.running.next(), if !self.running.is_empty() => self.finish(done),
                Ok(()) = self.worlds.changed() => {
                    changes = self.enter_world();
                    survey = None;
                }
                () = any_changed(&mut changes), if is_surveyed => survey = Some(now + BURST),
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {
                    if survey.take_if(|at| *at <= Instant::now()).is_some() {
                        self.survey();
                    }
                }
            }
        }
    }

    /// Takes the configuration and the vCenters as they are now, and returns when these change.
    fn enter_world(&mut self) -> Vec<Changes> {
        self.world = self.worlds.borrow_and_update().clone();
        let changes = self.world.vcenters.iter().map(|site| site.view().changes()).collect();
        self.survey();
        changes
    }

    /// Computes where every node is.
    fn survey(&mut self) {
        let snapshots = self.world.snapshots();
        for tracked in self.nodes.values_mut() {
            tracked.place = self.world.place(&snapshots, &tracked.uuid);
        }
    }

    /// Takes in what the watch reports. Returns until when it need not be read.
    fn take(&mut self, event: Result<watcher::Event<Record>, watcher::Error>) -> Option<Instant> {
        match event {
            Ok(watcher::Event::Init) => self.listed = Some(HashSet::new()),
            Ok(watcher::Event::InitApply(record)) => {
                let name = self.observe(&record);
                self.listed.get_or_insert_default().insert(name);
            }
            Ok(watcher::Event::InitDone) => {
                let listed = self.listed.take().unwrap_or_default();
                self.nodes.retain(|name, _| listed.contains(name));
            }
            Ok(watcher::Event::Apply(record)) => drop(self.observe(&record)),
            Ok(watcher::Event::Delete(record)) => {
                self.nodes.remove(record.name_any().as_str());
            }
            Err(error) => return absent(&error),
        }
        None
    }

    fn observe(&mut self, record: &Record) -> Arc<str> {
        let name: Arc<str> = record.name_any().into();
        let version = record.resource_version().unwrap_or_default();
        let known = self.nodes.remove(&name);
        let place = self.world.place(&self.world.snapshots(), &record.spec.uuid);
        let (told, failures, is_running) = known
            .as_ref()
            .map(|known| (known.told.clone(), known.failures, known.is_running))
            .unwrap_or_default();
        let unchanged = known.filter(|known| known.version == version);
        let tracked = Tracked {
            uuid: record.spec.uuid.clone(),
            answer: record::answer(record),
            recorded: record::labels(record),
            since: unchanged.as_ref().map_or_else(Instant::now, |known| known.since),
            place,
            due: unchanged.as_ref().and_then(|known| known.due),
            planned: unchanged.and_then(|known| known.planned),
            version,
            is_running,
            failures,
            told,
        };
        self.nodes.insert(Arc::clone(&name), tracked);
        name
    }

    /// When the next node has to be looked at for the time alone.
    fn next_due(&self) -> Option<Instant> {
        let idle = self.nodes.values().filter(|tracked| !tracked.is_running);
        idle.filter_map(|tracked| tracked.due).min()
    }

    /// Starts what has to be planned, as far as there is room.
    fn start_due(&mut self, now: Instant) {
        let room = CONCURRENT.saturating_sub(self.running.len());
        let is_due = |tracked: &Tracked| {
            let is_planned = |(version, place): &(String, Place)| {
                *version == tracked.version && *place == tracked.place
            };
            let has_time = tracked.due.is_some_and(|due| due > now);
            let is_settled = tracked.planned.as_ref().is_some_and(is_planned);
            // After a failure only the time counts.
            let waits = has_time && (is_settled || tracked.failures > 0);
            !tracked.is_running && !waits && (!is_settled || tracked.due.is_some())
        };
        let due = self.nodes.iter().filter(|(_, tracked)| is_due(tracked));
        let names: Vec<Arc<str>> = due.take(room).map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.start(name, now);
        }
    }

    fn start(&mut self, name: Arc<str>, now: Instant) {
        let is_change = |tracked: &Tracked| matches!(&tracked.place, Place::At(labels) if !tracked.recorded.is_empty() && *labels != tracked.recorded);
        let others = match self.nodes.get(&name).filter(|tracked| is_change(tracked)) {
            Some(_) => {
                let others = self.nodes.iter().filter(|(other, _)| **other != name);
                others.map(|(_, tracked)| tracked.recorded.clone()).collect()
            }
            None => Arc::default(),
        };
        let Some(tracked) = self.nodes.get_mut(&name) else { return };
        tracked.is_running = true;
        let question = Question {
            name: Arc::clone(&name),
            version: tracked.version.clone(),
            answer: tracked.answer.clone(),
            recorded: tracked.recorded.clone(),
            place: tracked.place.clone(),
            has_waited: now >= tracked.since + PATIENCE,
            others,
        };
        let answers = self.answers.clone();
        let (version, place) = (question.version.clone(), question.place.clone());
        let work = answers.answer(question).map(|result| (name, version, place, result));
        self.running.push(work.boxed());
    }

    fn finish(&mut self, (name, version, place, result): Done) {
        let Some(tracked) = self.nodes.get_mut(&name) else { return };
        let now = Instant::now();
        (tracked.is_running, tracked.due) = (false, None);
        let event = match result {
            Ok(outcome) => {
                tracked.failures = 0;
                match outcome {
                    Outcome::Stands(event) => {
                        tracked.due = event.is_some().then_some(now + LOOK_AGAIN);
                        event
                    }
                    Outcome::Written(answer, event) => {
                        report(&name, &answer);
                        event
                    }
                    Outcome::Waiting => {
                        tracked.due = Some(tracked.since + PATIENCE);
                        None
                    }
                    Outcome::Superseded => None,
                }
            }
            Err(error) => {
                tracked.failures = tracked.failures.saturating_add(1);
                let pause = FIRST_PAUSE.saturating_mul(1 << (tracked.failures - 1).min(10));
                tracked.due = Some(now + pause.min(LONGEST_PAUSE));
                warn!(node = &*name, %error, "node not answered; retrying");
                return;
            }
        };
        tracked.planned = Some((version, place));
        let is_new = event.is_some() && tracked.told != event;
        tracked.told.clone_from(&event);
        if let Some(event) = event.filter(|_| is_new) {
            self.tell(&name, &event);
        }
    }

    fn tell(&self, node: &str, event: &Event) {
        // The uid is the name, as kubelets have it: `kubectl describe node` finds events by that.
        let regarding = ObjectReference {
            kind: Some("Node".to_owned()),
            api_version: Some("v1".to_owned()),
            uid: Some(node.to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        let kind = if event.is_warning { Kind::Warning } else { Kind::Normal };
        info!(node, reason = event.reason, message = event.message, "zone of node reported");
        self.events.record(&regarding, kind, event.reason, &event.message);
    }
}

fn report(node: &str, answer: &Answer) {
    match answer {
        Answer::Labels(labels) if labels.is_empty() => debug!(node, "node answered: no zones"),
        Answer::Labels(labels) => info!(node, labels = plan::shown(labels), "zone of node found"),
        Answer::Problem(problem) => warn!(node, problem, "zone of node not found"),
    }
}

/// Until when a watch that failed need not be tried again.
fn absent(error: &watcher::Error) -> Option<Instant> {
    let refused = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    };
    match refused {
        Some(404) => debug!("the API server does not know CSINodeTopologies"),
        _ => warn!(%error, "watch of CSINodeTopologies failed; starting again"),
    }
    refused.filter(|code| [403, 404].contains(code)).map(|_| Instant::now() + ABSENT_FOR)
}

/// Returns when any of the vCenters changed.
async fn any_changed(changes: &mut [Changes]) {
    if changes.is_empty() {
        pending::<()>().await;
    }
    select_all(changes.iter_mut().map(|one| one.changed().boxed())).await;
}
