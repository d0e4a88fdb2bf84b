//! Waiting for tasks: one watch for all of them, however many there are.
//!
//! The awaited tasks are in one list view, and one long poll reports which of them ended. Where a task of CNS is
//! awaited the poll is made in the namespace that has the types of its result, and brings the result along. What
//! ended otherwise is read together, each in the namespace that has the types of its result. Tasks that start or end
//! within a moment of each other share their requests. So the number of requests depends on how often something
//! happens, not on the number of tasks.
//!
//! A task that runs when the view shows it is reported twice, when it enters and when it ends; one that has ended by
//! then is reported once.
//!
//! When the view does not work the tasks are polled, all with one request, until it works again.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    collector::{Change, Collector, Delta, List},
    connection::{Connection, WeakConnection},
    error::{Cause, Error},
    fault::Fault,
    object,
    property::Unreadable,
    reference::Ref,
    soap::Service,
    types::{Task, TaskInfoState},
    xml::{Element, Field, FromXml, Malformed, Reader},
};

/// How often tasks are polled while the view does not work, and for how long it is left alone.
const POLL: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(60);
/// How long others are waited for before tasks are shown, and between two polls: small beside the time of a task.
const GATHER: Duration = Duration::from_millis(10);
/// How long the view is kept without a task that is waited for. It keeps the connection alive, too.
const IDLE: Duration = Duration::from_secs(15);

object! {
    /// Whether a task has ended.
    struct Progress: Task {
        state: TaskInfoState = "info.state",
    }
}

object! {
    /// The same with its result, for polls in the namespace that has the result's type.
    struct ProgressWithResult: Task {
        state: TaskInfoState = "info.state",
        result: Option<Fragment> = "info.result",
    }
}

object! {
    /// How a task ended.
    struct Ended: Task {
        state: TaskInfoState = "info.state",
        error: Option<Fault> = "info.error",
        result: Option<Fragment> = "info.result",
        activation: Option<String> = "info.activationId",
    }
}

/// A value as it came, to be read by the caller, which knows its type.
#[derive(Debug, Clone, Default, PartialEq)]
struct Fragment(String);

impl FromXml for Fragment {
    fn from_xml(reader: &mut Reader<'_>, element: &Element<'_>) -> Result<Self, Malformed> {
        reader.fragment(element).map(Self)
    }
}

impl Connection {
    /// Waits until a task has ended and returns its result. After `limit` the error has the task's
    /// reference, so that the caller can go on waiting. `service` is the service that the task was started at.
    pub async fn wait<T: Field>(
        &self,
        task: &Ref<Task>,
        service: Service,
        limit: Duration,
    ) -> Result<T, Error> {
        let reply = self.tasks().submit(self, task, service);
        let ended = match timeout(limit, reply).await {
            Err(_) => return Err(self.unfinished(task, "Task", Cause::StillRunning(limit))),
            Ok(Err(_)) => return Err(self.unfinished(task, "Task", Cause::Closed)),
            Ok(Ok(None)) => return Err(self.unfinished(task, "Task", Cause::TaskLost)),
            Ok(Ok(Some(ended))) => ended,
        };
        if !has_ended(&ended.state) {
            // The user may not read the task, which says nothing about its work.
            let hidden = ended.unreadable.into_iter().map(|one| one.fault).next();
            let hidden = hidden.unwrap_or_else(|| Fault::bare("MethodFault", "no reason given"));
            return Err(self.unfinished(task, "Task", Cause::TaskHidden(Box::new(hidden))));
        }
        // The id under which the logs of vCenter's services have the work.
        let activation = ended.activation.unwrap_or_default();
        tracing::debug!(vcenter = %self.vcenter(), %task, activation, state = ?ended.state, "task ended");
        if ended.state == TaskInfoState::Error {
            let fault =
                ended.error.unwrap_or_else(|| Fault::bare("MethodFault", "no reason given"));
            let cause = Cause::TaskFailed(Box::new(fault));
            return Err(Error::from(self.wire().failure("Task", activation, cause)));
        }
        let Some(Fragment(xml)) = ended.result else {
            return Ok(T::default());
        };
        let mut reader = Reader::new(&xml);
        reader
            .root()
            .and_then(|root| T::property(&mut reader, &root))
            .map_err(|malformed| self.unfinished(task, "Task", Cause::Malformed(malformed)))
    }
}

/// A caller that waits for a task. The reply is empty if vCenter does not know the task any more.
struct Request {
    task: Ref<Task>,
    service: Service,
    reply: oneshot::Sender<Option<Ended>>,
}

/// The awaited tasks. The work is done by one background task, which starts with the first
/// of them and ends with the connection.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    worker: Mutex<Option<Worker>>,
}

