//! The drivers' image: their one program, a link for each name it goes by, and the tools of file systems that nodes need.

use std::path::Path;

use anyhow::Result;

use super::{DebianPackage, Image, Runtime};

/// The image, as our manifests name it.
pub const DRIVERS: &str =
    concat!("ghcr.io/vsphere-drivers/vsphere-drivers:", env!("CARGO_PKG_VERSION"));
/// The same under the name that takes the place of the Go CSI driver's image: it starts the CSI driver, whose pods name no
/// command, and leaves the user to them.
pub const GO_DRIVER: &str =
    concat!("ghcr.io/vsphere-drivers/vsphere-csi:", env!("CARGO_PKG_VERSION"));

const PROGRAM: &str = "vsphere-drivers";
const MANAGER: &str = "/bin/vsphere-cloud-controller-manager";
const CSI: &str = "/bin/vsphere-csi";

/// What makes, checks and grows file systems. mke2fs has its configuration built in; the file in /etc may be edited.
const TOOLS: [&str; 7] = [
    "/usr/sbin/mke2fs",
    "/usr/sbin/e2fsck",
    "/usr/sbin/resize2fs",
    "/usr/sbin/mkfs.xfs",
    "/usr/sbin/xfs_growfs",
    "/usr/sbin/mkfs.btrfs",
    "/usr/bin/btrfs",
];
/// Names by which two of them know what to do.
const LINKS: [(&str, [&str; 3]); 2] = [
    ("mke2fs", ["mkfs.ext2", "mkfs.ext3", "mkfs.ext4"]),
    ("e2fsck", ["fsck.ext2", "fsck.ext3", "fsck.ext4"]),
];

/// The drivers' image.
#[derive(Clone, Debug)]
pub struct Drivers {
    /// It has both names.
    pub image: Image,
    /// The packages of which files are in it.
    pub packages: Vec<DebianPackage>,
}

impl Drivers {
    /// The image around this program.
    ///
    /// # Errors
    /// When a tool or a library is not installed, or belongs to no package.
    pub fn around(program: &Path) -> Result<Self> {
        let runtime = Runtime::of(program, &TOOLS)?;
        let mut image = runtime.around(Image::new(DRIVERS));
        image = image.program(&format!("/bin/{PROGRAM}"), program);
        for name in [MANAGER, CSI] {
            image = image.link(name, PROGRAM);
        }
        for (tool, names) in LINKS {
            for name in names {
                image = image.link(&format!("/usr/sbin/{name}"), tool);
            }
        }
        // The Go manager's pods name no command.
        image = image.entrypoint(&[MANAGER]).also_named(GO_DRIVER, &[CSI]);
        Ok(Self { image, packages: runtime.packages().to_vec() })
    }
}
