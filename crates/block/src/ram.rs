//! A device whose bytes are memory: it completes within the submission, at the price of one copy.

use crate::op::refuse_invalid;
use crate::uring::Ring;
use crate::{Completion, Device, Geometry, IoError, Op, OpKind, Submit, SyncIo};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;

/// From this length on, zeroing gives the pages back to the kernel instead of writing to them.
const GIVE_BACK: usize = 1 << 20;

/// Anonymous memory with huge pages advised; zero until written, and not resident until touched.
struct Mapping {
    ptr: *mut c_void,
    len: usize,
}

// SAFETY: the mapping has one owner; moving it moves the only way to reach its bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Mapping, IoError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let ptr =
            unsafe { mmap_anonymous(null_mut(), len.max(1), ProtFlags::READ | ProtFlags::WRITE, flags) }
                .map_err(|e| {
                    IoError::from_errno(e.raw_os_error(), format!("mapping {len} bytes of memory"))
                })?;
        let map = Mapping { ptr, len };
        // SAFETY: the range is the mapping just made. A refusal costs speed only.
        let _ = unsafe { madvise(ptr, len, Advice::LinuxHugepage) };
        Ok(map)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` readable bytes, and no `&mut` exists while `&self` does.
        unsafe { std::slice::from_raw_parts(self.ptr.cast(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` writable bytes, reachable only through this exclusive borrow.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.cast(), self.len) }
    }

    fn zero(&mut self, at: usize, len: usize) {
        let page = rustix::param::page_size();
        let (from, to) = (at.next_multiple_of(page), (at + len) / page * page);
        if len < GIVE_BACK || to <= from {
            self.bytes_mut()[at..at + len].fill(0);
            return;
        }
        let inside = self.bytes_mut()[from..to].as_mut_ptr();
        // SAFETY: whole pages inside this private anonymous mapping; they read as zeros afterwards.
        if unsafe { madvise(inside.cast(), to - from, Advice::LinuxDontNeed) }.is_err() {
            self.bytes_mut()[from..to].fill(0);
        }
        self.bytes_mut()[at..from].fill(0);
        self.bytes_mut()[to..at + len].fill(0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length and unmapped once, here.
        let _ = unsafe { munmap(self.ptr, self.len.max(1)) };
    }
}

/// A device in memory.
pub struct RamDevice {
    map: Mapping,
    geometry: Geometry,
}

impl RamDevice {
    /// `size` bytes (rounded down to sectors) that say of themselves: 512-byte blocks, no volatile cache.
    pub fn new(size: u64) -> Result<RamDevice, IoError> {
        RamDevice::with_geometry(Geometry {
            size: size / crate::SECTOR * crate::SECTOR,
            logical_block: 512,
            physical_block: 4096,
            volatile_cache: false,
            rotational: false,
            can_unmap: true,
        })
    }

    /// Memory that poses as a device with these traits.
    pub fn with_geometry(geometry: Geometry) -> Result<RamDevice, IoError> {
        Ok(RamDevice { map: Mapping::new(geometry.size as usize)?, geometry })
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    fn carry_out(&mut self, op: Op) -> Completion {
        let at = op.offset as usize;
        let mut buf = None;
        match op.kind {
            OpKind::Read(mut b) => {
                let len = b.len();
                b.copy_from_slice(&self.map.bytes()[at..at + len]);
                buf = Some(b);
            }
            OpKind::Write { data, .. } => self.map.bytes_mut()[at..at + data.len()].copy_from_slice(&data),
            OpKind::Flush => {}
            OpKind::Discard { len } | OpKind::WriteZeroes { len, .. } => self.map.zero(at, len as usize),
        }
        Completion { tag: op.tag, buf, result: Ok(()) }
    }
}

impl Device for RamDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, _ring: &mut Ring, _now: u64, op: Op) -> Submit {
        Submit::Finished(match refuse_invalid(op, self.geometry.size) {
            Ok(op) => self.carry_out(op),
            Err(refused) => refused,
        })
    }

    fn poll(&mut self, _ring: &mut Ring, _now: u64, _out: &mut Vec<Completion>) {}

    fn next_deadline(&self) -> Option<u64> {
        None
    }

    fn in_flight(&self) -> usize {
        0
    }
}

impl SyncIo for RamDevice {
    fn size(&self) -> u64 {
        self.geometry.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        crate::op::check_range(offset, buf.len() as u64, self.geometry.size)?;
        buf.copy_from_slice(&self.map.bytes()[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        crate::op::check_range(offset, data.len() as u64, self.geometry.size)?;
        self.map.bytes_mut()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

impl std::fmt::Debug for RamDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RamDevice({} B)", self.geometry.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buf;

    #[test]
    fn zeroed_and_discarded_ranges_read_as_zeros_and_their_neighbours_keep_their_bytes() {
        let mut d = RamDevice::new(8 << 20).unwrap();
        let mut ring = Ring::new(4).unwrap();
        d.write_at(0, &vec![7; 8 << 20]).unwrap();
        for (offset, len, discard) in
            [(512u64, 512u64, false), (1 << 20, (3 << 20) + 512, true), (7 << 20, 1 << 20, false)]
        {
            let kind =
                if discard { OpKind::Discard { len } } else { OpKind::WriteZeroes { len, unmap: false } };
            let Submit::Finished(done) = d.submit(&mut ring, 0, Op { tag: 1, offset, kind }) else {
                panic!("in flight")
            };
            done.result.unwrap();
            let (from, to) = (offset as usize, (offset + len) as usize);
            assert!(d.bytes()[from..to].iter().all(|b| *b == 0));
            assert_eq!(d.bytes()[from - 1], 7);
            assert!(to == 8 << 20 || d.bytes()[to] == 7);
        }
    }

    #[test]
    fn an_operation_off_the_end_or_off_the_sectors_fails_and_gives_its_buffer_back() {
        let mut d = RamDevice::new(1 << 20).unwrap();
        let mut ring = Ring::new(4).unwrap();
        for offset in [1 << 20, (1 << 20) - 512, 100, u64::MAX - 511] {
            let op = Op { tag: 9, offset, kind: OpKind::Read(Buf::alloc(1024)) };
            let Submit::Finished(done) = d.submit(&mut ring, 0, op) else { panic!("in flight") };
            assert_eq!(done.result.unwrap_err().kind, crate::IoKind::Invalid);
            assert_eq!(done.buf.unwrap().len(), 1024);
        }
    }
}