#[derive(Debug)]
struct Worker {
    requests: mpsc::UnboundedSender<Request>,
    running: JoinSet<()>,
}

impl Tasks {
    fn submit(
        &self,
        connection: &Connection,
        task: &Ref<Task>,
        service: Service,
    ) -> oneshot::Receiver<Option<Ended>> {
        let (reply, receiver) = oneshot::channel();
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        // One that panicked is replaced.
        worker.take_if(|worker| worker.requests.is_closed());
        let worker = worker.get_or_insert_with(|| {
            let (requests, incoming) = mpsc::unbounded_channel();
            let mut running = JoinSet::new();
            running.spawn(work(connection.downgrade(), incoming));
            Worker { requests, running }
        });
        // It ends with the connection only; without it the caller sees the end of its channel.
        worker.requests.send(Request { task: task.clone(), service, reply }).unwrap_or_default();
        receiver
    }

    /// Ends the background task; callers that wait get the error of a closed connection.
    pub(crate) async fn stop(&self) {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut worker) = worker {
            worker.running.shutdown().await;
        }
    }
}

type Waiting = HashMap<Ref<Task>, Vec<Request>>;
/// A task that has ended, with its result if it succeeded and the result is known already.
type End = (Ref<Task>, Option<Fragment>);
type Endings = Collector<Option<Seen>>;

/// What a poll reports of a task.
enum Seen {
    Running(Ref<Task>),
    Ended(End),
}

/// What came of a poll.
struct Polled {
    /// If it was polled.
    collector: Option<Endings>,
    seen: Vec<Seen>,
    /// Whether all was reported that the view showed when the poll began.
    complete: bool,
}

/// The background task's state.
struct Following {
    requests: mpsc::UnboundedReceiver<Request>,
    waiting: Waiting,
    /// Waited for and not in the view yet.
    fresh: Vec<Ref<Task>>,
    view: Option<View>,
    /// The view does not work; until then tasks are polled.
    resting: Option<Instant>,
    poll: Option<BoxFuture<'static, Result<Polled, Error>>>,
}

/// What a session holds for us.
struct View {
    list: List,
    /// Not here while it is polled.
    collector: Option<Endings>,
    /// What it shows. A task that its caller gave up stays until it ends: it may be waited for again.
    members: HashSet<Ref<Task>>,
    /// Members that have ended, of which nothing more is reported; they go with the next change.
    ended: HashSet<Ref<Task>>,
    /// Members of which nothing was reported yet.
    unseen: HashSet<Ref<Task>>,
    /// Those that were unseen when the poll began that is on the way.
    due: HashSet<Ref<Task>>,
}

impl View {
    async fn open(connection: &Connection, service: Service) -> Result<Self, Error> {
        let mut collector = connection.collector().await?;
        let list = collector.list().await?;
        let views = [list.view().clone()];
        if service == Service::CnsTasks {
            collector = collector.polled_at(service);
            collector.filter(&views, None, ended_with_result).await?;
        } else {
            collector.filter(&views, None, ended).await?;
        }
        let (members, ended) = (HashSet::new(), HashSet::new());
        let (unseen, due) = (HashSet::new(), HashSet::new());
        Ok(Self { list, collector: Some(collector), members, ended, unseen, due })
    }

    /// Shows more tasks, and those that have ended no longer. Returns the tasks that vCenter does not know.
    async fn show(&mut self, tasks: &[Ref<Task>]) -> Result<Vec<Ref<Task>>, Error> {
        let unknown = self.list.modify(tasks, &self.ended).await?;
        let unknown: Vec<Ref<Task>> = unknown.iter().filter_map(Ref::cast).collect();
        for task in self.ended.drain() {
            self.members.remove(&task);
        }
        // What vCenter does not know is not in the view, and nothing will be reported of it.
        let known = tasks.iter().filter(|task| !unknown.contains(task));
        self.unseen.extend(known.clone().cloned());
        self.members.extend(known.cloned());
        Ok(unknown)
    }

    /// Takes what a poll reported, and returns the tasks that have ended and those that it should have reported and did
    /// not: vCenter forgot them before it looked.
    fn take(&mut self, polled: Polled) -> (Vec<End>, Vec<Ref<Task>>) {
        self.collector = polled.collector;
        let ended = ends(polled.seen, |task| {
            self.unseen.remove(task);
        });
        let due = std::mem::take(&mut self.due);
        if !polled.complete {
            return (ended, Vec::new());
        }
        (ended, due.into_iter().filter(|task| self.unseen.contains(task)).collect())
    }
}

async fn work(connection: WeakConnection, requests: mpsc::UnboundedReceiver<Request>) {
    let mut following = Following {
        requests,
        waiting: Waiting::new(),
        fresh: Vec::new(),
        view: None,
        resting: None,
        poll: None,
    };
    while following.gather().await {
        let Some(connection) = connection.upgrade() else { return };
        if let Err(error) = following.advance(&connection).await {
            following.recover(&connection, &error).await;
        }
    }
}

