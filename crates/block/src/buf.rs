//! Aligned buffers with one owner, recycled per thread.
//!
//! A [`Buf`] is the only handle to its bytes and may be written; [`Buf::freeze`] turns it into a [`Shared`], which
//! may be cloned and sliced but never written. Both start at an address aligned to [`alignment`], so that they can go
//! to an `O_DIRECT` descriptor as they are (a slice need not be aligned; devices bounce those).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Smallest allocation, in bytes.
const MIN_CLASS: usize = 4096;
/// Recycled classes: 4 KiB, 8 KiB … 2 MiB.
const CLASSES: usize = 10;
/// Bytes that all classes together keep per thread for reuse: twice what one NBD client may have in flight. A new allocation
/// costs its zeros and its page faults, 0.3 ms a MiB.
const KEEP_BYTES: usize = 128 << 20;

/// The alignment of every allocation in bytes: the kernel's page size, at least 4,096.
///
/// `LOLIGO_FORCE_ALIGN` (a power of two up to 1 MiB) overrides it, so that hosts with 64 KiB pages can be tested on
/// hosts without.
pub fn alignment() -> usize {
    static ALIGN: OnceLock<usize> = OnceLock::new();
    *ALIGN.get_or_init(|| {
        let page = rustix::param::page_size().max(MIN_CLASS);
        match std::env::var("LOLIGO_FORCE_ALIGN").ok().and_then(|v| v.parse::<usize>().ok()) {
            Some(forced) if forced.is_power_of_two() && forced <= 1 << 20 => page.max(forced),
            _ => page,
        }
    })
}

/// One allocation. `refs` counts the handles; the last one returns it to the thread's pool.
struct Backing {
    ptr: NonNull<u8>,
    cap: usize,
    align: usize,
    refs: AtomicUsize,
}

// SAFETY: the bytes behind `ptr` are reached only through `Buf` (one owner, `&mut` to write) or `Shared` (read only).
unsafe impl Send for Backing {}
// SAFETY: as above; shared access only ever reads.
unsafe impl Sync for Backing {}

impl Backing {
    fn allocate(cap: usize) -> Box<Backing> {
        let align = alignment();
        let layout = Layout::from_size_align(cap, align).expect("capacity and alignment are in range");
        // SAFETY: `layout` has a size above zero, as every class has.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        Box::new(Backing { ptr, cap, align, refs: AtomicUsize::new(1) })
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.cap, self.align).expect("was valid when allocated");
        // SAFETY: allocated in `allocate` with this very layout and freed once, here.
        unsafe { dealloc(self.ptr.as_ptr(), layout) }
    }
}

/// Buffers that a thread keeps for reuse.
#[expect(clippy::vec_box, reason = "handles point to the box, which therefore must not move")]
struct Pool {
    classes: [Vec<Box<Backing>>; CLASSES],
    /// Bytes of all of them.
    kept: usize,
}

impl Pool {
    fn take(&mut self, class: usize) -> Option<Box<Backing>> {
        let b = self.classes[class].pop()?;
        self.kept -= b.cap;
        Some(b)
    }

    fn keep(&mut self, class: usize, b: Box<Backing>) {
        self.kept += b.cap;
        self.classes[class].push(b);
        while self.kept > KEEP_BYTES {
            // What is there most of is needed least.
            let bytes = |class: &usize| self.classes[*class].len() * (MIN_CLASS << class);
            let most = (0..CLASSES).max_by_key(bytes).unwrap_or(class);
            drop(self.take(most));
        }
    }
}

thread_local! {
    static POOL: RefCell<Pool> =
        const { RefCell::new(Pool { classes: [const { Vec::new() }; CLASSES], kept: 0 }) };
}

fn class_of(len: usize) -> usize {
    len.max(MIN_CLASS).next_power_of_two().trailing_zeros() as usize - MIN_CLASS.trailing_zeros() as usize
}

fn take(len: usize) -> Box<Backing> {
    let class = class_of(len);
    if class >= CLASSES {
        return Backing::allocate(len.next_multiple_of(MIN_CLASS));
    }
    let recycled = POOL.try_with(|p| p.borrow_mut().take(class)).ok().flatten();
    match recycled {
        Some(b) => {
            b.refs.store(1, Ordering::Relaxed);
            b
        }
        None => Backing::allocate(MIN_CLASS << class),
    }
}

fn give_back(b: Box<Backing>) {
    let class = class_of(b.cap);
    if class < CLASSES && b.cap == MIN_CLASS << class {
        // The thread may be ending: then the pool is gone and the backing is freed here.
        let _ = POOL.try_with(|p| p.borrow_mut().keep(class, b));
    }
}

fn release(b: NonNull<Backing>) {
    // SAFETY: `b` came from `Box::leak` in `Buf::alloc` and this handle still counts in `refs`.
    let backing = unsafe { b.as_ref() };
    // The last handle needs no read-modify-write: nobody is left who could clone it. That matters: a locked operation
    // would first wait for all the stores of the copy that just filled or emptied the buffer.
    if backing.refs.load(Ordering::Acquire) == 1 || backing.refs.fetch_sub(1, Ordering::Release) == 1 {
        fence(Ordering::Acquire);
        // SAFETY: the count has reached zero, so no other handle exists and the box is ours again.
        give_back(unsafe { Box::from_raw(b.as_ptr()) });
    }
}

