//! Programs that are built while others already run.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use anyhow::{Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Progress, programs};

/// A build in a thread of its own. Dropping it interrupts the build and waits for its end; programs that are
/// complete by then are kept.
#[derive(Debug, Default)]
pub struct Background {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The go command that runs now.
    pub(crate) child: Option<u32>,
    pub(crate) stopped: bool,
    error: Option<String>,
}

impl Background {
    /// Nothing is built: every program that is needed is in the cache.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Builds these groups of programs, one group after the other.
    #[must_use]
    pub fn build(groups: &'static [&'static [&'static str]], progress: &Arc<Progress>) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let (of_thread, progress) = (Arc::clone(&state), Arc::clone(progress));
        let thread = std::thread::spawn(move || {
            yield_to_others();
            for group in groups {
                if let Err(error) = programs::build_interruptibly(group, &progress, &of_thread) {
                    let mut state = of_thread.lock().unwrap_or_else(PoisonError::into_inner);
                    state.error = Some(format!("{error:#}"));
                    return;
                }
            }
        });
        Self { state, thread: Some(thread) }
    }

    /// Whether this program is in the cache; `false` while its build goes on.
    ///
    /// # Errors
    /// When the build failed, or ended without this program.
    pub fn has(&self, program: &str) -> Result<bool> {
        // In this order: a build that ends between the two lines is seen as complete.
        let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let found = programs::binary(program);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (&state.error, found) {
            (_, Ok(_)) => Ok(true),
            (Some(error), _) => Err(anyhow!("{error}")),
            (None, Err(error)) if ended => Err(error),
            (None, Err(_)) => Ok(false),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let child = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.stopped = true;
            state.child
        };
        if let Some(child) = child {
            interrupt(child);
        }
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Lets this thread, and the compilers that it starts, give way to the programs that run already: on a busy
/// machine a cluster starts in half the time.
pub fn yield_to_others() {
    // Without it the build is right too, and only less polite.
    rustix::process::nice(10).ok();
}

/// Go ends its compilers when it is interrupted.
pub(crate) fn interrupt(child: u32) {
    if let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        kill_process(pid, Signal::INT).ok();
    }
}
