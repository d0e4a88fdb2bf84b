//! From the UUID of a disk, which vCenter knows, to the device that the kernel made for it.
//!
//! udev's links below `/dev/disk/by-id` are the first place to look, the kernel's own words in `/sys/block` the
//! second: small distributions have no links. What the kernel reports of a device is compared with the UUID that
//! was asked for, so that a stale link cannot lead to the disk of somebody else.

use std::{
    fmt, fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use rustix::fs::{major, minor};

/// Where the kernel's files are: `/` but for tests.
#[derive(Debug, Clone)]
pub struct HostPaths {
    /// `/dev`
    pub dev: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self { dev: "/dev".into(), sys: "/sys".into(), proc: "/proc".into() }
    }
}

/// The UUID of a virtual disk, as vCenter and the guest's SCSI layer know it: 32 digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DiskUuid([u8; 16]);

/// A text is not a disk's UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the UUID of a disk: it needs 32 hexadecimal digits")]
pub struct InvalidDiskUuid(String);

impl FromStr for DiskUuid {
    type Err = InvalidDiskUuid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidDiskUuid(text.to_owned());
        let digits: Vec<u8> = text
            .bytes()
            .filter(|byte| !matches!(byte, b'-' | b' '))
            .map(|byte| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect::<Option<_>>()
            .ok_or_else(invalid)?;
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| pair.iter().fold(0, |sum, one| sum << 4 | one)).collect();
        if digits.len() == 32 {
            bytes.try_into().map(Self).map_err(|_| invalid())
        } else {
            Err(invalid())
        }
    }
}

impl fmt::Display for DiskUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DiskUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DiskUuid {
    /// What a guest sees of the same disk on an NVMe controller: the halves change places, and the first digit,
    /// which is the kind of the SCSI name, goes behind the vendor's.
    fn of_nvme(self) -> Self {
        let uuid = self.0;
        let mut guid = [0; 16];
        guid[..8].copy_from_slice(&uuid[8..]);
        for place in 0..3 {
            guid[8 + place] = uuid[place] << 4 | uuid[place + 1] >> 4;
        }
        guid[11] = uuid[0] & 0xf0 | uuid[3] & 0x0f;
        guid[12..].copy_from_slice(&uuid[4..8]);
        Self(guid)
    }

    fn dashed(self) -> String {
        let digits = self.to_string();
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        parts.join("-")
    }

    /// The names that udev's rules give to links.
    fn links(self) -> [String; 5] {
        let nvme = self.of_nvme();
        [
            format!("wwn-0x{self}"),
            format!("scsi-3{self}"),
            format!("nvme-eui.{nvme}"),
            format!("nvme-uuid.{}", nvme.dashed()),
            format!("nvme-eui.{self}"),
        ]
    }

    /// What the kernel may report for it in `wwid`.
    fn wwids(self) -> [String; 4] {
        let nvme = self.of_nvme();
        [
            format!("naa.{self}"),
            format!("eui.{nvme}"),
            format!("uuid.{}", nvme.dashed()),
            format!("eui.{self}"),
        ]
    }
}

/// The block device of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Such as `/dev/sdb`.
    pub path: PathBuf,
    /// The name below `/sys/block`.
    pub name: String,
    /// Major and minor number.
    pub number: (u32, u32),
}

