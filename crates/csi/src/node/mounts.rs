//! The mount table of this node, and the system calls that change it.

use std::{
    ffi::{CString, OsString},
    fs, io,
    os::unix::{
        ffi::OsStringExt as _,
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{StatVfsMountFlags, major, minor},
    mount::{MountFlags, UnmountFlags},
};

/// A line of `/proc/thread-self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Numbers of the device, `major:minor`. Of a raw block volume's file those of the file system with the device
    /// node, usually devtmpfs. btrfs has a number of its own; of it, those of its source.
    pub device: (u32, u32),
    /// What of the file system is mounted: `/`, or the directory or node that was bound.
    pub root: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// Whether this mount is read-only by itself; its file system may be mounted for writing elsewhere.
    pub mount_read_only: bool,
    /// Whether its file system is, for every mount of it.
    pub file_system_read_only: bool,
    /// Type of the file system.
    pub kind: String,
    /// What was mounted, such as `/dev/sdb`.
    pub source: PathBuf,
}

impl Mount {
    /// Whether nothing can be written through it.
    pub fn is_read_only(&self) -> bool {
        self.mount_read_only || self.file_system_read_only
    }
}

/// Reads the mount table. A table that changes while it is read is read again.
///
/// # Errors
/// When the file cannot be read, or has no end of changes.
pub fn table(proc: &Path) -> io::Result<Vec<Mount>> {
    const TRIES: usize = 20;
    let path = proc.join("thread-self/mountinfo");
    let mut last = fs::read(&path)?;
    for _ in 0..TRIES {
        let again = fs::read(&path)?;
        if again == last {
            return Ok(with_disks(parse(&again), block_device));
        }
        last = again;
    }
    Err(io::Error::other(format!("{} changed {TRIES} times while it was read", path.display())))
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// btrfs may be on several disks, so the kernel gives it a number that is no disk's.
fn with_disks(mut mounts: Vec<Mount>, number: impl Fn(&Path) -> Option<(u32, u32)>) -> Vec<Mount> {
    for mount in mounts.iter_mut().filter(|mount| mount.kind == "btrfs") {
        mount.device = number(&mount.source).unwrap_or(mount.device);
    }
    mounts
}

fn block_device(path: &Path) -> Option<(u32, u32)> {
    let metadata = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    Some((major(metadata.rdev()), minor(metadata.rdev())))
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn line(text: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let numbers = std::str::from_utf8(fields.get(2)?).ok()?;
    let (major, minor) = numbers.split_once(':')?;
    let is_read_only = |options: &[u8]| options.split(|byte| *byte == b',').any(|one| one == b"ro");
    let kind = fields.get(separator + 1)?;
    let of_file_system = fields.get(separator + 3).copied().unwrap_or_default();
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescape(fields.get(3)?),
        target: unescape(fields.get(4)?),
        mount_read_only: is_read_only(fields.get(5)?),
        file_system_read_only: is_read_only(of_file_system),
        kind: String::from_utf8_lossy(kind).into_owned(),
        source: unescape(fields.get(separator + 2)?),
    })
}

/// Blanks, tabs, newlines and backslashes are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let value = |sum: u32, digit: &u8| match digit {
                b'0'..=b'7' => Some(sum * 8 + u32::from(digit - b'0')),
                _ => None,
            };
            u8::try_from(digits.iter().try_fold(0, value)?).ok()
        });
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Options of a mount: those that the kernel has flags for, and those of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    flags: u32,
    data: Vec<String>,
}

