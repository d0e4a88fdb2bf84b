//! Progress of long work for a person: a line that moves on a terminal, sparse plain lines elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const PLAIN_EVERY: Duration = Duration::from_secs(15);
const MOVING_EVERY: Duration = Duration::from_millis(200);

/// Counts steps and shows them. Steps may overlap.
#[derive(Debug)]
pub struct Progress {
    shown: Option<Shown>,
}

#[derive(Debug)]
struct Shown {
    steps: usize,
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    done: usize,
    last_note: Option<Instant>,
    line_is_open: bool,
}

/// One step that has begun.
#[derive(Debug)]
pub struct Step<'a> {
    progress: &'a Progress,
    name: String,
    started: Instant,
}

impl Progress {
    /// Shows nothing: for tests.
    #[must_use]
    pub const fn silent() -> Self {
        Self { shown: None }
    }

    /// Shows `steps` steps on standard error.
    #[must_use]
    pub fn shown(steps: usize) -> Self {
        let terminal = io::stderr().is_terminal();
        let shown = Shown { steps, terminal, state: Mutex::default() };
        Self { shown: Some(shown) }
    }

    /// Begins a step; call [`Step::done`] at its end.
    pub fn step(&self, name: impl Into<String>) -> Step<'_> {
        let step = Step { progress: self, name: name.into(), started: Instant::now() };
        step.note("");
        step
    }
}

impl Step<'_> {
    /// Says how far the step is; shown as often as a person wants to see it.
    pub fn note(&self, text: &str) {
        let Some(shown) = &self.progress.shown else { return };
        let mut state = shown.lock();
        let every = if shown.terminal { MOVING_EVERY } else { PLAIN_EVERY };
        if state.last_note.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        state.last_note = Some(Instant::now());
        let line = self.line(shown, state.done + 1, "…", text);
        if shown.terminal {
            state.line_is_open = true;
            write(&format!("\r\x1b[2K{line}"));
        } else if !text.is_empty() {
            write(&format!("{line}\n"));
        }
    }

    /// Ends the step and says so.
    pub fn done(self, text: &str) {
        let Some(shown) = &self.progress.shown else { return };
        let mut state = shown.lock();
        state.done += 1;
        let line = self.line(shown, state.done, "✓", text);
        let clear = if std::mem::take(&mut state.line_is_open) { "\r\x1b[2K" } else { "" };
        write(&format!("{clear}{line}\n"));
    }

    fn line(&self, shown: &Shown, number: usize, mark: &str, text: &str) -> String {
        let gap = if text.is_empty() { "" } else { ": " };
        let steps = shown.steps;
        format!(
            "{mark} [{number}/{steps}] {}{gap}{text} ({})",
            self.name,
            seconds(self.started.elapsed())
        )
    }
}

impl Shown {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A duration as people write it: `0.4 s`, `12 s`, `3 min 05 s`.
#[must_use]
pub fn seconds(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

/// Progress is a courtesy: a closed terminal must not end the work.
fn write(text: &str) {
    let mut out = io::stderr().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(seconds(Duration::from_millis(420)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(12)), "12 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
