//! Counts of requests through the mounts of a volume. They show that a program's fsyncs arrive: one that does not is success to that
//! program all the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of the kernel since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub(super) reads: Count,
    pub(super) writes: Count,
    pub(super) fsyncs: Count,
    pub(super) fallocates: Count,
    pub(super) held_most: Count,
}

impl Counters {
    /// All of them by name.
    pub fn all(&self) -> [(&'static str, u64); 5] {
        [
            ("fuse_reads", self.reads.get()),
            ("fuse_writes", self.writes.get()),
            ("fuse_fsyncs", self.fsyncs.get()),
            ("fuse_fallocates", self.fallocates.get()),
            // Of the mount that held the most at once, not of all together.
            ("fuse_held_bytes_max", self.held_most.get()),
        ]
    }
}

/// One number that several threads raise.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn at_least(&self, n: u64) {
        self.0.fetch_max(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