/// Bytes with one owner: what a device reads into, and what becomes a [`Shared`] once filled.
pub struct Buf {
    b: NonNull<Backing>,
    len: usize,
}

// SAFETY: a `Buf` is the only handle to its bytes; moving it moves that right.
unsafe impl Send for Buf {}
// SAFETY: `&Buf` gives only `&[u8]`.
unsafe impl Sync for Buf {}

impl Buf {
    /// `spare` where it has this length, else a new one as from [`Buf::alloc`].
    pub fn reused(spare: Option<Buf>, len: usize) -> Buf {
        spare.filter(|b| b.len() == len).unwrap_or_else(|| Buf::alloc(len))
    }

    /// `len` bytes of unspecified (but initialised) content; recycled buffers keep what was in them.
    pub fn alloc(len: usize) -> Buf {
        Buf { b: NonNull::from(Box::leak(take(len))), len }
    }

    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Buf {
        let mut b = Buf::alloc(len);
        b.fill(0);
        b
    }

    /// A copy of `bytes` at an aligned address.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        let mut b = Buf::alloc(bytes.len());
        b.copy_from_slice(bytes);
        b
    }

    /// Shortens the buffer to `len` bytes (no effect when it is not longer).
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Gives up the right to write, in exchange for clones and slices.
    pub fn freeze(self) -> Shared {
        let s = Shared { b: self.b, off: 0, len: self.len };
        std::mem::forget(self);
        s
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `ptr` are allocated and initialised, and no `&mut` exists while `&self` does.
        unsafe { std::slice::from_raw_parts(self.b.as_ref().ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and this is the only handle.
        unsafe { std::slice::from_raw_parts_mut(self.b.as_ref().ptr.as_ptr(), self.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        release(self.b);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} B)", self.len)
    }
}

/// Read-only bytes with any number of owners; slicing is free of copies.
pub struct Shared {
    b: NonNull<Backing>,
    off: usize,
    len: usize,
}

// SAFETY: only reads go through a `Shared`, and the count is atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The part `range` of these bytes, sharing the allocation.
    ///
    /// # Panics
    /// When `range` reaches past the end.
    pub fn slice(&self, range: Range<usize>) -> Shared {
        assert!(range.start <= range.end && range.end <= self.len, "slice {range:?} of {} bytes", self.len);
        let mut s = self.clone();
        s.off += range.start;
        s.len = range.end - range.start;
        s
    }

    /// The part `range` of these bytes, given up for it: no second handle.
    ///
    /// # Panics
    /// When `range` reaches past the end.
    pub fn into_slice(mut self, range: Range<usize>) -> Shared {
        assert!(range.start <= range.end && range.end <= self.len, "slice {range:?} of {} bytes", self.len);
        self.off += range.start;
        self.len = range.end - range.start;
        self
    }

    /// True if the first byte sits at a multiple of `align`.
    pub fn is_aligned(&self, align: usize) -> bool {
        self.as_ptr().addr().is_multiple_of(align)
    }
}

impl Clone for Shared {
    fn clone(&self) -> Shared {
        // SAFETY: this handle counts, so the backing is alive.
        unsafe { self.b.as_ref() }.refs.fetch_add(1, Ordering::Relaxed);
        Shared { b: self.b, off: self.off, len: self.len }
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `off + len` lies inside the allocation (kept by `slice`), and nobody writes while a `Shared` exists.
        unsafe { std::slice::from_raw_parts(self.b.as_ref().ptr.as_ptr().add(self.off), self.len) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        release(self.b);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} B)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocation_starts_aligned_and_slices_share_it() {
        for len in [1, 511, 4096, 4097, 1 << 20, 5 << 20] {
            let mut b = Buf::alloc(len);
            assert_eq!(b.as_ptr().addr() % alignment(), 0);
            b.fill(7);
            b[len - 1] = 9;
            let s = b.freeze();
            let tail = s.slice(len - 1..len);
            drop(s);
            assert_eq!(&tail[..], &[9]);
        }
    }

    #[test]
    fn a_thread_keeps_what_it_may_and_drops_what_it_has_most_of() {
        let kept = |class: usize| POOL.with(|p| p.borrow().classes[class].len());
        drop((0..40).map(|_| Buf::alloc(4096)).collect::<Vec<_>>());
        drop((0..100).map(|_| Buf::alloc(2 << 20)).collect::<Vec<_>>());
        assert_eq!(kept(0), 40);
        assert_eq!(kept(9), (KEEP_BYTES - 40 * 4096) >> 21);
        drop((0..70).map(|_| Buf::alloc(1 << 20)).collect::<Vec<_>>());
        assert!(kept(8) >= 60 && kept(9) >= 30, "{} and {}", kept(8), kept(9));
        assert!(POOL.with(|p| p.borrow().kept) <= KEEP_BYTES);
    }

    #[test]
    fn a_recycled_buffer_is_not_shared_with_a_living_slice() {
        let s = Buf::copy_of(&[1; 4096]).freeze();
        let keep = s.slice(0..8);
        drop(s);
        let mut other = Buf::alloc(4096);
        other.fill(2);
        assert_eq!(&keep[..], &[1; 8]);
    }
}
