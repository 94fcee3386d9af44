//! Flat arrays for the index: zeroed, never grown, on transparent huge pages where the kernel has them.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Arrays from this many bytes on are mappings of their own, aligned to and advised for huge pages.
const HUGE: usize = 2 << 20;

/// A mapping's address and bytes.
type Mapping = (NonNull<u8>, usize);

/// A fixed array of `T` that starts as zero bytes; untouched parts cost no memory.
pub(crate) struct HugeVec<T: Copy> {
    ptr: NonNull<T>,
    len: usize,
    /// The mapping it lies in; `None`: an ordinary allocation.
    mapped: Option<Mapping>,
}

// SAFETY: the array is owned by the value alone.
unsafe impl<T: Copy + Send> Send for HugeVec<T> {}

/// Addresses of an array, for having the kernel find memory for them ahead of their first use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    addr: usize,
    bytes: usize,
}

impl Region {
    /// Its two halves.
    pub(crate) fn halves(self) -> [Region; 2] {
        let at = self.bytes / 2;
        [Region { bytes: at, ..self }, Region { addr: self.addr + at, bytes: self.bytes - at }]
    }

    /// Has the kernel find and clear the memory now. Memory that is there already stays as it is. Nothing
    /// happens if the kernel cannot (before Linux 5.14).
    pub(crate) fn populate(self) {
        let (from, end) = (self.addr.next_multiple_of(HUGE), self.addr + self.bytes);
        // A huge page at a time: no thread can map memory during a call.
        for page in (from..end).step_by(HUGE) {
            let start = std::ptr::without_provenance_mut(page);
            // SAFETY: populating changes no content, whatever is mapped at these addresses by now.
            let _ = unsafe { madvise(start, HUGE.min(end - page), Advice::LinuxPopulateWrite) };
        }
    }
}

/// `bytes` zero bytes of a fresh mapping, aligned to `HUGE` and advised for huge pages before the first touch: an
/// allocator that zeroes by writing would have filled it with small pages by then. Returns where they begin, and the
/// mapping.
fn map_huge(bytes: usize) -> Option<(NonNull<u8>, Mapping)> {
    let whole = bytes.checked_add(HUGE)?;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    let base = unsafe {
        mmap_anonymous(
            null_mut(),
            whole,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }
    .ok()?;
    let base = NonNull::new(base.cast::<u8>())?;
    let skip = base.addr().get().next_multiple_of(HUGE) - base.addr().get();
    // SAFETY: less than `HUGE` is skipped, so that `bytes` remain inside the mapping.
    let start = unsafe { base.add(skip) };
    // SAFETY: inside the mapping just made, which is advised, not changed. A refusal costs speed only.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
    Some((start, (base, whole)))
}

impl<T: Copy> HugeVec<T> {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len.max(1) * size_of::<T>(), align_of::<T>().max(64))
            .expect("an index array fits the address space")
    }

    /// `len` values of all-zero bytes. `T` must be valid as zero bytes: only plain integers and structs of them.
    pub(crate) fn zeroed(len: usize) -> HugeVec<T> {
        let layout = Self::layout(len);
        if layout.size() >= HUGE {
            let Some((start, mapping)) = map_huge(layout.size()) else { handle_alloc_error(layout) };
            return HugeVec { ptr: start.cast(), len, mapped: Some(mapping) };
        }
        // SAFETY: the layout's size is above zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw.cast::<T>()) else { handle_alloc_error(layout) };
        HugeVec { ptr, len, mapped: None }
    }

    /// The region that it takes.
    pub(crate) fn region(&self) -> Region {
        Region { addr: self.ptr.addr().get(), bytes: self.len * size_of::<T>() }
    }

    /// Brings element `i` towards the processor.
    #[inline]
    pub(crate) fn prefetch(&self, i: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            debug_assert!(i < self.len);
            // SAFETY: a prefetch has no effect on memory, whatever the address.
            unsafe { _mm_prefetch(self.ptr.as_ptr().add(i).cast::<i8>(), _MM_HINT_T0) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = i;
    }
}

impl<T: Copy> Deref for HugeVec<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` values are allocated and initialised (zeroed at first).
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Copy> DerefMut for HugeVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Copy> Drop for HugeVec<T> {
    fn drop(&mut self) {
        match self.mapped {
            // SAFETY: mapped in `zeroed` with this length and unmapped once, here.
            Some((base, whole)) => drop(unsafe { munmap(base.as_ptr().cast(), whole) }),
            // SAFETY: allocated in `zeroed` with this layout, freed once.
            None => unsafe { dealloc(self.ptr.as_ptr().cast(), Self::layout(self.len)) },
        }
    }
}

impl<T: Copy> std::fmt::Debug for HugeVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HugeVec({} x {} B)", self.len, size_of::<T>())
    }
}
