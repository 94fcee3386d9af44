//! Operations that a layer carries out in parts: where a read gathers its bytes, and when the last part is over.

use crate::{Buf, Completion, IoError, Tag};
use slab::Slab;

#[derive(Debug)]
struct Split {
    tag: Tag,
    /// A read's own buffer.
    buf: Option<Buf>,
    left: usize,
    result: Result<(), IoError>,
}

/// The operations of a layer that are under way in parts, by key.
#[derive(Debug, Default)]
pub(crate) struct Splits(Slab<Split>);

impl Splits {
    /// The key that [`Splits::begin`] gives next, for the tags of the parts.
    pub(crate) fn next_key(&self) -> u64 {
        self.0.vacant_key() as u64
    }

    /// Begins the operation `tag` in `parts` parts; `buf`: that of a read.
    pub(crate) fn begin(&mut self, tag: Tag, buf: Option<Buf>, parts: usize) {
        self.0.insert(Split { tag, buf, left: parts, result: Ok(()) });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The operation fails with this, unless it has failed already.
    pub(crate) fn fail(&mut self, key: u64, result: Result<(), IoError>) {
        let split = &mut self.0[key as usize];
        if split.result.is_ok() {
            split.result = result;
        }
    }

    /// A part is over, which read bytes of the operation from `at` on; the operation's completion if it was the last.
    pub(crate) fn part_over(&mut self, key: u64, at: usize, part: Completion) -> Option<Completion> {
        let split = &mut self.0[key as usize];
        if let (Some(to), Some(from), Ok(())) = (&mut split.buf, &part.buf, &part.result) {
            to[at..at + from.len()].copy_from_slice(from);
        }
        split.left -= 1;
        self.fail(key, part.result);
        if self.0[key as usize].left > 0 {
            return None;
        }
        let Split { tag, buf, result, .. } = self.0.remove(key as usize);
        Some(Completion { tag, buf, result })
    }
}
