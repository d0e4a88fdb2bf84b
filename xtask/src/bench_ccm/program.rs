//! A cloud controller manager as a process, and what the kernel reports about it.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::{
    bench_ccm::world::World,
    measured::{cpu_seconds, memory_mb},
};

/// By this name our program is what the peers are.
const NAME: &str = "vsphere-cloud-controller-manager";
/// As much of the log of a program that ended as is shown.
const LINES: usize = 20;

/// A program to measure.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// What it gets beside the flags that all get.
    pub(super) flags: Vec<String>,
    pub(super) ours: bool,
}

/// A program that runs. Dropping it ends it.
pub(super) struct Started {
    pub(super) at: Instant,
    child: Child,
    log: PathBuf,
}

/// What a process has used.
pub(super) struct Usage {
    pub(super) peak_rss_mb: f64,
    pub(super) anon_rss_mb: f64,
    pub(super) cpu_seconds: f64,
}

impl Program {
    /// A peer with flags of its own.
    pub(super) fn peer(path: &Path, flags: &str) -> Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot find the peer {}", path.display()))?;
        let flags = flags.split_whitespace().map(str::to_owned).collect();
        Ok(Self { path, flags, ours: false })
    }

    pub(super) fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        std::iter::once(&*file)
            .chain(self.flags.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Starts it in a world, with flags that upstream's program has.
    pub(super) fn start(&self, world: &World) -> Result<Started> {
        let link = world.dir().join(NAME);
        symlink(&self.path, &link)?;
        let log = world.dir().join("program.log");
        let output = File::create(&log)?;
        // It must not outlive us, whatever becomes of us.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(link)
            .arg(format!("--cloud-config={}", world.cloud_config().display()))
            .arg(format!("--kubeconfig={}", world.kubeconfig().display()))
            .args(["--cloud-provider=vsphere", "--leader-elect=false", "--secure-port=0"])
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let at = Instant::now();
        let child = command.spawn().context("cannot start the program")?;
        Ok(Started { at, child, log })
    }
}

impl Started {
    /// Fails when it has ended, with the end of its log.
    pub(super) fn alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
        bail!("it ended with {status}:\n{}", end.join("\n"))
    }

    pub(super) fn usage(&mut self) -> Result<Usage> {
        self.alive()?;
        let pid = self.child.id();
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