impl Options {
    /// Reads options as `mount -o` takes them, each perhaps several.
    pub fn parse<'a>(options: impl IntoIterator<Item = &'a str>) -> Self {
        let mut parsed = Self::default();
        for option in options.into_iter().flat_map(|text| text.split(',')).map(str::trim) {
            parsed.add(option);
        }
        parsed
    }

    /// Adds one option. Later ones win, as they do for mount.
    pub fn add(&mut self, option: &str) {
        let (set, clear) = match option {
            "" | "defaults" => return,
            "rw" => (MountFlags::empty(), MountFlags::RDONLY),
            "ro" => (MountFlags::RDONLY, MountFlags::empty()),
            "nosuid" => (MountFlags::NOSUID, MountFlags::empty()),
            "suid" => (MountFlags::empty(), MountFlags::NOSUID),
            "nodev" => (MountFlags::NODEV, MountFlags::empty()),
            "dev" => (MountFlags::empty(), MountFlags::NODEV),
            "noexec" => (MountFlags::NOEXEC, MountFlags::empty()),
            "exec" => (MountFlags::empty(), MountFlags::NOEXEC),
            "sync" => (MountFlags::SYNCHRONOUS, MountFlags::empty()),
            "async" => (MountFlags::empty(), MountFlags::SYNCHRONOUS),
            "dirsync" => (MountFlags::DIRSYNC, MountFlags::empty()),
            "noatime" => (MountFlags::NOATIME, MountFlags::RELATIME),
            "atime" => (MountFlags::empty(), MountFlags::NOATIME),
            "nodiratime" => (MountFlags::NODIRATIME, MountFlags::empty()),
            "diratime" => (MountFlags::empty(), MountFlags::NODIRATIME),
            "relatime" => (MountFlags::RELATIME, MountFlags::NOATIME),
            "norelatime" => (MountFlags::empty(), MountFlags::RELATIME),
            "strictatime" => (MountFlags::STRICTATIME, MountFlags::NOATIME),
            "lazytime" => (MountFlags::LAZYTIME, MountFlags::empty()),
            "nolazytime" => (MountFlags::empty(), MountFlags::LAZYTIME),
            "silent" => (MountFlags::SILENT, MountFlags::empty()),
            "loud" => (MountFlags::empty(), MountFlags::SILENT),
            "user" | "users" => {
                (MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, MountFlags::empty())
            }
            "owner" | "group" => (MountFlags::NOSUID | MountFlags::NODEV, MountFlags::empty()),
            _ if is_for_the_program(option) => return,
            _ => {
                if !self.data.iter().any(|known| known == option) {
                    self.data.push(option.to_owned());
                }
                return;
            }
        };
        self.flags = (self.flags | set.bits()) & !clear.bits();
    }

    /// Whether the mount is to be read-only.
    pub fn read_only(&self) -> bool {
        self.flags().contains(MountFlags::RDONLY)
    }

    fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags)
    }

    /// Those that only the file system knows, as the kernel gets them.
    pub fn of_file_system(&self) -> String {
        self.data.join(",")
    }
}

/// Whether mount(8) keeps an option to itself: the kernel does not know it.
fn is_for_the_program(option: &str) -> bool {
    const NAMES: [&str; 9] = [
        "_netdev", "nofail", "auto", "noauto", "nouser", "nousers", "noowner", "nogroup", "comment",
    ];
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    NAMES.contains(&name) || option.starts_with("x-") || option.starts_with("X-")
}

/// Mounts a file system.
///
/// # Errors
/// As mount(2).
pub fn mount(source: &Path, target: &Path, kind: &str, options: &Options) -> io::Result<()> {
    let data = CString::new(options.of_file_system())?;
    Ok(rustix::mount::mount(source, target, kind, options.flags(), &*data)?)
}

/// Shows a directory, or a device node, at another place. A read-only one is made so before it returns, and is
/// unmounted again if that fails.
///
/// # Errors
/// As mount(2).
pub fn bind(source: &Path, target: &Path, options: &Options) -> io::Result<()> {
    rustix::mount::mount_bind(source, target)?;
    // A bind takes no flags at first; the second call gives them.
    if options.flags().is_empty() {
        return Ok(());
    }
    remount(target, options).or_else(|error| {
        unmount(target)?;
        Err(error)
    })
}

/// Gives flags to a mount, and to no other of its file system. It keeps those that it has.
///
/// # Errors
/// As mount(2).
pub fn remount(target: &Path, options: &Options) -> io::Result<()> {
    const KEPT: [(StatVfsMountFlags, MountFlags); 6] = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let has = rustix::fs::statvfs(target)?.f_flag;
    let kept = KEPT.iter().filter(|(flag, _)| has.contains(*flag));
    let flags = kept.fold(MountFlags::BIND | options.flags(), |all, (_, flag)| all | *flag);
    Ok(rustix::mount::mount_remount(target, flags, "")?)
}

