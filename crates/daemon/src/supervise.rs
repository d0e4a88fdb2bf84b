//! Named groups of tasks, and the order in which a program ends them.
//!
//! ```text
//!   Supervisor ─┬─ work         controllers, watches     stopped first; aborted when a foundation task ends
//!               └─ foundation   lease, admin server      stopped after the work
//! ```
//!
//! No task may end early: the first one that does ends the program, and Kubernetes restarts it. A signal
//! requests a graceful end within a bound; a second signal ends the program at once. The order matters for
//! leadership: the lease is released only when nothing works under it any more.
//!
//! Deliberately absent: restarting a task, detached tasks, exiting the process (only `main` does).

use std::{collections::HashMap, fmt, future::Future, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::{Id, JoinError, JoinSet},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
pub use tokio_util::sync::DropGuard as Stop;
use tracing::{info, warn};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A task's view of the request to end.
#[derive(Clone, Debug)]
pub struct Shutdown(CancellationToken);

/// A connected pair: dropping the guard requests the end of all holders of the [`Shutdown`].
#[must_use]
pub fn shutdown() -> (Stop, Shutdown) {
    let token = CancellationToken::new();
    (token.clone().drop_guard(), Shutdown(token))
}

impl Shutdown {
    /// Returns when the end is requested; may be awaited any number of times.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// Whether the end is requested.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// The output of `work`, or `None` if the end is requested first; `work` is then dropped.
    pub async fn unless<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.0.run_until_cancelled(work).await
    }
}

