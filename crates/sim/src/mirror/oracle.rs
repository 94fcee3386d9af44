//! The contents that clients may rely on.

use super::disk::BLOCKS;

/// The oldest write that each block may show.
#[derive(Debug, Clone)]
pub(super) struct Oracle {
    /// After a crash of the program: what was acknowledged or seen.
    pub(super) kept: Vec<u64>,
    /// After a power cut: what was acknowledged before a flush that was.
    flushed: Vec<u64>,
}

impl Oracle {
    pub(super) fn new() -> Oracle {
        Oracle { kept: vec![0; BLOCKS as usize], flushed: vec![0; BLOCKS as usize] }
    }

    /// A client may rely on this write from now on.
    pub(super) fn keep(&mut self, block: u64, write: u64) {
        let kept = &mut self.kept[block as usize];
        *kept = write.max(*kept);
    }

    /// A flush that began when `before` was kept is acknowledged.
    pub(super) fn flush(&mut self, before: &[u64]) {
        for (flushed, before) in self.flushed.iter_mut().zip(before) {
            *flushed = (*before).max(*flushed);
        }
    }

    pub(super) fn power_cut(&mut self) {
        self.kept.clone_from(&self.flushed);
    }
}
