//! Caches as released versions left them, small enough to keep: an archive of both devices' blocks that are not zero,
//! and beside it what the volume held.

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a sector of a volume.
pub const SECTOR: usize = 512;
/// The unit that an archive keeps or leaves out as a whole, bytes.
const BLOCK: usize = 4096;

/// The folder with a folder for every release.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/released")
}

/// Keeps the images at `from` in the archive `to`: for each its size and its number of blocks, then those with their
/// offsets; all numbers of 64 bits, little-endian; gzip around it.
///
/// # Errors
/// Those of the files.
pub fn pack(from: &[&Path], to: &Path) -> Result<()> {
    let mut out = GzEncoder::new(File::create(to)?, Compression::best());
    for path in from {
        let image = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let kept = || (0u64..).zip(image.chunks(BLOCK)).filter(|(_, b)| b.iter().any(|b| *b != 0));
        out.write_all(&(image.len() as u64).to_le_bytes())?;
        out.write_all(&(kept().count() as u64).to_le_bytes())?;
        for (at, block) in kept() {
            out.write_all(&(at * BLOCK as u64).to_le_bytes())?;
            let mut whole = [0; BLOCK];
            whole[..block.len()].copy_from_slice(block);
            out.write_all(&whole)?;
        }
    }
    out.finish()?;
    Ok(())
}

/// Makes the images of the archive `from` again, as the sparse files `to`.
///
/// # Errors
/// Those of the files, and an archive that is none.
pub fn unpack(from: &Path, to: &[&Path]) -> Result<()> {
    let mut archive = GzDecoder::new(BufReader::new(File::open(from)?));
    let number = |archive: &mut dyn Read| -> Result<u64> {
        let mut raw = [0; 8];
        archive.read_exact(&mut raw).with_context(|| format!("{} is cut off", from.display()))?;
        Ok(u64::from_le_bytes(raw))
    };
    for path in to {
        let (size, blocks) = (number(&mut archive)?, number(&mut archive)?);
        let image = File::create(path)?;
        image.set_len(size)?;
        for _ in 0..blocks {
            let at = number(&mut archive)?;
            let mut block = [0; BLOCK];
            archive.read_exact(&mut block)?;
            ensure!(at < size, "{} has a block behind its image's end", from.display());
            image.write_all_at(&block[..BLOCK.min((size - at) as usize)], at)?;
        }
    }
    Ok(())
}

/// A sector whose content is not asked for.
const ANY: u64 = u64::MAX;

/// The content of a volume: per sector the number of the write that it shows, 0 for none or zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content(Vec<u64>);

impl Content {
    /// A volume of `size` bytes, all zeros.
    pub fn new(size: u64) -> Content {
        Content(vec![0; size as usize / SECTOR])
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        (self.0.len() * SECTOR) as u64
    }

    /// The same in a volume that grew to `size` bytes.
    pub fn grown(mut self, size: u64) -> Content {
        self.0.resize(size as usize / SECTOR, 0);
        self
    }

    /// The bytes of write `stamp` to `len` bytes from `offset`, which are its now.
    pub fn write(&mut self, offset: u64, len: usize, stamp: u64) -> Vec<u8> {
        let first = offset as usize / SECTOR;
        let mut data = Vec::with_capacity(len);
        for sector in first..first + len / SECTOR {
            self.0[sector] = stamp;
            data.extend_from_slice(&shown(stamp, sector as u64));
        }
        data
    }

    /// The content of these bytes is no longer asked for.
    pub fn forget(&mut self, offset: u64, len: usize) {
        let first = offset as usize / SECTOR;
        self.0[first..first + len / SECTOR].fill(ANY);
    }

    /// Compares `data` with what the volume holds from `offset` on.
    ///
    /// # Errors
    /// The first sector that differs, and what it should show.
    pub fn check(&self, offset: u64, data: &[u8]) -> Result<()> {
        for (sector, have) in (offset / SECTOR as u64..).zip(data.chunks(SECTOR)) {
            let stamp = self.0[sector as usize];
            ensure!(
                stamp == ANY || have == shown(stamp, sector),
                "sector {sector} does not show write {stamp}: it begins {:02x?}",
                &have[..16]
            );
        }
        Ok(())
    }

    /// As runs of first sector, sectors and write.
    pub fn to_json(&self) -> Value {
        let mut runs: Vec<(usize, usize, u64)> = Vec::new();
        for (sector, stamp) in self.0.iter().enumerate().filter(|(_, s)| **s != 0) {
            match runs.last_mut() {
                Some((first, n, of)) if *first + *n == sector && of == stamp => *n += 1,
                _ => runs.push((sector, 1, *stamp)),
            }
        }
        json!(runs.iter().map(|(first, n, stamp)| json!([first, n, stamp])).collect::<Vec<_>>())
    }

    /// Reads [`Content::to_json`] back, for a volume of `size` bytes.
    ///
    /// # Errors
    /// If it is not of that form.
    pub fn from_json(size: u64, runs: &Value) -> Result<Content> {
        let mut content = Content::new(size);
        for run in runs.as_array().context("no runs")? {
            let number = |i: usize| run[i].as_u64().context("a run is three numbers");
            let (first, n, stamp) = (number(0)? as usize, number(1)? as usize, number(2)?);
            content.0.get_mut(first..first + n).context("a run behind the end")?.fill(stamp);
        }
        Ok(content)
    }
}

/// The content of sector `sector` after write `stamp`: its own number, then the write's over and over.
fn shown(stamp: u64, sector: u64) -> [u8; SECTOR] {
    let mut data = [0; SECTOR];
    if stamp != 0 {
        data.chunks_exact_mut(8).for_each(|w| w.copy_from_slice(&stamp.to_le_bytes()));
        data[..8].copy_from_slice(&sector.to_le_bytes());
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_gives_back_every_byte_of_its_images() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let mut image = vec![0u8; 40_000];
        image[5] = 1;
        image[39_999] = 7;
        std::fs::write(at("a"), &image).expect("written");
        std::fs::write(at("b"), vec![0; 8192]).expect("written");
        pack(&[&at("a"), &at("b")], &at("archive")).expect("packed");
        unpack(&at("archive"), &[&at("c"), &at("d")]).expect("unpacked");
        assert!(std::fs::read(at("c")).expect("there") == image);
        assert!(std::fs::read(at("d")).expect("there") == vec![0; 8192]);
    }

    #[test]
    fn content_tells_every_sector_of_every_write_from_all_others() {
        let mut content = Content::new(8192);
        let data = content.write(1024, 1024, 3);
        assert_eq!(Content::from_json(8192, &content.to_json()).expect("its own form"), content);
        content.check(1024, &data).expect("what was written");
        assert!(content.check(1536, &data[..512]).is_err(), "the sector before it");
        assert!(content.check(1024, &content.clone().write(1024, 512, 4)).is_err(), "another write");
        content.check(4096, &[0; 4096]).expect("never written");
        content.forget(1024, 512);
        content.check(1024, &[9; 512]).expect("anything");
        assert!(content.check(1536, &[9; 512]).is_err());
    }
}
