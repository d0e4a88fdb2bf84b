//! Does what a plan says, with system calls and the tools of file systems. Everything here blocks.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Seek as _, SeekFrom, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::Path,
    process::{Command, Stdio},
};

use tracing::{info, warn};

use super::{
    format::{Kernel, mkfs, tool},
    held::Held,
    mounts,
    plan::Step,
    probe::{Content, FileSystem, Mark},
};
use crate::refusal::{Kind, Refusal};

/// kubelet makes its own directories so.
const DIRECTORY_MODE: u32 = 0o750;

/// Does the steps in their order; what is done stays done when one fails. Steps that use a disk need it held, and are
/// refused if their path leads elsewhere by now, or the disk holds something else than what they were planned for.
///
/// # Errors
/// The step that failed, and why.
pub(super) fn steps(volume: &str, steps: &[Step], disk: Option<&Held>) -> Result<(), Refusal> {
    for step in steps {
        one(step, disk).map_err(|failure| refuse(volume, step, failure))?;
        info!(volume, step = %Said(step), "node step done");
    }
    Ok(())
}

/// Why a step failed.
enum Failure {
    Io(io::Error),
    /// A program ended with an error; what it printed.
    Program(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn one(step: &Step, disk: Option<&Held>) -> Result<(), Failure> {
    look_again(step, disk)?;
    match step {
        Step::CreateDirectory(path) => {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
        }
        Step::CreateFile(path) => {
            if let Some(parent) = path.parent() {
                DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(parent)?;
            }
            OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        }
        Step::Wipe(device) => wipe(device)?,
        Step::Mark(device) => with_mark(device, Mark::write)?,
        Step::ClearMark(device) => with_mark(device, Mark::clear)?,
        Step::Format { device, kind } => format(device, *kind)?,
        Step::Check { device, kind } => check(device, *kind, &[]).map(drop)?,
        Step::GrowUnmounted { device, kind } => grow_unmounted(device, *kind)?,
        Step::Mount { device, target, kind, options } => {
            mounts::mount(device, target, kind.name(), options)?;
        }
        Step::Bind { source, target, options } => mounts::bind(source, target, options)?,
        Step::MakeReadOnly { target, options } => mounts::remount(target, options)?,
        Step::Grow { device, target, kind } => grow(device, target, *kind)?,
        Step::Unmount(path) => mounts::unmount(path)?,
        Step::RemoveDirectory(path) => absent_is_done(fs::remove_dir(path))?,
        Step::RemoveFile(path) => absent_is_done(fs::remove_file(path))?,
    }
    Ok(())
}

/// Whether the disk of a step is still the one that it was planned for, and holds what it held then.
fn look_again(step: &Step, disk: Option<&Held>) -> io::Result<()> {
    let (device, expected) = match step {
        Step::Wipe(device) | Step::Format { device, .. } => (device, Some(Content::Interrupted)),
        Step::Mark(device) => (device, Some(Content::Blank)),
        Step::ClearMark(device)
        | Step::Check { device, .. }
        | Step::GrowUnmounted { device, .. }
        | Step::Mount { device, .. } => (device, None),
        Step::Bind { source, .. } if disk.is_some() => (source, None),
        _ => return Ok(()),
    };
    let disk = disk.ok_or_else(|| io::Error::other("the disk is not held"))?;
    disk.is_at(device)?;
    expected.map_or(Ok(()), |content| disk.still_holds(content))
}

fn absent_is_done(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Opens a disk for writing that nobody has mounted: the kernel refuses an exclusive open otherwise.
fn exclusively(device: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::EXCL.bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(device)
}

fn with_mark(device: &Path, change: impl Fn(Mark, &mut File) -> io::Result<()>) -> io::Result<()> {
    let mut disk = exclusively(device)?;
    let size = disk.seek(SeekFrom::End(0))?;
    let mark = Mark::of(size).ok_or_else(|| io::Error::other("the disk is too small"))?;
    change(mark, &mut disk)
}

/// Clears the ends of a disk, so that tools which look at it first find it blank.
fn wipe(device: &Path) -> io::Result<()> {
    const END: usize = 1 << 20;
    let mut disk = exclusively(device)?;
    let size = disk.seek(SeekFrom::End(0))?;
    let zeros = vec![0; END.min(usize::try_from(size).unwrap_or(END))];
    for offset in [0, size - zeros.len() as u64] {
        disk.seek(SeekFrom::Start(offset))?;
        disk.write_all(&zeros)?;
    }
    disk.sync_all()
}

fn format(device: &Path, kind: FileSystem) -> Result<(), Failure> {
    let mut command = mkfs(kind, Kernel::running());
    command.arg(device);
    run(command, |code| code == 0).map(drop)
}

/// Repairs what needs no decision; returns whether the file system could be looked at.
fn check(device: &Path, kind: FileSystem, flags: &[&str]) -> Result<bool, Failure> {
    let mut command = tool(&format!("fsck.{kind}"));
    command.arg("-p").args(flags).arg(device);
    // The answers are bits. Without this one errors were corrected, or it could not look, such as at a disk that another
    // mount namespace still has: the kernel decides then.
    const NOT_CORRECTED: i32 = 4;
    let code = run(command, |code| code & NOT_CORRECTED == 0)?;
    if code > 1 {
        warn!(device = %device.display(), code, "file system not checked; mounting it as it is");
    }
    Ok(code <= 1)
}

/// Grows an ext file system that nobody has mounted; resize2fs insists on a full check before. What is whole is mounted
/// even if it could not grow: the kubelet asks to grow it again when it is mounted, and learns the reason then.
fn grow_unmounted(device: &Path, kind: FileSystem) -> Result<(), Failure> {
    const FULLY: &[&str] = &["-f"];
    if !check(device, kind, FULLY)? {
        return Ok(());
    }
    let mut command = tool("resize2fs");
    command.arg(device);
    match run(command, |code| code == 0) {
        Ok(_) => Ok(()),
        Err(Failure::Program(text)) => {
            warn!(device = %device.display(), error = text, "file system not grown; mounting it as it is");
            check(device, kind, FULLY).map(drop)
        }
        Err(failure) => Err(failure),
    }
}

fn grow(device: &Path, target: &Path, kind: FileSystem) -> Result<(), Failure> {
    let command = match kind {
        FileSystem::Ext2 | FileSystem::Ext3 | FileSystem::Ext4 => {
            let mut command = tool("resize2fs");
            command.arg(device);
            command
        }
        FileSystem::Xfs => {
            let mut command = tool("xfs_growfs");
            command.arg("-d").arg(target);
            command
        }
        FileSystem::Btrfs => {
            let mut command = tool("btrfs");
            command.args(["filesystem", "resize", "max"]).arg(target);
            command
        }
    };
    run(command, |code| code == 0).map(drop)
}

/// Runs a program, and returns its code.
fn run(mut command: Command, is_success: impl Fn(i32) -> bool) -> Result<i32, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::Program(format!("{program} is not installed on this node"))
        }
        _ => Failure::Io(error),
    })?;
    if let Some(code) = output.status.code().filter(|code| is_success(*code)) {
        return Ok(code);
    }
    let printed = [output.stderr, output.stdout].concat();
    let lines: Vec<String> = String::from_utf8_lossy(&printed)
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    Err(Failure::Program(format!("{program} failed ({}): {}", output.status, lines.join("; "))))
}

