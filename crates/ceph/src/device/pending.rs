//! The askers who are owed an answer about operations that Ceph has, so that it can be given without Ceph
//! once the image is lost. The memory stays the flight's: Ceph may still use it.

use super::flight::What;
use loligo_block::Tag;
use slab::Slab;

/// The waiters for one operation.
#[derive(Debug)]
pub(super) enum Pending {
    /// A reader of so many bytes.
    Read { tag: Tag, len: usize },
    /// These.
    Tags(Vec<Tag>),
    /// Groups that were asked for, once for each extent.
    Requests(Vec<usize>),
}

/// Everything that Ceph has.
#[derive(Debug, Default)]
pub(super) struct PendingAnswers(Slab<Pending>);

impl PendingAnswers {
    /// An operation is about to go; its place.
    pub(super) fn add(&mut self, what: &What) -> usize {
        self.0.insert(match what {
            What::Read { tag, buf, .. } => Pending::Read { tag: *tag, len: buf.len() },
            What::Write { pieces, .. } => Pending::Tags(pieces.iter().map(|(tag, _)| *tag).collect()),
            What::Zeroes { tag, .. } | What::Flush { tag } => Pending::Tags(vec![*tag]),
            What::Trim(trim) => Pending::Tags(trim.tags.clone()),
            // Nobody has asked for it.
            What::Remove { .. } => Pending::Tags(Vec::new()),
            What::Primer { extent, .. } => Pending::Requests(vec![extent.request]),
            What::Group { extents, .. } => Pending::Requests(extents.iter().map(|e| e.request).collect()),
        })
    }

    /// One has landed. False: it was given up before.
    pub(super) fn landed(&mut self, place: usize) -> bool {
        self.0.try_remove(place).is_some()
    }

    /// Nothing goes any more, and nobody waits for what has gone.
    pub(super) fn give_up(&mut self) -> Vec<Pending> {
        self.0.drain().collect()
    }
}
