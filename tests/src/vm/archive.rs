//! The archive that a kernel unpacks into memory at boot ("newc").

use std::io::{Result, Write};
use std::path::Path;

/// Writes one.
#[derive(Debug)]
pub(super) struct Archive<W: Write> {
    out: W,
    inode: u32,
}

const FILE: u32 = 0o100_000;
const DIR: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const NODE: u32 = 0o020_000;

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Archive<W> {
        Archive { out, inode: 0 }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) -> Result<()> {
        self.inode += 1;
        let fields = [
            self.inode,
            mode,
            0,
            0,
            1,
            0,
            data.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.out.write_all(b"070701")?;
        for f in fields {
            write!(self.out, "{f:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        // The name begins at byte 110 of the entry, and ends with a zero.
        self.pad(110 + name.len() + 1, name.len() + 1 - name.len())?;
        self.out.write_all(data)?;
        self.pad(data.len(), 0)
    }

    /// Zeros up to a multiple of four after `len` bytes, and `more` before that.
    fn pad(&mut self, len: usize, more: usize) -> Result<()> {
        self.out.write_all(&[0; 8][..more + len.next_multiple_of(4) - len])
    }

    pub(super) fn dir(&mut self, name: &str) -> Result<()> {
        self.entry(name, DIR | 0o755, (0, 0), &[])
    }

    pub(super) fn bytes(&mut self, name: &str, data: &[u8]) -> Result<()> {
        self.entry(name, FILE | 0o755, (0, 0), data)
    }

    pub(super) fn file(&mut self, name: &str, from: &Path) -> Result<()> {
        self.bytes(name, &std::fs::read(from)?)
    }

    pub(super) fn link(&mut self, name: &str, to: &str) -> Result<()> {
        self.entry(name, LINK | 0o777, (0, 0), to.as_bytes())
    }

    /// A character device.
    pub(super) fn node(&mut self, name: &str, major: u32, minor: u32) -> Result<()> {
        self.entry(name, NODE | 0o600, (major, minor), &[])
    }

    pub(super) fn end(mut self) -> Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_begin_at_multiples_of_four() {
        let mut a = Archive::new(Vec::new());
        a.bytes("abc", b"12345").unwrap();
        a.dir("d").unwrap();
        let all = a.end().unwrap();
        let at = |text: &[u8]| all.windows(text.len()).position(|w| w == text).unwrap();
        assert_eq!(at(b"12345") % 4, 0);
        let starts: Vec<usize> = (0..all.len() - 5).filter(|i| all[*i..].starts_with(b"070701")).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|s| s % 4 == 0), "{starts:?}");
    }
}
