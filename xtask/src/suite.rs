//! `cargo xtask check` and `cargo xtask test`: the gates, in the order in which they are cheap.

use std::{
    collections::BTreeSet,
    io::{Read as _, Seek as _},
    process::Command,
};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::{lab_commands, output::say};

/// Tests with this in their name start nodes, and so need root.
const NODES: &str = "nodes::";

/// Tests at once: most of them wait for a peer most of the time.
const AT_ONCE: &str = "4";

/// Test programs that wait for their peers most of the time.
const PATIENT: [&str; 4] = ["controller", "deployed", "program", "schedules"];

/// The test program that looks at the whole machine, where nobody else may leave traces meanwhile.
const ALONE: &str = "nothing_left";

const CARGO_DENY: &str = "0.20.2";

/// The quick subset: no component is built or started.
pub(crate) fn check() -> Result<()> {
    lints()?;
    cargo("unit tests", &["test", "--workspace", "--lib", "--bins"])
}

/// Everything, with its own set-up.
pub(crate) fn test() -> Result<()> {
    let root = rustix::process::getuid().is_root();
    let skip_nodes = std::env::var("NODES").is_ok_and(|value| value == "skip");
    lints()?;
    heading("set-up");
    if root {
        lab_commands::build()?;
    } else {
        lab::components::build(&lab::Progress::shown(lab::components::MODULES.len()))?;
    }
    dependencies()?;
    simulator()?;
    let skipped = if !root || skip_nodes { &["--", "--skip", NODES][..] } else { &[] };
    tests(skipped)?;
    cargo("examples in the documentation", &["test", "--workspace", "--doc"])?;
    if !root || skip_nodes {
        say("\nNot run, because nodes need root:");
        not_run()?;
        if !skip_nodes {
            bail!(
                "tests were left out; run `make test` as root, or say `make test NODES=skip` to accept that"
            );
        }
    }
    Ok(())
}

/// Runs the tests that mostly wait beside the others, which mostly compute.
fn tests(skipped: &[&str]) -> Result<()> {
    let all = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"];
    cargo("building the tests", &all)?;
    let (mut patient, mut busy) = (vec!["test", "--workspace"], vec!["test", "--workspace"]);
    busy.extend(["--lib", "--bins"]);
    let names = test_targets()?;
    for name in names.iter().filter(|name| *name != ALONE) {
        let group = if PATIENT.contains(&name.as_str()) { &mut patient } else { &mut busy };
        group.extend(["--test", name]);
    }
    for group in [&mut patient, &mut busy] {
        group.push("--no-fail-fast");
        group.extend(skipped);
    }
    let mut log = tempfile::tempfile()?;
    let mut beside = command(&patient).stdout(log.try_clone()?).stderr(log.try_clone()?).spawn()?;
    let busy = cargo("tests", &busy);
    let patient = beside.wait()?;
    heading("tests that waited beside them");
    let mut said = String::new();
    log.rewind()?;
    log.read_to_string(&mut said)?;
    say(&said);
    busy?;
    if !patient.success() {
        bail!("a test of {} failed", PATIENT.join(", "));
    }
    let alone = [&["test", "--workspace", "--test", ALONE], skipped].concat();
    cargo("the test that compares the machine before and after", &alone)
}

/// The names of all test programs.
fn test_targets() -> Result<BTreeSet<String>> {
    let metadata = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let metadata: Value = serde_json::from_str(&lab::run(Command::new("cargo").args(metadata))?)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests = targets.filter(|target| target["kind"][0] == "test");
    Ok(tests.filter_map(|target| target["name"].as_str()).map(str::to_owned).collect())
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

/// Licences, banned and doubled crates, by deny.toml. The tool is built once and kept.
fn dependencies() -> Result<()> {
    heading("dependencies");
    let root = lab::components::cache_dir()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let tool = root.join("bin/cargo-deny");
    if !tool.exists() {
        say("building cargo-deny, once; this takes a few minutes");
        let mut install = Command::new("cargo");
        install
            .args([
                "install",
                "--quiet",
                "--locked",
                "cargo-deny",
                "--version",
                CARGO_DENY,
                "--root",
            ])
            .arg(&root);
        lab::run(&mut install)?;
    }
    let status = Command::new(tool).args(["check", "bans", "licenses", "sources"]).status()?;
    if !status.success() {
        bail!("deny.toml forbids a dependency; the lines above say which and why");
    }
    Ok(())
}

/// The simulator's own tests, in Go. Those that need root skip themselves and say so.
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
        say(&format!("  {test}"));
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
    let mut command = Command::new("cargo");
    command.env("RUST_TEST_THREADS", threads).args(arguments);
    // What cargo told about xtask itself; build scripts that look at it would run again each time.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    command
}

fn heading(what: &str) {
    say(&format!("\n=== {what}"));
}
