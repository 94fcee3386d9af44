//! The kinds of `fallocate`.

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Bytes zeroed by one request, so that a hole as large as a disk does not fill the queues of its volume.
pub(super) const PIECE: u64 = 256 << 20;

/// The deed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// It is so already.
    Nothing,
    /// Zeroes from the first byte to the second; the space may be given back or not.
    Zero { from: u64, to: u64, unmap: bool },
    /// Not here, with the reason.
    Refuse(Errno, &'static str),
}

/// The deed for `fallocate` of `len` bytes at `offset` on a volume of `size` bytes in blocks of `block`.
///
/// A hole must read as zeros, which the volume's discard does not promise: it is a zeroing that may give the space back.
pub(super) fn plan(size: u64, block: u64, (offset, len): (u64, u64), mode: i32) -> Plan {
    let mode = FallocateFlags::from_bits_retain(mode as u32);
    let keeps = mode.contains(FallocateFlags::KEEP_SIZE);
    let end = offset.saturating_add(len);
    let kind = mode.difference(FallocateFlags::KEEP_SIZE);
    let unmap = kind == FallocateFlags::PUNCH_HOLE;
    if !kind.is_empty() && kind != FallocateFlags::ZERO_RANGE && !(unmap && keeps) {
        return Plan::Refuse(Errno::OPNOTSUPP, "a volume only knows holes and zeroes");
    }
    if end > size && !keeps {
        return Plan::Refuse(Errno::NOSPC, "a volume does not grow");
    }
    let (from, to) = (offset.min(size), end.min(size));
    if kind.is_empty() || from == to {
        // A volume has all its space from the beginning.
        return Plan::Nothing;
    }
    if !from.is_multiple_of(block) || !to.is_multiple_of(block) {
        return Plan::Refuse(Errno::INVAL, "holes and zeroes begin and end at blocks");
    }
    Plan::Zero { from, to, unmap }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_zeroes_are_told_from_reservations() {
        let (keep, hole, collapse, zero) = (1, 2, 8, 16);
        let ask = |range, mode| plan(1 << 20, 4096, range, mode);
        let refused = |range, mode| match ask(range, mode) {
            Plan::Refuse(errno, _) => errno,
            other => panic!("{other:?}"),
        };
        assert_eq!(ask((4096, 8192), keep | hole), Plan::Zero { from: 4096, to: 12288, unmap: true });
        assert_eq!(ask((4096, 8192), zero), Plan::Zero { from: 4096, to: 12288, unmap: false });
        assert_eq!(
            ask((1 << 19, u64::MAX), keep | hole),
            Plan::Zero { from: 1 << 19, to: 1 << 20, unmap: true }
        );
        assert_eq!(ask((0, 1 << 20), 0), Plan::Nothing);
        assert_eq!(ask((5, 7), keep), Plan::Nothing);
        assert_eq!(refused((0, (1 << 20) + 1), 0), Errno::NOSPC);
        assert_eq!(refused((0, 2 << 20), zero), Errno::NOSPC);
        assert_eq!(refused((100, 4096), keep | hole), Errno::INVAL);
        assert_eq!(refused((0, 4096), hole), Errno::OPNOTSUPP);
        assert_eq!(refused((0, 4096), collapse), Errno::OPNOTSUPP);
    }
}
