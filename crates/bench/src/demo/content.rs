//! The content that the cores are made with.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::bed::Bed;
use crate::rng::SplitMix64;

const MIB: usize = 1 << 20;

/// Makes the file `name` of `size` bytes whose every 4 KiB differ from every other and from zeros; the same seed gives the
/// same content. `tick` is told the bytes written.
pub(super) fn core(
    bed: &Bed,
    name: &str,
    size: u64,
    seed: u64,
    tick: &mut dyn FnMut(u64),
) -> Result<PathBuf> {
    let path = bed.path(name);
    let mut file = File::create_new(&path)?;
    let mut buffer = Vec::with_capacity(MIB);
    for at in (0..size).step_by(MIB) {
        bed.stop().check()?;
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

/// Appends the `length` bytes (a multiple of 8) that [`core`] puts at `at` (a multiple of 4 KiB).
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
    use crate::bed::Place;
    use crate::interrupt::Interrupt;
    use std::fs;
    use std::path::Path;

    fn place(dir: &Path) -> Place {
        Place { binary: PathBuf::new(), dir: dir.to_owned(), stop: Interrupt::default(), verbose: false }
    }

    #[test]
    fn too_little_space_is_said_before_anything_is_written() {
        let parent = tempfile::tempdir().unwrap();
        let error = Bed::new(&place(parent.path()), 1 << 60).expect_err("so much is nowhere").to_string();
        assert!(error.contains("needs") && error.contains("--dir"), "{error}");
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn core_files_repeat_with_their_seed_and_hold_no_block_twice() {
        let parent = tempfile::tempdir().unwrap();
        let bed = Bed::new(&place(parent.path()), 0).unwrap();
        let read = |name, seed| fs::read(core(&bed, name, 3 << 19, seed, &mut |_| ()).unwrap()).unwrap();
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
        let bed = Bed::new(&place(parent.path()), 0).unwrap();
        bed.stop().set();
        assert!(core(&bed, "a", 1 << 20, 1, &mut |_| ()).is_err());
    }
}
