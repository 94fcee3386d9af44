//! Is every byte right: as a client sees the volume, and as it lies on the core after the last flush.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::content::pattern;
use super::plan;
use crate::interrupt::Interrupt;
use crate::nbd::Client;

/// Bytes that one digest stands for.
const PIECE: u64 = 1 << 20;

/// One 64-bit digest per MiB.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Digests(Vec<u64>);

impl Digests {
    fn gather(
        size: u64,
        stop: &Interrupt,
        tick: &mut dyn FnMut(u64),
        mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Digests> {
        let mut digests = Vec::new();
        let mut buffer = vec![0; PIECE as usize];
        for at in (0..size).step_by(PIECE as usize) {
            stop.check()?;
            let piece = &mut buffer[..(size - at).min(PIECE) as usize];
            read(at, piece)?;
            let mut hasher = DefaultHasher::new();
            hasher.write(piece);
            digests.push(hasher.finish());
            tick(at + piece.len() as u64);
        }
        Ok(Digests(digests))
    }

    /// Of a whole export, as a client sees it.
    pub(super) fn of_export(
        socket: &Path,
        export: &str,
        stop: &Interrupt,
        tick: &mut dyn FnMut(u64),
    ) -> Result<Digests> {
        let mut client = Client::connect(socket, export)?;
        Digests::gather(client.size(), stop, tick, |at, piece| client.read(at, piece))
    }

    /// Of a file.
    pub(super) fn of_file(path: &Path, stop: &Interrupt, tick: &mut dyn FnMut(u64)) -> Result<Digests> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let size = file.metadata()?.len();
        Digests::gather(size, stop, tick, |at, piece| {
            file.read_exact_at(piece, at).with_context(|| format!("reading {} at {at}", path.display()))
        })
    }

    /// The first MiB in which two differ.
    pub(super) fn first_difference(&self, other: &Digests) -> Option<usize> {
        if self.0.len() != other.0.len() {
            return Some(self.0.len().min(other.0.len()));
        }
        self.0.iter().zip(&other.0).position(|(a, b)| a != b)
    }
}

/// True if the region that no load touched still holds, on the core file, what it was made with.
pub(super) fn untouched_is_untouched(core: &Path, seed: u64) -> Result<bool> {
    let file = File::open(core)?;
    let mut found = vec![0; PIECE as usize];
    let mut expected = Vec::with_capacity(PIECE as usize);
    for at in (plan::UNTOUCHED..plan::UNTOUCHED + plan::REGION).step_by(PIECE as usize) {
        expected.clear();
        pattern(seed, at, PIECE, &mut expected);
        file.read_exact_at(&mut found, at)?;
        if found != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_byte_or_a_missing_piece_shows_in_the_digests() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        let stop = Interrupt::default();
        let mut content = vec![7u8; 3 << 20];
        let digest = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            Digests::of_file(&path, &stop, &mut |_| ()).unwrap()
        };
        let whole = digest(&content);
        assert_eq!(whole.first_difference(&digest(&content)), None);
        assert_eq!(whole.first_difference(&digest(&content[..2 << 20])), Some(2));
        content[(1 << 20) + 5] ^= 1;
        assert_eq!(whole.first_difference(&digest(&content)), Some(1));
    }
}
