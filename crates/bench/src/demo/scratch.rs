//! The folder that a run works in and that is gone afterwards.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::facts::free_bytes;
use crate::folder::Folder;
use crate::interrupt::Interrupt;
use crate::rng::SplitMix64;
use crate::units;

const PREFIX: &str = "loligo-demo-";
const MIB: usize = 1 << 20;

/// A scratch folder; removed with all it holds when dropped, and by the next run where this one was killed.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: Folder,
}

impl Scratch {
    /// Makes one in `parent` (the system's temporary folder by default) where `need` bytes are free.
    pub(super) fn new(parent: Option<&Path>, need: u64) -> Result<Scratch> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let parent =
            parent.canonicalize().with_context(|| format!("the folder {}: create it", parent.display()))?;
        let free = free_bytes(&parent).with_context(|| format!("free space of {}", parent.display()))?;
        if free < need {
            bail!(
                "{} has {} free, the demo needs {}: name another folder with --dir",
                parent.display(),
                units::bytes(free as f64),
                units::bytes(need as f64)
            );
        }
        Ok(Scratch { folder: Folder::new(&parent, PREFIX)? })
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a file of `size` bytes whose every 4 KiB differ from every other and from zeros; the same seed gives the same
    /// content. `tick` is told the bytes written.
    pub(super) fn core(
        &self,
        name: &str,
        size: u64,
        seed: u64,
        stop: &Interrupt,
        tick: &mut dyn FnMut(u64),
    ) -> Result<PathBuf> {
        let path = self.path().join(name);
        let mut file = File::create_new(&path)?;
        let mut buffer = Vec::with_capacity(MIB);
        for at in (0..size).step_by(MIB) {
            stop.check()?;
            buffer.clear();
            pattern(seed, at, (size - at).min(MIB as u64), &mut buffer);
            file.write_all(&buffer).with_context(|| format!("writing {}", path.display()))?;
            tick(at + buffer.len() as u64);
        }
        file.sync_data().with_context(|| format!("writing {}", path.display()))?;
        // So that later reads of the file reach the disk model's file, not memory, where O_DIRECT is refused.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        Ok(path)
    }
}

/// Appends the `length` bytes (a multiple of 8) that [`Scratch::core`] puts at `at` (a multiple of 4 KiB).
pub(super) fn pattern(seed: u64, at: u64, length: u64, out: &mut Vec<u8>) {
    let mut rng = SplitMix64::new(0);
    for word in 0..length / 8 {
        if word % 512 == 0 {
            rng = SplitMix64::new(seed.wrapping_add(at / 4096 + word / 512));
        }
        out.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn too_little_space_is_said_before_anything_is_written() {
        let parent = tempfile::tempdir().unwrap();
        let error = Scratch::new(Some(parent.path()), 1 << 60).unwrap_err().to_string();
        assert!(error.contains("needs") && error.contains("--dir"), "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn core_files_repeat_with_their_seed_and_hold_no_block_twice() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(parent.path()), 0).unwrap();
        let stop = Interrupt::default();
        let read =
            |name, seed| fs::read(scratch.core(name, 3 << 19, seed, &stop, &mut |_| ()).unwrap()).unwrap();
        let (one, same, other) = (read("a", 1), read("b", 1), read("c", 1 << 40));
        assert_eq!(one.len(), 3 << 19);
        assert!(one == same && one != other);
        let blocks: std::collections::BTreeSet<&[u8]> = one.chunks(4096).collect();
        assert_eq!(blocks.len(), 384);
        let mut part = Vec::new();
        pattern(1, 8192, 4096, &mut part);
        assert_eq!(part, &one[8192..12288]);
    }

    #[test]
    fn an_interrupt_stops_the_writing() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(Some(parent.path()), 0).unwrap();
        let stop = Interrupt::default();
        stop.set();
        assert!(scratch.core("a", 1 << 20, 1, &stop, &mut |_| ()).is_err());
    }
}
