//! `setup COMMAND [ARGUMENT…]`: what `make` runs. Builds what the command needs, all at once, with one line of
//! progress, and then becomes `cargo xtask COMMAND`. `setup components [NAME…]` builds programs and nothing else.
//!
//! ```text
//!   Debian packages ──────────────┐
//!   Go: the first node's programs ├─► cargo xtask demo, which builds the rest while the cluster starts
//!   cargo: xtask ─────────────────┘
//! ```

use std::{
    fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::ExitCode,
    thread::{Scope, ScopedJoinHandle},
};

use anyhow::{Context as _, Result, anyhow, bail};
use components::{Progress, cargo, packages, run_counted};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match setup(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "error: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

fn setup(arguments: &[String]) -> Result<()> {
    match arguments.first().map(String::as_str) {
        Some("demo") => {
            if !rustix::process::getuid().is_root() {
                bail!("the demo starts nodes, which need root; run `make demo` as root");
            }
            prepare(components::FIRST_NODE, &["xtask"])?;
        }
        Some("components") => {
            let mut names: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
            if names.is_empty() {
                names = components::all();
            }
            return components::build(&names, &Progress::shown(components::steps(&names)));
        }
        Some(_) => prepare(&[], &["xtask"])?,
        None => bail!("usage: setup COMMAND [ARGUMENT…], with a command of `cargo xtask`"),
    }
    let mut xtask = cargo();
    xtask.current_dir(ROOT).args(["run", "--quiet", "--package", "xtask", "--"]).args(arguments);
    Err(xtask.exec()).context("cannot run cargo")
}

/// Builds these Go programs (with the packages that nodes need) and these crates, at the same time.
fn prepare(programs: &[&str], crates: &[&str]) -> Result<()> {
    let with_nodes = usize::from(!programs.is_empty());
    let progress = Progress::shown(with_nodes + components::steps(programs) + 1);
    std::thread::scope(|scope| {
        let mut tasks = vec![start(scope, || build_crates(crates, &progress))];
        if !programs.is_empty() {
            tasks.push(start(scope, || packages::install(&progress)));
            tasks.push(start(scope, || components::build(programs, &progress)));
        }
        tasks.into_iter().try_for_each(|task| {
            task.join().map_err(|_| anyhow!("a thread of the set-up panicked"))?
        })
    })
}

fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    task: impl FnOnce() -> Result<()> + Send + 'scope,
) -> ScopedJoinHandle<'scope, Result<()>> {
    scope.spawn(task)
}

fn build_crates(crates: &[&str], progress: &Progress) -> Result<()> {
    let step = progress.step("cargo");
    let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock"))?;
    let total = lock.lines().filter(|line| *line == "[[package]]").count();
    step.note("finding out what has to be compiled");
    let mut build = cargo();
    build.current_dir(ROOT).arg("build");
    build.args(crates.iter().flat_map(|name| ["--package", name]));
    run_counted(
        &mut build,
        |line| line.trim_start().strip_prefix("Compiling ")?.split(' ').next(),
        |name, seen| step.note(&format!("{seen} of at most {total} crates, now {name}")),
        |_| {},
    )?;
    step.done(&crates.join(", "));
    Ok(())
}
