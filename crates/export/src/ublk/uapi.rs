//! The kernel's side of ublk as it is written in its header: commands, structures, flags. Numbers only.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// A command number as the kernel encodes it: `direction` 2 reads, 3 reads and writes; `size` of what is passed.
const fn command(direction: u32, number: u32, size: u32) -> u32 {
    direction << 30 | size << 16 | (b'u' as u32) << 8 | number
}

/// A command on `/dev/ublk-control`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) code: u32,
    pub(super) name: &'static str,
}

const fn control(direction: u32, number: u32, name: &'static str) -> Command {
    Command { code: command(direction, number, size_of::<ControlCommand>() as u32), name }
}

pub(super) const GET_DEV_INFO: Command = control(2, 0x02, "GET_DEV_INFO");
pub(super) const ADD_DEV: Command = control(3, 0x04, "ADD_DEV");
pub(super) const DEL_DEV: Command = control(3, 0x05, "DEL_DEV");
pub(super) const START_DEV: Command = control(3, 0x06, "START_DEV");
pub(super) const STOP_DEV: Command = control(3, 0x07, "STOP_DEV");
pub(super) const SET_PARAMS: Command = control(3, 0x08, "SET_PARAMS");
pub(super) const GET_PARAMS: Command = control(2, 0x09, "GET_PARAMS");
pub(super) const START_USER_RECOVERY: Command = control(3, 0x10, "START_USER_RECOVERY");
pub(super) const END_USER_RECOVERY: Command = control(3, 0x11, "END_USER_RECOVERY");
pub(super) const GET_FEATURES: Command = control(2, 0x13, "GET_FEATURES");
pub(super) const UPDATE_SIZE: Command = control(3, 0x15, "UPDATE_SIZE");

/// Hands a slot of a queue to the kernel for the first time.
pub(super) const FETCH: u32 = command(3, 0x20, size_of::<IoCommand>() as u32);
/// Answers the request in a slot, and hands it back.
pub(super) const COMMIT_AND_FETCH: u32 = command(3, 0x21, size_of::<IoCommand>() as u32);

pub(super) const F_USER_RECOVERY: u64 = 1 << 3;
pub(super) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
pub(super) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
pub(super) const F_USER_COPY: u64 = 1 << 7;
pub(super) const F_UPDATE_SIZE: u64 = 1 << 10;

/// Nobody may use it: never started, or stopped. (1 is alive.)
pub(super) const DEAD: u16 = 0;
/// Its server is gone, and requests wait for the next.
pub(super) const QUIESCED: u16 = 2;

/// The form of a command on the control device.
#[derive(Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ControlCommand {
    pub(super) device: u32,
    /// `u16::MAX`: none.
    pub(super) queue: u16,
    pub(super) len: u16,
    pub(super) addr: u64,
    pub(super) data: u64,
    pub(super) path_len: u16,
    pub(super) pad: u16,
    pub(super) reserved: u32,
}

/// The description of a device.
#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) most_bytes: u32,
    pub(super) id: u32,
    pub(super) server_pid: i32,
    pub(super) pad1: u32,
    pub(super) flags: u64,
    /// The kernel keeps it for the server and does not look at it.
    pub(super) token: u64,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) reserved: [u64; 2],
}

pub(super) const PARAM_BASIC: u32 = 1 << 0;
pub(super) const PARAM_DISCARD: u32 = 1 << 1;
pub(super) const ATTR_READ_ONLY: u32 = 1 << 0;
pub(super) const ATTR_ROTATIONAL: u32 = 1 << 1;
pub(super) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
pub(super) const ATTR_FUA: u32 = 1 << 3;

/// The parameters for the block layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) len: u32,
    pub(super) types: u32,
    pub(super) attrs: u32,
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) io_opt_shift: u8,
    pub(super) io_min_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) virt_boundary: u64,
    pub(super) discard_alignment: u32,
    pub(super) discard_granularity: u32,
    pub(super) max_discard_sectors: u32,
    pub(super) max_zero_sectors: u32,
    pub(super) max_discard_segments: u16,
    pub(super) reserved: u16,
    /// Numbers of both device nodes, told by the kernel.
    pub(super) numbers: [u32; 4],
    pub(super) pad: u32,
}

/// The form of a command on a queue.
#[derive(Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) addr: u64,
}

/// One request of the kernel, in memory that it shares.
#[derive(Debug, Clone, Copy, FromZeros, Immutable)]
#[repr(C)]
pub(super) struct Descriptor {
    /// Operation in the low byte, flags above.
    pub(super) op_flags: u32,
    pub(super) sectors: u32,
    pub(super) start: u64,
    pub(super) addr: u64,
}

pub(super) const OP_READ: u32 = 0;
pub(super) const OP_WRITE: u32 = 1;
pub(super) const OP_FLUSH: u32 = 2;
pub(super) const OP_DISCARD: u32 = 3;
pub(super) const OP_WRITE_ZEROES: u32 = 5;
pub(super) const IO_FUA: u32 = 1 << 13;
pub(super) const IO_NOUNMAP: u32 = 1 << 15;

/// The most slots that a queue of any device can have: where its descriptors lie follows from it.
pub(super) const MOST_DEPTH: usize = 4096;
/// Offset of the bytes of requests in the character device.
const DATA_AT: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;

/// Offset of the bytes of the request in slot `tag` of `queue`.
pub(super) const fn data_at(queue: u16, tag: u16) -> u64 {
    DATA_AT + ((queue as u64) << QUEUE_SHIFT | (tag as u64) << TAG_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_and_commands_match_the_kernels_header() {
        assert_eq!(size_of::<ControlCommand>(), 32);
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(size_of::<Parameters>(), 80);
        assert_eq!(std::mem::offset_of!(Parameters, sectors), 24);
        assert_eq!(std::mem::offset_of!(Parameters, discard_alignment), 40);
        assert_eq!(size_of::<IoCommand>(), 16);
        assert_eq!(size_of::<Descriptor>(), 24);
        // As `strace` shows them for other servers.
        assert_eq!((ADD_DEV.code, GET_FEATURES.code), (0xc020_7504, 0x8020_7513));
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
        assert_eq!(data_at(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
    }
}
