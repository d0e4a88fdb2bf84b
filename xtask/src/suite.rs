//! `cargo xtask check` and `cargo xtask test`: the gates, the cheap ones first.

pub(crate) mod failures;

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    process::Command,
};

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use self::failures::Failure;
use crate::{lab_commands, output::print_line, walk};

/// Tests with this in their name start nodes, and so need root.
pub(crate) const NODES: &str = "nodes::";

/// Tests at once: most of them wait for a peer most of the time.
const AT_ONCE: &str = "4";

/// Test programs that wait for their peers most of the time.
const PATIENT: [&str; 7] = [
    "controller",
    "csi_controller",
    "csi_deployed",
    "csi_schedules",
    "deployed",
    "program",
    "schedules",
];

/// The test program that reaps killed labs, where no other test may be at it meanwhile.
const ALONE: &str = "nothing_left";

/// The quick subset: no component is built or started.
pub(crate) fn check() -> Result<()> {
    lints()?;
    let units = ["test", "--workspace", "--lib", "--bins"];
    cargo("building the unit tests", &[&units[..], &["--no-run"]].concat())?;
    heading("unit tests");
    let ran = run_tests(&[&units[..], &["--no-fail-fast"]].concat(), Print::AsItComes)?;
    report(&[ran])
}

/// Everything, with its own set-up.
pub(crate) fn test() -> Result<()> {
    lints()?;
    heading("set-up");
    if rustix::process::getuid().is_root() {
        lab_commands::build(&lab::components::all())?;
    } else {
        lab_commands::build_without_packages(&lab::components::all())?;
    }
    simulator()?;
    heading("simulator: every assumption is shown by a test");
    walk::prove_assumptions()?;
    let left_out = nodes_are_left_out();
    let skipped = if left_out { &["--", "--skip", NODES][..] } else { &[] };
    tests(skipped)?;
    heading("tests under other assumptions about vCenter");
    walk::walk_sample()?;
    cargo("examples in the documentation", &["test", "--workspace", "--doc"])?;
    if left_out {
        print_line("\nNot run, because nodes need root:");
        not_run()?;
        if !nodes_are_declined() {
            bail!(
                "tests were left out; run `make test` as root, or `make test NODES=skip` to accept that"
            );
        }
    }
    Ok(())
}

/// Whether tests that start nodes are left out: there is no root, or `NODES=skip` accepts it.
pub(crate) fn nodes_are_left_out() -> bool {
    !rustix::process::getuid().is_root() || nodes_are_declined()
}

fn nodes_are_declined() -> bool {
    std::env::var("NODES").is_ok_and(|value| value == "skip")
}

/// Runs the tests that mostly wait beside the others, which mostly compute.
fn tests(skipped: &[&str]) -> Result<()> {
    let all = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"];
    cargo("building the tests", &all)?;
    let (mut patient, mut busy) = (vec!["test", "--workspace"], vec!["test", "--workspace"]);
    busy.extend(["--lib", "--bins"]);
    let names: BTreeSet<String> = test_targets()?.into_iter().map(|(_, name)| name).collect();
    for name in names.iter().filter(|name| *name != ALONE) {
        let group = if PATIENT.contains(&name.as_str()) { &mut patient } else { &mut busy };
        group.extend(["--test", name]);
    }
    for group in [&mut patient, &mut busy] {
        group.push("--no-fail-fast");
        group.extend(skipped);
    }
    heading("tests");
    let mut runs = std::thread::scope(|scope| {
        let beside = scope.spawn(|| run_tests(&patient, Print::AtTheEnd));
        let busy = run_tests(&busy, Print::AsItComes);
        heading("tests that waited for their peers beside them");
        let patient = beside.join().map_err(|_| anyhow!("a thread of the suite panicked"))?;
        Ok::<_, anyhow::Error>(vec![busy?, patient?])
    })?;
    print_line(&runs[1].output);
    heading("the test that looks for leftovers of labs");
    let alone = [&["test", "--workspace", "--test", ALONE], skipped].concat();
    runs.push(run_tests(&alone, Print::AsItComes)?);
    report(&runs)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Print {
    AsItComes,
    /// By the caller.
    AtTheEnd,
}

/// What `cargo test` printed, and whether all went well.
struct Ran {
    output: String,
    passed: bool,
}

fn run_tests(arguments: &[&str], print: Print) -> Result<Ran> {
    let (reader, writer) = std::io::pipe()?;
    let mut cargo = command(arguments);
    cargo.stdout(writer.try_clone()?).stderr(writer);
    let mut child = cargo.spawn()?;
    // It holds the other end of the pipe, which must be closed when the child has ended.
    drop(cargo);
    let mut output = String::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if print == Print::AsItComes {
            print_line(&line);
        }
        output.push_str(&line);
        output.push('\n');
    }
    Ok(Ran { output, passed: child.wait()?.success() })
}

