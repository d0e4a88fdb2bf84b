//! A disk that can be plugged into a node while it runs.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context, Result};

use crate::{process::run, world::World};

/// A sparse file on a loop device. Dropping it detaches the device; data are gone with the world.
#[derive(Debug)]
pub struct Disk {
    id: String,
    file: PathBuf,
    device: PathBuf,
    // The file lies in the world's directory.
    _world: Arc<World>,
}

impl Disk {
    /// `id` is the disk's UUID as 32 hexadecimal digits, as vSphere shows it to the guest.
    pub(crate) fn create(world: &Arc<World>, id: &str, bytes: u64) -> Result<Self> {
        let file = world.dir().join(format!("disk-{id}"));
        File::create_new(&file)
            .and_then(|created| created.set_len(bytes))
            .with_context(|| format!("cannot create the disk {}", file.display()))?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&file))?;
        Ok(Self {
            id: id.to_owned(),
            file,
            device: PathBuf::from(device.trim()),
            _world: Arc::clone(world),
        })
    }

    /// The name of its link in `/dev/disk/by-id`.
    #[must_use]
    pub fn link(&self) -> String {
        format!("wwn-0x{}", self.id)
    }

    /// The loop device, which has the same name on the machine and on a node.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Makes it larger, as growing a virtual disk does; the kernel sees the new size at once.
    ///
    /// # Errors
    /// When the file or the device cannot be resized.
    pub fn grow(&self, bytes: u64) -> Result<()> {
        File::options().write(true).open(&self.file)?.set_len(bytes)?;
        run(Command::new("losetup").arg("--set-capacity").arg(&self.device)).map(drop)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // While a pod still has it mounted the kernel detaches it with the last mount.
        run(Command::new("losetup").arg("--detach").arg(&self.device)).ok();
    }
}
