//! Following properties: vCenter tells what changed, nobody asks again and again.
//!
//! A [`Watch`] is a stream that never ends by itself. It begins with every object ([`Change::Entered`]),
//! says when that is complete ([`Change::Synced`]), and goes on with what changes. When the session is lost,
//! vCenter restarts or the network breaks, it starts anew: objects enter again with their current state,
//! those that vanished in between leave, and `Synced` says when it has caught up. So nothing is missed;
//! only intermediate states may be skipped.
//!
//! It keeps the references of the objects it told about and one page of changes, nothing else.

use std::{
    collections::{HashSet, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::task::JoinSet;

use crate::{
    connection::{Connection, is_logged_out},
    error::Error,
    login::Established,
    property::{Object, container_view, read_missing, read_property, through_view},
    reference::Ref,
    soap::Service,
    types::{
        CreateFilter, CreatePropertyCollector, DestroyPropertyCollector, ManagedObject,
        PropertyCollector, PropertyFilterSpec, WaitForUpdatesEx, WaitOptions,
    },
    xml::{Element, FromXml, Malformed, Reader},
};

/// How long vCenter may keep a poll open: below the idle limits of common proxies, and short enough that one
/// whose answer got lost is not waited for long.
pub(crate) const LONGEST_POLL: Duration = Duration::from_secs(20);
/// Changes of one answer.
const PAGE: i32 = 250;
/// Pauses after failures grow from the first to the last, which is how late the end of an outage is noticed.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// What a watch tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<T> {
    /// An object with all wanted properties: a new one, or one that replaces what was known of it.
    Entered(T),
    /// Some properties of a known object have other values.
    Changed(Delta<T>),
    /// The object is gone, moved out of sight, or the user may not see it any more.
    Left(Ref<ManagedObject>),
    /// Everything that exists has entered, and what vanished has left. It is told with each answer that holds
    /// all there is to tell, so also when nothing changed: that vCenter answers is news by itself.
    Synced,
}

/// New values of some properties of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta<T> {
    values: T,
    paths: Vec<String>,
}

impl<T: Object> Delta<T> {
    /// Which object changed.
    pub fn reference(&self) -> Ref<ManagedObject> {
        self.values.reference()
    }

    /// The paths of the properties that changed.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// Moves the new values into the object.
    pub fn apply(mut self, to: &mut T) {
        for path in &self.paths {
            to.take(path, &mut self.values);
            to.unreadable().retain(|unreadable| unreadable.path != *path);
        }
        to.unreadable().append(self.values.unreadable());
    }
}

impl Connection {
    /// Follows every object of these kinds in the whole inventory.
    pub fn watch<T: Object>(&self) -> Watch<T> {
        Watch {
            state: Some(State {
                connection: self.clone(),
                attached: None,
                known: HashSet::new(),
                failures: 0,
            }),
            running: JoinSet::new(),
            ready: VecDeque::new(),
        }
    }
}

type Step<T> = (State, Result<Vec<Change<T>>, Error>);

/// A stream of changes. Dropping it is fine at any time; what it held on the server ends with the session.
/// After an error it goes on by itself, after a pause.
///
/// Each step runs in a task of its own: a future that nobody polls could be next in line for the session, and
/// would keep everybody else waiting.
pub struct Watch<T> {
    /// Here between steps, in `running` during one.
    state: Option<State>,
    running: JoinSet<Step<T>>,
    ready: VecDeque<Change<T>>,
}

impl<T> std::fmt::Debug for Watch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}