/// A device is there, but is not the disk.
#[derive(Debug, thiserror::Error)]
pub enum NotTheDisk {
    /// The kernel knows the device by another name.
    #[error("{} should be disk {wanted}, but the kernel reports {found} for it", path.display())]
    OtherDisk {
        /// Where the link led.
        path: PathBuf,
        /// The disk that was asked for.
        wanted: DiskUuid,
        /// What the kernel reports.
        found: String,
    },
    /// The link leads to something else.
    #[error("{} is not a block device", .0.display())]
    NoBlockDevice(PathBuf),
    /// It could not be looked at.
    #[error("could not read {}", path.display())]
    Unreadable {
        /// What was read.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Finds the device of a disk; `None` if the kernel has not made it yet.
///
/// # Errors
/// When something is there that is not the disk.
pub fn find(paths: &HostPaths, disk: DiskUuid) -> Result<Option<Device>, NotTheDisk> {
    for link in disk.links() {
        let link = paths.dev.join("disk/by-id").join(link);
        match fs::canonicalize(&link) {
            Ok(path) => return checked(paths, disk, path).map(Some),
            // A link without a target is what a disk leaves behind for a moment when it goes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(NotTheDisk::Unreadable { path: link, source }),
        }
    }
    let names = block_devices(&paths.sys);
    let name = names
        .into_iter()
        .find(|name| wwid(&paths.sys, name).is_some_and(|found| disk.wwids().contains(&found)));
    name.map(|name| checked(paths, disk, paths.dev.join(name))).transpose()
}

fn checked(paths: &HostPaths, wanted: DiskUuid, path: PathBuf) -> Result<Device, NotTheDisk> {
    let device = device(path)?;
    verify(paths, wanted, &device)?;
    Ok(device)
}

/// Compares what the kernel reports for the number of a device with the disk that was asked for.
///
/// # Errors
/// When it is another disk.
pub fn verify(paths: &HostPaths, wanted: DiskUuid, device: &Device) -> Result<(), NotTheDisk> {
    let name = name_of(&paths.sys, device.number).unwrap_or_else(|| device.name.clone());
    match wwid(&paths.sys, &name) {
        Some(found) if !wanted.wwids().contains(&found) => {
            Err(NotTheDisk::OtherDisk { path: device.path.clone(), wanted, found })
        }
        // Not every kernel reports one; then the link has to be believed.
        _ => Ok(()),
    }
}

/// The kernel's own name for a number.
fn name_of(sys: &Path, (major, minor): (u32, u32)) -> Option<String> {
    let path = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// The device at a path.
///
/// # Errors
/// When it is not a block device.
pub fn device(path: PathBuf) -> Result<Device, NotTheDisk> {
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(source) => return Err(NotTheDisk::Unreadable { path, source }),
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    match name {
        Some(name) if metadata.file_type().is_block_device() => {
            let number = (major(metadata.rdev()), minor(metadata.rdev()));
            Ok(Device { path, name, number })
        }
        _ => Err(NotTheDisk::NoBlockDevice(path)),
    }
}

/// The device behind a node with any name, such as the file of a raw block volume, or a mount's source.
///
/// # Errors
/// When it is not a block device.
pub fn opened(sys: &Path, path: PathBuf) -> Result<Device, NotTheDisk> {
    let mut device = device(path)?;
    if let Some(name) = name_of(sys, device.number) {
        device.name = name;
    }
    Ok(device)
}

fn block_devices(sys: &Path) -> Vec<String> {
    let entries = fs::read_dir(sys.join("block")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// What the kernel reports: SCSI disks have it at the device, NVMe ones at the block device.
fn wwid(sys: &Path, name: &str) -> Option<String> {
    let block = sys.join("block").join(name);
    let text = fs::read_to_string(block.join("device/wwid"))
        .or_else(|_| fs::read_to_string(block.join("wwid")));
    Some(text.ok()?.trim().to_ascii_lowercase()).filter(|text| !text.is_empty())
}

/// Asks every SCSI host to look for new disks. A host that cannot is passed over: the disk may be on another one.
pub fn rescan_hosts(sys: &Path) {
    let hosts = fs::read_dir(sys.join("class/scsi_host")).into_iter().flatten().flatten();
    for host in hosts {
        fs::write(host.path().join("scan"), "- - -").unwrap_or_default();
    }
}

/// Asks the kernel to read a disk's size again. Only SCSI disks have to be asked.
///
/// # Errors
/// When the kernel refuses.
pub fn rescan_size(sys: &Path, device: &Device) -> io::Result<()> {
    match fs::write(sys.join("block").join(&device.name).join("device/rescan"), "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::symlink,
        path::{Path, PathBuf},
    };

    use tempfile::TempDir;

    use super::{DiskUuid, HostPaths, NotTheDisk, find};

    const UUID: &str = "6000c29a-1234-5678-9abc-def012345678";

    fn host() -> (TempDir, HostPaths) {
        let root = TempDir::new().unwrap();
        let paths = HostPaths {
            dev: root.path().join("dev"),
            sys: root.path().join("sys"),
            proc: "/proc".into(),
        };
        fs::create_dir_all(paths.dev.join("disk/by-id")).unwrap();
        fs::create_dir_all(paths.sys.join("block")).unwrap();
        (root, paths)
    }

    /// Any block device of this machine; what it holds is not read.
    fn block_device() -> PathBuf {
        let paths = super::block_devices("/sys".as_ref())
            .into_iter()
            .map(|name| Path::new("/dev").join(name));
        paths
            .into_iter()
            .find(|path| super::device(path.clone()).is_ok())
            .expect("a machine has a block device")
    }

    fn report(paths: &HostPaths, name: &str, wwid: &str) {
        let directory = paths.sys.join("block").join(name).join("device");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("wwid"), format!("{wwid}\n")).unwrap();
    }

    #[test]
    fn uuids_are_read_in_every_spelling_and_nothing_else_is() {
        let uuid: DiskUuid = UUID.parse().unwrap();
        assert_eq!(uuid.to_string(), "6000c29a123456789abcdef012345678");
        assert_eq!("6000C29A123456789ABCDEF012345678".parse(), Ok(uuid));
        assert_eq!("60 00 c2 9a 12 34 56 78-9a bc de f0 12 34 56 78".parse(), Ok(uuid));
        for wrong in [
            "",
            "6000",
            "6000c29a123456789abcdef01234567",
            "../../../../etc/passwd",
            "é".repeat(16).as_str(),
        ] {
            assert!(wrong.parse::<DiskUuid>().is_err(), "{wrong}");
        }
        let long = format!("{UUID}00");
        assert!(long.parse::<DiskUuid>().is_err());
    }

    #[test]
    fn the_name_on_an_nvme_controller_is_made_of_the_same_digits() {
        let uuid: DiskUuid = UUID.parse().unwrap();
        assert_eq!(uuid.of_nvme().to_string(), "9abcdef012345678000c296a12345678");
    }

    #[test]
    fn a_disk_that_is_not_there_yet_is_none() {
        let (_root, paths) = host();
        assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap(), None);
        // The link of a disk that has just gone.
        symlink(
            "/nonexistent",
            paths.dev.join("disk/by-id/wwn-0x6000c29a123456789abcdef012345678"),
        )
        .unwrap();
        assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn a_link_to_a_file_is_refused() {
        let (root, paths) = host();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        symlink(&file, paths.dev.join("disk/by-id/wwn-0x6000c29a123456789abcdef012345678"))
            .unwrap();
        let refused = find(&paths, UUID.parse().unwrap());
        assert!(matches!(refused, Err(NotTheDisk::NoBlockDevice(_))), "{refused:?}");
    }

    #[test]
    fn a_stale_link_to_another_disk_is_refused() {
        let disk = block_device();
        let (_root, paths) = host();
        let name = disk.file_name().unwrap().to_str().unwrap();
        for link in
            ["wwn-0x6000c29a123456789abcdef012345678", "nvme-eui.9abcdef012345678000c296a12345678"]
        {
            let link = paths.dev.join("disk/by-id").join(link);
            symlink(&disk, &link).unwrap();
            report(&paths, name, "naa.6000c29affffffffffffffffffffffff");
            let refused = find(&paths, UUID.parse().unwrap());
            assert!(matches!(refused, Err(NotTheDisk::OtherDisk { .. })), "{refused:?}");
            report(&paths, name, "naa.6000c29a123456789abcdef012345678");
            assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap().unwrap().path, disk);
            fs::remove_file(&link).unwrap();
        }
    }

    #[test]
    fn without_links_the_kernels_own_words_are_used() {
        let disk = block_device();
        let (_root, paths) = host();
        let name = disk.file_name().unwrap().to_str().unwrap();
        for wwid in ["naa.6000c29a123456789abcdef012345678", "eui.9abcdef012345678000c296a12345678"]
        {
            report(&paths, name, wwid);
            symlink(&disk, paths.dev.join(name)).unwrap();
            assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap().unwrap().name, name);
            fs::remove_file(paths.dev.join(name)).unwrap();
        }
    }
}
