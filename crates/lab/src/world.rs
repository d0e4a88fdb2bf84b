//! The one allocator: a world is a name, a directory, a range of ports and a lock on all of them.
//!
//! Worlds live below [`state_dir`], one directory each beside a `NAME.lock`. The process that holds the
//! lock owns the world; the kernel releases it when the owner dies, however it dies. A world without an
//! owner is litter, and [`crate::reap`] removes it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

use crate::{limits, reap};

/// The name of the world that `make lab` starts.
pub const LAB: &str = "lab";

const PORTS_FROM: u16 = 21_000;
const PORTS_EACH: u16 = 8;
/// From one world's first port to the next one's: one more is its guard.
const PORTS_APART: u16 = PORTS_EACH + 1;
const TEST_WORLDS: u16 = 200;

/// An exclusive place to run things in. Dropping it removes its files.
#[derive(Debug)]
pub struct World {
    name: String,
    dir: PathBuf,
    first_port: u16,
    // Locks are files of one user; the ports are everybody's. Whoever listens here may use the eight below.
    _guard: TcpListener,
    lock_file: PathBuf,
    // Held until the very end: the lock alone marks the world as owned.
    lock: File,
}

impl World {
    /// Claims a free world for a test or a benchmark, after removing what dead owners left behind.
    ///
    /// # Errors
    /// When the state directory cannot be written, or 200 worlds are in use.
    pub fn claim() -> Result<Self> {
        reap::abandoned_worlds()?;
        for index in 1..=TEST_WORLDS {
            if let Some(world) = Self::try_claim(&format!("w{index}"), index)? {
                return Ok(world);
            }
        }
        bail!("{TEST_WORLDS} lab worlds are in use below {}", state_dir().display())
    }

    /// Claims the world of `make lab`; `None` when a lab is running.
    ///
    /// # Errors
    /// When the state directory cannot be written, or its port is taken by another program.
    pub fn claim_lab() -> Result<Option<Self>> {
        reap::abandoned_worlds()?;
        let world = Self::try_claim(LAB, 0)?;
        if world.is_none() && !is_owned(LAB)? {
            bail!(
                "port {PORTS_FROM} on 127.0.0.1 is in use by another program (`ss -ltnp` shows which); \
                 stop it, the lab's API listens there"
            );
        }
        Ok(world)
    }

    /// `None` when the world, or one of its ports, is in use.
    fn try_claim(name: &str, index: u16) -> Result<Option<Self>> {
        let first_port = PORTS_FROM + PORTS_APART * index;
        let state = state_dir();
        create_state_dir()?;
        limits::raise();
        let lock_file = state.join(format!("{name}.lock"));
        let Some(mut lock) = lock(&lock_file)? else { return Ok(None) };
        let dir = state.join(name);
        reap::clean(&dir)?;
        let guard = listen(first_port + PORTS_EACH).ok();
        let is_free = |port| listen(port).is_ok();
        let guard = guard.filter(|_| (first_port..first_port + PORTS_EACH).all(is_free));
        let Some(guard) = guard else {
            fs::remove_file(&lock_file)?;
            return Ok(None);
        };
        for part in ["", "logs", "processes"] {
            fs::create_dir_all(dir.join(part))?;
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(Some(Self { name: name.to_owned(), dir, first_port, _guard: guard, lock_file, lock }))
    }

    /// Short and unique on this machine: part of every name the world makes outside its directory.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the world keeps its files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The nth port of the world of `make lab`, for commands that talk to a running lab.
    #[must_use]
    pub const fn lab_port(nth: u16) -> u16 {
        PORTS_FROM + nth
    }

    /// The nth of the world's eight loopback ports.
    ///
    /// # Panics
    /// When `nth` is not below eight.
    #[must_use]
    pub fn port(&self, nth: u16) -> u16 {
        assert!(nth < PORTS_EACH, "a world has {PORTS_EACH} ports");
        self.first_port + nth
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // What cannot be removed now (a file system that is still being unmounted) is removed by the
        // reaper of the next start: the lock is free from here on.
        if reap::clean(&self.dir).is_ok()
            && is_current(&self.lock, &self.lock_file).unwrap_or(false)
        {
            fs::remove_file(&self.lock_file).ok();
            fs::remove_dir(state_dir()).ok();
        }
    }
}

/// Where worlds live: `$VSPHERE_LAB_DIR`, else a directory of the machine (root) or of the user.
///
/// The path is short because Unix sockets below it must fit in 107 bytes.
#[must_use]
pub fn state_dir() -> PathBuf {
    if let Some(chosen) = std::env::var_os("VSPHERE_LAB_DIR") {
        return PathBuf::from(chosen);
    }
    let user = rustix::process::getuid();
    if user.is_root() {
        return PathBuf::from("/var/lib/vsphere-lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(runtime) => PathBuf::from(runtime).join("vsphere-lab"),
        None => std::env::temp_dir().join(format!("vsphere-lab-{}", user.as_raw())),
    }
}

fn create_state_dir() -> Result<()> {
    let state = state_dir();
    // Unix sockets below it carry no other protection than this mode.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&state)
        .with_context(|| format!("cannot create the lab's state directory {}", state.display()))
}

/// Whether a living process owns the world.
pub(crate) fn is_owned(name: &str) -> Result<bool> {
    let lock_file = state_dir().join(format!("{name}.lock"));
    if !lock_file.exists() {
        return Ok(false);
    }
    Ok(lock(&lock_file)?.is_none())
}

/// The process that owns the world; `None` when it has no owner.
///
/// # Errors
/// When its lock cannot be examined.
pub fn owner(name: &str) -> Result<Option<u32>> {
    if !is_owned(name)? {
        return Ok(None);
    }
    let text = fs::read_to_string(state_dir().join(format!("{name}.lock")))?;
    // The owner writes its id right after it took the lock.
    text.trim()
        .parse()
        .map(Some)
        .with_context(|| format!("the owner of the world {name} is just starting; try again"))
}

/// Takes the lock if it is free.
pub(crate) fn lock(lock_file: &Path) -> Result<Option<File>> {
    loop {
        let opened =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock_file);
        let file = match opened {
            // The last world of another process took the empty state directory with it just now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_state_dir()?;
                continue;
            }
            opened => opened.with_context(|| format!("cannot open {}", lock_file.display()))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Its last owner may have removed the file between our open and our lock; then our lock
            // is on a file that no other process can open.
            Ok(()) if is_current(&file, lock_file)? => return Ok(Some(file)),
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", lock_file.display()));
            }
        }
    }
}

fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(now) => Ok((now.dev(), now.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

#[cfg(test)]
mod tests {
    use super::{PORTS_EACH, World, listen};

    /// Users do not share locks, so two of them would otherwise find the same ports free at the same time.
    #[test]
    fn the_ports_of_a_world_are_guarded_from_other_users() {
        let world = World::claim().unwrap();
        let guard = world.first_port + PORTS_EACH;
        assert!(listen(guard).is_err(), "another user could claim {}", world.name());
    }
}
