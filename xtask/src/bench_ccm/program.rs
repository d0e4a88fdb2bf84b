//! A cloud controller manager as a process.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{bench_ccm::world::World, measured::Started};

/// By this name our program is what the peers are.
const NAME: &str = "vsphere-cloud-controller-manager";

/// A program to measure.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// What it gets beside the flags that all get.
    pub(super) flags: Vec<String>,
    pub(super) ours: bool,
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
        let mut command = Command::new(link);
        command
            .arg(format!("--cloud-config={}", world.cloud_config().display()))
            .arg(format!("--kubeconfig={}", world.kubeconfig().display()))
            .args(["--cloud-provider=vsphere", "--leader-elect=false", "--secure-port=0"])
            .args(&self.flags);
        Started::start(&command, &world.dir().join("program.log"))
    }
}
