//! `cargo xtask check` and `cargo xtask test`: the gates, in the order in which they are cheap.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{lab_commands, output::say};

/// Tests with this in their name start nodes, and so need root.
const NODES: &str = "nodes::";

/// Tests at once: most of them wait for a peer most of the time.
const AT_ONCE: &str = "4";

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
    let mut arguments = vec!["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
    if !root || skip_nodes {
        arguments.extend(["--", "--skip", NODES]);
    }
    cargo("tests", &arguments)?;
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
    let threads = std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| AT_ONCE.to_owned());
    let status =
        Command::new("cargo").env("RUST_TEST_THREADS", threads).args(arguments).status()?;
    if !status.success() {
        bail!("{what} failed: `cargo {}`", arguments.join(" "));
    }
    Ok(())
}

fn heading(what: &str) {
    say(&format!("\n=== {what}"));
}
