//! What a disk holds, found by reading it: nothing, a file system, or something that must not be overwritten.
//!
//! A disk is blank only if every byte at its two ends is zero. Whoever formats it writes a [`Mark`] first, in two places
//! of which every format leaves one alone, and removes it afterwards: so a format that was interrupted can be told
//! from the data of somebody else, on any node.
//!
//! Deliberately absent: blkid and lsblk, which answer from udev's database where there is one, and cannot tell a
//! blank disk from one that they do not recognise.

use std::{
    fmt,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
};

/// How much is read at each end. Every superblock that is known here lies within.
const END: u64 = 1 << 20;
/// How far from the end of the disk the mark lies. mke2fs and mkfs.xfs clear the last 128 KiB, and may have the tables of
/// a small last group at the second place; mkfs.btrfs clears the last 2 MiB, and so the first place.
const MARKS_FROM_END: [u64; 2] = [512 << 10, 3 << 20];
const MARK_BLOCK: usize = 4096;
const MARK_MAGIC: &[u8; 32] = b"csi.vsphere.vmware.com formats \n";
/// The smallest disk that can be formatted: both ends, and the mark between them.
const SMALLEST: u64 = 2 * END;

/// A file system that can be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// Made by old tools; mounted, never made.
    Ext2,
    /// With a journal.
    Ext3,
    /// The default.
    Ext4,
    /// Grows only while mounted.
    Xfs,
    /// Grows only while mounted.
    Btrfs,
}

impl FileSystem {
    /// Its name for mount(2) and mkfs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The file system of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Ext2, Self::Ext3, Self::Ext4, Self::Xfs, Self::Btrfs];
        all.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether one can be mounted where the other is asked for.
    pub fn serves(self, wanted: Self) -> bool {
        let is_ext = |kind| matches!(kind, Self::Ext2 | Self::Ext3 | Self::Ext4);
        self == wanted || (is_ext(self) && is_ext(wanted))
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Only zeros at both ends.
    Blank,
    /// A whole file system; whether a mark of a format was left beside it.
    FileSystem {
        /// Which one.
        kind: FileSystem,
        /// The format ended, and the mark was not removed.
        marked: bool,
    },
    /// A format that began here and did not end: no file system, but our mark.
    Interrupted,
    /// Something else that is known by name, such as a partition table.
    Foreign(&'static str),
    /// Bytes that are not zero, and nothing that is known.
    Unknown {
        /// Where the first of them is.
        offset: u64,
    },
}

/// Reads the ends of a disk.
///
/// # Errors
/// When the disk cannot be read: then it must not be formatted either.
pub fn read(mut disk: &File) -> io::Result<Content> {
    let size = disk.seek(SeekFrom::End(0))?;
    let head = at(disk, 0, END.min(size))?;
    let tail_start = size.saturating_sub(END).max(head.len() as u64);
    let tail = at(disk, tail_start, size - tail_start)?;
    let marked = !Mark::of(size).map_or(Ok(Vec::new()), |mark| mark.found(disk))?.is_empty();
    Ok(judge(&Ends { head: &head, tail: &tail, tail_start, size, marked }))
}

/// Whether a whole block group fits behind the ext file system of a disk: what the disk has grown by. Less than that may
/// be left by mke2fs, too, and is not worth the full check that growing needs.
///
/// # Errors
/// When the disk cannot be read.
pub fn has_room(mut disk: &File) -> io::Result<bool> {
    let size = disk.seek(SeekFrom::End(0))?;
    let head = at(disk, 0, END.min(size))?;
    Ok(has_room_behind(&Ends { head: &head, tail: &[], tail_start: size, size, marked: false }))
}

fn has_room_behind(ends: &Ends<'_>) -> bool {
    const WITH_64_BITS: u32 = 0x80;
    if ext(ends).is_none() {
        return false;
    }
    let field = |offset| u64::from(ends.word(EXT_SUPERBLOCK + offset));
    let has_high = ends.word(EXT_SUPERBLOCK + 96) & WITH_64_BITS != 0;
    let blocks = field(4) | if has_high { field(336) << 32 } else { 0 };
    let block = 1024_u64.checked_shl(ends.word(EXT_SUPERBLOCK + 24)).filter(|block| *block > 0);
    let group = block.and_then(|block| block.checked_mul(field(32))).filter(|group| *group > 0);
    let end = block.and_then(|block| block.checked_mul(blocks));
    let needed = end.zip(group).and_then(|(end, group)| end.checked_add(group));
    needed.is_some_and(|needed| needed <= ends.size)
}

fn at(mut disk: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    disk.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    disk.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length {
        Ok(bytes)
    } else {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the disk ends before its size"))
    }
}

struct Ends<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    tail_start: u64,
    size: u64,
    marked: bool,
}

impl Ends<'_> {
    /// The bytes at an offset, if they were read.
    fn bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let within = |part: &'_ [u8], start: u64| -> Option<std::ops::Range<usize>> {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            let range = from..from.checked_add(length)?;
            (range.end <= part.len()).then_some(range)
        };
        match within(self.head, 0) {
            Some(range) => self.head.get(range),
            None => self.tail.get(within(self.tail, self.tail_start)?),
        }
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        self.bytes(offset, magic.len()) == Some(magic)
    }

    fn byte(&self, offset: u64) -> u8 {
        self.bytes(offset, 1).map_or(0, |bytes| bytes[0])
    }

    fn word(&self, offset: u64) -> u32 {
        let bytes = self.bytes(offset, 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    }

    fn first_set(&self) -> Option<u64> {
        let in_part =
            |part: &[u8], start: u64| Some(start + part.iter().position(|byte| *byte != 0)? as u64);
        in_part(self.head, 0).or_else(|| in_part(self.tail, self.tail_start))
    }
}