/// Unmounts. A mount that is in use is an error, never a lazy unmount: the volume would be detached under its writer.
///
/// # Errors
/// As umount(2).
pub fn unmount(target: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(target, UnmountFlags::NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Mount, Options, parse, with_disks};

    #[test]
    fn a_mount_table_is_read_with_its_escapes_and_optional_fields() {
        let text = b"36 35 8:16 / /var/lib/kubelet/a\\040b rw,noatime shared:1 master:2 - ext4 /dev/sdb rw,errors=continue\n\
            37 35 0:5 /sdc /pods/block rw - devtmpfs udev rw,size=10\n\
            38 35 8:32 /sub /ro ro - xfs /dev/sdd rw\n\
            39 35 8:48 / /failed rw - ext4 /dev/sde ro,errors=remount-ro\n\
            40 35 0:60 / /odd\\134\\011\\9 rw - tmpfs none rw\n\
            garbage\n36 35 x:y / / rw - ext4 a b\n";
        let mount = |device, root: &str, target: &str, read_only, kind: &str, source: &str| Mount {
            device,
            root: root.into(),
            target: target.into(),
            mount_read_only: target == "/ro",
            file_system_read_only: read_only && target != "/ro",
            kind: kind.into(),
            source: source.into(),
        };
        let expected = [
            mount((8, 16), "/", "/var/lib/kubelet/a b", false, "ext4", "/dev/sdb"),
            mount((0, 5), "/sdc", "/pods/block", false, "devtmpfs", "udev"),
            mount((8, 32), "/sub", "/ro", true, "xfs", "/dev/sdd"),
            mount((8, 48), "/", "/failed", true, "ext4", "/dev/sde"),
            mount((0, 60), "/", "/odd\\\t\\9", false, "tmpfs", "none"),
        ];
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn a_btrfs_is_known_by_its_disk() {
        let text = b"36 35 0:60 / /a rw - btrfs /dev/sdb rw\n37 35 0:61 / /b rw - btrfs /gone rw\n\
            38 35 0:62 / /c rw - tmpfs /dev/sdb rw\n";
        let number = |path: &Path| (path == Path::new("/dev/sdb")).then_some((8, 16));
        let mounts = with_disks(parse(text), number);
        let devices: Vec<_> = mounts.iter().map(|mount| mount.device).collect();
        assert_eq!(devices, [(8, 16), (0, 61), (0, 62)]);
    }

    #[test]
    fn the_table_of_this_process_has_its_root() {
        let mounts = super::table(Path::new("/proc")).unwrap();
        assert!(mounts.iter().any(|mount| mount.target == Path::new("/")), "{mounts:?}");
    }

    #[test]
    fn options_are_flags_or_data_and_later_ones_win() {
        let check = |options: &[&str], read_only, data: &[&str]| {
            let parsed = Options::parse(options.iter().copied());
            assert_eq!(parsed.read_only(), read_only, "{options:?}");
            assert_eq!(parsed.data, data, "{options:?}");
        };
        check(&[], false, &[]);
        check(&["defaults", ""], false, &[]);
        check(&["ro", "noatime"], true, &[]);
        check(&["ro", "rw"], false, &[]);
        check(&["discard,nouuid", "nouuid"], false, &["discard", "nouuid"]);
        check(&["rw,ro", "data=ordered"], true, &["data=ordered"]);
    }

    #[test]
    fn options_that_the_kernel_does_not_know_stay_here() {
        for option in [
            "_netdev",
            "nofail",
            "auto",
            "noauto",
            "nouser",
            "noowner",
            "nogroup",
            "comment=a text",
            "x-systemd.device-timeout=5",
            "X-mount.mkdir=0700",
        ] {
            assert_eq!(Options::parse([option]), Options::default(), "{option}");
        }
        for (option, same) in [
            ("user", "nosuid,nodev,noexec"),
            ("users,exec", "nosuid,nodev"),
            ("owner", "nosuid,nodev"),
            ("group,dev", "nosuid"),
        ] {
            assert_eq!(Options::parse([option]), Options::parse([same]), "{option}");
        }
        assert_eq!(Options::parse(["usrquota", "xino"]).data, ["usrquota", "xino"]);
    }

    proptest::proptest! {
        #[test]
        fn no_table_panics(text: Vec<u8>) {
            parse(&text);
        }
    }
}