impl<T: Object + Unpin + Send + 'static> Stream for Watch<T> {
    type Item = Result<Change<T>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(change)));
            }
            if let Some(state) = self.state.take() {
                self.running.spawn(step(state));
            }
            // A step that panicked has taken the state with it: there is nothing to go on with.
            let Some(Ok((state, result))) = std::task::ready!(self.running.poll_join_next(context))
            else {
                return Poll::Ready(None);
            };
            self.state = Some(state);
            match result {
                Ok(changes) => self.ready.extend(changes),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

struct State {
    connection: Connection,
    attached: Option<Attached>,
    /// What we told to exist.
    known: HashSet<Ref<ManagedObject>>,
    failures: u32,
}

/// What a session holds for us.
struct Attached {
    session: Arc<Established>,
    collector: Ref<PropertyCollector>,
    version: String,
    /// Until the first complete answer: what we told in earlier lives and have not seen in this one.
    unseen: Option<HashSet<Ref<ManagedObject>>>,
}

/// One attempt to learn something.
async fn step<T: Object>(mut state: State) -> Step<T> {
    if state.failures > 0 {
        let factor = 2u32.saturating_pow(state.failures - 1);
        tokio::time::sleep(PAUSE.0.saturating_mul(factor).min(PAUSE.1)).await;
    }
    let result = state.advance().await;
    let Err(error) = &result else {
        state.failures = 0;
        return (state, result);
    };
    state.failures = state.failures.saturating_add(1);
    let Some(lost) = state.attached.take() else {
        return (state, result);
    };
    state.connection.wire().metrics().watch_restarted();
    if is_logged_out(error) {
        state.connection.forget(&lost.session).await;
    }
    // Sessions end and collectors are lost; only when a fresh start fails too it is worth telling.
    if state.failures == 1 && is_lost(error) {
        return (state, Ok(Vec::new()));
    }
    (state, result)
}

/// Whether only what we held on the server is gone.
pub(crate) fn is_lost(error: &Error) -> bool {
    let lost = ["NotAuthenticated", "ManagedObjectNotFound", "InvalidCollectorVersion"];
    error.fault().is_some_and(|fault| lost.iter().any(|name| fault.is_a(name)))
}

impl State {
    async fn advance<T: Object>(&mut self) -> Result<Vec<Change<T>>, Error> {
        let attached = match &mut self.attached {
            Some(attached) => attached,
            None => {
                let attached = attach::<T>(&self.connection, self.known.clone()).await?;
                self.attached.insert(attached)
            }
        };
        let updates = poll::<T>(&self.connection, attached).await?;
        self.connection.wire().metrics().watch_answered();
        let mut changes = Vec::with_capacity(updates.changes.len());
        for change in updates.changes {
            match &change {
                Change::Entered(object) => {
                    let reference = object.reference();
                    if let Some(unseen) = &mut attached.unseen {
                        unseen.remove(&reference);
                    }
                    self.known.insert(reference);
                }
                Change::Left(reference) => {
                    self.known.remove(reference);
                }
                Change::Changed(_) | Change::Synced => {}
            }
            changes.push(change);
        }
        if !updates.truncated {
            for reference in attached.unseen.take().unwrap_or_default() {
                self.known.remove(&reference);
                changes.push(Change::Left(reference));
            }
            changes.push(Change::Synced);
        }
        Ok(changes)
    }
}

async fn attach<T: Object>(
    connection: &Connection,
    known: HashSet<Ref<ManagedObject>>,
) -> Result<Attached, Error> {
    let session = connection.established().await?;
    let root = session.content.root_folder.upcast();
    let result = async {
        let view = container_view::<T>(connection, &session, &root).await?;
        own_collector(connection, &session, through_view::<T>(&view)).await
    }
    .await;
    match result {
        Ok(collector) => {
            Ok(Attached { session, collector, version: String::new(), unseen: Some(known) })
        }
        Err(error) => {
            if is_logged_out(&error) {
                connection.forget(&session).await;
            }
            Err(error)
        }
    }
}

/// A collector with one filter. Waits on one collector exclude each other, so everybody has its own.
pub(crate) async fn own_collector(
    connection: &Connection,
    session: &Established,
    spec: PropertyFilterSpec,
) -> Result<Ref<PropertyCollector>, Error> {
    let shared = &session.content.property_collector;
    let wire = connection.wire();
    let mut collector = Ref::<PropertyCollector>::default();
    wire.call(
        session.as_in(),
        Service::Vim,
        shared,
        &CreatePropertyCollector {},
        |reader, value| {
            collector = Ref::from_xml(reader, value)?;
            Ok(())
        },
    )
    .await?;
    let filter = CreateFilter { spec, partial_updates: false };
    let filtered =
        wire.call(session.as_in(), Service::Vim, &collector, &filter, |_, _| Ok(())).await;
    if let Err(error) = filtered {
        let destroy = DestroyPropertyCollector {};
        let ended =
            wire.call(session.as_in(), Service::Vim, &collector, &destroy, |_, _| Ok(())).await;
        tracing::debug!(ended = ended.is_ok(), "collector without filter given up");
        return Err(error);
    }
    Ok(collector)
}

/// What one long poll brought.
pub(crate) struct Updates<T> {
    pub(crate) version: String,
    pub(crate) truncated: bool,
    pub(crate) changes: Vec<Change<T>>,
}

async fn poll<T: Object>(
    connection: &Connection,
    attached: &mut Attached,
) -> Result<Updates<T>, Error> {
    let session = &attached.session;
    // A world without such objects has nothing to tell: do not wait for it before the first answer.
    let patience = if attached.unseen.is_some() { Duration::ZERO } else { LONGEST_POLL };
    let updates =
        wait(connection, session, &attached.collector, &attached.version, patience).await?;
    attached.version.clone_from(&updates.version);
    Ok(updates)
}

/// Waits until something changed after `version`, at most `patience`.
pub(crate) async fn wait<T: Object>(
    connection: &Connection,
    session: &Established,
    collector: &Ref<PropertyCollector>,
    version: &str,
    patience: Duration,
) -> Result<Updates<T>, Error> {
    let seconds = i32::try_from(patience.as_secs()).unwrap_or(i32::MAX);
    let request = WaitForUpdatesEx {
        version: Some(version.to_owned()),
        options: Some(WaitOptions {
            max_wait_seconds: Some(seconds),
            max_object_updates: Some(PAGE),
        }),
    };
    // No answer at all means that nothing changed.
    let mut updates =
        Updates { version: version.to_owned(), truncated: false, changes: Vec::new() };
    connection
        .wire()
        .long_poll(session.as_in(), collector, &request, patience, |reader, set| {
            read_updates(reader, set, &mut updates)
        })
        .await?;
    Ok(updates)
}

pub(crate) fn read_updates<T: Object>(
    reader: &mut Reader<'_>,
    set: &Element<'_>,
    updates: &mut Updates<T>,
) -> Result<(), Malformed> {
    while let Some(child) = reader.child(set)? {
        match child.name() {
            "version" => updates.version = String::from_xml(reader, &child)?,
            "truncated" => updates.truncated = bool::from_xml(reader, &child)?,
            "filterSet" => {
                while let Some(update) = reader.child(&child)? {
                    if update.name() == "objectSet" {
                        updates.changes.extend(read_update(reader, &update)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn read_update<T: Object>(
    reader: &mut Reader<'_>,
    element: &Element<'_>,
) -> Result<Option<Change<T>>, Malformed> {
    let (mut kind, mut reference) = (String::new(), Ref::default());
    let (mut object, mut paths): (Option<T>, Vec<String>) = (None, Vec::new());
    while let Some(child) = reader.child(element)? {
        match (child.name(), &mut object) {
            ("kind", _) => kind = String::from_xml(reader, &child)?,
            ("obj", _) => {
                reference = Ref::from_xml(reader, &child)?;
                object = T::begin(&reference);
            }
            // A property that was unset has no value here, and the default is what it becomes.
            ("changeSet", Some(object)) => {
                let path = read_property(reader, &child, |path, reader, value| {
                    object.assign(path, reader, value)
                })?;
                paths.push(path);
            }
            ("missingSet", Some(object)) => {
                object.unreadable().push(read_missing(reader, &child)?);
            }
            _ => {}
        }
    }
    Ok(match (kind.as_str(), object) {
        ("enter", Some(object)) => Some(Change::Entered(object)),
        ("modify", Some(values)) => Some(Change::Changed(Delta { values, paths })),
        ("leave", _) => Some(Change::Left(reference)),
        _ => None,
    })
}
