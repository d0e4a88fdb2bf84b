//! Removes what a world left behind: after its end, or after the death of its owner.
//!
//! Processes first (by recorded id and start time, so a reused id is never hit), then loop devices,
//! cgroups and files. Everything is found by the world's own directory or name; nothing else is touched.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    cgroup,
    process::{self, ProcessRecord},
    world,
};

/// Removes every world whose owner is dead, and names them.
///
/// # Errors
/// When something of such a world cannot be removed; the message names it.
pub fn abandoned_worlds() -> Result<Vec<String>> {
    let mut reaped = Vec::new();
    let state = world::state_dir();
    let entries = match fs::read_dir(&state) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(reaped),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", state.display()));
        }
    };
    for entry in entries {
        let lock_file = entry?.path();
        if lock_file.extension() != Some(OsStr::new("lock")) {
            continue;
        }
        let Some(_lock) = world::lock(&lock_file)? else { continue };
        let dir = lock_file.with_extension("");
        if dir.exists() {
            clean(&dir)?;
            reaped.extend(dir.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        fs::remove_file(&lock_file)?;
    }
    // Only when no world is left.
    fs::remove_dir(&state).ok();
    Ok(reaped)
}

/// Removes all that a world made. The caller holds the world's lock.
pub(crate) fn clean(dir: &Path) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    kill_recorded(&dir.join("processes"))?;
    detach_loop_devices(dir)?;
    retry_for_a_minute("remove the cgroups of", dir, || cgroup::remove(dir))?;
    refuse_mounts(dir)?;
    retry_for_a_minute("remove", dir, || fs::remove_dir_all(dir))
}

fn kill_recorded(records: &Path) -> Result<()> {
    for record in process::records(records)? {
        record.kill();
        let gone = || match record.is_alive() {
            true => Err(io::Error::other("the process is still there")),
            false => Ok(()),
        };
        retry_for_a_minute("end process", Path::new(&record.name), gone)?;
    }
    Ok(())
}

/// Loop devices whose file lies in the world, and those that a kubelet put on top of them for raw block volumes. A device
/// that is still mounted somewhere goes away with its last mount: that is what the kernel makes of a detach while in
/// use. One with another loop device on top would stay, so the upper ones go first.
fn detach_loop_devices(dir: &Path) -> Result<()> {
    let mut others = Vec::new();
    let mut found = Vec::new();
    for device in loop_devices()? {
        if device.file.starts_with(dir) { found.push(device) } else { others.push(device) }
    }
    let mut lower = 0;
    while let Some(below) = found.get(lower).map(|device| device.name.clone()) {
        let backed = |other: &mut LoopDevice| other.backed_by.as_ref() == Some(&below);
        found.extend(others.extract_if(.., backed));
        lower += 1;
    }
    for device in found.iter().rev() {
        let device = Path::new("/dev").join(&device.name);
        process::run(Command::new("losetup").arg("--detach").arg(&device))?;
    }
    Ok(())
}

struct LoopDevice {
    /// Such as `loop3`.
    name: String,
    file: PathBuf,
    /// The loop device that it is on top of.
    backed_by: Option<String>,
}

fn loop_devices() -> Result<Vec<LoopDevice>> {
    let blocks = Path::new("/sys/block");
    if !blocks.exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(blocks)? {
        let block = entry?;
        let Ok(file) = fs::read_to_string(block.path().join("loop/backing_file")) else { continue };
        // The kernel appends a note when the file is already unlinked.
        let file = PathBuf::from(file.trim_end().trim_end_matches(" (deleted)"));
        let name = block.file_name().to_string_lossy().into_owned();
        let backed_by = backing_loop_device(&name);
        found.push(LoopDevice { name, file, backed_by });
    }
    Ok(found)
}

/// The loop device below a loop device. Its path tells nothing, because it was opened in a mount namespace that may be
/// gone; the device number is known to the kernel only (`LOOP_GET_STATUS64`, third field), and Perl is on every Debian.
fn backing_loop_device(name: &str) -> Option<String> {
    const ASK: &str = r#"open(F, "<", $ARGV[0]) or exit; $b = "\0" x 232; ioctl(F, 0x4C05, $b) or exit; print((unpack("Q3", $b))[2])"#;
    const LOOP_MAJOR: u32 = 7;
    let printed =
        process::run(Command::new("perl").args(["-e", ASK]).arg(Path::new("/dev").join(name)))
            .ok()?;
    let number: u64 = printed.trim().parse().ok()?;
    (rustix::fs::major(number) == LOOP_MAJOR).then(|| format!("loop{}", rustix::fs::minor(number)))
}

/// A mount below the directory would have its content deleted; worlds mount only in namespaces of
/// their own, so one that is visible here was made by another program.
fn refuse_mounts(dir: &Path) -> Result<()> {
    let table =
        fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    for line in table.lines() {
        if let Some(point) = line.split(' ').nth(4)
            && Path::new(point).starts_with(dir)
        {
            bail!(
                "{point} is mounted below the lab's directory; unmount it, then run `make lab-down` again"
            );
        }
    }
    Ok(())
}

/// The kernel finishes the end of processes, mounts and cgroups a moment after it reported them gone.
fn retry_for_a_minute(
    verb: &str,
    what: &Path,
    mut attempt: impl FnMut() -> io::Result<()>,
) -> Result<()> {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if started.elapsed() > Duration::from_secs(60) => {
                return Err(error).with_context(|| format!("cannot {verb} {}", what.display()));
            }
            Err(_) => pause(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a bounded poll in code that must also run in Drop")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// The recorded processes of a world, for a status display.
///
/// # Errors
/// When the world's records cannot be read.
pub fn processes_of(world: &str) -> Result<Vec<ProcessRecord>> {
    process::records(&world::state_dir().join(world).join("processes"))
}
