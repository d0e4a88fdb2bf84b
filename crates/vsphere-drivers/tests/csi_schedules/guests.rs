//! The guests of the nodes' VMs: which disks they see, and what they write to and read from them.

use std::{
    cell::Cell,
    collections::BTreeSet,
    fs::{self, File},
    io::{Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Result, ensure};
use lab::{VCenter, Wait, until};
use tokio::task::spawn_blocking;

use crate::{content::Content, lane, script::NODES};

/// A disk that a guest does not see by then never appears.
const BOUND: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Of the VMs of one schedule.
pub(crate) struct Guests<'a> {
    vcenter: &'a VCenter,
    written: Cell<u64>,
    read: Cell<u64>,
}

/// Where a volume is attached.
pub(crate) struct Place<'a> {
    pub(crate) node: usize,
    /// The UUID of the disk.
    pub(crate) disk: &'a str,
    pub(crate) mebibytes: i64,
}

/// Bytes that guests wrote and read back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) written: u64,
    pub(crate) read: u64,
}

impl<'a> Guests<'a> {
    pub(crate) fn new(vcenter: &'a VCenter) -> Self {
        Self { vcenter, written: Cell::new(0), read: Cell::new(0) }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic { written: self.written.get(), read: self.read.get() }
    }

    /// Reads all of a volume and compares it with what was written, then writes more.
    pub(crate) async fn use_volume(&self, at: &Place<'_>, content: &mut Content) -> Result<()> {
        self.verify(at, content).await?;
        let device = self.link(at.node, at.disk);
        let mut next = content.clone();
        let (written, bytes) = spawn_blocking(move || {
            let bytes = next.write(&device)?;
            anyhow::Ok((next, bytes))
        })
        .await??;
        *content = written;
        self.written.set(self.written.get() + bytes);
        Ok(())
    }

    /// Reads all of a volume and compares it with what was written.
    pub(crate) async fn verify(&self, at: &Place<'_>, content: &Content) -> Result<()> {
        let device = self.device(at).await?;
        let content = content.clone();
        let bytes = spawn_blocking(move || content.verify(&device)).await??;
        self.read.set(self.read.get() + bytes);
        Ok(())
    }

    /// Waits until a guest no longer has a disk.
    pub(crate) async fn lose(&self, node: usize, disk: &str) -> Result<()> {
        let link = self.link(node, disk);
        until("the guest has lost the disk", BOUND, || async {
            let gone = fs::symlink_metadata(&link).is_err();
            Ok(if gone { Wait::Done(()) } else { Wait::NotYet(link.display().to_string()) })
        })
        .await
    }

    /// Each guest must have the disks that vCenter has attached, and no other.
    pub(crate) fn agree(&self, attached: &[BTreeSet<String>; NODES]) -> Result<()> {
        for (node, disks) in attached.iter().enumerate() {
            let mut found = BTreeSet::new();
            for entry in fs::read_dir(self.vcenter.disks_of(&lane::name(node)))? {
                found.insert(entry?.file_name().to_string_lossy().into_owned());
            }
            let expected: BTreeSet<String> = disks.iter().map(|disk| link_name(disk)).collect();
            let name = lane::name(node);
            ensure!(found == expected, "the guest of {name} has {found:?} instead of {expected:?}");
        }
        Ok(())
    }

    /// The block device of a disk. It appears, and grows, a moment after vCenter shows it.
    async fn device(&self, at: &Place<'_>) -> Result<PathBuf> {
        let link = self.link(at.node, at.disk);
        let expected = u64::try_from(at.mebibytes)? * MIB;
        until("the guest has the disk with its size", BOUND, || async {
            let size = File::open(&link).and_then(|mut device| device.seek(SeekFrom::End(0)));
            Ok(match size {
                Ok(bytes) if bytes == expected => Wait::Done(link.clone()),
                other => Wait::NotYet(format!("{} has {other:?}", link.display())),
            })
        })
        .await
    }

    fn link(&self, node: usize, disk: &str) -> PathBuf {
        self.vcenter.disks_of(&lane::name(node)).join(link_name(disk))
    }
}

fn link_name(disk: &str) -> String {
    format!("wwn-0x{disk}")
}
