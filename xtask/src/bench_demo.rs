//! `cargo xtask bench demo`: how long a newcomer waits, read from the output of `make demo`.
//!
//! Debian packages are not removed first: what `apt-get` takes on a new machine is not measured.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{bench::Figure, empty_caches::EmptyCaches, output::print_error};

/// What the lines of the demo contain when something has happened.
const FIRST_READY: &str = "] first node Ready: ";
const SWITCHED_OFF: &str = "── Somebody switches the VM of node-2 off";
const MISSED: &str = "] Kubernetes misses node-2";

const COLD_MINUTES_TO_FIRST_NODE: f64 = 8.0;
const WARM_SECONDS: f64 = 60.0;

/// When a line with a mark came.
#[derive(Default)]
struct Seen {
    first_ready: Option<Duration>,
    switched_off: Option<Duration>,
    missed: Option<Duration>,
}

pub(crate) fn figures(cold: bool) -> Result<Vec<Figure>> {
    let caches = if cold { Some(EmptyCaches::create()?) } else { None };
    // Progress goes to standard error; both are one stream here, in the order in which they are written.
    let mut make = Command::new("sh");
    make.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    make.args(["-c", "exec make --no-print-directory demo 2>&1"]);
    if let Some(caches) = &caches {
        make.envs(caches.of_all());
    }
    let (seen, all) = watch(make)?;
    let first = seen.first_ready.context("the demo did not report its first Ready node")?;
    let missing = seen.switched_off.zip(seen.missed);
    let (off, missed) = missing.context("the demo did not report that a node was missed")?;
    let wait = missed.saturating_sub(off);
    let rest = (all.saturating_sub(wait)).as_secs_f64();
    let figure = |name, bound, unit, value| Figure { name, bound, unit, values: vec![value] };
    let minutes = |duration: Duration| duration.as_secs_f64() / 60.0;
    Ok(if cold {
        let bound = Some(COLD_MINUTES_TO_FIRST_NODE);
        vec![
            figure("cold: first node Ready", bound, "min", minutes(first)),
            figure("cold: whole demo", None, "min", minutes(all)),
        ]
    } else {
        vec![
            figure("warm: first node Ready", None, "s", first.as_secs_f64()),
            figure("warm: until Kubernetes misses a node", None, "s", wait.as_secs_f64()),
            figure("warm: whole demo without that wait", Some(WARM_SECONDS), "s", rest),
        ]
    })
}

/// Runs the command, repeats its output and notes when the marks came, and its end.
fn watch(mut command: Command) -> Result<(Seen, Duration)> {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("the demo has no output")?;
    let mut seen = Seen::default();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let now = Some(started.elapsed());
        if line.contains(FIRST_READY) {
            seen.first_ready = seen.first_ready.or(now);
        } else if line.contains(SWITCHED_OFF) {
            seen.switched_off = now;
        } else if line.contains(MISSED) && line.starts_with('✓') {
            seen.missed = now;
        }
        print_error(&line);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`make demo` failed ({status})");
    }
    Ok((seen, started.elapsed()))
}
