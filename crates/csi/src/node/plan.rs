//! What has to be done on a node, decided from facts without touching anything.
//!
//! Every step may be repeated, and the facts after a crash between any two of them lead to a plan that ends in the
//! same state.

use std::path::{Path, PathBuf};

use super::{
    Publish,
    device::Device,
    mounts::{Mount, Options},
    probe::{Content, FileSystem, Mark},
};
use crate::refusal::{Kind, Refusal};

/// How a volume is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// As a directory.
    Mount {
        /// The file system that was asked for; any if none was.
        file_system: Option<FileSystem>,
        /// Options of mount.
        options: Options,
    },
    /// As a device.
    Block,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nothing.
    Absent,
    /// A directory.
    Directory,
    /// A file, a device node or something else that is not a directory.
    File,
    /// A mount whose file system does not answer any more.
    Broken,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what their names say")]
pub enum Step {
    /// Makes a directory, and those above it.
    CreateDirectory(PathBuf),
    /// Makes an empty file to bind a device to.
    CreateFile(PathBuf),
    /// Clears the ends of a disk whose format was interrupted.
    Wipe(PathBuf),
    /// Writes the mark of a format that begins.
    Mark(PathBuf),
    /// Makes a file system.
    Format { device: PathBuf, kind: FileSystem },
    /// Removes the mark of a format that ended.
    ClearMark(PathBuf),
    /// Repairs what a file system's own checker repairs without being asked.
    Check { device: PathBuf, kind: FileSystem },
    /// Grows an ext file system to the size of its device before it is mounted. Other file systems grow only when they
    /// are mounted.
    GrowUnmounted { device: PathBuf, kind: FileSystem },
    /// Mounts a file system.
    Mount { device: PathBuf, target: PathBuf, kind: FileSystem, options: Options },
    /// Shows a directory or a device at another place.
    Bind { source: PathBuf, target: PathBuf, options: Options },
    /// Makes a mount that is for writing read-only.
    MakeReadOnly { target: PathBuf, options: Options },
    /// Grows the mounted file system to the size of its device.
    Grow { device: PathBuf, target: PathBuf, kind: FileSystem },
    /// Unmounts the topmost mount of a path.
    Unmount(PathBuf),
    /// Removes an empty directory.
    RemoveDirectory(PathBuf),
    /// Removes a file that nothing is bound to.
    RemoveFile(PathBuf),
}

/// What a volume is called in refusals.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a>(pub &'a str);

impl Subject<'_> {
    fn refuse(self, kind: Kind, what: &str) -> Refusal {
        Refusal::new(kind, format!("volume {}: {what}", self.0))
    }
}

/// A disk and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The kernel's device.
    pub device: Device,
    /// In bytes.
    pub size: u64,
    /// What it holds.
    pub content: Content,
    /// Whether it has grown beyond its ext file system.
    pub has_room: bool,
}

/// What staging depends on.
#[derive(Debug, Clone)]
pub struct StageFacts {
    /// The volume's disk.
    pub disk: Disk,
    /// The whole mount table.
    pub mounts: Vec<Mount>,
    /// What is at the staging path.
    pub target: Place,
}

/// Mounts the disk at the staging path, formatted if it is blank.
///
/// # Errors
/// When the disk holds something else than what was asked for, or is in use elsewhere.
pub fn stage(
    volume: Subject<'_>,
    target: &Path,
    access: &Access,
    facts: &StageFacts,
) -> Result<Vec<Step>, Refusal> {
    let Access::Mount { file_system, options } = access else { return Ok(Vec::new()) };
    let StageFacts { disk, mounts, target: place } = facts;
    if let Some(mount) = topmost(mounts, target) {
        return staged(volume, disk, mount, options).map(|()| Vec::new());
    }
    if *place == Place::Broken || *place == Place::File {
        let path = target.display();
        let what = format!("the staging path {path} is not a directory");
        return Err(volume
            .refuse(Kind::Precondition, &what)
            .remedy("remove it; kubelet makes it again"));
    }
    if let Some(other) = mounts.iter().find(|mount| mount.device == disk.device.number) {
        let path = other.target.display();
        let what = format!("its disk {} is already mounted at {path}", disk.device.path.display());
        return Err(volume
            .refuse(Kind::Precondition, &what)
            .remedy(format!("unmount {path} on this node")));
    }
    let mut steps = Vec::new();
    if *place == Place::Absent {
        steps.push(Step::CreateDirectory(target.to_owned()));
    }
    let kind = content(volume, disk, *file_system, options, &mut steps)?;
    let device = disk.device.path.clone();
    let mut options = options.clone();
    match kind {
        // Copies of a volume have its UUID, and may be on the same node.
        FileSystem::Xfs => options.add("nouuid"),
        FileSystem::Ext2 | FileSystem::Ext3 | FileSystem::Ext4 if !options.read_only() => {
            steps.push(Step::Check { device: device.clone(), kind });
            if disk.has_room {
                steps.push(Step::GrowUnmounted { device: device.clone(), kind });
            }
        }
        _ => {}
    }
    steps.push(Step::Mount { device, target: target.to_owned(), kind, options });
    Ok(steps)
}