fn judge(ends: &Ends<'_>) -> Content {
    let Some(offset) = ends.first_set() else { return Content::Blank };
    let container = container(ends);
    let found: Vec<FileSystem> =
        [ext(ends), xfs(ends), btrfs(ends)].into_iter().flatten().collect();
    match (found.as_slice(), container) {
        // A disk that was encrypted, or given to a volume group, keeps what it held before in places.
        (_, Some(name)) => Content::Foreign(name),
        ([kind], None) => Content::FileSystem { kind: *kind, marked: ends.marked },
        ([_, _, ..], None) => Content::Foreign("several file systems"),
        ([], None) if ends.marked => Content::Interrupted,
        ([], None) => other(ends).map_or(Content::Unknown { offset }, Content::Foreign),
    }
}

const EXT_SUPERBLOCK: u64 = 1024;

fn ext(ends: &Ends<'_>) -> Option<FileSystem> {
    const HAS_JOURNAL: u32 = 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    /// Extents, 64 bits, flexible block groups, multiple mount protection and what came later.
    const INCOMPATIBLE_OF_EXT4: u32 = !0x1f;
    /// Everything but sparse superblocks, large files and B-trees in directories.
    const READ_ONLY_COMPATIBLE_OF_EXT4: u32 = !0x7;
    if !ends.has(EXT_SUPERBLOCK + 56, &[0x53, 0xef]) {
        return None;
    }
    let compatible = ends.word(EXT_SUPERBLOCK + 92);
    let incompatible = ends.word(EXT_SUPERBLOCK + 96);
    let read_only = ends.word(EXT_SUPERBLOCK + 100);
    if incompatible & JOURNAL_DEVICE != 0 {
        return None;
    }
    let is_ext4 =
        incompatible & INCOMPATIBLE_OF_EXT4 != 0 || read_only & READ_ONLY_COMPATIBLE_OF_EXT4 != 0;
    Some(if is_ext4 {
        FileSystem::Ext4
    } else if compatible & HAS_JOURNAL != 0 {
        FileSystem::Ext3
    } else {
        FileSystem::Ext2
    })
}

fn xfs(ends: &Ends<'_>) -> Option<FileSystem> {
    const IN_PROGRESS: u64 = 126;
    (ends.has(0, b"XFSB") && ends.byte(IN_PROGRESS) == 0).then_some(FileSystem::Xfs)
}

fn btrfs(ends: &Ends<'_>) -> Option<FileSystem> {
    // mkfs.btrfs writes another magic until it has ended.
    ends.has(0x1_0040, b"_BHRfS_M").then_some(FileSystem::Btrfs)
}

