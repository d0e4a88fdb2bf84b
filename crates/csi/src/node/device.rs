//! From the UUID of a disk, which vCenter knows, to the device that the kernel made for it.
//!
//! The kernel decides: a device is the disk if `/sys/block` reports the disk's UUID for it, or for every path of a
//! multipath map. udev's links below `/dev/disk/by-id` may be stale, so they prove nothing; they only explain why a disk
//! is not found.

use std::{
    fmt, fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    str::FromStr,
};

use rustix::fs::{major, minor};

/// The major number of loop devices.
const LOOP_DEVICES: u32 = 7;

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

    fn is_reported_as(self, found: &[String]) -> bool {
        found.iter().all(|one| self.wwids().contains(one))
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

/// A device is there, but is not proven to be the disk.
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
    /// Nothing but a link says that it is the disk.
    #[error("{} should be disk {wanted}, but the kernel reports no UUID for it", path.display())]
    Unproven {
        /// Where the link led.
        path: PathBuf,
        /// The disk that was asked for.
        wanted: DiskUuid,
    },
    /// Two disks have the same UUID.
    #[error("the kernel reports the UUID of disk {wanted} for several devices: {}", names.join(", "))]
    Several {
        /// The disk that was asked for.
        wanted: DiskUuid,
        /// The devices below `/sys/block`.
        names: Vec<String>,
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
/// When it is not certain which device is the disk, or a link leads to something that is not the disk.
pub fn find(paths: &HostPaths, disk: DiskUuid) -> Result<Option<Device>, NotTheDisk> {
    let mut names = block_devices(&paths.sys);
    names
        .retain(|name| reported(&paths.sys, name).is_some_and(|found| disk.is_reported_as(&found)));
    // The paths of a map report the same disk, and cannot be mounted while the map has them.
    if let Some(map) = names.iter().position(|name| is_multipath(&paths.sys, name)) {
        let map = names.swap_remove(map);
        let of_map = paths_of(&paths.sys, &map);
        names.retain(|name| !of_map.contains(name));
        names.push(map);
    }
    match names.as_slice() {
        [] => linked(paths, disk),
        [name] => checked(paths, disk, paths.dev.join(name)).map(Some),
        _ => {
            names.sort();
            Err(NotTheDisk::Several { wanted: disk, names })
        }
    }
}

/// The device that a link leads to, if it proves to be the disk.
fn linked(paths: &HostPaths, disk: DiskUuid) -> Result<Option<Device>, NotTheDisk> {
    let mut stale = None;
    for link in disk.links() {
        let link = paths.dev.join("disk/by-id").join(link);
        let found = match fs::canonicalize(&link) {
            Ok(path) => checked(paths, disk, path),
            // A link without a target is what a disk leaves behind for a moment when it goes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => Err(NotTheDisk::Unreadable { path: link, source }),
        };
        match found {
            Ok(device) => return Ok(Some(device)),
            Err(error) => stale = stale.or(Some(error)),
        }
    }
    stale.map_or(Ok(None), Err)
}

fn checked(paths: &HostPaths, wanted: DiskUuid, path: PathBuf) -> Result<Device, NotTheDisk> {
    let device = device(path)?;
    verify(paths, wanted, &device)?;
    Ok(device)
}

/// Compares what the kernel reports for the number of a device with the disk that was asked for.
///
/// # Errors
/// When it is another disk, or nothing proves that it is this one.
pub fn verify(paths: &HostPaths, wanted: DiskUuid, device: &Device) -> Result<(), NotTheDisk> {
    let name = name_of(&paths.sys, device.number).unwrap_or_else(|| device.name.clone());
    let path = || device.path.clone();
    match reported(&paths.sys, &name) {
        Some(found) if wanted.is_reported_as(&found) => Ok(()),
        Some(found) => {
            Err(NotTheDisk::OtherDisk { path: path(), wanted, found: found.join(" and ") })
        }
        // Never a disk of a VM: only somebody who made the link for a file, such as a lab, knows what it stands for.
        None if device.number.0 == LOOP_DEVICES => Ok(()),
        None => Err(NotTheDisk::Unproven { path: path(), wanted }),
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

/// The kernel hides the paths to an NVMe namespace, which have its identity and cannot be opened.
fn block_devices(sys: &Path) -> Vec<String> {
    let block = sys.join("block");
    let is_hidden = |name: &String| {
        let hidden = fs::read_to_string(block.join(name).join("hidden"));
        hidden.is_ok_and(|text| text.trim() == "1")
    };
    names_in(&block).into_iter().filter(|name| !is_hidden(name)).collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// What the kernel reports for a device, or for each path of a multipath map; nothing if one of them has no identity.
fn reported(sys: &Path, name: &str) -> Option<Vec<String>> {
    if is_multipath(sys, name) {
        let all: Option<Vec<_>> = paths_of(sys, name).iter().map(|path| wwid(sys, path)).collect();
        return all.filter(|all| !all.is_empty());
    }
    wwid(sys, name).map(|one| vec![one])
}

/// Whether it is a map of multipath, and not a volume that somebody made on top of a disk.
fn is_multipath(sys: &Path, name: &str) -> bool {
    let uuid = fs::read_to_string(sys.join("block").join(name).join("dm/uuid"));
    uuid.is_ok_and(|uuid| uuid.starts_with("mpath-"))
}

fn paths_of(sys: &Path, map: &str) -> Vec<String> {
    names_in(&sys.join("block").join(map).join("slaves"))
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
mod tests;
