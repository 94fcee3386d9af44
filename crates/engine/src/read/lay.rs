//! The pieces of a read, one over the other.

use super::task::{Piece, ReadTask, Source};
use loligo_format::units::BLOCK;

impl ReadTask {
    /// Lays `over`, of which the sectors `mask` from byte `from` of the volume on count, over what `block` has of the core.
    fn lay(&mut self, block: u32, from: u64, mask: impl Fn(usize) -> bool, over: &[u8]) {
        let first_global = self.first_global;
        let is_under = |p: &&mut Piece| p.is_from_core() && p.first <= block && block < p.first + p.blocks;
        let under = self.pieces.iter_mut().find(is_under);
        let Some((first, buf)) = under.and_then(|p| p.buf.as_mut().map(|b| (p.first, b))) else { return };
        let start = (from - (first_global + u64::from(first - self.first)) * BLOCK) as usize;
        for s in (0..over.len() / 512).filter(|s| mask(*s)) {
            let at = start + s * 512;
            if at + 512 <= buf.len() {
                buf[at..at + 512].copy_from_slice(&over[s * 512..s * 512 + 512]);
            }
        }
    }
}

/// Lays over the pieces from the core what was read again of it, then what memory has, then what is cached in the order it was asked
/// for.
pub(super) fn overlay(task: &mut ReadTask) {
    for i in 0..task.pieces.len() {
        if let Source::Missing { from, .. } = task.pieces[i].source
            && let Some(over) = task.pieces[i].buf.take()
        {
            task.lay(task.pieces[i].first, from, |_| true, &over);
        }
    }
    for (block, mask, content) in std::mem::take(&mut task.kept) {
        task.lay(block, task.global(block) * BLOCK, |s| mask & (1 << s) != 0, &content);
    }
    for i in 0..task.pieces.len() {
        if let Source::Overlay { meta, .. } = task.pieces[i].source
            && let Some(over) = task.pieces[i].buf.take()
        {
            let block = task.pieces[i].first;
            task.lay(block, task.global(block) * BLOCK, |s| meta.valid & (1 << s) != 0, &over);
        }
    }
}
