//! Waiting for tasks: one watch for all of them, however many there are.
//!
//! The awaited tasks are in one list view, and one long poll reports which of them ended.
//! What ended together is read together, each in the namespace that has the types of its result. Tasks
//! that come while a request is on the way are added together by the next one. So the number of requests
//! depends on how often something happens, not on the number of tasks.
//!
//! When the view does not work the tasks are polled, all with one request, until it works again.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};

use crate::{
    collector::{
        LONGEST_POLL, create_filter, list_view, modify_list, own_collector, read_update, wait,
    },
    connection::{Connection, WeakConnection},
    error::{Cause, Error},
    fault::Fault,
    held::Held,
    login::Established,
    object,
    property::{Object, through_views},
    reference::Ref,
    soap::Service,
    types::{DestroyPropertyCollector, DestroyView, ListView, ManagedObject, Task, TaskInfoState},
    watch::Change,
    xml::{Element, Field, FromXml, Malformed, Reader},
};

/// How often tasks are polled while the view does not work, and for how long it is left alone.
const POLL: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_secs(60);

object! {
    /// Whether a task has ended.
    struct Progress: Task {
        state: TaskInfoState = "info.state",
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
        let ended = match tokio::time::timeout(limit, reply).await {
            Err(_) => return Err(self.unfinished(task, "Task", Cause::StillRunning(limit))),
            Ok(Err(_)) => return Err(self.unfinished(task, "Task", Cause::Closed)),
            Ok(Ok(Outcome::Lost)) => return Err(self.unfinished(task, "Task", Cause::TaskLost)),
            Ok(Ok(Outcome::Ended(ended))) => *ended,
        };
        // The id under which the logs of vCenter's services have the work.
        let activation = ended.activation.unwrap_or_default();
        tracing::debug!(vcenter = %self.vcenter(), %task, activation, state = ?ended.state, "task ended");
        if ended.state == TaskInfoState::Error {
            let fault =
                ended.error.unwrap_or_else(|| Fault::bare("MethodFault", "no reason given"));
            let cause = Cause::Fault(Box::new(fault));
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

enum Outcome {
    Ended(Box<Ended>),
    /// vCenter does not know it any more.
    Lost,
}

struct Request {
    task: Ref<Task>,
    service: Service,
    reply: oneshot::Sender<Outcome>,
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
    ) -> oneshot::Receiver<Outcome> {
        let (reply, receiver) = oneshot::channel();
        let mut request = Request { task: task.clone(), service, reply };
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(worker) = &*worker {
            match worker.requests.send(request) {
                Ok(()) => return receiver,
                Err(unsent) => request = unsent.0,
            }
        }
        let (requests, incoming) = mpsc::unbounded_channel();
        let mut running = JoinSet::new();
        running.spawn(work(connection.downgrade(), incoming));
        // Nobody has closed the channel that was just made.
        requests.send(request).unwrap_or_default();
        *worker = Some(Worker { requests, running });
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

struct Waiter {
    service: Service,
    reply: oneshot::Sender<Outcome>,
}

type Waiting = HashMap<Ref<Task>, Vec<Waiter>>;

/// The background task's state.
struct Following {
    requests: mpsc::UnboundedReceiver<Request>,
    waiting: Waiting,
    /// Waited for and not in the view yet.
    fresh: Vec<Ref<ManagedObject>>,
    view: Option<View>,
    /// The view does not work; until then tasks are polled.
    resting: Option<Instant>,
    poll: Option<BoxFuture<'static, Result<Polled, Error>>>,
}

/// What a session holds for us.
struct View {
    session: Arc<Established>,
    list: Held<DestroyView>,
    collector: Held<DestroyPropertyCollector>,
    version: String,
    /// What it shows. A task that its caller gave up stays until it ends: it may be waited for again.
    members: HashSet<Ref<ManagedObject>>,
    /// Members that have ended, of which nothing more is reported; they go with the next change.
    ended: HashSet<Ref<ManagedObject>>,
}

impl View {
    async fn open(connection: &Connection, session: Arc<Established>) -> Result<Self, Error> {
        let list = list_view(connection, &session).await?;
        let collector = own_collector(connection, &session).await?;
        let spec = through_views(std::slice::from_ref(list.on()), Progress::wanted());
        create_filter(connection, &session, &collector, spec).await?;
        let (version, members, ended) = (String::new(), HashSet::new(), HashSet::new());
        Ok(Self { session, list, collector, version, members, ended })
    }

    /// Shows more tasks, and those that have ended no longer. Returns the tasks that vCenter does not know.
    async fn show(
        &mut self,
        connection: &Connection,
        tasks: &[Ref<ManagedObject>],
    ) -> Result<Vec<Ref<ManagedObject>>, Error> {
        let ended: Vec<_> = self.ended.iter().cloned().collect();
        let list = Ref::<ListView>::new(self.list.on().value());
        let unknown =
            modify_list(connection, &self.session, &list, tasks.to_vec(), ended.clone()).await?;
        for task in ended {
            self.members.remove(&task);
            self.ended.remove(&task);
        }
        self.members.extend(tasks.iter().cloned());
        Ok(unknown)
    }
}

/// What a poll reported.
struct Polled {
    version: Option<String>,
    ended: Vec<Ref<Task>>,
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
            match self.requests.recv().await {
                Some(request) => self.accept(request),
                None => return false,
            }
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
        self.fresh.push(request.task.upcast());
        let waiter = Waiter { service: request.service, reply: request.reply };
        self.waiting.entry(request.task).or_default().push(waiter);
    }

    /// Puts new tasks into the view, then waits until a task ends or another comes.
    async fn advance(&mut self, connection: &Connection) -> Result<(), Error> {
        if self.resting.is_none_or(|until| until <= Instant::now()) {
            self.resting = None;
            self.look(connection).await?;
        }
        let poll = match &mut self.poll {
            Some(poll) => poll,
            None => self.poll.insert(next_poll(connection, self.view.as_ref(), &self.waiting)),
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
        if let (Some(view), Some(version)) = (&mut self.view, polled.version) {
            view.version = version;
        }
        self.conclude(connection, polled.ended).await
    }

    /// Makes the view, and makes it show what is waited for.
    async fn look(&mut self, connection: &Connection) -> Result<(), Error> {
        let view = match &mut self.view {
            Some(view) => view,
            None => {
                // What was polled by other means does not end this poll; start from everything.
                self.poll = None;
                self.fresh = self.waiting.keys().map(Ref::upcast).collect();
                self.view.insert(open_view(connection).await?)
            }
        };
        // Members are not reported again: those that have ended must be read, the others are awaited already.
        let ended: Vec<Ref<Task>> = self
            .fresh
            .iter()
            .filter(|task| view.ended.contains(*task))
            .filter_map(Ref::cast)
            .collect();
        self.fresh.retain(|task| !view.members.contains(task));
        if !self.fresh.is_empty() {
            for task in view.show(connection, &self.fresh).await?.iter().filter_map(Ref::cast) {
                reply(&mut self.waiting, &task, || Outcome::Lost);
            }
            self.fresh.clear();
        }
        self.conclude(connection, ended).await
    }

    /// Reads how tasks ended, those of one namespace with one request, and answers the callers that wait.
    async fn conclude(
        &mut self,
        connection: &Connection,
        ended: Vec<Ref<Task>>,
    ) -> Result<(), Error> {
        let mut by_service: HashMap<Service, Vec<Ref<Task>>> = HashMap::new();
        for task in ended {
            // What we took out of the view ourselves leaves it, too.
            if let Some(view) = &mut self.view
                && view.members.contains(&task.upcast())
            {
                view.ended.insert(task.upcast());
            }
            if let Some(waiter) = self.waiting.get(&task).and_then(|waiters| waiters.first()) {
                by_service.entry(namespace(waiter.service)).or_default().push(task);
            }
        }
        for (service, tasks) in by_service {
            let mut found: HashMap<Ref<Task>, Ended> = HashMap::new();
            for task in connection.read_as::<Ended, Task>(service, &tasks).await? {
                found.insert(task.reference.clone(), task);
            }
            for task in tasks {
                match found.get(&task) {
                    Some(end) => {
                        reply(&mut self.waiting, &task, || Outcome::Ended(Box::new(end.clone())));
                    }
                    None => reply(&mut self.waiting, &task, || Outcome::Lost),
                }
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
            connection.forget(&view.session).await;
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

fn reply(waiting: &mut Waiting, task: &Ref<Task>, outcome: impl Fn() -> Outcome) {
    for waiter in waiting.remove(task).unwrap_or_default() {
        // Whoever gave up waiting does not want to know.
        waiter.reply.send(outcome()).unwrap_or_default();
    }
}

async fn open_view(connection: &Connection) -> Result<View, Error> {
    let session = connection.established().await?;
    let opened = View::open(connection, Arc::clone(&session)).await;
    if let Err(error) = &opened
        && error.is_logged_out()
    {
        connection.forget(&session).await;
    }
    opened
}

/// The next poll: of the view, or of every task.
fn next_poll(
    connection: &Connection,
    view: Option<&View>,
    waiting: &Waiting,
) -> BoxFuture<'static, Result<Polled, Error>> {
    let connection = connection.clone();
    let Some(view) = view else {
        let tasks: Vec<Ref<Task>> = waiting.keys().cloned().collect();
        return Box::pin(async move {
            tokio::time::sleep(POLL).await;
            poll_states(&connection, &tasks).await
        });
    };
    let (session, collector) = (Arc::clone(&view.session), view.collector.on().clone());
    let version = view.version.clone();
    Box::pin(async move {
        let mut changes = Vec::new();
        let answer = wait(&connection, &session, &collector, &version, LONGEST_POLL, {
            |_, reader, update| {
                changes.extend(read_update::<Progress>(reader, update)?);
                Ok(())
            }
        })
        .await?;
        Ok(reported(answer.version, changes))
    })
}

/// Asks for the state of every task.
async fn poll_states(connection: &Connection, tasks: &[Ref<Task>]) -> Result<Polled, Error> {
    let states: Vec<Progress> = connection.read(tasks).await?;
    let running = |task: &Ref<Task>| {
        states.iter().any(|state| state.reference == *task && !has_ended(&state.state))
    };
    let ended = tasks.iter().filter(|task| !running(task)).cloned().collect();
    Ok(Polled { version: None, ended })
}

fn reported(version: String, changes: Vec<Change<Progress>>) -> Polled {
    let mut ended = Vec::new();
    for change in changes {
        match change {
            Change::Entered(task) if has_ended(&task.state) => ended.push(task.reference),
            Change::Changed(delta) => {
                let mut task = Progress::begin(&delta.reference()).unwrap_or_default();
                delta.apply(&mut task);
                if has_ended(&task.state) {
                    ended.push(task.reference);
                }
            }
            // Out of the view is out of the server's memory; reading the task shows which.
            Change::Left(reference) => ended.extend(reference.cast()),
            Change::Entered(_) | Change::Synced => {}
        }
    }
    Polled { version: Some(version), ended }
}

fn has_ended(state: &TaskInfoState) -> bool {
    matches!(state, TaskInfoState::Success | TaskInfoState::Error)
}
