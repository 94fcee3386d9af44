//! From an offset of a share to one of the device below.

use crate::{IoError, IoKind};
use std::sync::atomic::{AtomicU32, Ordering};

/// The extent of the device behind each extent of a share. Looking up takes one load; whoever keeps the pool's table
/// may add and take away extents while others look up, but takes none away that anybody still has I/O at.
#[derive(Debug)]
pub struct ExtentMap {
    /// Offset of extent 0 on the device.
    start: u64,
    /// An extent is `1 << shift` bytes.
    shift: u32,
    size: u64,
    /// The device's extent plus one; 0: none.
    table: Box<[AtomicU32]>,
}

/// A stretch that is together on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Its offset on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl ExtentMap {
    /// A share of up to `size` bytes, without any extent yet; those of the device are `extent` bytes (a power of two) and the
    /// first begins at `start`.
    ///
    /// # Panics
    /// If `extent` is no power of two.
    pub fn new(start: u64, extent: u64, size: u64) -> ExtentMap {
        assert!(extent.is_power_of_two(), "an extent of {extent} bytes");
        let table = (0..size.div_ceil(extent)).map(|_| AtomicU32::new(0)).collect();
        ExtentMap { start, shift: extent.trailing_zeros(), size, table }
    }

    /// Bytes of the share when all of it is there.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts extent `there` of the device behind extent `here` of the share, or takes away what was.
    pub fn set(&self, here: u32, there: Option<u32>) {
        self.table[here as usize].store(there.map_or(0, |n| n + 1), Ordering::Release);
    }

    /// The device's extent behind extent `here` of the share.
    pub fn get(&self, here: u32) -> Option<u32> {
        self.table.get(here as usize)?.load(Ordering::Acquire).checked_sub(1)
    }

    /// The stretch at `offset`, of `len` bytes (not 0) at most, as long as it is together on the device.
    ///
    /// # Errors
    /// If the share has no extent, or ends.
    #[inline]
    pub fn run(&self, offset: u64, len: u64) -> Result<Run, IoError> {
        let mut here = (offset >> self.shift) as u32;
        let (Some(mut there), true) = (self.get(here), offset < self.size) else {
            return Err(IoError::new(
                IoKind::Io,
                format!("byte {offset} of a share of {} bytes has no extent in its pool", self.size),
            ));
        };
        let extent = 1u64 << self.shift;
        let at = self.start + (u64::from(there) << self.shift) + (offset & (extent - 1));
        let mut have = extent - (offset & (extent - 1));
        while have < len && self.get(here + 1) == Some(there + 1) {
            (here, there, have) = (here + 1, there + 1, have + extent);
        }
        Ok(Run { offset: at, len: have.min(len) })
    }

    /// All the stretches of `len` bytes from `offset` on.
    ///
    /// # Errors
    /// As [`ExtentMap::run`].
    pub fn runs(&self, offset: u64, len: u64) -> Result<Vec<Run>, IoError> {
        let mut runs = Vec::new();
        let mut done = 0;
        while done < len {
            let run = self.run(offset + done, len - done)?;
            done += run.len;
            runs.push(run);
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ExtentMap {
        let map = ExtentMap::new(1000 << 9, 4096, 5 * 4096 - 512);
        [(0, 7), (1, 8), (2, 3), (4, 0)].into_iter().for_each(|(here, there)| map.set(here, Some(there)));
        map
    }

    #[test]
    fn neighbours_on_the_device_are_one_run_and_others_are_not() {
        let at = |there: u64, off: u64| (1000 << 9) + there * 4096 + off;
        let run = |offset, len| Run { offset, len };
        assert_eq!(map().run(512, 1024), Ok(run(at(7, 512), 1024)));
        assert_eq!(map().run(512, 8192), Ok(run(at(7, 512), 2 * 4096 - 512)));
        assert_eq!(map().runs(512, 8192), Ok(vec![run(at(7, 512), 7680), run(at(3, 0), 512)]));
        assert_eq!(map().run(16384, 3584), Ok(run(at(0, 0), 3584)));
    }

    #[test]
    fn what_has_no_extent_is_an_error_and_never_zeros() {
        assert!(map().run(3 * 4096, 512).is_err());
        assert!(map().runs(2 * 4096, 8192).is_err());
        assert!(map().run(5 * 4096, 512).is_err());
        assert!(map().run(1 << 60, 512).is_err());
        let map = map();
        map.set(0, None);
        assert!(map.run(0, 512).is_err());
    }
}
