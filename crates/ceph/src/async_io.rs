//! Reads and writes of an image whose answers come by a call: for a client that keeps many of them under way.

use crate::CephError;
use crate::error::check;
use crate::ffi::CompletionT;
use crate::image::Image;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

/// Called once with what was read, on a thread of librbd.
pub type ReadDone = Box<dyn FnOnce(Result<Vec<u8>, CephError>) + Send>;
/// Called once with the end of a write, on a thread of librbd.
pub type WriteDone = Box<dyn FnOnce(Result<(), CephError>) + Send>;

enum Done {
    Read(ReadDone),
    Write(WriteDone),
}

/// An operation with the memory that librbd reads or fills until it is over.
struct UnderWay {
    image: Arc<Image>,
    at: u64,
    bytes: Vec<u8>,
    done: Done,
}

impl Image {
    /// Begins to read `len` bytes at `at`. The caller keeps the image until the answer: its end on a thread of librbd would hang.
    pub fn begin_read(self: &Arc<Image>, at: u64, len: usize, done: ReadDone) {
        UnderWay { image: self.clone(), at, bytes: vec![0; len], done: Done::Read(done) }.start();
    }

    /// Begins to write `bytes` at `at`. The caller keeps the image until the answer, as with [`Image::begin_read`].
    pub fn begin_write(self: &Arc<Image>, at: u64, bytes: Vec<u8>, done: WriteDone) {
        UnderWay { image: self.clone(), at, bytes, done: Done::Write(done) }.start();
    }
}

impl UnderWay {
    fn start(self) {
        let (lib, handle, at) = (self.image.lib, self.image.handle, self.at);
        let is_read = matches!(self.done, Done::Read(_));
        let mut it = Box::new(self);
        // The memory is on the heap and stays where it is when the box is given away.
        let (memory, len) = (it.bytes.as_mut_ptr(), it.bytes.len());
        let raw = Box::into_raw(it);
        let mut c: CompletionT = null_mut();
        // SAFETY: `raw` lives until the callback, or until it is taken back below where there will be none.
        let code = unsafe { (lib.rbd_aio_create_completion)(raw.cast(), over, &raw mut c) };
        if code < 0 {
            // SAFETY: no completion was made, so that nobody else has it.
            return unsafe { Box::from_raw(raw) }.end(code as isize);
        }
        // SAFETY: the image is live as long as `raw`, which owns the memory.
        let code = unsafe {
            match is_read {
                true => (lib.rbd_aio_read)(handle, at, len, memory.cast(), c),
                false => (lib.rbd_aio_write)(handle, at, len, memory.cast_const().cast(), c),
            }
        };
        if code < 0 {
            // SAFETY: an operation that is not taken has no callback; the completion is given back once.
            unsafe {
                (lib.rbd_aio_release)(c);
                Box::from_raw(raw).end(code as isize);
            }
        }
    }

    fn end(self, code: isize) {
        let UnderWay { at, bytes, done, .. } = self;
        let len = bytes.len();
        match done {
            Done::Read(done) => {
                let read = check(|| format!("reading {len} bytes at {at} of the image"), code as i32);
                done(read.and_then(|got| match got as usize == len {
                    true => Ok(bytes),
                    false => Err(CephError::named(format!("the image ends before byte {}", at + len as u64))),
                }));
            }
            Done::Write(done) => {
                done(check(|| format!("writing {len} bytes at {at} of the image"), code as i32).map(drop));
            }
        }
    }
}

/// A callback of librbd.
///
/// # Safety
/// `arg` is an [`UnderWay`] that was given away with [`Box::into_raw`], and nobody else's.
unsafe extern "C" fn over(c: CompletionT, arg: *mut c_void) {
    // SAFETY: librbd calls once, with what the operation gave it.
    let it = unsafe { Box::from_raw(arg.cast::<UnderWay>()) };
    let lib = it.image.lib;
    // SAFETY: the completion is live until it is given back here.
    let code = unsafe {
        let code = (lib.rbd_aio_get_return_value)(c);
        (lib.rbd_aio_release)(c);
        code
    };
    it.end(code);
}
