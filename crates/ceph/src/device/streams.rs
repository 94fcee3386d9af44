//! Writes of clients, as they go to the image: one by one, or neighbours of a stream as one operation.
//!
//! An operation of the cluster costs an OSD more than the bytes of a small write. A write waits for others only where it goes on
//! where another ends, and while so much of that object is under way that nothing is gained by one more.

use loligo_block::{Shared, Tag};
use std::collections::{HashMap, VecDeque};

/// Writes to one object that are under way before another waits for its neighbours. A stream of fewer requests at a time is not
/// held up.
const BESIDE: usize = 4;
/// Bytes of an operation above which nothing more joins it: an OSD takes longer for each byte of larger ones.
const MOST: usize = 1 << 20;

/// Neighbours that go as one.
#[derive(Debug)]
pub(super) struct Run {
    /// Byte of the image.
    pub(super) at: u64,
    /// In order, without a gap.
    pub(super) pieces: Vec<(Tag, Shared)>,
    len: usize,
}

impl Run {
    /// Byte of the image behind it.
    pub(super) fn end(&self) -> u64 {
        self.at + self.len as u64
    }

    /// Takes away what lies behind the first `within` bytes; the tags of pieces of which nothing is left.
    pub(super) fn cut(&mut self, within: u64) -> Vec<Tag> {
        let mut gone = Vec::new();
        let mut left = within.min(self.len as u64) as usize;
        self.len = left;
        self.pieces.retain_mut(|(tag, data)| {
            if left == 0 {
                gone.push(*tag);
                return false;
            }
            if data.len() > left {
                *data = data.slice(0..left);
            }
            left -= data.len();
            true
        });
        gone
    }
}

/// Operations of one object, under way or waiting.
#[derive(Debug, Default)]
struct Object {
    /// The end of operations under way, and how many writes they are.
    flying: Vec<(u64, usize)>,
    waiting: VecDeque<Run>,
}

impl Object {
    fn go(&mut self, run: Run) -> Run {
        self.flying.push((run.end(), run.pieces.len()));
        run
    }

    /// Writes under way.
    fn busy(&self) -> usize {
        self.flying.iter().map(|f| f.1).sum()
    }
}

/// All objects that clients are writing.
#[derive(Debug)]
pub(super) struct Streams {
    object_size: u64,
    active: HashMap<u64, Object>,
}

impl Streams {
    pub(super) fn new(object_size: u64) -> Streams {
        Streams { object_size, active: HashMap::new() }
    }

    /// Everything that waits: it will never go.
    pub(super) fn give_up(&mut self) -> Vec<Tag> {
        let runs = self.active.values_mut().flat_map(|o| o.waiting.drain(..));
        runs.flat_map(|run| run.pieces).map(|(tag, _)| tag).collect()
    }

    /// A write; what is to go now, which [`Streams::landed`] must be told of.
    pub(super) fn offer(&mut self, tag: Tag, at: u64, data: Shared) -> Option<Run> {
        let (len, object) = (data.len(), at / self.object_size);
        let run = Run { at, pieces: vec![(tag, data)], len };
        let o = self.active.entry(object).or_default();
        let inside = run.end() <= (object + 1) * self.object_size;
        let goes_on = o.flying.iter().any(|f| f.0 == at) || o.waiting.iter().any(|w| w.end() == at);
        if o.busy() < BESIDE || len >= MOST || !inside || !goes_on {
            return Some(o.go(run));
        }
        match o.waiting.iter_mut().find(|w| w.end() == at && w.len + len <= MOST) {
            Some(w) => {
                w.len += len;
                w.pieces.extend(run.pieces);
            }
            None => o.waiting.push_back(run),
        }
        let full = o.waiting.iter().position(|w| w.len + len > MOST)?;
        o.waiting.remove(full).map(|run| o.go(run))
    }