impl Following {
    /// Takes what came; waits for something if there is nothing to do. False when no more requests can come.
    async fn gather(&mut self) -> bool {
        if self.waiting.is_empty() && self.poll.is_none() {
            let request = match timeout(IDLE, self.requests.recv()).await {
                Ok(request) => request,
                Err(_) => {
                    self.view = None;
                    self.requests.recv().await
                }
            };
            let Some(request) = request else { return false };
            self.accept(request);
        }
        if self.poll.is_none() || !self.fresh.is_empty() {
            sleep(GATHER).await;
        }
        while let Ok(request) = self.requests.try_recv() {
            self.accept(request);
        }
        self.waiting.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.reply.is_closed());
            !waiters.is_empty()
        });
        true
    }

    fn accept(&mut self, request: Request) {
        self.fresh.push(request.task.clone());
        self.waiting.entry(request.task.clone()).or_default().push(request);
    }

    /// Puts new tasks into the view, then waits until a task ends or another comes.
    async fn advance(&mut self, connection: &Connection) -> Result<(), Error> {
        if self.resting.is_none_or(|until| until <= Instant::now()) {
            self.resting = None;
            self.look(connection).await?;
        }
        let poll = match &mut self.poll {
            Some(poll) => poll,
            None => self.poll.insert(next_poll(connection, self.view.as_mut(), &self.waiting)),
        };
        // A poll is never given up: the server would go on with it, and refuse the next one.
        let polled = tokio::select! {
            polled = poll => polled,
            request = self.requests.recv() => {
                if let Some(request) = request {
                    self.accept(request);
                }
                return Ok(());
            }
        };
        self.poll = None;
        let polled = polled?;
        let (ended, overlooked) = match &mut self.view {
            Some(view) => view.take(polled),
            None => (ends(polled.seen, |_| {}), Vec::new()),
        };
        self.conclude(connection, ended).await?;
        self.look_for(connection, overlooked).await
    }

    /// Concludes those of the tasks that have ended or that vCenter has forgotten.
    async fn look_for(
        &mut self,
        connection: &Connection,
        mut tasks: Vec<Ref<Task>>,
    ) -> Result<(), Error> {
        if tasks.is_empty() {
            return Ok(());
        }
        let states: Vec<Progress> = connection.read(&tasks).await?;
        tasks.retain(|task| !is_running(&states, task));
        if let Some(view) = &mut self.view {
            view.unseen.retain(|task| !tasks.contains(task));
        }
        self.conclude(connection, tasks.into_iter().map(|task| (task, None)).collect()).await
    }

    /// Makes the view, and makes it show what is waited for.
    async fn look(&mut self, connection: &Connection) -> Result<(), Error> {
        let view = match &mut self.view {
            Some(view) => view,
            None => {
                // What was polled by other means does not end this poll; start from everything.
                self.poll = None;
                self.fresh = self.waiting.keys().cloned().collect();
                let mut waiters = self.waiting.values().flatten();
                let of_cns = waiters.any(|waiter| waiter.service == Service::Cns);
                let service = if of_cns { Service::CnsTasks } else { Service::Vim };
                self.view.insert(View::open(connection, service).await?)
            }
        };
        // Members are not reported again: those that have ended must be read, the others are awaited already.
        let ended = self.fresh.iter().filter(|task| view.ended.contains(task));
        let ended = ended.map(|task| (task.clone(), None)).collect();
        self.fresh.retain(|task| !view.members.contains(task));
        if !self.fresh.is_empty() {
            for task in view.show(&self.fresh).await? {
                reply(&mut self.waiting, &task, None);
            }
            self.fresh.clear();
        }
        self.conclude(connection, ended).await
    }

    /// Answers the callers that wait, after reading how tasks ended of which that is not known, those of one namespace
    /// with one request.
    async fn conclude(&mut self, connection: &Connection, ended: Vec<End>) -> Result<(), Error> {
        let mut by_service: HashMap<Service, Vec<Ref<Task>>> = HashMap::new();
        for (task, result) in ended {
            // What we took out of the view ourselves leaves it, too.
            if let Some(view) = &mut self.view
                && view.members.contains(&task)
            {
                view.ended.insert(task.clone());
            }
            let waiter = self.waiting.get(&task).and_then(|waiters| waiters.first());
            let Some(service) = waiter.map(|waiter| waiter.service) else { continue };
            if let Some(result) = result.filter(|_| service == Service::Cns) {
                let state = TaskInfoState::Success;
                let end = Ended { state, result: Some(result), ..Ended::default() };
                reply(&mut self.waiting, &task, Some(&end));
            } else {
                by_service.entry(namespace(service)).or_default().push(task);
            }
        }
        for (service, tasks) in by_service {
            let found = connection.read_as::<Ended, Task>(service, &tasks).await?;
            for task in tasks {
                let end = found.iter().find(|end| end.reference == task);
                reply(&mut self.waiting, &task, end);
            }
        }
        Ok(())
    }

    /// After a failure: forget what the server held, and poll for a while unless only the session was lost.
    async fn recover(&mut self, connection: &Connection, error: &Error) {
        self.poll = None;
        let lost = self.view.take();
        if matches!(error.failure().cause, Cause::Closed) {
            // Callers that wait see the end of their channels.
            self.waiting.clear();
            return;
        }
        if error.is_logged_out()
            && let Some(view) = lost
        {
            connection.forget(&view.list.session).await;
            return;
        }
        if self.resting.is_none() {
            tracing::warn!(vcenter = %connection.vcenter(), %error, "task view lost; polling tasks");
        }
        self.resting = Some(Instant::now() + REST);
    }
}