/// Ends the run with what failed.
fn report(runs: &[Ran]) -> Result<()> {
    let failures: Vec<Failure> = runs.iter().flat_map(|run| failures::read(&run.output)).collect();
    if !failures.is_empty() {
        heading(&format!("{} tests failed", failures.len()));
        failures.iter().for_each(|failure| print_line(&format!("{failure}\n")));
    }
    if runs.iter().any(|run| !run.passed) {
        match failures.len() {
            0 => bail!("a test program ended without naming a failed test; its output is above"),
            count => bail!("{count} tests failed; the list above has the command for each"),
        }
    }
    Ok(())
}

/// All test programs: package and name of each.
pub(crate) fn test_targets() -> Result<Vec<(String, String)>> {
    let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let metadata: Value = serde_json::from_str(&lab::run(Command::new("cargo").args(metadata))?)?;
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let targets = package["targets"].as_array().into_iter().flatten();
        for target in targets.filter(|target| target["kind"][0] == "test") {
            if let (Some(package), Some(name)) = (package["name"].as_str(), target["name"].as_str())
            {
                found.push((package.to_owned(), name.to_owned()));
            }
        }
    }
    Ok(found)
}

fn lints() -> Result<()> {
    cargo("formatting", &["fmt", "--all", "--check"])?;
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])?;
    documentation()
}

/// The documentation must build: a link that leads nowhere is a lie.
fn documentation() -> Result<()> {
    heading("documentation");
    let status = Command::new("cargo")
        .env("RUSTDOCFLAGS", "--deny warnings")
        .args(["doc", "--quiet", "--workspace", "--no-deps"])
        .status()?;
    if !status.success() {
        bail!("the documentation does not build: `cargo doc --workspace --no-deps`");
    }
    Ok(())
}

/// The simulator's own tests, in Go. Those that need root skip themselves, with a message.
fn simulator() -> Result<()> {
    for arguments in [["vet", "./..."], ["test", "./..."]] {
        heading(&format!("simulator: go {}", arguments[0]));
        let source = lab::components::source_dir().join("vcenter");
        // As the components are built, so that packages are compiled once.
        let mut go = Command::new("go");
        let status = go.current_dir(source).env("CGO_ENABLED", "0").args(arguments).status()?;
        if !status.success() {
            bail!("`go {}` failed in lab/vcenter", arguments.join(" "));
        }
    }
    Ok(())
}

fn not_run() -> Result<()> {
    let listing = lab::run(Command::new("cargo").args([
        "test",
        "--quiet",
        "--workspace",
        "--",
        "--list",
        NODES,
    ]))?;
    for test in listing.lines().filter_map(|line| line.strip_suffix(": test")) {
        print_line(&format!("  {test}"));
    }
    Ok(())
}

fn cargo(what: &str, arguments: &[&str]) -> Result<()> {
    heading(what);
    let status = command(arguments).status()?;
    if !status.success() {
        bail!("{what} failed: `cargo {}`", arguments.join(" "));
    }
    Ok(())
}

fn command(arguments: &[&str]) -> Command {
    let threads = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| AT_ONCE.to_owned());
    let mut command = lab::components::cargo();
    command.env("RUST_TEST_THREADS", threads).args(arguments);
    if std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
        // The backtrace of an error in async code is sixty lines of the runtime's own.
        command.env("RUST_LIB_BACKTRACE", "0");
    }
    command
}

fn heading(what: &str) {
    print_line(&format!("\n=== {what}"));
}
