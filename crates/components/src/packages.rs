//! The Debian packages the lab's nodes and our images are made of.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};

use crate::{command::run, progress::Progress};

/// A package, and a file that exists when it is installed (also by another distribution's package).
struct Package {
    name: &'static str,
    file: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "btrfs-progs", file: "/usr/sbin/mkfs.btrfs" },
    Package { name: "busybox-static", file: "/usr/bin/busybox" },
    Package { name: "ca-certificates", file: "/usr/share/ca-certificates/mozilla" },
    Package { name: "containerd", file: "/usr/bin/containerd" },
    Package { name: "containernetworking-plugins", file: "/usr/lib/cni/ptp" },
    Package { name: "e2fsprogs", file: "/usr/sbin/mkfs.ext4" },
    Package { name: "iproute2", file: "/usr/bin/ip" },
    Package { name: "iptables", file: "/usr/sbin/iptables" },
    Package { name: "openssl", file: "/usr/bin/openssl" },
    Package { name: "procps", file: "/usr/sbin/sysctl" },
    Package { name: "runc", file: "/usr/sbin/runc" },
    Package { name: "util-linux", file: "/usr/bin/nsenter" },
    Package { name: "xfsprogs", file: "/usr/sbin/mkfs.xfs" },
];

/// The packages that are not installed.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    PACKAGES
        .iter()
        .filter(|package| !Path::new(package.file).exists())
        .map(|package| package.name)
        .collect()
}

/// Installs what is missing.
///
/// # Errors
/// When apt-get is absent or fails; the message names the packages and the command to run by hand.
pub fn install(progress: &Progress) -> Result<()> {
    let step = progress.step("Debian packages");
    let wanted = missing();
    if wanted.is_empty() {
        step.done("all there");
        return Ok(());
    }
    let names = wanted.join(" ");
    let by_hand = format!(
        "the lab needs these packages: {names}\n  install them with `apt-get install {names}` as root"
    );
    if !rustix::process::getuid().is_root() {
        bail!("{by_hand}");
    }
    step.note(&names);
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        run(command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
    };
    apt(&["update"]).with_context(|| by_hand.clone())?;
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&wanted);
    apt(&install).with_context(|| by_hand.clone())?;
    let still = missing();
    if !still.is_empty() {
        bail!("apt-get installed {names}, but these are still not found: {}", still.join(" "));
    }
    step.done(&names);
    Ok(())
}
