//! Which tasks a program consists of, and how it ends.
//!
//! ```text
//!   spawn             controllers, watches      asked to stop first; aborted when a foundation ends
//!   spawn_foundation  lease, admin server       asked to stop when all of those have ended
//! ```
//!
//! Nobody may end early: the first task that does ends the program, and Kubernetes starts it again. A signal
//! asks for a graceful end within a bound; a second one ends the program at once. The order matters for
//! leadership: the lease is given back when nobody works under it any more.
//!
//! Deliberately absent: restarting a task, detached tasks, exiting the process (only `main` does).

use std::{collections::HashMap, fmt, future::Future, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::{Id, JoinError, JoinSet},
    time::{Instant, timeout_at},
};
use tracing::{info, warn};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Tells a task that it should end.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Asks all holders of the matching [`Shutdown`] to end; dropping it does so too.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

/// A switch, and the view of it that tasks get.
#[must_use]
pub fn shutdown() -> (Stop, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Stop(sender), Shutdown(receiver))
}

impl Stop {
    /// Asks everybody to end.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Returns when the program should end; safe to call again and again.
    pub async fn requested(&self) {
        // A sender that is gone asks for the same thing.
        self.0.clone().wait_for(|asked| *asked).await.map(drop).unwrap_or_default();
    }

    /// Whether the program should end.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// What `work` returns, or `None` if the program should end before that; `work` is then dropped.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.requested() => None,
            value = work => Some(value),
        }
    }
}