fn refuse(volume: &str, step: &Step, failure: Failure) -> Refusal {
    let what = format!("volume {volume}: could not {}", Said(step));
    match failure {
        Failure::Program(text) => {
            let refusal = Refusal::new(Kind::Internal, format!("{what}: {text}"));
            match step {
                Step::Check { device, .. } | Step::GrowUnmounted { device, .. } => refusal.remedy(format!(
                    "the file system has errors that need a decision; run fsck on {} on this node",
                    device.display()
                )),
                _ => refusal,
            }
        }
        Failure::Io(error) => {
            let busy = error.kind() == io::ErrorKind::ResourceBusy;
            let refusal =
                Refusal::new(if busy { Kind::Precondition } else { Kind::Internal }, what);
            let remedy = match (busy, step) {
                (true, Step::Unmount(path)) => Some(format!(
                    "a process on this node has files open there: fuser -vm {}",
                    path.display()
                )),
                (true, _) => Some("something else on this node uses the disk".to_owned()),
                (false, Step::Mount { kind, options, .. })
                    if error.kind() == io::ErrorKind::InvalidInput
                        && !options.of_file_system().is_empty() =>
                {
                    Some(format!(
                        "{kind} may not know one of the mount options {}; the kernel's log names it",
                        options.of_file_system()
                    ))
                }
                (false, Step::RemoveDirectory(path))
                    if error.kind() == io::ErrorKind::DirectoryNotEmpty =>
                {
                    Some(format!(
                        "{} holds files that are not on the volume; look at them and remove them",
                        path.display()
                    ))
                }
                _ => None,
            };
            let refusal = refusal.because(error);
            remedy.into_iter().fold(refusal, Refusal::remedy)
        }
    }
}

/// A step in words, as the end of "could not …".
struct Said<'a>(&'a Step);

impl std::fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Step::CreateDirectory(path) => write!(f, "create the directory {}", path.display()),
            Step::CreateFile(path) => write!(f, "create the file {}", path.display()),
            Step::Wipe(device) => write!(f, "clear the interrupted format of {}", device.display()),
            Step::Mark(device) => write!(f, "mark {} as being formatted", device.display()),
            Step::ClearMark(device) => {
                write!(f, "remove the mark of the format from {}", device.display())
            }
            Step::Format { device, kind } => write!(f, "format {} as {kind}", device.display()),
            Step::Check { device, kind } => write!(f, "check {kind} on {}", device.display()),
            Step::GrowUnmounted { device, kind } => {
                write!(f, "grow {kind} on {}", device.display())
            }
            Step::Mount { device, target, .. } => {
                write!(f, "mount {} at {}", device.display(), target.display())
            }
            Step::Bind { source, target, .. } => {
                write!(f, "bind {} to {}", source.display(), target.display())
            }
            Step::MakeReadOnly { target, .. } => {
                write!(f, "make the mount at {} read-only", target.display())
            }
            Step::Grow { target, kind, .. } => write!(f, "grow {kind} at {}", target.display()),
            Step::Unmount(path) => write!(f, "unmount {}", path.display()),
            Step::RemoveDirectory(path) => write!(f, "remove the directory {}", path.display()),
            Step::RemoveFile(path) => write!(f, "remove the file {}", path.display()),
        }
    }
}
