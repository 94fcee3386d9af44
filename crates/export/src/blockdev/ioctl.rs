//! Requests to the loop driver through ioctl, as `linux/loop.h` has them.

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};
use std::ffi::c_void;

const SET_STATUS64: Opcode = 0x4c04;
const GET_STATUS64: Opcode = 0x4c05;
const CLR_FD: Opcode = 0x4c01;
const SET_CAPACITY: Opcode = 0x4c07;
const CONFIGURE: Opcode = 0x4c0a;
const CTL_GET_FREE: Opcode = 0x4c82;

/// The backing file goes when the last user does.
pub(super) const AUTOCLEAR: u32 = 4;
/// The backing file is read and written past its page cache.
const DIRECT_IO: u32 = 16;

/// The kernel's `struct loop_info64`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    pub(super) flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// The kernel's `struct loop_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Info>() == 232 && size_of::<Config>() == 304);

/// The number of a device that nobody uses. Another process may be faster in configuring it.
pub(super) fn get_free(control: impl AsFd) -> Result<u32, Errno> {
    /// Takes nothing and answers by its return value.
    struct GetFree;

    // SAFETY: the call takes no argument and writes no memory; its return value is the number.
    unsafe impl Ioctl for GetFree {
        type Output = u32;
        const IS_MUTATING: bool = false;

        fn opcode(&self) -> Opcode {
            CTL_GET_FREE
        }

        fn as_ptr(&mut self) -> *mut c_void {
            std::ptr::null_mut()
        }

        // SAFETY: nothing is dereferenced.
        unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<u32> {
            u32::try_from(out).map_err(|_| Errno::INVAL)
        }
    }

    // SAFETY: the operation is the loop driver's own, and touches no memory of ours.
    unsafe { ioctl(control, GetFree) }
}

/// Binds `file` to the device, all at once: direct I/O, blocks of `block` bytes, no partitions looked for, not gone with its
/// last user. `label` is what others see as its name.
pub(super) fn configure(device: impl AsFd, file: impl AsFd, block: u32, label: &str) -> Result<(), Errno> {
    let mut info = Info {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: DIRECT_IO,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    // The last byte stays zero.
    let n = label.len().min(info.file_name.len() - 1);
    info.file_name[..n].copy_from_slice(&label.as_bytes()[..n]);
    let fd = file.as_fd().as_raw_fd() as u32;
    let config = Config { fd, block_size: block, info, reserved: [0; 8] };
    // SAFETY: the driver reads a structure of this size and form, checked above, and writes nothing to it.
    unsafe { ioctl(device, Setter::<CONFIGURE, Config>::new(config)) }
}

/// Has the device let go of its file: at once where the caller is its only user (nobody can open it any more then), with its
/// last user otherwise.
pub(super) fn clear(device: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the call takes no argument.
    unsafe { ioctl(device, NoArg::<CLR_FD>::new()) }
}

/// Has the device take the size that its file has by now.
pub(super) fn set_capacity(device: impl AsFd) -> Result<(), Errno> {
    // SAFETY: the call takes no argument.
    unsafe { ioctl(device, NoArg::<SET_CAPACITY>::new()) }
}

/// The binding of the device; ENXIO if it has none.
pub(super) fn status(device: impl AsFd) -> Result<Info, Errno> {
    // SAFETY: the driver fills a structure of this size and form, of which every bit pattern is a value.
    unsafe { ioctl(device, Getter::<GET_STATUS64, Info>::new()) }
}

/// Changes what may be changed of it.
pub(super) fn set_status(device: impl AsFd, info: Info) -> Result<(), Errno> {
    // SAFETY: the driver reads a structure of this size and form and writes nothing to it.
    unsafe { ioctl(device, Setter::<SET_STATUS64, Info>::new(info)) }
}
