//! `cargo xtask check` and `cargo xtask test`: the gates, the cheap ones first.

pub(crate) mod failures;

pub(crate) mod programs;
mod schedule;

use std::{path::Path, process::Command};

use anyhow::{Result, bail};
use serde_json::Value;

use self::{
    programs::{Kind, TestProgram},
    schedule::{Counts, Ended, Load, Part},
};
use crate::{
    interrupt::interruptible,
    lab_commands,
    output::{print_line, table},
};

/// Tests with this in their name start nodes, and so need root.
pub(crate) const NODES: &str = "nodes::";

/// How many tests of a program run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Tests of one program at once: most of them wait for a peer most of the time.
const AT_ONCE: &str = "4";

/// Tests of one program at once where each has a lab with nodes: with four of them the machine was so busy that
/// controllers lost their leases and ended.
const NODE_LABS_AT_ONCE: &str = "2";

/// Test programs whose labs have nodes, the longest first.
const NODE_LABS: [&str; 4] = ["csi_deployed", "csi_storage_suite", "lab", "deployed"];

/// Test programs that wait for API servers and simulators most of the time, the longest first.
const WAITING: [&str; 5] =
    ["csi_controller", "program", "csi_schedules", "controller", "schedules"];

/// The test program that reaps killed labs, where no other test may be at it meanwhile.
const ALONE: &str = "nothing_left";

/// The quick subset: no component is built or started.
pub(crate) fn check() -> Result<()> {
    lints()?;
    heading("building the unit tests");
    let programs = programs::build(&["--lib", "--bins"])?;
    report(&run(programs.iter().map(part).collect())?)
}

/// Everything, with its own set-up.
pub(crate) fn test() -> Result<()> {
    // Before the build of the tests, which replaces this file by another build of it.
    let xtask = std::env::current_exe()?;
    lints()?;
    heading("set-up");
    if rustix::process::getuid().is_root() {
        lab_commands::build(&lab::components::all())?;
    } else {
        lab_commands::build_without_packages(&lab::components::all())?;
    }
    heading("building the tests");
    let programs = programs::build(&["--lib", "--bins", "--tests"])?;
    let (alone, beside): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.name == ALONE);
    let mut ended = run(parts(&beside, &xtask))?;
    // It is killed labs that it counts, and tests kill theirs.
    ended.extend(run(alone.iter().map(part).collect())?);
    if nodes_are_left_out() {
        print_line("\nNot run, because nodes need root:");
        not_run()?;
    }
    report(&ended)?;
    if nodes_are_left_out() && !nodes_are_declined() {
        bail!(
            "tests were left out; run `make test` as root, or `make test NODES=skip` to accept that"
        );
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

/// All that runs beside one another, in the order in which it is started.
fn parts(programs: &[TestProgram], xtask: &Path) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for arguments in [["vet", "./..."], ["test", "./..."]] {
        parts.push(simulator(&arguments));
    }
    let place = |program: &&TestProgram| {
        NODE_LABS.iter().chain(&WAITING).position(|name| *name == program.name)
    };
    let mut programs: Vec<&TestProgram> = programs.iter().collect();
    programs.sort_by_key(place);
    parts.extend(programs.into_iter().map(part));
    for walk in ["--go", "--sample"] {
        parts.push(walks(xtask, walk));
    }
    let mut examples = command(lab::components::cargo());
    examples.args(["test", "--workspace", "--doc"]);
    parts.push(Part {
        name: "cargo test --workspace --doc".to_owned(),
        command: examples,
        load: Load::Computes,
    });
    parts
}

fn part(program: &TestProgram) -> Part {
    let mut command = command(Command::new(&program.executable));
    command.current_dir(&program.directory);
    if nodes_are_left_out() {
        command.args(["--skip", NODES]);
    }
    let is_one_of = |names: &[&str]| {
        program.kind == Kind::Integration && names.contains(&program.name.as_str())
    };
    let load = if is_one_of(&NODE_LABS) {
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, NODE_LABS_AT_ONCE);
        }
        Load::Nodes
    } else if is_one_of(&WAITING) {
        Load::Waits
    } else {
        Load::Computes
    };
    Part { name: format!("cargo test {}", program.label()), command, load }
}

