//! Programs that are measured: their release builds, and what the kernel reports about their processes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The release build of one target: `["-p", "vsphere", "--example", "measure"]` and its name.
pub(crate) fn release_build(target: &[&str], name: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = lab::components::cargo()
        .current_dir(&root)
        .args(["build", "--quiet", "--release"])
        .args(target)
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()?;
    if !built.status.success() {
        bail!("`{name}` does not build");
    }
    let text = String::from_utf8(built.stdout)?;
    let artifacts = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts
        .filter(|artifact| artifact["target"]["name"] == name)
        .find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo did not report where `{name}` is"))
}

/// User and system time of a process so far.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may have blanks; user and system time are fields 14 and 15, in hundredths.
    let rest = stat.rsplit_once(')').context("no stat")?.1;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// A line of /proc/PID/status, in MB.
pub(crate) fn memory_mb(pid: u32, key: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)).context("no memory")?;
    let kilobytes: f64 = line.split_whitespace().next().context("no memory")?.parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}
