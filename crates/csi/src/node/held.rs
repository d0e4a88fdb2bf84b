//! A disk that is kept open while it is worked on.
//!
//! The kernel gives the name and the number of a disk to another one only when nobody has it open any more, so what was
//! found out about a held disk stays true for its name. Tools open it by that name; that it still leads here is
//! looked at before each of them.

use std::{
    fs::{self, File},
    io::{self, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use rustix::fs::{major, minor};

use super::{
    device::{self, Device, DiskUuid, HostPaths, NotTheDisk},
    probe::{self, Content},
};

/// An open disk.
#[derive(Debug)]
pub(super) struct Held {
    device: Device,
    file: File,
}

impl Held {
    /// Opens a device, and looks again whether it is the disk.
    ///
    /// # Errors
    /// When it is another one by now, or cannot be opened.
    pub(super) fn open(
        paths: &HostPaths,
        disk: DiskUuid,
        device: Device,
    ) -> Result<Self, NotTheDisk> {
        let unreadable = |source| NotTheDisk::Unreadable { path: device.path.clone(), source };
        let file = File::open(&device.path).map_err(unreadable)?;
        let number = number(&file.metadata().map_err(unreadable)?);
        device::verify(paths, disk, &Device { number, ..device.clone() })?;
        Ok(Self { device: Device { number, ..device }, file })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Whether it has grown beyond its ext file system.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn has_room(&self) -> io::Result<bool> {
        probe::has_room(&self.file)
    }

    /// Its size in bytes, and what it holds now.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self) -> io::Result<(u64, Content)> {
        let mut file = &self.file;
        let size = file.seek(SeekFrom::End(0))?;
        Ok((size, probe::read(file)?))
    }

    /// Whether a path still leads to this disk.
    ///
    /// # Errors
    /// When it leads elsewhere.
    pub(super) fn is_at(&self, path: &Path) -> io::Result<()> {
        if number(&fs::metadata(path)?) == self.device.number {
            return Ok(());
        }
        Err(io::Error::other(format!("{} is another disk by now", path.display())))
    }

    /// Whether it holds what a step was planned for.
    ///
    /// # Errors
    /// When it holds something else.
    pub(super) fn still_holds(&self, expected: Content) -> io::Result<()> {
        match self.read()? {
            (_, content) if content == expected => Ok(()),
            _ => Err(io::Error::other("what the disk holds has changed since it was looked at")),
        }
    }
}

fn number(metadata: &fs::Metadata) -> (u32, u32) {
    (major(metadata.rdev()), minor(metadata.rdev()))
}
