//! Intents: which regions of the core may have been written since its last flush by another route than destaging.
//!
//! A region opens before the first such write (the record is durable on the cache), and is lifted when it has been
//! quiet for a while, the core has been flushed since, and what the writes recorded is durable.

use crate::api::Nanos;

/// Bytes of the core whose regions are opened together by a client that writes the core although it could have used the cache:
/// those who do so come back for more, and each opening costs them a flush of the cache.
const NEIGHBOURHOOD: u64 = 64 << 20;
/// A region is lifted after this long without a write.
const QUIET: Nanos = 5_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Closed,
    Opening,
    Open,
    /// A close record is on its way.
    Closing,
}

#[derive(Debug, Clone, Default)]
struct Region {
    state: State,
    users: u32,
    last: Nanos,
    /// Frames its writes recorded into, at most.
    seq: u64,
    waiters: Vec<usize>,
}

impl Region {
    fn is_quiet(&self, now: Nanos) -> bool {
        self.state == State::Open && self.users == 0 && now.saturating_sub(self.last) >= QUIET
    }
}

/// The regions of one shard's core.
#[derive(Debug)]
pub(crate) struct Intents {
    size: u64,
    regions: Vec<Region>,
    open: u32,
    /// Being lifted: the regions, and whether the core's flush is over.
    lifting: Option<Vec<u32>>,
    next_look: Nanos,
}

impl Intents {
    pub(crate) fn new(data_length: u64, size: u64) -> Intents {
        let n = data_length.div_ceil(size) as usize;
        Intents { size, regions: vec![Region::default(); n], open: 0, lifting: None, next_look: 0 }
    }

    /// The volume has so many bytes.
    pub(crate) fn grow(&mut self, data_length: u64) {
        let n = data_length.div_ceil(self.size) as usize;
        if n > self.regions.len() {
            self.regions.resize(n, Region::default());
        }
    }

    pub(crate) fn region_of(&self, offset: u64) -> u32 {
        (offset / self.size) as u32
    }

    /// `task` is about to write the core in `region`: true if it may at once, else it is remembered.
    pub(crate) fn enter(&mut self, region: u32, task: usize) -> bool {
        let r = &mut self.regions[region as usize];
        r.users += 1;
        if r.state == State::Open {
            return true;
        }
        r.waiters.push(task);
        false
    }

    /// True if the caller must write the record that opens `region` (it then is opening).
    pub(crate) fn must_open(&mut self, region: u32) -> bool {
        let r = &mut self.regions[region as usize];
        let first = r.state == State::Closed;
        if first {
            r.state = State::Opening;
        }
        first
    }

    /// The regions that are opened together with `region`, itself among them.
    fn neighbourhood(&self, region: u32) -> std::ops::Range<u32> {
        let n = (NEIGHBOURHOOD / self.size).max(1) as u32;
        let first = region / n * n;
        first..(first + n).min(self.regions.len() as u32)
    }

    /// The closed regions around `region`, which open from now on: the caller must write the records.
    pub(crate) fn must_open_around(&mut self, region: u32, now: Nanos) -> Vec<u32> {
        let around = self.neighbourhood(region);
        for r in &mut self.regions[around.start as usize..around.end as usize] {
            r.last = now;
        }
        around.filter(|r| self.must_open(*r)).collect()
    }

    /// The opening record is durable; those who waited.
    pub(crate) fn opened(&mut self, region: u32) -> Vec<usize> {
        let r = &mut self.regions[region as usize];
        r.state = State::Open;
        self.open += 1;
        std::mem::take(&mut r.waiters)
    }

    /// A write in `region` is over, with records up to frame `seq`.
    pub(crate) fn leave(&mut self, region: u32, now: Nanos, seq: u64) {
        let r = &mut self.regions[region as usize];
        r.users -= 1;
        r.last = now;
        r.seq = r.seq.max(seq);
    }

    /// The closing record has taken effect.
    pub(crate) fn closed(&mut self, region: u32) {
        let r = &mut self.regions[region as usize];
        r.state = State::Closed;
        self.open -= 1;
    }