/// Why tasks ended early, or not in time.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// A task ended early.
    #[error("the task {name} ended: {cause}")]
    Task {
        /// The name it was spawned under.
        name: String,
        /// Its error, its panic, or that it returned.
        #[source]
        cause: Cause,
    },
    /// Tasks did not end in time and were aborted.
    #[error("not ended within {} s after the request: {}", bound.as_secs_f64(), names.join(", "))]
    Stuck {
        /// The aborted tasks, sorted.
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

/// A named group of tasks that run until they are stopped together. Dropping it aborts them.
#[derive(Debug, Default)]
pub struct Tasks {
    tasks: JoinSet<Result<(), Cause>>,
    names: HashMap<Id, String>,
    stop: CancellationToken,
}

impl Tasks {
    /// Starts a task that ends when its [`Shutdown`] requests it, and not before.
    pub fn spawn<F, E>(&mut self, name: &str, task: impl FnOnce(Shutdown) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Cause>,
    {
        let task = task(Shutdown(self.stop.clone()));
        let handle = self.tasks.spawn(async move { task.await.map_err(Into::into) });
        self.names.insert(handle.id(), name.to_owned());
    }

    /// The first task that ends although its end was not requested; pending while there is none. Cancel safe.
    pub async fn ended_early(&mut self) -> Ended {
        let Some(joined) = self.tasks.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let (name, result) = self.result(joined);
        let returned = || "it returned although its end was not requested".into();
        Ended::Task { name, cause: result.err().unwrap_or_else(returned) }
    }

    /// Requests the end of all tasks, waits up to `grace`, and aborts the rest, which [`Ended::Stuck`] names.
    pub async fn stop(mut self, grace: Duration) -> Result<(), Ended> {
        stuck(self.stop_by(Instant::now() + grace).await, grace)
    }

    /// Stops all tasks and returns the names of those that were left at `deadline`.
    async fn stop_by(&mut self, deadline: Instant) -> Vec<String> {
        self.stop.cancel();
        while let Ok(Some(joined)) = timeout_at(deadline, self.tasks.join_next_with_id()).await {
            if let (name, Err(cause)) = self.result(joined) {
                warn!(error = %Ended::Task { name, cause }, "task failed during shutdown");
            }
        }
        self.abort().await
    }

    /// Aborts what is left and returns the names.
    async fn abort(&mut self) -> Vec<String> {
        self.tasks.shutdown().await;
        let mut names: Vec<String> = self.names.drain().map(|(_, name)| name).collect();
        names.sort();
        names
    }

    /// The name and the result of a task that ended.
    fn result(
        &mut self,
        joined: Result<(Id, Result<(), Cause>), JoinError>,
    ) -> (String, Result<(), Cause>) {
        let (id, result) = joined.unwrap_or_else(|error| (error.id(), Err(error.into())));
        (self.names.remove(&id).unwrap_or_default(), result)
    }
}

fn stuck(names: Vec<String>, bound: Duration) -> Result<(), Ended> {
    if names.is_empty() { Ok(()) } else { Err(Ended::Stuck { names, bound }) }
}

/// The tasks of a program.
#[derive(Debug)]
pub struct Supervisor {
    /// Stopped first.
    pub work: Tasks,
    /// Stopped after the work. When one of these ends early the work is aborted without grace, because a leader
    /// that lost its lease must not finish what it was doing.
    pub foundation: Tasks,
    signals: Signals,
}

/// Signals that ask the program to end.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// The name of the next one.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

impl Supervisor {
    /// No tasks yet. From here on a signal does not kill the process: one that comes before [`Supervisor::run`] ends it
    /// then. So this comes before anything that others can see of the program.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub fn new() -> Result<Self, Ended> {
        let listen = |kind| signal(kind).map_err(Ended::Signals);
        let terminate = listen(SignalKind::terminate())?;
        let signals = Signals { terminate, interrupt: listen(SignalKind::interrupt())? };
        Ok(Self { work: Tasks::default(), foundation: Tasks::default(), signals })
    }

    /// Runs until SIGTERM, SIGINT or the early end of a task, then ends all tasks within `grace`. No task is left
    /// when this returns.
    pub async fn run(mut self, grace: Duration) -> Result<(), Ended> {
        let early = tokio::select! {
            signal = self.signals.next() => {
                info!(signal, "shutdown requested");
                None
            }
            ended = self.work.ended_early() => Some(ended),
            ended = self.foundation.ended_early() => {
                self.work.abort().await;
                Some(ended)
            }
        };
        let Self { work, foundation, signals } = &mut self;
        let stopped = tokio::select! {
            stopped = stop(work, foundation, grace) => stopped,
            signal = signals.next() => {
                warn!(signal, "second signal received; ending at once");
                Err(Ended::Impatient)
            }
        };
        self.work.abort().await;
        self.foundation.abort().await;
        let Some(ended) = early else { return stopped };
        if let Err(error) = stopped {
            warn!(%error, "shutdown incomplete");
        }
        Err(ended)
    }
}

/// Stops the work, then the foundation; the work gets a share of the time only, so that a controller that hangs does not
/// keep the lease from being released.
async fn stop(work: &mut Tasks, foundation: &mut Tasks, grace: Duration) -> Result<(), Ended> {
    let now = Instant::now();
    let mut names = work.stop_by(now + grace.mul_f64(0.75)).await;
    names.extend(foundation.stop_by(now + grace).await);
    stuck(names, grace)
}

/// An error and all its causes in one line.
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut last = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Libraries repeat their source in their own text; once is enough.
            if !last.contains(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    async fn waits(shutdown: Shutdown) -> Result<(), Infallible> {
        shutdown.requested().await;
        Ok(())
    }

    #[tokio::test]
    async fn the_first_task_that_ends_ends_all_and_is_named() {
        let mut tasks = Supervisor::new().unwrap();
        tasks.work.spawn("nodes", waits);
        tasks.work.spawn("inventory", |_| async { Err::<(), _>("the watch broke") });
        let ended = tasks.run(GRACE).await.unwrap_err();
        assert_eq!(ended.to_string(), "the task inventory ended: the watch broke");
    }

    #[tokio::test]
    async fn a_task_that_returns_early_is_a_failure_too() {
        let mut tasks = Supervisor::new().unwrap();
        tasks.work.spawn("nodes", |_| async { Ok::<(), Infallible>(()) });
        let ended = tasks.run(GRACE).await.unwrap_err();
        assert!(ended.to_string().starts_with("the task nodes ended: it returned"), "{ended}");
    }

    #[tokio::test]
    async fn a_task_that_panics_ends_all() {
        let mut tasks = Supervisor::new().unwrap();
        tasks.work.spawn("nodes", waits);
        tasks.work.spawn("zones", |_| async {
            if GRACE.is_zero() {
                return Ok::<(), Infallible>(());
            }
            panic!("an index out of range")
        });
        let ended = tasks.run(GRACE).await.unwrap_err();
        assert!(ended.to_string().contains("the task zones ended"), "{ended}");
    }

    #[tokio::test]
    async fn the_foundation_is_asked_to_end_after_the_work() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Supervisor::new().unwrap();
        let note = |name: &'static str| {
            let order = Arc::clone(&order);
            move |shutdown: Shutdown| async move {
                shutdown.requested().await;
                tokio::task::yield_now().await;
                order.lock().unwrap().push(name);
                Ok::<(), Infallible>(())
            }
        };
        tasks.foundation.spawn("lease", note("lease"));
        tasks.work.spawn("nodes", note("nodes"));
        tasks.work.spawn("zones", |_| async { Err::<(), _>("over") });
        tasks.run(GRACE).await.unwrap_err();
        assert_eq!(*order.lock().unwrap(), ["nodes", "lease"]);
    }

    #[tokio::test]
    async fn work_is_aborted_without_grace_when_its_foundation_is_gone() {
        let mut tasks = Supervisor::new().unwrap();
        let asked = Arc::new(Mutex::new(false));
        let seen = Arc::clone(&asked);
        tasks.work.spawn("nodes", |shutdown| async move {
            shutdown.requested().await;
            *seen.lock().unwrap() = true;
            Ok::<(), Infallible>(())
        });
        tasks.foundation.spawn("lease", |_| async { Err::<(), _>("lost") });
        assert_eq!(tasks.run(GRACE).await.unwrap_err().to_string(), "the task lease ended: lost");
        assert!(!*asked.lock().unwrap());
    }

    #[tokio::test]
    async fn a_task_that_does_not_listen_is_aborted_and_named() {
        let mut tasks = Tasks::default();
        tasks.spawn("deaf", |_| std::future::pending::<Result<(), Infallible>>());
        tasks.spawn("good", waits);
        let stopped = tasks.stop(Duration::from_secs(1)).await;
        assert!(matches!(stopped, Err(Ended::Stuck { names, .. }) if names == ["deaf"]));
    }

    #[tokio::test]
    async fn a_group_reports_the_task_that_ended_early_and_stops_the_others() {
        let mut tasks = Tasks::default();
        tasks.spawn("nodes", waits);
        tasks.spawn("zones", |_| async { Err::<(), _>("the watch broke") });
        assert_eq!(tasks.ended_early().await.to_string(), "the task zones ended: the watch broke");
        tasks.stop(GRACE).await.unwrap();
    }

    #[tokio::test]
    async fn work_is_given_up_when_the_program_should_end() {
        let (stop, shutdown) = shutdown();
        assert_eq!(shutdown.unless(async { 7 }).await, Some(7));
        drop(stop);
        assert!(shutdown.is_requested());
        assert_eq!(shutdown.unless(std::future::pending::<()>()).await, None);
    }
}
