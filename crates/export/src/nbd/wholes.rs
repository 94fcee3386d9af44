//! Writes that reach the volume in parts. A client that goes in the middle of one leaves some of them written, as a disk does that
//! loses its power.

use super::transmission::Refusal;
use slab::Slab;

#[derive(Debug)]
struct Whole {
    cookie: u64,
    left: usize,
    failed: Option<Refusal>,
}

/// Those of which some part is not over.
#[derive(Debug, Default)]
pub struct Wholes(Slab<Whole>);

impl Wholes {
    /// One begins, of so many parts; its place.
    pub fn begin(&mut self, cookie: u64, parts: usize) -> usize {
        self.0.insert(Whole { cookie, left: parts, failed: None })
    }

    /// A part is over. With the last one: what to answer, which is the first refusal if there was one.
    pub fn part_over(&mut self, place: usize, failed: Option<Refusal>) -> Option<(u64, Option<Refusal>)> {
        let w = &mut self.0[place];
        w.left -= 1;
        w.failed = w.failed.or(failed);
        (w.left == 0).then(|| {
            let w = self.0.remove(place);
            (w.cookie, w.failed)
        })
    }
}