    /// A bit for each region that recovery must not trust.
    pub(crate) fn bitmap(&self) -> Vec<u8> {
        let mut bits = vec![0u8; self.regions.len().div_ceil(8)];
        for (i, r) in self.regions.iter().enumerate() {
            if r.state != State::Closed {
                bits[i / 8] |= 1 << (i % 8);
            }
        }
        bits
    }

    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    /// Closes every open region; whether there was one. Only for a stop: nobody writes the core any more, it is flushed,
    /// and the checkpoint that follows says so instead of records.
    pub(crate) fn close_all(&mut self) -> bool {
        let any = self.open > 0;
        for r in self.regions.iter_mut().filter(|r| r.state == State::Open) {
            debug_assert_eq!(r.users, 0, "an idle shard writes no core");
            r.state = State::Closed;
            self.open -= 1;
        }
        any
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        (self.open > 0 && self.lifting.is_none()).then_some(self.next_look)
    }

    /// Leaves open the intents that were being lifted.
    pub(crate) fn give_up_lifting(&mut self) {
        self.lifting = None;
    }

    /// Looks for regions that have been quiet, with nothing recorded that is not `durable`: whether there are any. They are lifted
    /// once the core is flushed.
    pub(crate) fn begin_lifting(&mut self, now: Nanos, durable: u64) -> bool {
        if self.open == 0 || self.lifting.is_some() || now < self.next_look {
            return false;
        }
        self.next_look = now + QUIET / 2;
        let quiet: Vec<u32> =
            (0u32..).zip(&self.regions).filter(|(_, r)| r.is_quiet(now)).map(|(n, _)| n).collect();
        let newest = quiet.iter().map(|n| self.regions[*n as usize].seq).max();
        // Records that are not durable are published, hence in the completed prefix; the periodic flush covers them.
        self.lifting = newest.is_some_and(|need| durable >= need).then_some(quiet);
        self.lifting.is_some()
    }

    /// The core is flushed. The regions that are still quiet close: the caller must write the records.
    pub(crate) fn lift(&mut self, now: Nanos) -> Vec<u32> {
        let mut regions = self.lifting.take().unwrap_or_default();
        regions.retain(|region| self.regions[*region as usize].is_quiet(now));
        for region in &regions {
            self.regions[*region as usize].state = State::Closing;
        }
        regions
    }

    /// True if the caller must open `region`, which has closed, for those who came meanwhile.
    pub(crate) fn must_reopen(&mut self, region: u32) -> bool {
        !self.regions[region as usize].waiters.is_empty() && self.must_open(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One region, opened and left at time 0 with a record in frame 3.
    fn left() -> Intents {
        let mut intents = Intents::new(1 << 20, 1 << 20);
        assert!(!intents.enter(0, 7) && intents.must_open(0));
        assert_eq!(intents.opened(0), [7]);
        intents.leave(0, 0, 3);
        intents
    }

    #[test]
    fn a_quiet_region_is_lifted_once_its_records_are_durable() {
        let mut intents = left();
        assert!(!intents.begin_lifting(QUIET, 2));
        assert!(intents.begin_lifting(QUIET * 2, 3));
        assert_eq!(intents.lift(QUIET * 2), [0]);
        intents.closed(0);
        assert!(intents.open() == 0 && !intents.must_reopen(0));
    }

    #[test]
    fn a_region_written_during_the_flush_stays_open() {
        let mut intents = left();
        assert!(intents.begin_lifting(QUIET, 3));
        assert!(intents.enter(0, 8));
        assert_eq!(intents.lift(QUIET), []);
        assert_eq!(intents.open(), 1);
    }

    #[test]
    fn who_comes_while_a_region_closes_has_it_opened_again() {
        let mut intents = left();
        assert!(intents.begin_lifting(QUIET, 3));
        assert_eq!(intents.lift(QUIET), [0]);
        assert!(!intents.enter(0, 8) && !intents.must_open(0));
        intents.closed(0);
        assert!(intents.must_reopen(0));
        assert_eq!(intents.opened(0), [8]);
    }
}