/// What holds file systems inside, and so must be recognised before them.
fn container(ends: &Ends<'_>) -> Option<&'static str> {
    let md = [0xfc, 0x4e, 0x2b, 0xa9];
    let labels = [0, 512, 1024, 1536];
    // Version 1.0 of the superblock lies 8 KiB before the end, version 0.9 in the last whole 64 KiB.
    let md_at_end = (ends.size & !0xfff).checked_sub(8 << 10);
    let old_md = (ends.size & !0xffff).checked_sub(64 << 10);
    if ends.has(0, b"LUKS\xba\xbe") {
        Some("a LUKS header")
    } else if labels.iter().any(|offset| ends.has(*offset, b"LABELONE")) {
        Some("an LVM physical volume")
    } else if ends.has(0, &md)
        || ends.has(4096, &md)
        || [md_at_end, old_md].into_iter().flatten().any(|offset| ends.has(offset, &md))
    {
        Some("a RAID member")
    } else {
        None
    }
}

/// What else is known by name. A name makes the refusal clearer; without one it is refused all the same.
fn other(ends: &Ends<'_>) -> Option<&'static str> {
    const NAMED: &[(u64, &[u8], &str)] = &[
        (512, b"EFI PART", "a GPT partition table"),
        (4096, b"EFI PART", "a GPT partition table"),
        (3, b"NTFS    ", "an NTFS file system"),
        (3, b"EXFAT   ", "an exFAT file system"),
        (54, b"FAT1", "a FAT file system"),
        (82, b"FAT32", "a FAT file system"),
        (0, b"hsqs", "a squashfs file system"),
        (0x8001, b"CD001", "an ISO 9660 file system"),
        (0, b"XFSB", "an XFS file system whose format did not end"),
        (0x1_0040, b"!BHRfS_M", "a btrfs file system whose format did not end"),
        (1024 + 56, &[0x53, 0xef], "an external journal of ext4"),
        (510, &[0x55, 0xaa], "an MBR partition table"),
    ];
    for page in [4096, 8192, 16384, 65536] {
        if ends.has(page - 10, b"SWAPSPACE2") || ends.has(page - 10, b"SWAP-SPACE") {
            return Some("swap space");
        }
    }
    for sector in [512, 4096] {
        if ends.size.checked_sub(sector).is_some_and(|offset| ends.has(offset, b"EFI PART")) {
            return Some("the copy of a GPT partition table");
        }
    }
    let named = NAMED.iter().find(|(offset, magic, _)| ends.has(*offset, magic));
    named.map(|(_, _, name)| *name)
}

/// The mark of a format that has begun.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    size: u64,
}

impl Mark {
    /// Where a disk of this size has it; none for disks that are too small to be formatted.
    pub fn of(size: u64) -> Option<Self> {
        (size >= SMALLEST).then_some(Self { size })
    }

    /// Writes it, so that it is on the disk when this returns.
    ///
    /// # Errors
    /// When the disk cannot be written.
    pub fn write(self, disk: &mut File) -> io::Result<()> {
        let mut block = vec![0; MARK_BLOCK];
        block[..MARK_MAGIC.len()].copy_from_slice(MARK_MAGIC);
        put(disk, self.places(), &block)
    }

    /// Removes it; nobody may have mounted the disk yet.
    ///
    /// # Errors
    /// When the disk cannot be written.
    pub fn clear(self, disk: &mut File) -> io::Result<()> {
        // Where the format has written, there is no mark any more.
        let found = self.found(disk)?;
        put(disk, found, &[0; MARK_BLOCK])
    }

    /// Its places; a disk that is too small for the second one is too small for the format that clears the first.
    fn places(self) -> impl Iterator<Item = u64> {
        let of_end = move |from_end| self.size.checked_sub(from_end).filter(|start| *start >= END);
        MARKS_FROM_END.into_iter().filter_map(of_end).map(|start| start & !(MARK_BLOCK as u64 - 1))
    }

    /// The places where it is.
    fn found(self, disk: &File) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        for place in self.places() {
            if at(disk, place, MARK_MAGIC.len() as u64)? == MARK_MAGIC {
                found.push(place);
            }
        }
        Ok(found)
    }
}

fn put(disk: &mut File, places: impl IntoIterator<Item = u64>, block: &[u8]) -> io::Result<()> {
    for place in places {
        disk.seek(SeekFrom::Start(place))?;
        disk.write_all(block)?;
    }
    disk.sync_all()
}

#[cfg(test)]
mod tests;