/// The namespace that has the types of a service's results.
fn namespace(service: Service) -> Service {
    if service == Service::Cns { Service::CnsTasks } else { Service::Vim }
}

fn reply(waiting: &mut Waiting, task: &Ref<Task>, end: Option<&Ended>) {
    for waiter in waiting.remove(task).unwrap_or_default() {
        // Whoever gave up waiting does not want to know.
        waiter.reply.send(end.cloned()).unwrap_or_default();
    }
}

/// The next poll: of the view, or of every task.
fn next_poll(
    connection: &Connection,
    view: Option<&mut View>,
    waiting: &Waiting,
) -> BoxFuture<'static, Result<Polled, Error>> {
    let taken = view.and_then(|view| {
        view.due.clone_from(&view.unseen);
        view.collector.take()
    });
    if let Some(mut collector) = taken {
        return Box::pin(async move {
            let page = collector.poll(Duration::ZERO).await?;
            let seen = page.changes.into_iter().flatten().collect();
            Ok(Polled { collector: Some(collector), seen, complete: page.complete })
        });
    }
    let (connection, mut tasks) = (connection.clone(), waiting.keys().cloned().collect::<Vec<_>>());
    Box::pin(async move {
        sleep(POLL).await;
        let states: Vec<Progress> = connection.read(&tasks).await?;
        tasks.retain(|task| !is_running(&states, task));
        let seen = tasks.into_iter().map(|task| Seen::Ended((task, None))).collect();
        Ok(Polled { collector: None, seen, complete: true })
    })
}

fn is_running(states: &[Progress], task: &Ref<Task>) -> bool {
    states.iter().any(|one| one.reference == *task && !is_over(&one.state, &one.unreadable))
}

/// The tasks that have ended; `seen` gets all of which something was reported.
fn ends(reported: Vec<Seen>, mut seen: impl FnMut(&Ref<Task>)) -> Vec<End> {
    let mut ended = Vec::new();
    for one in reported {
        match one {
            Seen::Running(task) => seen(&task),
            Seen::Ended(end) => {
                seen(&end.0);
                ended.push(end);
            }
        }
    }
    ended
}

/// The task that a change ends.
fn ended(change: Change<Progress>) -> Option<Seen> {
    match change {
        Change::Entered(task) | Change::Changed(Delta { values: task, .. }) => {
            Some(if is_over(&task.state, &task.unreadable) {
                Seen::Ended((task.reference, None))
            } else {
                Seen::Running(task.reference)
            })
        }
        // Out of the view is out of the server's memory; reading the task shows which.
        Change::Left(reference) => reference.cast().map(|task| Seen::Ended((task, None))),
    }
}

/// The same with the result of a success. Where it is not in the same change as the end, and of a failure, everything
/// is read.
fn ended_with_result(change: Change<ProgressWithResult>) -> Option<Seen> {
    match change {
        Change::Entered(task) | Change::Changed(Delta { values: task, .. }) => {
            let result = task.result.filter(|_| task.state == TaskInfoState::Success);
            Some(if is_over(&task.state, &task.unreadable) {
                Seen::Ended((task.reference, result))
            } else {
                Seen::Running(task.reference)
            })
        }
        Change::Left(reference) => reference.cast().map(|task| Seen::Ended((task, None))),
    }
}

/// Whether waiting for a task is over: it has ended, or the user may not see whether it has.
fn is_over(state: &TaskInfoState, unreadable: &[Unreadable]) -> bool {
    has_ended(state) || unreadable.iter().any(|one| "info.state".starts_with(one.path.as_str()))
}

fn has_ended(state: &TaskInfoState) -> bool {
    matches!(state, TaskInfoState::Success | TaskInfoState::Error)
}
