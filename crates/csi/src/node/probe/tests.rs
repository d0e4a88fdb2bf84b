//! Disks of every kind, as files: what the tools of this machine make, and signatures written by hand.

use std::{
    fs::{File, OpenOptions},
    io::{Seek as _, SeekFrom, Write as _},
    process::Command,
};

use tempfile::{NamedTempFile, TempDir};

use super::{Content, FileSystem, Mark, read};
use crate::node::format::{Kernel, TOOLS, mkfs};

const MIB: u64 = 1 << 20;

fn disk(size: u64) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    file
}

fn put(disk: &NamedTempFile, offset: u64, bytes: &[u8]) {
    let mut file = disk.as_file();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

fn content(disk: &NamedTempFile) -> Content {
    read(&File::open(disk.path()).unwrap()).unwrap()
}

fn make(disk: &NamedTempFile, kind: FileSystem) {
    let made = mkfs(kind, Kernel::running()).arg(disk.path()).output().unwrap();
    assert!(made.status.success(), "{kind}: {}", String::from_utf8_lossy(&made.stderr));
}

/// Asks the file system's own program whether it is whole.
fn check(disk: &NamedTempFile, kind: FileSystem) {
    let words: &[&str] = match kind {
        FileSystem::Ext2 | FileSystem::Ext3 | FileSystem::Ext4 => &["e2fsck", "-f", "-n"],
        FileSystem::Xfs => &["xfs_repair", "-n"],
        FileSystem::Btrfs => &["btrfs", "check", "--readonly"],
    };
    let mut program = Command::new(words[0]);
    let checked = program.args(&words[1..]).arg(disk.path()).env("PATH", TOOLS).output().unwrap();
    assert!(checked.status.success(), "{kind}: {}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn zeros_are_blank_and_any_other_byte_at_an_end_is_not() {
    for size in [512, MIB, MIB + 512, 2 * MIB, 64 * MIB] {
        assert_eq!(content(&disk(size)), Content::Blank, "{size}");
        for offset in [0, size / 3, size - 1] {
            let disk = disk(size);
            put(&disk, offset, &[1]);
            let found = content(&disk);
            let is_read = offset < MIB || offset >= size.saturating_sub(MIB);
            let expected = if is_read { Content::Unknown { offset } } else { Content::Blank };
            assert_eq!(found, expected, "a byte at {offset} of {size}");
        }
    }
}

#[test]
fn file_systems_are_recognised_as_the_tools_make_them() {
    for kind in [FileSystem::Ext4, FileSystem::Ext3, FileSystem::Ext2, FileSystem::Xfs] {
        let disk = disk(512 * MIB);
        make(&disk, kind);
        assert_eq!(content(&disk), Content::FileSystem { kind, marked: false });
    }
}

#[test]
fn no_format_removes_the_mark_or_is_damaged_by_its_removal() {
    for kind in [FileSystem::Ext4, FileSystem::Ext3, FileSystem::Xfs, FileSystem::Btrfs] {
        // At 771 MiB the last group of ext3 begins where the mark's second place is.
        for size in [320 * MIB, 512 * MIB + 512, 771 * MIB, 3000 * MIB] {
            let disk = disk(size);
            let mark = Mark::of(size).unwrap();
            let mut file = OpenOptions::new().read(true).write(true).open(disk.path()).unwrap();
            mark.write(&mut file).unwrap();
            assert_eq!(content(&disk), Content::Interrupted);
            make(&disk, kind);
            let found = content(&disk);
            assert!(
                matches!(found, Content::FileSystem { marked: true, .. }),
                "{kind} on {size}: {found:?}"
            );
            mark.clear(&mut file).unwrap();
            assert!(matches!(content(&disk), Content::FileSystem { marked: false, .. }));
            check(&disk, kind);
        }
    }
}

#[test]
fn a_format_that_was_cut_short_is_told_from_the_data_of_others() {
    // The middle of a format: some blocks are written, the superblock is not.
    let disk = disk(64 * MIB);
    put(&disk, 8 * 4096, b"blocks of a format");
    assert_eq!(content(&disk), Content::Unknown { offset: 8 * 4096 });
    let mut file = OpenOptions::new().write(true).open(disk.path()).unwrap();
    Mark::of(64 * MIB).unwrap().write(&mut file).unwrap();
    assert_eq!(content(&disk), Content::Interrupted);
}

#[test]
fn everything_else_that_has_a_name_is_refused_by_it() {
    let md: &[u8] = &[0xfc, 0x4e, 0x2b, 0xa9];
    let size = 64 * MIB;
    let cases: &[(u64, &[u8], &str)] = &[
        (0, b"LUKS\xba\xbe", "a LUKS header"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0, b"LABELONE", "an LVM physical volume"),
        (4096, md, "a RAID member"),
        (size - 8192, md, "a RAID member"),
        (size - 65536, md, "a RAID member"),
        (512, b"EFI PART", "a GPT partition table"),
        (4096, b"EFI PART", "a GPT partition table"),
        (size - 512, b"EFI PART", "the copy of a GPT partition table"),
        (510, &[0x55, 0xaa], "an MBR partition table"),
        (4086, b"SWAPSPACE2", "swap space"),
        (65526, b"SWAPSPACE2", "swap space"),
        (3, b"NTFS    ", "an NTFS file system"),
        (0x8001, b"CD001", "an ISO 9660 file system"),
        (0x1_0040, b"!BHRfS_M", "a btrfs file system whose format did not end"),
    ];
    for (offset, bytes, name) in cases {
        let disk = disk(size);
        put(&disk, *offset, bytes);
        assert_eq!(content(&disk), Content::Foreign(name), "{name} at {offset}");
    }
    let btrfs = disk(size);
    put(&btrfs, 0x1_0040, b"_BHRfS_M");
    let kind = FileSystem::Btrfs;
    assert_eq!(content(&btrfs), Content::FileSystem { kind, marked: false });
}

#[test]
fn a_file_system_inside_a_container_is_not_mistaken_for_the_disks_own() {
    let disk = disk(512 * MIB);
    make(&disk, FileSystem::Ext4);
    put(&disk, 0, b"LUKS\xba\xbe");
    assert_eq!(content(&disk), Content::Foreign("a LUKS header"));
}

#[test]
fn two_file_systems_on_one_disk_are_refused() {
    let disk = disk(512 * MIB);
    make(&disk, FileSystem::Ext4);
    put(&disk, 0x1_0040, b"_BHRfS_M");
    assert_eq!(content(&disk), Content::Foreign("several file systems"));
}

#[test]
fn a_disk_that_cannot_be_read_is_an_error_and_not_blank() {
    let directory = TempDir::new().unwrap();
    assert!(read(&File::open(directory.path()).unwrap()).is_err());
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic_and_only_zeros_are_blank(
        head in proptest::collection::vec(0_u8.., 0..70_000),
        tail in proptest::collection::vec(0_u8.., 0..9000),
        size in 1_u64..(3 * MIB),
    ) {
        let disk = disk(size);
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(usize::try_from(size).unwrap())].to_vec();
        let (head, tail) = (cut(&head), cut(&tail));
        put(&disk, 0, &head);
        put(&disk, size - tail.len() as u64, &tail);
        let is_blank = head.iter().chain(&tail).all(|byte| *byte == 0);
        proptest::prop_assert_eq!(content(&disk) == Content::Blank, is_blank);
    }
}