/// A walk through assumptions, by this program.
fn walks(xtask: &Path, flag: &str) -> Part {
    let mut command = command(Command::new(xtask));
    command.args(["walk", flag]);
    Part { name: format!("cargo xtask walk {flag}"), command, load: Load::Computes }
}

/// The simulator's own tests, in Go. Those that need root skip themselves, with a message.
fn simulator(arguments: &[&str]) -> Part {
    let mut go = command(Command::new("go"));
    // As the components are built, so that packages are compiled once.
    go.current_dir(lab::components::source_dir().join("vcenter")).env("CGO_ENABLED", "0");
    go.args(arguments);
    let name = format!("cd lab/vcenter && go {}", arguments.join(" "));
    Part { name, command: go, load: Load::Computes }
}

fn run(parts: Vec<Part>) -> Result<Vec<Ended>> {
    let print = |ended: &Ended| {
        heading(&format!("{} ({} s)", ended.name, ended.took.as_secs()));
        print_line(ended.output.trim_matches('\n'));
    };
    interruptible(schedule::run(parts, &print))
}

/// Ends the run: how long each part took, what failed, and how many.
fn report(all: &[Ended]) -> Result<()> {
    let mut by_time: Vec<&Ended> = all.iter().collect();
    by_time.sort_by_key(|ended| std::cmp::Reverse(ended.took));
    heading("how long each part took");
    let row =
        |ended: &&Ended| vec![format!("{:.1} s", ended.took.as_secs_f64()), ended.name.clone()];
    print_line(&table(&by_time.iter().map(row).collect::<Vec<_>>()));
    let failures: Vec<_> = all.iter().flat_map(Ended::failures).collect();
    if !failures.is_empty() {
        heading("what failed");
        failures.iter().for_each(|failure| print_line(&format!("{failure}\n")));
    }
    let counts: Counts = all.iter().map(Ended::counts).sum();
    let line = format!("{} passed, {} failed", counts.passed, counts.failed);
    print_line(&format!("\n{line}"));
    if all.iter().any(|ended| !ended.passed) {
        bail!("{line}; the list above has the command for each failure");
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
    let status = lab::components::cargo().args(arguments).status()?;
    if !status.success() {
        bail!("{what} failed: `cargo {}`", arguments.join(" "));
    }
    Ok(())
}

/// The command with the environment of tests.
fn command(mut command: Command) -> Command {
    let threads = std::env::var(THREADS).unwrap_or_else(|_| AT_ONCE.to_owned());
    command.env(THREADS, threads);
    if std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
        // The backtrace of an error in async code is sixty lines of the runtime's own.
        command.env("RUST_LIB_BACKTRACE", "0");
    }
    command
}

fn heading(what: &str) {
    print_line(&format!("\n=== {what}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_name_test_programs_that_exist() {
        let known: Vec<String> =
            test_targets().unwrap().into_iter().map(|(_, program)| program).collect();
        for name in NODE_LABS.iter().chain(&WAITING).chain([&ALONE]) {
            assert!(known.iter().any(|one| one == name), "there is no test program {name}");
        }
    }

    #[test]
    fn a_test_program_runs_where_its_tests_expect_it() {
        let program = |name: &str, kind| TestProgram {
            package: "lab".to_owned(),
            name: name.to_owned(),
            kind,
            executable: "/target/program-1".into(),
            directory: "/project/crates/lab".into(),
        };
        let with_nodes = part(&program("lab", Kind::Integration));
        assert_eq!(with_nodes.name, "cargo test -p lab --test lab");
        assert_eq!(with_nodes.load, Load::Nodes);
        let directory = with_nodes.command.get_current_dir().unwrap();
        assert_eq!(directory, Path::new("/project/crates/lab"));
        assert_eq!(part(&program("program", Kind::Integration)).load, Load::Waits);
        assert_eq!(part(&program("lab", Kind::Lib)).load, Load::Computes);
    }
}
