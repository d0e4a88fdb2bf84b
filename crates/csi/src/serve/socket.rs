//! The file that a server listens at.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    time::timeout,
};
use tonic::Code;
use tracing::{debug, info, warn};

use crate::{
    client::Client,
    proto::{ProbeRequest, ProbeResponse},
};

/// The longest path of a socket that the kernel takes.
const LONGEST: usize = 107;
/// Owner and group; to connect is to write.
const MODE: u32 = 0o660;
/// A process that does not answer within this time is gone, or will be: one that waits for a disk cannot be killed until
/// then, and its socket goes on taking connections.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long to wait when there are no more file descriptors: accepting again at once would spin.
const SHORTAGE: Duration = Duration::from_millis(100);

/// A socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve at {}: {problem}", path.display())]
pub struct CannotServe {
    path: PathBuf,
    problem: String,
}

/// A socket that listens; dropping it removes its file.
pub(super) struct Socket {
    listener: UnixListener,
    file: File,
}

/// The file of a socket, and which one it is.
#[derive(Clone)]
struct File {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Socket {
    pub(super) async fn bind(path: &Path) -> Result<Self, CannotServe> {
        let refuse = |problem: String| CannotServe { path: path.to_owned(), problem };
        let length = path.as_os_str().len();
        if length > LONGEST {
            return Err(refuse(format!(
                "the path has {length} bytes, and a socket's has {LONGEST} at most; use a shorter one"
            )));
        }
        let parent = path.parent().unwrap_or(path);
        if !parent.is_dir() {
            let parent = parent.display();
            return Err(refuse(format!(
                "{parent} is not a directory; the pod needs a volume that is mounted there"
            )));
        }
        is_free(path).await.map_err(refuse)?;
        let listen = || {
            // Under another name first: so callers find either socket, and never none.
            let new = path.with_extension("new");
            absent_is_done(fs::remove_file(&new))?;
            let listener = UnixListener::bind(&new)?;
            fs::set_permissions(&new, fs::Permissions::from_mode(MODE))?;
            fs::rename(&new, path)?;
            Ok::<_, io::Error>((listener, identity(path)?))
        };
        let (listener, identity) = listen().map_err(|error| refuse(error.to_string()))?;
        Ok(Self { listener, file: File { path: path.to_owned(), identity } })
    }

    pub(super) fn path(&self) -> &Path {
        &self.file.path
    }

    /// A function that tells whether this socket is still at its path.
    pub(super) fn is_found(&self) -> impl Fn() -> bool + Send + use<> {
        let file = self.file.clone();
        move || file.is_there()
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => return Ok(stream),
                Err(error) if is_passing(&error) => {
                    debug!(%error, "connection not accepted");
                    tokio::time::sleep(SHORTAGE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have taken the place.
        if self.file.is_there() {
            fs::remove_file(&self.file.path).unwrap_or_default();
        }
    }
}

impl File {
    fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

fn absent_is_done(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether nobody serves at a path: nothing is there, or the socket of a process that is gone.
async fn is_free(path: &Path) -> Result<(), String> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if !metadata.file_type().is_socket() {
        return Err("something else than a socket is there; remove it".to_owned());
    }
    match timeout(ANSWERS_WITHIN, is_served(path)).await {
        Ok(Ok(true)) => Err("another process serves there; it must end first".to_owned()),
        Ok(Ok(false)) => {
            absent_is_done(fs::remove_file(path))
                .map_err(|error| format!("a stale socket is there: {error}"))?;
            info!(socket = %path.display(), "stale socket removed");
            Ok(())
        }
        Ok(Err(error)) => Err(format!("a socket is there, and it is not known whose: {error}")),
        Err(_) => {
            warn!(socket = %path.display(), "socket taken from a process that does not answer");
            Ok(())
        }
    }
}

/// Whether somebody answers at a socket; that there is no such service is an answer, too.
async fn is_served(path: &Path) -> io::Result<bool> {
    let mut client = loop {
        match Client::connect(path).await {
            Ok(client) => break client,
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => return Ok(false),
                // Nobody takes connections, and no more of them can wait.
                io::ErrorKind::WouldBlock => tokio::time::sleep(SHORTAGE).await,
                _ => return Err(error),
            },
        }
    };
    let answer = client.call::<_, ProbeResponse>("/csi.v1.Identity/Probe", ProbeRequest {}).await;
    // A connection that was closed under the call.
    Ok(!answer.is_err_and(|status| status.code() == Code::Unknown))
}

/// Whether the error concerns one connection or a shortage, not the listening socket.
fn is_passing(error: &io::Error) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM have no kind of their own.
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
        || matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::Interrupted
        )
}
