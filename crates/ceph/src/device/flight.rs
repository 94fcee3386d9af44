//! One operation while Ceph has it. It owns the memory that librbd reads or fills until the callback, whatever becomes of the
//! device meanwhile.

use super::Extent;
use super::trims::Trim;
use crate::attached_image::AttachedImage;
use crate::bug::{Step, is_left_out};
use crate::ffi::{CompletionT, Library};
use libc::iovec;
use loligo_block::{Buf, Shared, Tag};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// `CEPH_OSD_FLAG` of an operation that fails rather than write an object whose snapshot context is newer.
const ORDERSNAP: i32 = 512;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`: the space is kept.
const THICK: i32 = 1;
/// `assert_snapc_seq`: the given number is at most the object's.
const AT_MOST: u8 = 1;

/// Operations under way. Places are bytes of the image.
#[derive(Debug)]
pub(super) enum What {
    /// A read.
    Read { tag: Tag, at: u64, buf: Buf },
    /// Neighbouring writes of clients through librbd, up to `end` when they went; the payload stays until it is over.
    Write { at: u64, end: u64, pieces: Vec<(Tag, Shared)> },
    /// Zeroes that keep their space.
    Zeroes { tag: Tag, at: u64, len: u64 },
    /// Neighbouring zeroes that give their space back where they cover whole objects.
    Trim(Trim),
    /// An object that is zeros already gives its space back.
    Remove { object: u64 },
    /// A flush.
    Flush { tag: Tag },
    /// A write of dirty data through librbd, which primes its object if the epoch is still this one.
    Primer { object: u64, epoch: u32, extent: Extent },
    /// One operation on one object.
    Group { object: u64, extents: Vec<Extent> },
}

/// A call of librbd.
enum Call {
    Read(u64, *mut u8, usize),
    Write(u64, *const u8, usize),
    WriteMany(u64, Vec<iovec>),
    Zeroes(u64, usize, bool),
    Flush,
}

fn part(data: &Shared) -> iovec {
    iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() }
}

/// Its result: a count or a negative error number.
#[derive(Debug)]
pub(crate) struct Landed {
    /// Of what it leaves behind.
    pub(super) place: usize,
    pub(super) what: What,
    pub(super) code: i64,
}

/// An operation with all it needs until it is over.
pub(super) struct Flight {
    image: Arc<AttachedImage>,
    /// It passed the gate.
    counted: bool,
    place: usize,
    what: What,
}

impl Flight {
    pub(super) fn new(image: &Arc<AttachedImage>, counted: bool, place: usize, what: What) -> Flight {
        Flight { image: image.clone(), counted, place, what }
    }

    /// Hands it to Ceph. Its result lies in the inbox some time later, also if Ceph refuses to take it.
    pub(super) fn start(self) {
        if matches!(self.what, What::Group { .. }) { self.start_group() } else { self.start_rbd() }
    }

    fn start_rbd(self) {
        let (lib, handle) = (self.image.image.lib, self.image.image.handle);
        let object_size = self.image.object_size();
        let mut flight = Box::new(self);
        // The memory is on the heap and stays where it is when the flight is given away.
        let call = match &mut flight.what {
            What::Read { at, buf, .. } => Call::Read(*at, buf.as_mut_ptr(), buf.len()),
            What::Write { at, pieces, .. } => match &pieces[..] {
                [(_, data)] => Call::Write(*at, data.as_ptr(), data.len()),
                _ => Call::WriteMany(*at, pieces.iter().map(|(_, data)| part(data)).collect()),
            },
            What::Primer { object, extent, .. } => {
                Call::Write(*object * object_size + extent.at, extent.data.as_ptr(), extent.data.len())
            }
            What::Zeroes { at, len, .. } => Call::Zeroes(*at, *len as usize, false),
            What::Trim(trim) => Call::Zeroes(trim.at, trim.len as usize, true),
            What::Remove { object } => Call::Zeroes(*object * object_size, object_size as usize, true),
            What::Flush { .. } | What::Group { .. } => Call::Flush,
        };
        let raw = Box::into_raw(flight);
        let mut c: CompletionT = null_mut();
        // SAFETY: `raw` lives until the callback, or until it is taken back below where there will be none.
        let code = unsafe { (lib.rbd_aio_create_completion)(raw.cast(), rbd_over, &raw mut c) };
        if code < 0 {
            // SAFETY: no completion was made, so that nobody else has it.
            return unsafe { Box::from_raw(raw) }.land(code.into());
        }
        // SAFETY: the image's handle is live as long as the flight, and the memory is the flight's own.
        let code = unsafe {
            match call {
                Call::Read(at, to, len) => (lib.rbd_aio_read)(handle, at, len, to.cast(), c),
                Call::Write(at, from, len) => (lib.rbd_aio_write)(handle, at, len, from.cast(), c),
                Call::WriteMany(at, from) => {
                    let count = c_int::try_from(from.len()).expect("a run has few pieces");
                    (lib.rbd_aio_writev)(handle, from.as_ptr(), count, at, c)
                }
                Call::Zeroes(at, len, unmap) => {
                    (lib.rbd_aio_write_zeroes)(handle, at, len, c, if unmap { 0 } else { THICK }, 0)
                }
                Call::Flush => (lib.rbd_aio_flush)(handle, c),
            }
        };
        if code < 0 {
            // SAFETY: an operation that is not taken has no callback; the completion is given back once.
            unsafe {
                (lib.rbd_aio_release)(c);
                Box::from_raw(raw).land(code.into());
            }
        }
    }

    fn start_group(self) {
        let lib = self.image.image.lib;
        let What::Group { object, extents } = &self.what else { unreachable!("the caller looked") };
        let Ok(oid) = self.image.object_name(*object) else { return self.land(-i64::from(libc::EINVAL)) };
        let mut guard = [0u8; 9];
        guard[..8].copy_from_slice(&self.image.guard_seq().to_le_bytes());
        guard[8] = AT_MOST;
        // SAFETY: librados copies whatever the operation is told, so that everything need only live for each call; the
        // operation is given back in the callback, or below where there will be none.
        let op = unsafe {
            let op = (lib.rados_create_write_op)();
            // Without it the data of an object that is not there would lie where nobody looks.
            if !is_left_out(Step::Exists) {
                (lib.rados_write_op_assert_exists)(op);
            }
            let (class, method) = (c"rbd", c"assert_snapc_seq");
            if !is_left_out(Step::Guard) {
                (lib.rados_write_op_exec)(
                    op,
                    class.as_ptr(),
                    method.as_ptr(),
                    guard.as_ptr().cast(),
                    guard.len(),
                    null_mut(),
                );
            }
            for e in extents {
                (lib.rados_write_op_write)(op, e.data.as_ptr().cast(), e.data.len(), e.at);
            }
            op
        };
        let io = self.image.data.io;
        let raw = Box::into_raw(Box::new((self, op)));
        let mut c: CompletionT = null_mut();
        // SAFETY: as for librbd; the pool's handle lives as long as the image.
        unsafe {
            let mut code = (lib.rados_aio_create_completion2)(raw.cast(), group_over, &raw mut c);
            if code >= 0 {
                code = (lib.rados_aio_write_op_operate)(op, io, c, oid.as_ptr(), null_mut(), ORDERSNAP);
                if code >= 0 {
                    return;
                }
                (lib.rados_aio_release)(c);
            }
            (lib.rados_release_write_op)(op);
            Box::from_raw(raw).0.land(code.into());
        }
    }

    /// It is over.
    fn land(self, code: i64) {
        let Flight { image, counted, place, what } = self;
        if counted {
            image.gate.leave();
        }
        if code == -i64::from(libc::ESHUTDOWN) {
            image.lose("the cluster refuses this client: another took the image over".to_owned());
        }
        image.inbox.put([Landed { place, what, code }]);
    }
}

/// A callback of librbd.
///
/// # Safety
/// `arg` is a flight that was given away with [`Box::into_raw`], and nobody else's.
unsafe extern "C" fn rbd_over(c: CompletionT, arg: *mut c_void) {
    // SAFETY: librbd calls once, with what the flight gave it.
    let flight = unsafe { Box::from_raw(arg.cast::<Flight>()) };
    let lib: &Library = flight.image.image.lib;
    // SAFETY: the completion is live until it is given back here.
    let code = unsafe {
        let code = (lib.rbd_aio_get_return_value)(c);
        (lib.rbd_aio_release)(c);
        code
    };
    flight.land(code as i64);
}

/// A callback of librados.
///
/// # Safety
/// As above, of a flight and its operation.
unsafe extern "C" fn group_over(c: CompletionT, arg: *mut c_void) {
    // SAFETY: librados calls once, with what the flight gave it.
    let (flight, op) = *unsafe { Box::from_raw(arg.cast::<(Flight, *mut c_void)>()) };
    let lib: &Library = flight.image.image.lib;
    // SAFETY: both are live until they are given back here.
    let code = unsafe {
        let code = (lib.rados_aio_get_return_value)(c);
        (lib.rados_release_write_op)(op);
        (lib.rados_aio_release)(c);
        code
    };
    flight.land(code.into());
}
