//! The bytes of a LUN, in a file.
//!
//! Whole blocks go past the page cache: a LUN of a real array has none on the array's side of the wire, and its pages would
//! cost the labs' hosts a copy and their memory.

use anyhow::{Context, Result, bail, ensure};
use loligo_block::Buf;
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a block that reaches the medium whole, and of the least direct request.
pub(super) const BLOCK: u64 = 4096;

/// A LUN's bytes.
#[derive(Debug)]
pub(super) struct Medium {
    file: File,
    /// The same file past the page cache; nothing on a file system that has no such way.
    direct: Option<File>,
    bytes: u64,
}

impl Medium {
    /// Opens `backing`, which is made with `size` bytes where it is not there.
    ///
    /// # Errors
    /// If it cannot be used, or is neither there nor to be made.
    pub(super) fn open(backing: &Path, size: Option<u64>) -> Result<Medium> {
        let name = backing.display();
        let is_there = backing.exists();
        if !is_there && size.is_none() {
            bail!("{name} does not exist: give --size, or --lun NAME=FILE:SIZE, to make it");
        }
        let file = File::options().read(true).write(true).create(true).truncate(false).open(backing);
        let file = file.with_context(|| format!("{name} cannot be opened"))?;
        if let Some(size) = size.filter(|_| !is_there) {
            file.set_len(size).with_context(|| format!("{name} cannot be made {size} bytes long"))?;
        }
        let bytes = file.metadata().with_context(|| format!("{name} cannot be looked at"))?.len();
        ensure!(bytes > 0, "{name} is empty: remove it, and give its size to make it");
        let past = OFlags::DIRECT.bits() as i32;
        let direct = File::options().read(true).write(true).custom_flags(past).open(backing).ok();
        Ok(Medium { file, direct, bytes })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The descriptor past the page cache, for a request of whole blocks.
    fn past(&self, at: u64, len: usize) -> Option<&File> {
        let whole = at.is_multiple_of(BLOCK) && (len as u64).is_multiple_of(BLOCK) && len > 0;
        self.direct.as_ref().filter(|_| whole)
    }

    /// # Errors
    /// If the file's system fails.
    pub(super) fn read(&self, at: u64, len: usize) -> io::Result<Buf> {
        let mut data = Buf::alloc(len);
        self.past(at, len).unwrap_or(&self.file).read_exact_at(&mut data, at)?;
        Ok(data)
    }

    /// # Errors
    /// If the file's system fails.
    pub(super) fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        match self.past(at, data.len()) {
            // The bytes lie behind a header of the request, and so at no boundary.
            Some(file) => file.write_all_at(&Buf::copy_of(data), at),
            None => self.file.write_all_at(data, at),
        }
    }

    /// # Errors
    /// If the file's system fails, or makes no holes.
    pub(super) fn discard(&self, part: Range<u64>) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match part.end - part.start {
            0 => Ok(()),
            len => Ok(rustix::fs::fallocate(&self.file, hole, part.start, len)?),
        }
    }

    /// # Errors
    /// If the file's system fails.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_as_written_in_blocks_and_parts_of_them() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let medium = Medium::open(&dir.path().join("lun"), Some(1 << 20)).unwrap();
        let mut want = vec![0; 64 << 10];
        for (n, (at, len)) in
            [(0, 16384), (4096, 4096), (512, 1024), (8192, 512), (7000, 9000), (16384, 16384)]
                .into_iter()
                .enumerate()
        {
            let data = vec![n as u8 + 1; len];
            medium.write(at as u64, &data).unwrap();
            want[at..at + len].copy_from_slice(&data);
            assert_eq!(&medium.read(0, want.len()).unwrap()[..], &want[..], "past the cache, after {n}");
            assert_eq!(&medium.read(1, want.len() - 2).unwrap()[..], &want[1..want.len() - 1], "after {n}");
        }
        medium.discard(4096..12288).unwrap();
        want[4096..12288].fill(0);
        assert_eq!(&medium.read(0, want.len()).unwrap()[..], &want[..]);
    }
}
