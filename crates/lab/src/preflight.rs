//! What a machine must have before a lab with nodes is started; nothing is started or changed here.

use std::{fs, path::Path, process::Command};

use anyhow::Result;

use crate::process::run;

/// Everything that is missing, each with its remedy.
#[derive(Debug)]
pub struct Unmet(Vec<String>);

impl std::error::Error for Unmet {}

impl std::fmt::Display for Unmet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "this machine cannot run a lab with nodes:")?;
        self.0.iter().try_for_each(|problem| write!(out, "\n  - {problem}"))
    }
}

/// Whether this machine can run nodes.
///
/// # Errors
/// [`Unmet`], which lists all problems at once.
pub fn check() -> Result<(), Unmet> {
    let mut problems = Vec::new();
    let mut demand = |fulfilled: bool, problem: &str| {
        if !fulfilled {
            problems.push(problem.to_owned());
        }
    };
    let root = rustix::process::getuid().is_root();
    demand(root, "nodes need root (namespaces, mounts, loop devices); run the command as root");
    demand(
        has_cgroups(),
        "no cgroup hierarchy with memory, cpu and pids is mounted below /sys/fs/cgroup; mount one \
         (`mount -t cgroup2 none /sys/fs/cgroup`), or run outside of the container that hides it",
    );
    let kernel = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let knows =
        |name: &str| kernel.lines().any(|line| line.split_whitespace().last() == Some(name));
    demand(knows("overlay"), "the kernel has no overlayfs; load it with `modprobe overlay`");
    demand(
        Path::new("/dev/loop-control").exists(),
        "there are no loop devices; load them with `modprobe loop`",
    );
    let missing = components::packages::missing().join(" ");
    let install =
        format!("packages are missing: {missing}; `cargo xtask lab build` installs them as root");
    demand(missing.is_empty(), &install);
    let kubelet = components::binary("kubelet").map_err(|error| format!("{error:#}"));
    demand(kubelet.is_ok(), &kubelet.err().unwrap_or_default());
    // Last, because it starts a process: some sandboxes have root without the right to unshare.
    let isolates = !root
        || run(Command::new("unshare").args(["--net", "--pid", "--mount", "--fork", "true"]))
            .is_ok();
    demand(
        isolates,
        "root may not make namespaces here (`unshare --net --pid --mount true` fails); leave the sandbox",
    );
    if problems.is_empty() { Ok(()) } else { Err(Unmet(problems)) }
}

fn has_cgroups() -> bool {
    let top = Path::new("/sys/fs/cgroup");
    let wanted = ["cpu", "memory", "pids"];
    let unified = fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
    wanted.iter().all(|controller| unified.split_whitespace().any(|known| known == *controller))
        || wanted.iter().all(|controller| top.join(controller).join("cgroup.procs").exists())
}
