//! Turns an attached disk into what a pod asked for: format, mount, bind, grow.
//!
//! Facts are read once, [`plan`] decides the steps, `run` does them, while the disk that the facts are about is kept
//! open. Every step is safe to repeat after a crash between any two of them.
//!
//! File systems may hang, so everything that touches them runs on a thread of its own, and holds no volume but its
//! own: a volume whose claim is kept by a hung call is [`Kind::Busy`], all others go on. A volume has two threads at
//! most for each of its paths, so that one that hangs leaves enough of them to the others.
//!
//! Deliberately absent: vCenter and Kubernetes, retries (kubelet retries).

pub mod device;
mod format;
mod held;
pub mod mounts;
pub mod plan;
pub mod probe;
mod run;

use std::{
    fs::{self, File},
    io::{self, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tracing::Span;

use self::{
    device::{Device, DiskUuid, HostPaths, NotTheDisk},
    held::Held,
    mounts::{Mount, Options},
    plan::{Access, Disk, Place, PublishFacts, StageFacts, Step, Subject},
    probe::FileSystem,
};
use crate::{
    in_flight::{Claim, InFlight},
    refusal::{Kind, Refusal},
};

/// How long a disk may take to appear after it was attached; kubelet tries again after that.
const APPEARS_WITHIN: Duration = Duration::from_secs(15);
/// How long a disk may take to show its new size.
const GROWS_WITHIN: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Hosts find most disks by themselves; asking them stops their other work.
const RESCAN_AFTER: Duration = Duration::from_secs(2);

/// The volumes of this node.
#[derive(Debug, Clone, Default)]
pub struct Node {
    paths: HostPaths,
    in_flight: InFlight,
    /// Readings of usage, by volume and path.
    readings: InFlight,
}

/// A volume to be made ready on this node.
#[derive(Debug, Clone)]
pub struct Stage {
    /// Its id.
    pub volume: String,
    /// Its disk.
    pub disk: DiskUuid,
    /// Where it is to be mounted once for all pods.
    pub staging: PathBuf,
    /// How it is used.
    pub access: Access,
}

/// A volume to be shown to a pod.
#[derive(Debug, Clone)]
pub struct Publish {
    /// Its id.
    pub volume: String,
    /// Its disk, for a volume that is used as a device.
    pub device: Option<DiskUuid>,
    /// Where it was staged.
    pub staging: PathBuf,
    /// Where the pod will see it.
    pub target: PathBuf,
    /// Of this mount alone.
    pub options: Options,
    /// Whether it may be shown at one target only.
    pub single_writer: bool,
}

/// A volume that has grown in vCenter.
#[derive(Debug, Clone)]
pub struct Expand {
    /// Its id.
    pub volume: String,
    /// Where it is published, or staged.
    pub path: PathBuf,
    /// How many bytes it must have.
    pub bytes: u64,
}

/// How much of a volume is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// In all.
    pub total: u64,
    /// What users may still take.
    pub available: u64,
    /// What is taken.
    pub used: u64,
}

/// What a volume reports of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Of a device only the total is known.
    pub bytes: Usage,
    /// Of a file system.
    pub inodes: Option<Usage>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

impl Node {
    /// A node whose kernel's files are elsewhere.
    #[must_use]
    pub fn at(paths: HostPaths) -> Self {
        Self { paths, in_flight: InFlight::default(), readings: InFlight::default() }
    }

    /// Makes a volume ready: finds its disk, formats it if it is blank, mounts it.
    ///
    /// # Errors
    /// When the disk does not appear, holds something else, or a step fails.
    pub async fn stage(&self, request: Stage) -> Result<(), Refusal> {
        let paths = self.paths.clone();
        self.holding(&request.volume.clone(), move || {
            let volume = Subject(&request.volume);
            let held = wait_for_disk(&paths, &request.volume, request.disk)?;
            if request.access == Access::Block {
                return Ok(());
            }
            let facts = StageFacts {
                disk: disk(&request.volume, &held)?,
                mounts: table(&paths)?,
                target: place(&request.staging),
            };
            let steps = plan::stage(volume, &request.staging, &request.access, &facts)?;
            run::steps(&request.volume, &steps, Some(&held))
        })
        .await
    }

    /// Shows a staged volume to a pod.
    ///
    /// # Errors
    /// When it is not staged, something else is at the target, or a step fails.
    pub async fn publish(&self, request: Publish) -> Result<(), Refusal> {
        let paths = self.paths.clone();
        self.holding(&request.volume.clone(), move || {
            let held = request
                .device
                .map(|disk| wait_for_disk(&paths, &request.volume, disk))
                .transpose()?;
            let device = held.as_ref().map(|held| held.device().clone());
            let mounts = table(&paths)?;
            let shown = device.as_ref().map(|device| shown(device, &mounts)).unwrap_or_default();
            let facts = PublishFacts { device, shown, mounts, target: place(&request.target) };
            let steps = plan::publish(&request, &facts)?;
            run::steps(&request.volume, &steps, held.as_ref())
        })
        .await
    }

    /// Takes a volume from a pod; one that is not there is done.
    ///
    /// # Errors
    /// When a step fails, such as for a mount that is in use.
    pub async fn unpublish(&self, volume: String, target: PathBuf) -> Result<(), Refusal> {
        let paths = self.paths.clone();
        self.holding(&volume.clone(), move || {
            let steps = plan::unpublish(&target, &table(&paths)?, place(&target));
            run::steps(&volume, &steps, None)
        })
        .await
    }

    /// Unmounts a volume that no pod has any more; one that is not there is done.
    ///
    /// # Errors
    /// When a pod still has it, or a step fails.
    pub async fn unstage(&self, volume: String, staging: PathBuf) -> Result<(), Refusal> {
        let paths = self.paths.clone();
        self.holding(&volume.clone(), move || {
            let steps = plan::unstage(Subject(&volume), &staging, &table(&paths)?)?;
            run::steps(&volume, &steps, None)
        })
        .await
    }

    /// Lets a volume use its new size; returns the size of its device.
    ///
    /// # Errors
    /// When the device does not grow, or its file system cannot.
    pub async fn expand(&self, request: Expand) -> Result<u64, Refusal> {
        let paths = self.paths.clone();
        self.holding(&request.volume.clone(), move || expand(&paths, &request)).await
    }

    /// How much of a volume is used, and whether it works.
    ///
    /// # Errors
    /// When nothing is published there.
    pub async fn stats(&self, volume: String, path: PathBuf) -> Result<Stats, Refusal> {
        let paths = self.paths.clone();
        // Not the claim of operations: what is only read may be read while the volume is worked on.
        let claim = self.readings.claim(&format!("{volume} at {}", path.display()))?;
        blocking(move || {
            let read = stats(&paths, &volume, &path);
            drop(claim);
            read
        })
        .await
    }

    /// Runs work on a thread of its own while it holds the volume, even if the caller gives up.
    async fn holding<T: Send + 'static>(
        &self,
        volume: &str,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let claim: Claim = self.in_flight.claim(volume)?;
        blocking(move || {
            let done = work();
            drop(claim);
            done
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let span = Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.unwrap_or_else(|error| {
        Err(Refusal::new(Kind::Internal, "the operation broke off").because(error))
    })
}

fn table(paths: &HostPaths) -> Result<Vec<Mount>, Refusal> {
    let unreadable =
        |error| Refusal::new(Kind::Internal, "could not read the mount table").because(error);
    mounts::table(&paths.proc).map_err(unreadable)
}

fn place(path: &Path) -> Place {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Place::Directory,
        Ok(_) => Place::File,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Place::Absent,
        Err(_) => Place::Broken,
    }
}

/// Where a device node is bound to a file.
fn shown(device: &Device, mounts: &[Mount]) -> Vec<PathBuf> {
    let is_bound = |mount: &&Mount| {
        let found = || device::device(mount.target.clone()).map(|found| found.number);
        mount.root.file_name() == device.path.file_name()
            && found().is_ok_and(|number| number == device.number)
    };
    mounts.iter().filter(is_bound).map(|mount| mount.target.clone()).collect()
}

fn wait_for_disk(paths: &HostPaths, volume: &str, disk: DiskUuid) -> Result<Held, Refusal> {
    let began = Instant::now();
    let mut rescanned = false;
    loop {
        let found = device::find(paths, disk);
        let held =
            found.and_then(|found| found.map(|device| Held::open(paths, disk, device)).transpose());
        // What is there instead of the disk may be about to go: a link follows its disk a moment later.
        let is_late = began.elapsed() >= APPEARS_WITHIN;
        match held {
            Ok(Some(held)) => return Ok(held),
            Ok(None) if is_late => {
                let what =
                    format!("volume {volume}: its disk {disk} has not appeared on this node");
                let remedy = "the VM needs disk.EnableUUID=TRUE, and the volume must be attached to it: \
                              kubectl get volumeattachments";
                return Err(Refusal::new(Kind::NotFound, what).remedy(remedy));
            }
            Err(error) if is_late => return Err(wrong_disk(volume, error)),
            _ => {}
        }
        if began.elapsed() > RESCAN_AFTER && !rescanned {
            device::rescan_hosts(&paths.sys);
            rescanned = true;
        }
        thread::park_timeout(LOOK_AGAIN);
    }
}

fn wrong_disk(volume: &str, error: NotTheDisk) -> Refusal {
    let what = format!("volume {volume}: its disk cannot be used");
    let remedy = match error {
        NotTheDisk::Unproven { .. } => {
            "the VM needs disk.EnableUUID=TRUE; on top of a disk only a multipath map is used, and only if the kernel \
             reports the disk's UUID for each of its paths"
        }
        NotTheDisk::Several { .. } => {
            "one of them is a copy of the other: detach it from the VM, or give it a UUID of its own"
        }
        _ => "udevadm trigger on this node makes stale links new",
    };
    Refusal::new(Kind::Precondition, what).because(error).remedy(remedy)
}

fn disk(volume: &str, held: &Held) -> Result<Disk, Refusal> {
    let device = held.device().clone();
    let read = held.read().and_then(|read| Ok((read, held.has_room()?)));
    match read {
        Ok(((size, content), has_room)) => Ok(Disk { device, size, content, has_room }),
        Err(error) => {
            let what =
                format!("volume {volume}: could not read its disk {}", device.path.display());
            Err(Refusal::new(Kind::Internal, what).because(error))
        }
    }
}

fn size_of(device: &Path) -> io::Result<u64> {
    File::open(device)?.seek(SeekFrom::End(0))
}

/// The mount that a path of a volume leads to, or the device itself.
enum Used {
    /// With the whole mount table.
    Mount(Mount, Vec<Mount>),
    Device(PathBuf),
}

fn used(paths: &HostPaths, volume: &str, path: &Path) -> Result<Used, Refusal> {
    let missing = |what: &str| {
        Refusal::new(Kind::NotFound, format!("volume {volume}: {what} {}", path.display()))
    };
    if place(path) == Place::Absent {
        return Err(missing("there is nothing at"));
    }
    if device::device(path.to_owned()).is_ok() {
        return Ok(Used::Device(path.to_owned()));
    }
    let mounts = table(paths)?;
    let mount = mounts.iter().rev().find(|mount| mount.target == path).cloned();
    let mount = mount.ok_or_else(|| missing("nothing is mounted at"))?;
    Ok(Used::Mount(mount, mounts))
}

fn expand(paths: &HostPaths, request: &Expand) -> Result<u64, Refusal> {
    let volume = &request.volume;
    let failed = |what: &str| {
        let what = format!("volume {volume}: {what}");
        move |error: io::Error| Refusal::new(Kind::Internal, what).because(error)
    };
    let (path, mount) = match used(paths, volume, &request.path)? {
        Used::Mount(mount, _) => (mount.source.clone(), Some(mount)),
        Used::Device(path) => (path, None),
    };
    let device = device::opened(&paths.sys, path).map_err(|error| wrong_disk(volume, error))?;
    let began = Instant::now();
    let mut size = size_of(&device.path).map_err(failed("could not read the size of its disk"))?;
    if size < request.bytes {
        device::rescan_size(&paths.sys, &device)
            .map_err(failed("the kernel did not read the size of its disk again"))?;
    }
    while size < request.bytes {
        if began.elapsed() > GROWS_WITHIN {
            let what = format!(
                "volume {volume}: its disk has {size} bytes on this node, and should have {}",
                request.bytes
            );
            return Err(Refusal::new(Kind::Unavailable, what));
        }
        thread::park_timeout(LOOK_AGAIN);
        size = size_of(&device.path).map_err(failed("could not read the size of its disk"))?;
    }
    let Some(mount) = mount else { return Ok(size) };
    let kind = FileSystem::from_name(&mount.kind);
    let Some(kind) = kind else {
        let what =
            format!("volume {volume}: {} at {} cannot grow", mount.kind, mount.target.display());
        return Err(Refusal::new(Kind::Precondition, what));
    };
    if mount.is_read_only() {
        let what = format!(
            "volume {volume}: it is mounted read-only at {}, and cannot grow",
            mount.target.display()
        );
        let remedy = "mount it for writing once";
        return Err(Refusal::new(Kind::Precondition, what).remedy(remedy));
    }
    let grow = Step::Grow { device: device.path, target: mount.target, kind };
    run::steps(volume, &[grow], None)?;
    Ok(size)
}

fn stats(paths: &HostPaths, volume: &str, path: &Path) -> Result<Stats, Refusal> {
    let unreadable = |error: io::Error| {
        let what = format!("volume {volume}: {} does not answer", path.display());
        Refusal::new(Kind::Internal, what).because(error)
    };
    let (mount, mounts) = match used(paths, volume, path)? {
        Used::Device(device) => {
            let total = size_of(&device).map_err(unreadable)?;
            let bytes = Usage { total, available: 0, used: 0 };
            return Ok(Stats { bytes, inodes: None, problem: None });
        }
        Used::Mount(mount, mounts) => (mount, mounts),
    };
    let found = rustix::fs::statvfs(path).map_err(|error| unreadable(error.into()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(Stats {
        bytes: Usage {
            total: bytes(found.f_blocks),
            available: bytes(found.f_bavail),
            used: bytes(used),
        },
        inodes: Some(Usage {
            total: found.f_files,
            available: found.f_ffree,
            used: found.f_files.saturating_sub(found.f_ffree),
        }),
        problem: became_read_only(&mount, &mounts),
    })
}

/// A file system that finds errors makes itself read-only; the mounts that show it were made for writing.
fn became_read_only(mount: &Mount, mounts: &[Mount]) -> Option<String> {
    let mut same = mounts.iter().filter(|other| other.device == mount.device);
    let only_by_file_system =
        mount.file_system_read_only && same.any(|other| !other.mount_read_only);
    let text = format!(
        "{} made itself read-only after an error; the kernel's log has the reason",
        mount.kind
    );
    only_by_file_system.then_some(text)
}

#[cfg(test)]
mod tests;
