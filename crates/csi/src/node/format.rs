//! The programs that make file systems, with options that suit a blank disk and the kernel that will mount it.
//!
//! What a program makes by default follows the newest kernels, and the image's programs do not know on which kernel they
//! run. So every default that came after Linux 4.18 is chosen here.

use std::{fs, process::Command};

use super::probe::FileSystem;

/// Where the tools of file systems are, whatever the environment says.
pub(super) const TOOLS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Since when XFS has times beyond 2038 and counts the blocks of its inode trees; older kernels refuse to mount
/// either.
const XFS_TIMES_AND_COUNTS: Kernel = Kernel(5, 10);

/// The version of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kernel(u32, u32);

impl Kernel {
    /// The one that runs; the oldest if it does not say, because a newer one mounts the same.
    pub(super) fn running() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease");
        release.ok().and_then(|text| Self::parse(&text)).unwrap_or(Self(0, 0))
    }

    /// `5.10.0-28-amd64`
    fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.trim().split(|one: char| !one.is_ascii_digit());
        Some(Self(numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

pub(super) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", TOOLS);
    command
}

/// The program that makes a file system on a disk, which is its last argument.
pub(super) fn mkfs(kind: FileSystem, kernel: Kernel) -> Command {
    let mut command = tool(&format!("mkfs.{kind}"));
    command.args(options(kind, kernel));
    command
}

/// Discarding the blocks of a blank disk would only take time, and remove the mark of the format.
fn options(kind: FileSystem, kernel: Kernel) -> Vec<&'static str> {
    match kind {
        // Orphan files need 5.15, and programs to check them that are as new.
        FileSystem::Ext2 | FileSystem::Ext3 | FileSystem::Ext4 => {
            let features = "^orphan_file,^metadata_csum_seed";
            vec!["-q", "-F", "-m", "0", "-E", "nodiscard", "-O", features]
        }
        FileSystem::Xfs => {
            let metadata = if kernel < XFS_TIMES_AND_COUNTS {
                "bigtime=0,inobtcount=0"
            } else {
                "bigtime=1,inobtcount=1"
            };
            // Large counters of extents need 5.19, and no volume needs them.
            vec!["-q", "-K", "-m", metadata, "-i", "nrext64=0"]
        }
        FileSystem::Btrfs => vec!["-q", "-K"],
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt as _};

    use tempfile::NamedTempFile;

    use super::{FileSystem, Kernel, mkfs, options};

    const OLD: Kernel = Kernel(4, 18);

    #[test]
    fn releases_are_compared_as_numbers() {
        for (release, expected) in [
            ("4.18.0-553.el8_10.x86_64\n", Some(Kernel(4, 18))),
            ("5.10-rc1", Some(Kernel(5, 10))),
            ("6.1.0-28-amd64", Some(Kernel(6, 1))),
            ("", None),
            ("linux", None),
            ("6", None),
        ] {
            assert_eq!(Kernel::parse(release), expected, "{release}");
        }
        assert!(Kernel::running() > Kernel(3, 0));
    }

    #[test]
    fn xfs_has_what_the_kernel_can_mount() {
        for (kernel, expected) in [
            (Kernel(0, 0), "bigtime=0,inobtcount=0"),
            (OLD, "bigtime=0,inobtcount=0"),
            (Kernel(5, 4), "bigtime=0,inobtcount=0"),
            (Kernel(5, 10), "bigtime=1,inobtcount=1"),
            (Kernel(6, 1), "bigtime=1,inobtcount=1"),
        ] {
            let made = options(FileSystem::Xfs, kernel);
            assert!(
                made.contains(&expected) && made.contains(&"nrext64=0"),
                "{kernel:?}: {made:?}"
            );
        }
    }

    /// A new disk with a file system.
    fn made(kind: FileSystem, kernel: Kernel) -> File {
        let disk = NamedTempFile::new().unwrap();
        disk.as_file().set_len(512 << 20).unwrap();
        let made = mkfs(kind, kernel).arg(disk.path()).output().unwrap();
        assert!(made.status.success(), "{kind}: {}", String::from_utf8_lossy(&made.stderr));
        disk.into_file()
    }

    fn word(disk: &File, offset: u64) -> [u8; 4] {
        let mut bytes = [0; 4];
        disk.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    /// Newer programs may have new defaults: then they must be chosen above.
    #[test]
    fn the_programs_of_this_machine_add_no_feature_that_an_old_kernel_lacks() {
        let disk = made(FileSystem::Xfs, OLD);
        let [read_only, incompatible] = [212, 216].map(|at| u32::from_be_bytes(word(&disk, at)));
        // The tree of free inodes, reverse mappings and shared extents; types in directories and sparse inodes.
        assert_eq!(
            (read_only & !0x7, incompatible & !0x3),
            (0, 0),
            "{read_only:x} {incompatible:x}"
        );
        for kind in [FileSystem::Ext4, FileSystem::Ext3] {
            let disk = made(kind, OLD);
            let [compatible, incompatible, read_only] =
                [92, 96, 100].map(|at| u32::from_le_bytes(word(&disk, 1024 + at)));
            // Attributes, a journal, an inode to grow, indexed directories; types, extents, 64 bits and flexible groups;
            // sparse superblocks, large and huge files, many links, large inodes and checksums.
            let unknown = (compatible & !0x3c, incompatible & !0x2c2, read_only & !0x46b);
            assert_eq!(unknown, (0, 0, 0), "{kind}: {compatible:x} {incompatible:x} {read_only:x}");
        }
    }
}
