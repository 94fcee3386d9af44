//! Sequential streams: which requests continue one, and how long it is by now.

use super::hash::mix;

/// Streams followed at a time (as Open CAS follows per core).
const STREAMS: usize = 128;
/// Requests until a run counts as a stream, unless told otherwise (Open CAS's default).
pub const DEFAULT_PROMOTION: u32 = 8;

/// Tag of a place that follows no stream.
const FREE: u16 = 0;

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// The address it goes on at.
    next: u64,
    bytes: u64,
    requests: u32,
    write: bool,
    newer: u8,
    older: u8,
}

/// A run of requests, up to and with one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Bytes of all of it.
    pub bytes: u64,
    /// It has as many requests as make a stream.
    pub stream: bool,
}

impl Run {
    /// Bytes of the stream that it is; 0 if it is none.
    pub fn stream_bytes(self) -> u64 {
        if self.stream { self.bytes } else { 0 }
    }
}

/// Follows the most recent runs of requests, each by the address it goes on at and its direction.
#[derive(Debug)]
pub struct Streams {
    /// A short hash of what each stream waits for, side by side for one vector search; `FREE`: none.
    tags: [u16; STREAMS],
    streams: [Stream; STREAMS],
    newest: u8,
    oldest: u8,
    promotion: u32,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams::new(DEFAULT_PROMOTION)
    }
}

impl Streams {
    /// Follows nothing yet. A run counts as a stream from its `promotion`-th request on.
    pub fn new(promotion: u32) -> Streams {
        let last = STREAMS as u8 - 1;
        let free = |i: usize| Stream {
            next: 0,
            bytes: 0,
            requests: 0,
            write: false,
            newer: (i as u8).wrapping_sub(1).min(last),
            older: (i as u8 + 1).min(last),
        };
        Streams {
            tags: [FREE; STREAMS],
            streams: std::array::from_fn(free),
            newest: 0,
            oldest: last,
            promotion,
        }
    }

    /// Requests until a run counts as a stream, from now on.
    pub fn set_promotion(&mut self, requests: u32) {
        self.promotion = requests;
    }

    fn tag(address: u64, write: bool) -> u16 {
        (mix(address << 1 | u64::from(write)) as u16).max(FREE + 1)
    }

    /// The stream that waits for a request at `offset`.
    fn find(&self, offset: u64, write: bool) -> Option<usize> {
        let tag = Streams::tag(offset, write);
        if !self.tags.iter().fold(false, |any, &t| any | (t == tag)) {
            return None;
        }
        (0..STREAMS).find(|&i| {
            self.tags[i] == tag && self.streams[i].next == offset && self.streams[i].write == write
        })
    }

    fn make_newest(&mut self, at: usize) {
        if usize::from(self.newest) == at {
            return;
        }
        let Stream { newer, older, .. } = self.streams[at];
        self.streams[usize::from(newer)].older = older;
        if usize::from(self.oldest) == at {
            self.oldest = newer;
        } else {
            self.streams[usize::from(older)].newer = newer;
        }
        self.streams[at].older = self.newest;
        self.streams[usize::from(self.newest)].newer = at as u8;
        self.newest = at as u8;
    }

    /// Notes a request of `len` bytes at `offset`, and says which run it ends.
    pub fn observe(&mut self, offset: u64, len: u64, write: bool) -> Run {
        let at = self.find(offset, write).unwrap_or_else(|| {
            let at = usize::from(self.oldest);
            let s = &mut self.streams[at];
            (s.bytes, s.requests, s.write) = (0, 0, write);
            at
        });
        self.make_newest(at);
        let s = &mut self.streams[at];
        s.next = offset.saturating_add(len);
        s.bytes = s.bytes.saturating_add(len);
        s.requests = s.requests.saturating_add(1);
        self.tags[at] = Streams::tag(s.next, write);
        Run { bytes: s.bytes, stream: s.requests >= self.promotion }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_from_its_eighth_request_with_all_its_bytes() {
        let mut s = Streams::default();
        let seen: Vec<Run> = (0..9).map(|i| s.observe(i * 4096, 4096, false)).collect();
        let streams: Vec<u64> = seen.iter().map(|run| run.stream_bytes()).collect();
        assert_eq!(streams, [0, 0, 0, 0, 0, 0, 0, 8 * 4096, 9 * 4096]);
        assert!((1..).zip(&seen).all(|(n, run)| run.bytes == n * 4096), "a run has its bytes from the start");
    }

    #[test]
    fn interleaved_runs_are_told_apart_also_by_direction() {
        let mut s = Streams::new(2);
        for i in 0..4 {
            for run in 0..64u64 {
                let bytes = s.observe((run << 40) + i * 512, 512, run % 2 == 0).stream_bytes();
                assert_eq!(bytes, if i == 0 { 0 } else { (i + 1) * 512 });
            }
        }
        assert_eq!(
            s.observe((3 << 40) + 4 * 512, 512, true).stream_bytes(),
            0,
            "a write does not continue reads"
        );
    }

    #[test]
    fn random_requests_make_no_stream_and_idle_ones_are_forgotten() {
        let mut s = Streams::new(2);
        s.observe(0, 512, false);
        for i in 1..=128u64 {
            assert_eq!(s.observe(i << 30, 512, false).bytes, 512);
        }
        assert_eq!(s.observe(512, 512, false).bytes, 512, "128 others came since");
        assert_eq!(s.observe((128 << 30) + 512, 512, false), Run { bytes: 1024, stream: true });
    }
}
