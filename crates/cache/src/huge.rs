//! Flat arrays for the index: zeroed, never grown, on transparent huge pages where the kernel has them.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Arrays from this many bytes on are aligned to and advised for huge pages.
const HUGE: usize = 2 << 20;

/// A fixed array of `T` that starts as zero bytes; untouched parts cost no memory.
pub(crate) struct HugeVec<T: Copy> {
    ptr: NonNull<T>,
    len: usize,
}

// SAFETY: the array is owned by the value alone.
unsafe impl<T: Copy + Send> Send for HugeVec<T> {}

impl<T: Copy> HugeVec<T> {
    fn layout(len: usize) -> Layout {
        let bytes = len.max(1) * size_of::<T>();
        let align = if bytes >= HUGE { HUGE } else { align_of::<T>().max(64) };
        Layout::from_size_align(bytes, align).expect("an index array fits the address space")
    }

    /// `len` values of all-zero bytes. `T` must be valid as zero bytes: only plain integers and structs of them.
    pub(crate) fn zeroed(len: usize) -> HugeVec<T> {
        let layout = Self::layout(len);
        // SAFETY: the layout's size is above zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw.cast::<T>()) else { handle_alloc_error(layout) };
        if layout.size() >= HUGE {
            // SAFETY: the range was just allocated and is advised, not changed. Failure costs speed only.
            let _ =
                unsafe { rustix::mm::madvise(raw.cast(), layout.size(), rustix::mm::Advice::LinuxHugepage) };
        }
        HugeVec { ptr, len }
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
        // SAFETY: allocated in `zeroed` with this layout, freed once.
        unsafe { dealloc(self.ptr.as_ptr().cast(), Self::layout(self.len)) }
    }
}

impl<T: Copy> std::fmt::Debug for HugeVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HugeVec({} x {} B)", self.len, size_of::<T>())
    }
}
