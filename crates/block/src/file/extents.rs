//! The parts of a file that hold data.

use super::DeviceFile;
use crate::op::check_range;
use crate::{Extent, IoError, SECTOR};
use rustix::fd::AsFd;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

impl DeviceFile {
    /// The runs of data and holes in a range, in order, at most `max` of them (then they cover a part of the
    /// range that starts at `offset`). All is data if the system cannot tell, and on block devices.
    pub fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, IoError> {
        check_range(offset, len, self.geometry().size)?;
        let data = |len| Extent { len, allocated: true, zero: false };
        let hole = |len| Extent { len, allocated: false, zero: true };
        if self.is_block() || len == 0 {
            return Ok(if len == 0 { Vec::new() } else { vec![data(len)] });
        }
        // Seeking moves the offset of the description, which no positioned I/O looks at.
        let fd = self.handle.main.as_fd();
        let mut found = Vec::new();
        let (mut at, end) = (self.position(offset), self.position(offset + len));
        while at < end && found.len() < max {
            // Half a sector of data makes the sector data: starts round down, ends round up.
            let start = match seek(fd, SeekFrom::Data(at)) {
                Ok(n) => (n / SECTOR * SECTOR).clamp(at, end),
                Err(Errno::NXIO) => end,
                Err(_) => {
                    found.push(data(end - at));
                    break;
                }
            };
            if start > at {
                found.push(hole(start - at));
            }
            if start < end && found.len() < max {
                let stop = seek(fd, SeekFrom::Hole(start)).unwrap_or(end).next_multiple_of(SECTOR).min(end);
                found.push(data(stop - start));
                at = stop;
            } else {
                at = start;
            }
        }
        Ok(found)
    }
}