    /// The operation from `at` to `end` is over. Gives those that are to go now.
    pub(super) fn landed(&mut self, at: u64, end: u64) -> Option<Run> {
        let object = at / self.object_size;
        let o = self.active.get_mut(&object)?;
        if let Some(n) = o.flying.iter().position(|f| f.0 == end) {
            o.flying.swap_remove(n);
        }
        if o.busy() >= BESIDE {
            return None;
        }
        let run = o.waiting.pop_front().map(|run| o.go(run));
        if o.flying.is_empty() {
            self.active.remove(&object);
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::Buf;

    const OBJECT: u64 = 4 << 20;
    const WRITE: usize = 64 << 10;

    fn data(len: usize) -> Shared {
        Buf::alloc(len).freeze()
    }

    /// Offers `n` writes of 64 KiB in order from `at`; where what goes begins and ends.
    fn stream(s: &mut Streams, at: u64, n: u64) -> Vec<(u64, u64)> {
        let at = |n: u64| at + n * WRITE as u64;
        (0..n).filter_map(|n| s.offer(n, at(n), data(WRITE))).map(|r| (r.at / 1024, r.end() / 1024)).collect()
    }

    #[test]
    fn a_deep_stream_goes_in_large_operations_after_a_few_small() {
        let mut s = Streams::new(OBJECT);
        // Four of 64 KiB, three of 1 MiB, and the rest of the object waits.
        let gone = stream(&mut s, 0, 64);
        assert_eq!(
            gone,
            [(0, 64), (64, 128), (128, 192), (192, 256), (256, 1280), (1280, 2304), (2304, 3328)]
        );
        let over = |s: &mut Streams, (at, end): (u64, u64)| s.landed(at * 1024, end * 1024);
        for of in &gone[..6] {
            assert!(over(&mut s, *of).is_none(), "many are still under way");
        }
        let last = over(&mut s, gone[6]).expect("what is left");
        assert_eq!((last.at / 1024, last.end() / 1024, last.pieces.len()), (3328, 4096, 12));
        assert_eq!(last.pieces.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), (52..64).collect::<Vec<_>>());
        assert!(s.landed(last.at, last.end()).is_none());
        assert!(s.active.is_empty(), "nothing is remembered of what is over");
    }

    #[test]
    fn what_waits_can_be_given_up_and_what_is_under_way_goes_on() {
        let mut s = Streams::new(OBJECT);
        let gone = stream(&mut s, 0, 8);
        assert_eq!(gone.len(), 4);
        assert_eq!(s.give_up(), [4, 5, 6, 7]);
        for (at, end) in gone {
            assert!(s.landed(at * 1024, end * 1024).is_none(), "nothing waits any more");
        }
        assert!(s.active.is_empty());
    }

    #[test]
    fn what_is_no_stream_waits_for_nothing() {
        let mut s = Streams::new(OBJECT);
        for n in 0..32 {
            assert!(s.offer(n, n * 2 * WRITE as u64, data(WRITE)).is_some(), "there is a gap before it");
        }
        let mut s = Streams::new(OBJECT);
        for n in 0..8 {
            let at = n * (1 << 20);
            assert!(s.offer(n, at, data(1 << 20)).is_some(), "it is large by itself");
            assert!(
                s.offer(n, at + OBJECT * 100 - WRITE as u64, data(2 * WRITE)).is_some(),
                "it crosses objects"
            );
        }
        let mut s = Streams::new(OBJECT);
        for n in 0..1000u64 {
            let at = n * WRITE as u64;
            let run = s.offer(n, at, data(WRITE)).expect("three at a time are not held up");
            assert_eq!(run.at, at);
            if n >= 2 {
                assert!(s.landed(at - 2 * WRITE as u64, at - WRITE as u64).is_none());
            }
        }
    }

    #[test]
    fn a_run_is_cut_where_the_image_ends() {
        let mut s = Streams::new(OBJECT);
        stream(&mut s, 0, 8);
        let mut run = s.landed(0, WRITE as u64).expect("four have waited");
        assert_eq!(run.cut(WRITE as u64 + 512), [6, 7]);
        assert_eq!(
            run.pieces.iter().map(|(tag, d)| (*tag, d.len())).collect::<Vec<_>>(),
            [(4, WRITE), (5, 512)]
        );
        assert_eq!(run.cut(0), [4, 5]);
        assert!(run.pieces.is_empty());
    }
}