/// Why a program ended although nobody asked it to, or not as it should have.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// A task ended early.
    #[error("the task {name} ended: {cause}")]
    Task {
        /// Which one.
        name: String,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// Tasks did not end in time and were aborted.
    #[error("not ended within {} s after being asked to: {}", bound.as_secs_f64(), names.join(", "))]
    Stuck {
        /// Their names.
        names: Vec<String>,
        /// How long they had.
        bound: Duration,
    },
    /// A second signal came before the tasks had ended.
    #[error("ended at once by a second signal")]
    Impatient,
    /// Signals cannot be received.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// A task that returned without having been asked to.
#[derive(Debug, thiserror::Error)]
#[error("it returned although nobody asked it to")]
struct Returned;

/// The tasks of a program.
#[derive(Debug)]
pub struct Supervisor {
    work: Group,
    foundation: Group,
}

impl Default for Supervisor {
    fn default() -> Self {
        Self::new()
    }
}

impl Supervisor {
    /// No task yet.
    #[must_use]
    pub fn new() -> Self {
        Self { work: Group::new(), foundation: Group::new() }
    }

    /// Starts a task that ends when its [`Shutdown`] says so, and not before.
    pub fn spawn<F, E>(&mut self, name: &str, task: impl FnOnce(Shutdown) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Cause>,
    {
        self.work.spawn(name, task);
    }

    /// Starts a task that the others stand on: it is asked to end after them, and when it ends early they are
    /// aborted without a grace, because a leader that lost its lease may not finish what it was doing.
    pub fn spawn_foundation<F, E>(&mut self, name: &str, task: impl FnOnce(Shutdown) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Cause>,
    {
        self.foundation.spawn(name, task);
    }

    /// Runs until SIGTERM or SIGINT comes or a task ends, then ends all tasks, within `grace`.
    ///
    /// # Errors
    /// [`Ended::Task`] when a task ended early, [`Ended::Stuck`] when some had to be aborted,
    /// [`Ended::Impatient`] after a second signal. All tasks are gone when this returns.
    pub async fn run(mut self, grace: Duration) -> Result<(), Ended> {
        let mut signals = Signals::listen().map_err(Ended::Signals)?;
        let early = tokio::select! {
            name = signals.next() => {
                info!(signal = name, "shutdown requested");
                None
            }
            ended = self.work.first() => Some((ended, false)),
            ended = self.foundation.first() => Some((ended, true)),
        };
        if matches!(early, Some((_, true))) {
            self.work.abort().await;
        }
        let stopped = tokio::select! {
            stopped = self.stop(grace) => stopped,
            name = signals.next() => {
                warn!(signal = name, "second signal");
                Err(Ended::Impatient)
            }
        };
        self.work.abort().await;
        self.foundation.abort().await;
        match early {
            Some((ended, _)) => {
                if let Err(error) = stopped {
                    warn!(%error, "shutdown incomplete");
                }
                Err(ended)
            }
            None => stopped,
        }
    }

    /// Ends the work, then what it stands on; each has its own share of the time so that a controller that
    /// hangs does not keep the lease from being given back.
    async fn stop(&mut self, grace: Duration) -> Result<(), Ended> {
        let now = Instant::now();
        let mut names = self.work.stop(now + grace.mul_f64(0.75)).await;
        names.extend(self.foundation.stop(now + grace).await);
        if names.is_empty() { Ok(()) } else { Err(Ended::Stuck { names, bound: grace }) }
    }
}

#[derive(Debug)]
struct Group {
    tasks: JoinSet<Result<(), Cause>>,
    names: HashMap<Id, String>,
    stop: Stop,
    shutdown: Shutdown,
}

impl Group {
    fn new() -> Self {
        let (stop, shutdown) = shutdown();
        Self { tasks: JoinSet::new(), names: HashMap::new(), stop, shutdown }
    }

    fn spawn<F, E>(&mut self, name: &str, task: impl FnOnce(Shutdown) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Cause>,
    {
        let task = task(self.shutdown.clone());
        let handle = self.tasks.spawn(async move { task.await.map_err(Into::into) });
        self.names.insert(handle.id(), name.to_owned());
    }

    /// The first task that ends; never returns while there is none.
    async fn first(&mut self) -> Ended {
        match self.tasks.join_next_with_id().await {
            Some(joined) => self
                .explain(joined)
                .unwrap_or_else(|name| Ended::Task { name, cause: Returned.into() }),
            None => std::future::pending().await,
        }
    }

    /// Asks all to end and waits; those left at `deadline` are aborted and named.
    async fn stop(&mut self, deadline: Instant) -> Vec<String> {
        self.stop.request();
        while let Ok(Some(joined)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            if let Ok(error) = self.explain(joined) {
                warn!(%error, "shutdown of a task failed");
            }
        }
        self.abort().await
    }

    /// Aborts what is left and says what that was.
    async fn abort(&mut self) -> Vec<String> {
        self.tasks.shutdown().await;
        let mut names: Vec<String> = self.names.drain().map(|(_, name)| name).collect();
        names.sort();
        names
    }

    /// `Err` with the name when the task returned without an error.
    fn explain(
        &mut self,
        joined: Result<(Id, Result<(), Cause>), JoinError>,
    ) -> Result<Ended, String> {
        let (id, result) = match joined {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(error.into())),
        };
        let name = self.names.remove(&id).unwrap_or_default();
        match result {
            Ok(()) => Err(name),
            Err(cause) => Ok(Ended::Task { name, cause }),
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// An error and all its causes in one line.
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut said = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Libraries repeat their source in their own text; once is enough.
            if !said.contains(&text) {
                write!(f, ": {text}")?;
            }
            said = text;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    async fn waits(shutdown: Shutdown) -> Result<(), Returned> {
        shutdown.requested().await;
        Ok(())
    }

    #[tokio::test]
    async fn the_first_task_that_ends_ends_all_and_is_named() {
        let mut tasks = Supervisor::new();
        tasks.spawn("nodes", waits);
        tasks.spawn("inventory", |_| async { Err::<(), _>("the watch broke") });
        let ended = tasks.run(GRACE).await.unwrap_err();
        assert_eq!(ended.to_string(), "the task inventory ended: the watch broke");
    }

    #[tokio::test]
    async fn a_task_that_returns_early_is_a_failure_too() {
        let mut tasks = Supervisor::new();
        tasks.spawn("nodes", |_| async { Ok::<(), Returned>(()) });
        let ended = tasks.run(GRACE).await.unwrap_err();
        assert!(ended.to_string().starts_with("the task nodes ended: it returned"), "{ended}");
    }

    #[tokio::test]
    async fn a_task_that_panics_ends_all() {
        let mut tasks = Supervisor::new();
        tasks.spawn("nodes", waits);
        tasks.spawn("zones", |_| async {
            if GRACE.is_zero() {
                return Ok::<(), Returned>(());
            }
            panic!("an index out of range")
        });
        let ended = tasks.run(GRACE).await.unwrap_err();
        assert!(ended.to_string().contains("the task zones ended"), "{ended}");
    }

    #[tokio::test]
    async fn the_foundation_is_asked_to_end_after_the_work() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Supervisor::new();
        let note = |name: &'static str| {
            let order = Arc::clone(&order);
            move |shutdown: Shutdown| async move {
                shutdown.requested().await;
                tokio::task::yield_now().await;
                order.lock().unwrap().push(name);
                Ok::<(), Returned>(())
            }
        };
        tasks.spawn_foundation("lease", note("lease"));
        tasks.spawn("nodes", note("nodes"));
        tasks.spawn("zones", |_| async { Err::<(), _>("over") });
        tasks.run(GRACE).await.unwrap_err();
        assert_eq!(*order.lock().unwrap(), ["nodes", "lease"]);
    }

    #[tokio::test]
    async fn work_is_aborted_without_grace_when_its_foundation_is_gone() {
        let mut tasks = Supervisor::new();
        let asked = Arc::new(Mutex::new(false));
        let seen = Arc::clone(&asked);
        tasks.spawn("nodes", |shutdown| async move {
            shutdown.requested().await;
            *seen.lock().unwrap() = true;
            Ok::<(), Returned>(())
        });
        tasks.spawn_foundation("lease", |_| async { Err::<(), _>("lost") });
        assert_eq!(tasks.run(GRACE).await.unwrap_err().to_string(), "the task lease ended: lost");
        assert!(!*asked.lock().unwrap());
    }

    #[tokio::test]
    async fn a_task_that_does_not_listen_is_aborted_and_named() {
        let mut group = Group::new();
        group.spawn("deaf", |_| std::future::pending::<Result<(), Returned>>());
        group.spawn("good", waits);
        assert_eq!(group.stop(Instant::now() + Duration::from_secs(1)).await, ["deaf"]);
    }

    #[tokio::test]
    async fn work_is_given_up_when_the_program_should_end() {
        let (stop, shutdown) = shutdown();
        assert_eq!(shutdown.unless(async { 7 }).await, Some(7));
        stop.request();
        assert!(shutdown.is_requested());
        assert_eq!(shutdown.unless(std::future::pending::<()>()).await, None);
    }
}