fn staged(
    volume: Subject<'_>,
    disk: &Disk,
    mount: &Mount,
    options: &Options,
) -> Result<(), Refusal> {
    let path = mount.target.display();
    if mount.device != disk.device.number {
        let source = mount.source.display();
        let what = format!(
            "{source} is mounted at its staging path {path}, not its disk {}",
            disk.device.path.display()
        );
        return Err(volume
            .refuse(Kind::Precondition, &what)
            .remedy(format!("unmount {path} on this node")));
    }
    if mount.is_read_only() == options.read_only() {
        return Ok(());
    }
    let (is, wanted) = if mount.is_read_only() {
        ("read-only", "for writing")
    } else {
        ("for writing", "read-only")
    };
    let what = format!("it is mounted at {path} {is}, and asked for {wanted}");
    let remedy = "if it became read-only by itself, look into the kernel's log for errors of the disk; \
                  deleting all its pods on this node mounts it anew";
    Err(volume.refuse(Kind::Differs, &what).remedy(remedy))
}

/// The file system to mount, with the steps that make it so.
fn content(
    volume: Subject<'_>,
    disk: &Disk,
    wanted: Option<FileSystem>,
    options: &Options,
    steps: &mut Vec<Step>,
) -> Result<FileSystem, Refusal> {
    let device = &disk.device.path;
    let never = "it is never formatted by this driver; clear it by hand if its data is not needed";
    match disk.content {
        Content::Blank | Content::Interrupted if options.read_only() => {
            let what = "its disk is blank, and a disk that is mounted read-only is not formatted";
            Err(volume
                .refuse(Kind::Precondition, what)
                .remedy("write to it once from a pod that mounts it for writing"))
        }
        Content::Blank | Content::Interrupted => {
            let kind = wanted.unwrap_or(FileSystem::Ext4);
            if Mark::of(disk.size).is_none() {
                let what = format!("its disk has {} bytes, too few for a file system", disk.size);
                return Err(volume.refuse(Kind::OutOfRange, &what));
            }
            if disk.content == Content::Interrupted {
                steps.push(Step::Wipe(device.clone()));
            }
            steps.push(Step::Mark(device.clone()));
            steps.push(Step::Format { device: device.clone(), kind });
            steps.push(Step::ClearMark(device.clone()));
            Ok(kind)
        }
        Content::FileSystem { kind, marked } => match wanted {
            Some(wanted) if !kind.serves(wanted) => {
                let what = format!("its disk holds {kind}, and {wanted} is asked for");
                let remedy = format!("set fsType to {kind} in the PersistentVolume");
                Err(volume.refuse(Kind::Precondition, &what).remedy(remedy))
            }
            _ => {
                if marked && !options.read_only() {
                    steps.push(Step::ClearMark(device.clone()));
                }
                Ok(kind)
            }
        },
        Content::Foreign(name) => {
            let what = format!("its disk {} holds {name}", device.display());
            Err(volume.refuse(Kind::Precondition, &what).remedy(never))
        }
        Content::Unknown { offset } => {
            let what = format!(
                "its disk {} is not blank (the first byte that is not zero is at {offset}) and holds no file system \
                 that is known here",
                device.display()
            );
            Err(volume.refuse(Kind::Precondition, &what).remedy(never))
        }
    }
}

/// The mount that is seen at a path: a later one covers an earlier one.
fn topmost<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.target == path)
}

/// What publishing depends on.
#[derive(Debug, Clone)]
pub struct PublishFacts {
    /// The device of a volume that is used as one.
    pub device: Option<Device>,
    /// Where that device is shown.
    pub shown: Vec<PathBuf>,
    /// The whole mount table.
    pub mounts: Vec<Mount>,
    /// What is at the target path.
    pub target: Place,
}

