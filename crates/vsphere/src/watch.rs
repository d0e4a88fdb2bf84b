//! Following properties: vCenter reports what changed, nothing is polled for.
//!
//! A [`Watch`] is a stream that never ends by itself. It begins with every object ([`Change::Entered`]),
//! reports when that is complete ([`Change::Synced`]), and goes on with what changes. When the session is lost,
//! vCenter restarts or the network breaks, it starts again: objects enter again with their current state,
//! those that vanished in between leave, and `Synced` reports when it has caught up. So nothing is missed;
//! only intermediate states may be skipped.
//!
//! It keeps the references of the objects it reported and one page of changes, nothing else.

use std::{
    collections::{HashSet, VecDeque},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::task::JoinSet;

use crate::{
    collector::Collector, connection::Connection, error::Error, property::Object, reference::Ref,
    types::ManagedObject,
};

/// Pauses after failures grow from the first to the last, which is how late the end of an outage is noticed.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// What a watch reports.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<T> {
    /// An object with all wanted properties: a new one, or one that replaces what was known of it.
    Entered(T),
    /// Some properties of a known object have other values.
    Changed(Delta<T>),
    /// The object is gone, moved out of sight, or the user may not see it any more.
    Left(Ref<ManagedObject>),
    /// Everything that exists has entered, and what vanished has left. Reported with each complete answer, so
    /// also when nothing changed: that vCenter answers is news by itself.
    Synced,
}

/// New values of some properties of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta<T> {
    pub(crate) values: T,
    pub(crate) paths: Vec<String>,
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
        for missing in self.values.unreadable().drain(..) {
            to.unreadable().retain(|known| known.path != missing.path);
            to.unreadable().push(missing);
        }
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

type Step<T> = (State<T>, Result<Vec<Change<T>>, Error>);

/// A stream of changes. Dropping it is fine at any time: what it holds in vCenter is destroyed in the background.
/// After an error it goes on by itself, after a pause.
///
/// Each step runs in a task of its own: a future that is not polled could be next in line for the session, and
/// would keep all other calls waiting.
pub struct Watch<T> {
    /// Here between steps, in `running` during one.
    state: Option<State<T>>,
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

struct State<T> {
    connection: Connection,
    attached: Option<Attached<T>>,
    /// What we reported to exist.
    known: HashSet<Ref<ManagedObject>>,
    failures: u32,
}

struct Attached<T> {
    collector: Collector<Change<T>>,
    /// Until the first complete answer: what was reported before and has not been seen since.
    unseen: Option<HashSet<Ref<ManagedObject>>>,
}

/// One attempt to read changes.
async fn step<T: Object>(mut state: State<T>) -> Step<T> {
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
    // Sessions end and collectors are lost; that is reported only when a fresh start fails too.
    if state.attached.take().is_some() && state.failures == 1 && is_lost(error) {
        return (state, Ok(Vec::new()));
    }
    (state, result)
}

/// Whether only what we held on the server is gone.
pub fn is_lost(error: &Error) -> bool {
    let lost = ["NotAuthenticated", "ManagedObjectNotFound", "InvalidCollectorVersion"];
    error.fault().is_some_and(|fault| lost.iter().any(|name| fault.is_a(name)))
}

impl<T: Object> State<T> {
    async fn advance(&mut self) -> Result<Vec<Change<T>>, Error> {
        let attached = match &mut self.attached {
            Some(attached) => attached,
            None => {
                let collector = attach(&self.connection).await?;
                self.attached.insert(Attached { collector, unseen: Some(self.known.clone()) })
            }
        };
        let page = attached.collector.next().await?;
        let mut changes = page.changes;
        for change in &changes {
            match change {
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
        }
        if page.complete {
            for reference in attached.unseen.take().unwrap_or_default() {
                self.known.remove(&reference);
                changes.push(Change::Left(reference));
            }
            changes.push(Change::Synced);
        }
        Ok(changes)
    }
}

async fn attach<T: Object>(connection: &Connection) -> Result<Collector<Change<T>>, Error> {
    let mut collector = connection.collector().await?;
    let root = connection.content().await?.root_folder;
    let kinds: Vec<&str> = T::wanted().iter().map(|wanted| wanted.kind).collect();
    let view = collector.below(&root, &kinds).await?;
    collector.filter(&[view], None, |change| change).await?;
    Ok(collector)
}
