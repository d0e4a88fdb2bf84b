//! Child processes that cannot outlive us, with a log and a record each.
//!
//! A child gets a parent-death signal through `setpriv`: std offers none without unsafe code. The
//! signal follows the *thread* that spawned, so worlds are started from threads that live as long as
//! the world: a test's own thread or a runtime's worker, never `spawn_blocking`.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
pub(crate) use components::run;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::world::World;

/// Where a process runs, seen from the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// On the machine itself.
    Machine,
    /// In the network namespace of this process, otherwise on the machine.
    Network(u32),
    /// In all namespaces of this process, which is the first of a node.
    Node(u32),
}

impl Place {
    /// A command that runs `program` there and dies with the thread that starts it.
    ///
    /// In a node the death signal reaches only `nsenter`; the program dies with the node's pid namespace.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        match self {
            Self::Machine => {}
            Self::Network(pid) => {
                command.args(["nsenter", "--target", &pid.to_string(), "--net", "--"]);
            }
            Self::Node(pid) => {
                command.args(["nsenter", "--target", &pid.to_string()]);
                command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--"]);
            }
        }
        command.arg(program).stdin(Stdio::null());
        command
    }
}

/// A command that runs `program` and dies with the thread that starts it, also when that is killed.
#[must_use]
pub fn child(program: &Path) -> Command {
    Place::Machine.command(program)
}

/// What is known about a running process, on disk for the reaper and for `lab status`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProcessRecord {
    /// What the process is to the lab, such as `node-1/kubelet`.
    pub name: String,
    /// Its id on the machine.
    pub pid: u32,
    /// When it started, in the kernel's clock ticks: distinguishes it from a later process with the same id.
    pub started: u64,
    /// Where its output goes.
    pub log: PathBuf,
}

impl ProcessRecord {
    /// Whether this very process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }

    /// The file it runs, as seen from where it runs; `None` when it has ended.
    #[must_use]
    pub fn program(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    /// Resident memory in bytes, as the kernel counts it.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        resident_bytes(self.pid)
    }

    /// Ends it at once; a process that is gone, or another one under the same id, is left alone.
    pub(crate) fn kill(&self) {
        if self.is_alive() {
            kill(self.pid);
        }
    }
}

/// The records kept in a directory; an absent directory has none.
pub(crate) fn records(dir: &Path) -> Result<Vec<ProcessRecord>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", dir.display())),
    };
    for entry in entries {
        // A record that is being written is empty for a moment; its process is our caller's child.
        if let Ok(record) = serde_json::from_slice(&fs::read(entry?.path())?) {
            found.push(record);
        }
    }
    found.sort_by(|a: &ProcessRecord, b: &ProcessRecord| a.name.cmp(&b.name));
    Ok(found)
}

/// A long-running child of ours. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
    pid: u32,
}

impl Daemon {
    /// Starts `command`, which came from [`Place::command`], and records it in the world.
    pub(crate) fn spawn(world: &World, name: &str, command: Command) -> Result<Self> {
        let daemon = Self::launch(world, name, command)?;
        daemon.record(world)?;
        Ok(daemon)
    }

    /// As [`Daemon::spawn`] for a command that forks the process we mean and waits for it: `unshare`
    /// and `nsenter` do when they enter a pid namespace.
    pub(crate) fn spawn_forked(world: &World, name: &str, command: Command) -> Result<Self> {
        let mut daemon = Self::launch(world, name, command)?;
        daemon.pid = daemon.forked()?;
        daemon.record(world)?;
        Ok(daemon)
    }

    fn launch(world: &World, name: &str, mut command: Command) -> Result<Self> {
        let log = world.dir().join("logs").join(format!("{}.log", name.replace('/', "-")));
        let output =
            File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        command.stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), pid: child.id(), child, log })
    }

    fn forked(&mut self) -> Result<u32> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            self.check()?;
            if let Some(pid) = child_of(self.child.id())? {
                return Ok(pid);
            }
            std::thread::yield_now();
        }
        bail!("{} forked no process within a minute", self.name)
    }

    fn record(&self, world: &World) -> Result<()> {
        let stat = Stat::read(self.pid)
            .ok_or_else(|| anyhow!("{} ended at once{}", self.name, tail(&self.log)))?;
        let record = ProcessRecord {
            name: self.name.clone(),
            pid: self.pid,
            started: stat.started,
            log: self.log.clone(),
        };
        let path = world.dir().join("processes").join(self.name.replace('/', "-"));
        fs::write(&path, serde_json::to_vec(&record)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// SIGSTOP.
    pub(crate) fn pause(&self) -> Result<()> {
        // The wrapper first: it stops itself when its child stops, and then never learns of the child's end.
        self.signal(self.child.id(), Signal::STOP)?;
        self.signal(self.pid, Signal::STOP)
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(self.pid, Signal::CONT)?;
        self.signal(self.child.id(), Signal::CONT)
    }

    fn signal(&self, pid: u32, signal: Signal) -> Result<()> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} has no process id", self.name))?;
        rustix::process::kill_process(pid, signal)
            .with_context(|| format!("{} cannot be signalled", self.name))
    }

    /// What it is to the lab.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What it wrote so far.
    pub(crate) fn output(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        resident_bytes(self.pid)
    }

    /// The id of the process itself, not of its wrapper.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Fails with the end of the log when the process is no longer there.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "an unknown cause".to_owned(),
        };
        bail!("{} ended with {how}{}", self.name, tail(&self.log))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let wrapper = self.child.id();
        if self.pid != wrapper && child_of(wrapper).ok().flatten() == Some(self.pid) {
            // The wrapper ends when its child is gone, and the first process of a pid namespace is
            // gone when all others are: waiting for the wrapper waits for all of them.
            kill(self.pid);
            // It may have been stopped together with its child.
            self.signal(wrapper, Signal::CONT).ok();
        } else {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}

/// Adds the ends of the logs to a wait that failed while all processes were alive; one that ended has
/// its log in the error already.
pub(crate) fn explain<'a>(
    waited: Result<()>,
    daemons: impl IntoIterator<Item = &'a mut Daemon>,
) -> Result<()> {
    waited.map_err(|error| {
        let mut logs = String::new();
        for daemon in daemons {
            if daemon.check().is_err() {
                return error;
            }
            logs.push_str(&tail(&daemon.log));
        }
        anyhow!("{error:#}{logs}")
    })
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Ends the process; it may be gone already.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        rustix::process::kill_process(pid, Signal::KILL).ok();
    }
}

/// The last lines of a log, introduced by its path; empty when there is none.
fn tail(log: &Path) -> String {
    const LINES: usize = 15;
    let Ok(text) = fs::read(log) else { return String::new() };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    format!("; the end of {}:\n  {}", log.display(), last.join("\n  "))
}

struct Stat {
    state: char,
    parent: u32,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses and may hold anything, also ") ".
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

fn child_of(parent: u32) -> io::Result<Option<u32>> {
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if Stat::read(pid).is_some_and(|stat| stat.parent == parent) {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}
