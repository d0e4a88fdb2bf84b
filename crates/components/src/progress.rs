//! Progress of long work for a person: one line that moves on a terminal, sparse plain lines elsewhere.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

const PLAIN_EVERY: Duration = Duration::from_secs(15);
const MOVING_EVERY: Duration = Duration::from_millis(200);
/// The width of a terminal that does not report one.
const WIDTH: usize = 80;

/// Counts steps and shows them. Steps may overlap: the line names all that have begun.
#[derive(Debug)]
pub struct Progress {
    shown: Option<Arc<Shown>>,
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
    begun: usize,
    active: Vec<Active>,
    last_shown: Option<Instant>,
    line_is_open: bool,
}

#[derive(Debug)]
struct Active {
    id: usize,
    name: String,
    note: String,
    started: Instant,
}

/// One step that has begun. A step that is dropped without [`Step::done`] has failed; its error is reported
/// elsewhere.
#[derive(Debug)]
pub struct Step<'a> {
    progress: &'a Progress,
    id: usize,
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
        let shown = Arc::new(Shown { steps, terminal, state: Mutex::default() });
        let weak = Arc::downgrade(&shown);
        // Ends by itself when the progress is gone.
        std::thread::spawn(move || keep_moving(&weak));
        Self { shown: Some(shown) }
    }

    /// Begins a step; call [`Step::done`] at its end.
    pub fn step(&self, name: impl Into<String>) -> Step<'_> {
        let Some(shown) = &self.shown else { return Step { progress: self, id: 0 } };
        let mut state = shown.lock();
        let id = state.begun;
        state.begun += 1;
        let (name, started) = (name.into(), Instant::now());
        state.active.push(Active { id, name, note: String::new(), started });
        shown.show(&mut state);
        Step { progress: self, id }
    }
}

impl Step<'_> {
    /// Sets what the step does now; shown at most every 200 ms on a terminal, every 15 s elsewhere.
    pub fn note(&self, text: &str) {
        let Some(shown) = &self.progress.shown else { return };
        let mut state = shown.lock();
        if let Some(active) = state.active.iter_mut().find(|active| active.id == self.id) {
            text.clone_into(&mut active.note);
            shown.show(&mut state);
        }
    }

    /// Ends the step and shows its result.
    pub fn done(self, text: &str) {
        let Some(shown) = &self.progress.shown else { return };
        let mut state = shown.lock();
        let Some(at) = state.active.iter().position(|active| active.id == self.id) else { return };
        let mut active = state.active.remove(at);
        text.clone_into(&mut active.note);
        state.done += 1;
        let clear = if std::mem::take(&mut state.line_is_open) { "\r\x1b[2K" } else { "" };
        write(&format!("{clear}✓ [{}/{}] {}\n", state.done, shown.steps, active.text()));
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let Some(shown) = &self.progress.shown else { return };
        let mut state = shown.lock();
        let before = state.active.len();
        state.active.retain(|active| active.id != self.id);
        if state.active.len() < before && std::mem::take(&mut state.line_is_open) {
            // The error that is reported next gets a line of its own.
            write("\n");
        }
    }
}

impl Active {
    fn text(&self) -> String {
        let gap = if self.note.is_empty() { "" } else { ": " };
        format!("{}{gap}{} ({})", self.name, self.note, seconds(self.started.elapsed()))
    }
}

impl Shown {
    fn show(&self, state: &mut State) {
        let every = if self.terminal { MOVING_EVERY } else { PLAIN_EVERY };
        if state.last_shown.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        // Where lines cannot move, a step that has nothing to report yet is not worth one.
        let steps: Vec<String> = state
            .active
            .iter()
            .filter(|active| self.terminal || !active.note.is_empty())
            .map(Active::text)
            .collect();
        if steps.is_empty() {
            return;
        }
        state.last_shown = Some(Instant::now());
        let line = format!("… [{}/{}] {}", state.done + 1, self.steps, steps.join(" · "));
        if self.terminal {
            state.line_is_open = true;
            write(&format!("\r\x1b[2K{}", cut(&line, width())));
        } else {
            write(&format!("{line}\n"));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows how the time passes while no step has anything to report, such as a long link.
fn keep_moving(shown: &Weak<Shown>) {
    loop {
        std::thread::park_timeout(Duration::from_secs(1));
        let Some(shown) = shown.upgrade() else { return };
        shown.show(&mut shown.lock());
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

/// A line that wraps could not be cleared again.
fn cut(line: &str, width: usize) -> String {
    if line.chars().count() < width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(2)).chain(['…']).collect()
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    size.map_or(WIDTH, |size| if size.ws_col == 0 { WIDTH } else { usize::from(size.ws_col) })
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
    fn a_line_is_cut_before_it_wraps() {
        assert_eq!(cut("four", 5), "four");
        assert_eq!(cut("✓ five", 6), "✓ fi…");
        assert_eq!(cut("anything", 0), "…");
    }

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(seconds(Duration::from_millis(420)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(12)), "12 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