/// Shows a staged volume to a pod.
///
/// # Errors
/// When it is not staged, something else is at the target, or another target has it that may be the only one.
pub fn publish(request: &Publish, facts: &PublishFacts) -> Result<Vec<Step>, Refusal> {
    let Publish { staging, target, options, .. } = request;
    let volume = Subject(&request.volume);
    let PublishFacts { device, mounts, target: place, .. } = facts;
    let staged = topmost(mounts, staging);
    let (source, create) = match (device, staged) {
        (Some(device), _) => (device.path.clone(), Step::CreateFile(target.to_owned())),
        (None, Some(_)) => (staging.to_owned(), Step::CreateDirectory(target.to_owned())),
        (None, None) => {
            let what = format!("nothing is mounted at its staging path {}", staging.display());
            return Err(volume
                .refuse(Kind::Precondition, &what)
                .remedy("kubelet stages it first, and then tries again"));
        }
    };
    if let Some(mount) = topmost(mounts, target) {
        let same = match (device, staged) {
            (Some(device), _) => mount.root.file_name() == device.path.file_name(),
            (None, staged) => staged.is_some_and(|staged| staged.device == mount.device),
        };
        let path = target.display();
        return match (same, mount.is_read_only() == options.read_only()) {
            (true, true) => Ok(Vec::new()),
            // A bind becomes read-only by a second call, and a process may end between the two.
            (true, false) if options.read_only() => {
                Ok(vec![Step::MakeReadOnly { target: target.clone(), options: options.clone() }])
            }
            (true, false) => {
                let what = format!("it is published at {path} read-only, and asked for writing");
                Err(volume.refuse(Kind::Differs, &what))
            }
            (false, _) => {
                let what = format!("{} is mounted at {path}", mount.source.display());
                Err(volume
                    .refuse(Kind::Differs, &what)
                    .remedy(format!("unmount {path} on this node")))
            }
        };
    }
    if request.single_writer {
        alone(request, staged, facts)?;
    }
    let wanted = if device.is_some() { Place::File } else { Place::Directory };
    let mut steps = Vec::new();
    if *place == Place::Absent {
        steps.push(create);
    } else if *place != wanted {
        let what = format!("something else is at the target path {}", target.display());
        return Err(volume.refuse(Kind::Precondition, &what).remedy("remove it by hand"));
    }
    steps.push(Step::Bind { source, target: target.to_owned(), options: options.clone() });
    Ok(steps)
}

/// Refuses a volume that is shown elsewhere.
fn alone(request: &Publish, staged: Option<&Mount>, facts: &PublishFacts) -> Result<(), Refusal> {
    let of_file_system = facts.mounts.iter().filter(|mount| {
        facts.device.is_none() && staged.is_some_and(|staged| staged.device == mount.device)
    });
    let mut all = of_file_system.map(|mount| &mount.target).chain(&facts.shown);
    let other = all.find(|path| **path != request.staging && **path != request.target);
    other.map_or(Ok(()), |other| {
        let path = other.display();
        let what = format!("it is published at {path}, and its access mode allows no second pod");
        let remedy = "use ReadWriteOnce instead of ReadWriteOncePod to share it on a node";
        Err(Subject(&request.volume).refuse(Kind::Precondition, &what).remedy(remedy))
    })
}

/// Takes a volume from a pod. What is not there is not missed.
pub fn unpublish(target: &Path, mounts: &[Mount], place: Place) -> Vec<Step> {
    let covering = mounts.iter().filter(|mount| mount.target == target);
    let mut steps: Vec<Step> = covering.map(|_| Step::Unmount(target.to_owned())).collect();
    match place {
        Place::Absent => {}
        Place::File => steps.push(Step::RemoveFile(target.to_owned())),
        // What a broken mount covers is known only when it is gone.
        Place::Directory | Place::Broken => steps.push(Step::RemoveDirectory(target.to_owned())),
    }
    steps
}

/// Unmounts a staged volume.
///
/// # Errors
/// When a pod still has it: it would be detached under a writer.
pub fn unstage(
    volume: Subject<'_>,
    staging: &Path,
    mounts: &[Mount],
) -> Result<Vec<Step>, Refusal> {
    let here: Vec<&Mount> = mounts.iter().filter(|mount| mount.target == staging).collect();
    let in_use = mounts.iter().find(|mount| {
        mount.target != staging && here.iter().any(|staged| staged.device == mount.device)
    });
    if let Some(other) = in_use {
        let path = other.target.display();
        let what = format!("it is still mounted at {path}");
        return Err(volume
            .refuse(Kind::Precondition, &what)
            .remedy("kubelet unpublishes it there first"));
    }
    Ok(here.iter().map(|_| Step::Unmount(staging.to_owned())).collect())
}

#[cfg(test)]
mod tests;
