//! What volumes hold: written to the block devices of attached disks, and read back.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
    path::Path,
};

use anyhow::{Context, Result, ensure};

use crate::script::Dice;

const BLOCK: usize = 64 << 10;
/// A block is a sequence of these, each with the place where it belongs.
const RECORD: usize = 64;
/// Blocks that are written at a time, besides the first and the last one of the device.
const SCATTERED: usize = 6;

/// What one volume must hold: what was written to it, and zeros elsewhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    volume: String,
    generation: u64,
    /// The generation in which each block was written last.
    blocks: BTreeMap<usize, u64>,
}

impl Content {
    /// Of a volume that was just created.
    pub(crate) fn of(volume: &str) -> Self {
        Self { volume: volume.to_owned(), ..Self::default() }
    }

    /// Reads all of a device, compares it, and returns how many bytes it has.
    pub(crate) fn verify(&self, device: &Path) -> Result<u64> {
        let opened = File::open(device).with_context(|| format!("{}", device.display()))?;
        let count = blocks_of(&opened)?;
        let (mut found, zeros) = (vec![0; BLOCK], vec![0; BLOCK]);
        for at in 0..count {
            opened.read_exact_at(&mut found, offset(at))?;
            match self.blocks.get(&at) {
                None => ensure!(found == zeros, "{}", self.differs(at, &found, "zeros")),
                Some(generation) => {
                    let expected = self.block(at, *generation);
                    let shown = String::from_utf8_lossy(&expected[..RECORD]).trim_end().to_owned();
                    ensure!(found == expected, "{}", self.differs(at, &found, &shown));
                }
            }
        }
        let last = self.blocks.keys().next_back();
        ensure!(last.is_none_or(|last| *last < count), "the device ends before block {last:?}");
        Ok(offset(count))
    }

    /// Writes the next generation to some blocks of a device, and returns how many bytes that are.
    pub(crate) fn write(&mut self, device: &Path) -> Result<u64> {
        let opened = File::options().write(true).open(device)?;
        let count = blocks_of(&opened)?;
        self.generation += 1;
        let mut dice = Dice::new(self.generation);
        let mut places = vec![0, count - 1];
        places.extend((0..SCATTERED).map(|_| dice.below(count)));
        for at in &places {
            opened.write_all_at(&self.block(*at, self.generation), offset(*at))?;
            self.blocks.insert(*at, self.generation);
        }
        opened.sync_all()?;
        Ok(offset(places.len()))
    }

    /// What a block of the volume has after a generation was written to it.
    fn block(&self, at: usize, generation: u64) -> Vec<u8> {
        let record = |nth: usize| {
            let place = offset(at) + (nth * RECORD) as u64;
            format!("{:<1$}\n", format!("{} {generation} {place}", self.volume), RECORD - 1)
        };
        (0..BLOCK / RECORD).flat_map(|nth| record(nth).into_bytes()).collect()
    }

    fn differs(&self, at: usize, found: &[u8], expected: &str) -> String {
        let found = String::from_utf8_lossy(&found[..RECORD]);
        let found = found.trim_end_matches(['\0', '\n', ' ']);
        let (volume, place) = (&self.volume, offset(at));
        format!(
            "volume {volume} does not hold what was written to it: the 64 KiB at byte {place} begin with \
             {found:?}, expected {expected}"
        )
    }
}

fn offset(blocks: usize) -> u64 {
    (blocks * BLOCK) as u64
}

fn blocks_of(device: &File) -> Result<usize> {
    let bytes = { device }.seek(SeekFrom::End(0))?;
    let whole = bytes > 0 && bytes.is_multiple_of(BLOCK as u64);
    ensure!(whole, "the device has {bytes} bytes, which are not whole blocks");
    Ok(usize::try_from(bytes)? / BLOCK)
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;

    const SIZE: u64 = 32 * BLOCK as u64;

    fn written() -> (NamedTempFile, Content) {
        let device = NamedTempFile::new().unwrap();
        device.as_file().set_len(SIZE).unwrap();
        let mut content = Content::of("one");
        assert_eq!(content.verify(device.path()).unwrap(), SIZE);
        content.write(device.path()).unwrap();
        content.write(device.path()).unwrap();
        (device, content)
    }

    fn problem(device: &NamedTempFile, content: &Content) -> String {
        format!("{:#}", content.verify(device.path()).unwrap_err())
    }

    #[test]
    fn what_was_written_is_found_again_also_after_growth() {
        let (device, mut content) = written();
        assert_eq!(content.verify(device.path()).unwrap(), SIZE);
        device.as_file().set_len(2 * SIZE).unwrap();
        assert_eq!(content.verify(device.path()).unwrap(), 2 * SIZE);
        content.write(device.path()).unwrap();
        assert_eq!(content.verify(device.path()).unwrap(), 2 * SIZE);
    }

    #[test]
    fn lost_old_misplaced_and_foreign_bytes_are_noticed() {
        let (device, content) = written();
        let last = (SIZE - 1, b"x".as_slice());
        let (first, moved) = (content.block(0, 1), content.block(1, 2));
        let foreign = Content::of("two").block(0, 2);
        let zeros = vec![0; BLOCK];
        for (place, bytes) in [last, (0, &first), (0, &moved), (0, &foreign), (0, &zeros)] {
            let before = content.block(usize::try_from(place).unwrap() / BLOCK, 2);
            device.as_file().write_all_at(bytes, place).unwrap();
            let problem = problem(&device, &content);
            assert!(problem.contains("volume one does not hold"), "{problem}");
            device.as_file().write_all_at(&before, place - place % BLOCK as u64).unwrap();
            content.verify(device.path()).unwrap();
        }
    }

    #[test]
    fn bytes_where_nothing_was_written_are_noticed() {
        let (device, content) = written();
        let untouched = (0..32).find(|at| !content.blocks.contains_key(at)).unwrap();
        device.as_file().write_all_at(b"two", offset(untouched)).unwrap();
        let problem = problem(&device, &content);
        assert!(problem.contains(r#"begin with "two", expected zeros"#), "{problem}");
        device.as_file().set_len(SIZE / 2).unwrap();
        assert!(content.verify(device.path()).is_err());
    }
}
