//! Which device is taken for a disk, on a `/dev` and `/sys` made for the test.

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

/// Any block device of this machine that could be a disk of a VM; what it holds is not read.
fn block_device() -> PathBuf {
    let paths =
        super::block_devices("/sys".as_ref()).into_iter().map(|name| Path::new("/dev").join(name));
    paths
        .into_iter()
        .find(|path| {
            super::device(path.clone()).is_ok_and(|device| device.number.0 != super::LOOP_DEVICES)
        })
        .expect("a machine has a disk")
}

fn report(paths: &HostPaths, name: &str, wwid: &str) {
    let directory = paths.sys.join("block").join(name).join("device");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("wwid"), format!("{wwid}\n")).unwrap();
}

/// Makes a device mapper's device of others.
fn map(paths: &HostPaths, name: &str, uuid: &str, slaves: &[&str]) {
    let directory = paths.sys.join("block").join(name);
    fs::create_dir_all(directory.join("dm")).unwrap();
    fs::write(directory.join("dm/uuid"), format!("{uuid}\n")).unwrap();
    for slave in slaves {
        fs::create_dir_all(directory.join("slaves").join(slave)).unwrap();
    }
}

fn link(paths: &HostPaths, to: &Path) {
    symlink(to, paths.dev.join("disk/by-id/wwn-0x6000c29a123456789abcdef012345678")).unwrap();
}

const OWN: &str = "naa.6000c29a123456789abcdef012345678";
const OTHER: &str = "naa.6000c29affffffffffffffffffffffff";

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
    symlink("/nonexistent", paths.dev.join("disk/by-id/wwn-0x6000c29a123456789abcdef012345678"))
        .unwrap();
    assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap(), None);
}

#[test]
fn a_link_to_a_file_is_refused() {
    let (root, paths) = host();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    symlink(&file, paths.dev.join("disk/by-id/wwn-0x6000c29a123456789abcdef012345678")).unwrap();
    let refused = find(&paths, UUID.parse().unwrap());
    assert!(matches!(refused, Err(NotTheDisk::NoBlockDevice(_))), "{refused:?}");
}

#[test]
fn a_link_to_another_disk_is_refused() {
    let disk = block_device();
    let (_root, paths) = host();
    report(&paths, disk.file_name().unwrap().to_str().unwrap(), OTHER);
    for link in
        ["wwn-0x6000c29a123456789abcdef012345678", "nvme-eui.9abcdef012345678000c296a12345678"]
    {
        let link = paths.dev.join("disk/by-id").join(link);
        symlink(&disk, &link).unwrap();
        let refused = find(&paths, UUID.parse().unwrap());
        assert!(matches!(refused, Err(NotTheDisk::OtherDisk { .. })), "{refused:?}");
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn a_stale_link_does_not_hide_the_disk() {
    let (_root, paths) = host();
    let disk = block_device();
    // The link leads to the disk that has the name now; the one that is wanted has another.
    report(&paths, disk.file_name().unwrap().to_str().unwrap(), OTHER);
    link(&paths, &disk);
    report(&paths, "sdq", OWN);
    symlink(&disk, paths.dev.join("sdq")).unwrap();
    assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap().unwrap().name, "sdq");
}

#[test]
fn without_links_the_kernels_own_words_are_used() {
    let disk = block_device();
    let (_root, paths) = host();
    let name = disk.file_name().unwrap().to_str().unwrap();
    for wwid in [OWN, "eui.9abcdef012345678000c296a12345678"] {
        report(&paths, name, wwid);
        symlink(&disk, paths.dev.join(name)).unwrap();
        assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap().unwrap().name, name);
        fs::remove_file(paths.dev.join(name)).unwrap();
    }
}

#[test]
fn a_link_alone_proves_nothing() {
    let (_root, paths) = host();
    let disk = block_device();
    link(&paths, &disk);
    let refused = find(&paths, UUID.parse().unwrap());
    assert!(matches!(refused, Err(NotTheDisk::Unproven { .. })), "{refused:?}");
}

/// A device below a map, and what the kernel reports for it.
type Slave = (&'static str, Option<&'static str>);

#[test]
fn a_multipath_map_is_the_disk_if_each_of_its_paths_is() {
    let disk = block_device();
    let name = disk.file_name().unwrap().to_str().unwrap();
    let cases: [(&str, &[Slave], bool); 5] = [
        (
            "mpath-36000c29a123456789abcdef012345678",
            &[("sdp", Some(OWN)), ("sdq", Some(OWN))],
            true,
        ),
        (
            "mpath-36000c29a123456789abcdef012345678",
            &[("sdp", Some(OWN)), ("sdq", Some(OTHER))],
            false,
        ),
        ("mpath-36000c29a123456789abcdef012345678", &[("sdp", Some(OWN)), ("sdq", None)], false),
        ("mpath-36000c29a123456789abcdef012345678", &[], false),
        // A volume on a stack of another kind has bytes of its own in front of the file system.
        ("LVM-abc", &[("sdp", None)], false),
    ];
    for (uuid, slaves, is_the_disk) in cases {
        let (_root, paths) = host();
        link(&paths, &disk);
        let names: Vec<&str> = slaves.iter().map(|(name, _)| *name).collect();
        map(&paths, name, uuid, &names);
        symlink(&disk, paths.dev.join(name)).unwrap();
        for (slave, wwid) in slaves {
            symlink(&disk, paths.dev.join(slave)).unwrap();
            fs::create_dir_all(paths.sys.join("block").join(slave)).unwrap();
            wwid.iter().for_each(|wwid| report(&paths, slave, wwid));
        }
        let found = find(&paths, UUID.parse().unwrap());
        let is_map = found.as_ref().is_ok_and(|found| found.as_ref().unwrap().name == name);
        assert_eq!(is_map, is_the_disk, "{uuid} {slaves:?}: {found:?}");
    }
}

#[test]
fn hidden_paths_of_a_namespace_are_not_opened() {
    let (_root, paths) = host();
    let disk = block_device();
    for (name, hidden) in [("nvme0c0n1", "1"), ("nvme0n1", "0")] {
        report(&paths, name, "eui.9abcdef012345678000c296a12345678");
        fs::write(paths.sys.join("block").join(name).join("hidden"), hidden).unwrap();
    }
    symlink(&disk, paths.dev.join("nvme0n1")).unwrap();
    assert_eq!(find(&paths, UUID.parse().unwrap()).unwrap().unwrap().name, "nvme0n1");
}

#[test]
fn two_disks_with_one_uuid_are_refused() {
    let (_root, paths) = host();
    let disk = block_device();
    for name in ["sdq", "sdp"] {
        report(&paths, name, OWN);
        symlink(&disk, paths.dev.join(name)).unwrap();
    }
    let refused = find(&paths, UUID.parse().unwrap()).unwrap_err();
    assert!(refused.to_string().ends_with("for several devices: sdp, sdq"), "{refused}");
}
