//! Programs that are measured: their release builds, and what the kernel reports about their processes.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// As much of the log of a program that ended as is shown.
const LINES: usize = 20;

/// A program that runs. Dropping it ends it.
pub(crate) struct Started {
    pub(crate) at: Instant,
    child: Child,
    log: PathBuf,
}

/// What a process has used.
pub(crate) struct Usage {
    pub(crate) peak_rss_mb: f64,
    pub(crate) anon_rss_mb: f64,
    pub(crate) cpu_seconds: f64,
}

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

impl Started {
    /// Starts a program that writes its log to a file. It must not outlive us, whatever becomes of us.
    pub(crate) fn start(program: &Command, log: &Path) -> Result<Self> {
        let output = File::create(log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program.get_program());
        command.args(program.get_args()).stdin(Stdio::null());
        let set = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.envs(set).stdout(output.try_clone()?).stderr(output);
        let at = Instant::now();
        let child = command.spawn().context("cannot start the program")?;
        Ok(Self { at, child, log: log.to_owned() })
    }

    /// Fails when it has ended, with the end of its log.
    pub(crate) fn alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
        bail!("it ended with {status}:\n{}", end.join("\n"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn usage(&mut self) -> Result<Usage> {
        self.alive()?;
        let pid = self.id();
        Ok(Usage {
            peak_rss_mb: memory_mb(pid, "VmHWM:")?,
            anon_rss_mb: memory_mb(pid, "RssAnon:")?,
            cpu_seconds: cpu_seconds(pid)?,
        })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
