//! The driver in mode node, at sockets in a directory of its own.

use std::{fs, path::PathBuf};

use csi::client::Client;
use lab::{Wait, until};
use tempfile::TempDir;

use crate::process::{BOUND, Program};

pub(crate) const NAME: &str = "vsphere-csi";

/// The directories that a node's pod has.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        for name in ["csi", "registration", "kubelet"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("csi/csi.sock")
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Starts the driver as upstream's DaemonSet does, with more flags.
    pub(crate) fn start(&self, flags: &[&str]) -> Program {
        let endpoint = self.endpoint();
        let variables = [
            ("CSI_ENDPOINT", endpoint.as_str()),
            ("MAX_VOLUMES_PER_NODE", "59"),
            ("X_CSI_MODE", "node"),
            ("X_CSI_SPEC_REQ_VALIDATION", "false"),
            ("X_CSI_SPEC_DISABLE_LEN_CHECK", "true"),
            ("LOGGER_LEVEL", "PRODUCTION"),
            ("CSI_NAMESPACE", "vmware-system-csi"),
            ("NODEGETINFO_WATCH_TIMEOUT_MINUTES", "1"),
        ];
        let upstream = [
            "--fss-name=internal-feature-states.csi.vsphere.vmware.com",
            "--fss-namespace=vmware-system-csi",
        ];
        Program::start(NAME, &[&upstream, flags].concat(), &variables)
    }

    /// Connects to a socket as soon as somebody serves there.
    pub(crate) async fn connect(&self, socket: &str) -> Client {
        let socket = self.path(socket);
        let connected = until("the socket is served", BOUND, || async {
            Ok(match Client::connect(&socket).await {
                Ok(client) => Wait::Done(client),
                Err(error) => Wait::NotYet(error.to_string()),
            })
        });
        connected.await.unwrap()
    }

    /// Every file below it, to see that nothing was touched.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories = vec![self.directory.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).unwrap().map(Result::unwrap) {
                found.push(entry.path());
                if entry.file_type().unwrap().is_dir() {
                    directories.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }
}
