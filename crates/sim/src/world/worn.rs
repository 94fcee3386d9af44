//! Parts of the core that take no writes, and what that may fail: what goes there, and what needs room that
//! they fill. Data that a failed write has spoiled at the core, and that the cache had, is not lost for good.

use super::World;
use crate::clients::Asked;
use crate::disk::Nanos;
use crate::rng::Rng;
use crate::subject::Subject;
use std::collections::BTreeMap;
use std::ops::Range;

/// Such parts at a time, at most.
const MOST: usize = 6;
/// The longest time after which a refused block is tried again, with all that may lie in between.
const NOTICED: Nanos = 60_000_000_000;
/// A version in the cache outlives a crash from so long after the core has lost it.
const NOTED: Nanos = 2_000_000_000;

/// The facts known of a worn core.
#[derive(Debug, Default)]
pub(super) struct Worn {
    /// Sectors that took no writes, from one moment to another.
    ranges: Vec<(Range<u32>, Nanos)>,
    /// The time at which the engine last gave up waiting.
    gave_up: Option<Nanos>,
    /// Sectors that a failed write has spoiled, and the cache had: since when the last time. The core may have taken them since.
    kept: BTreeMap<u32, Nanos>,
}

impl<E: Subject> World<E> {
    /// A part of the core takes no writes from now on, mostly beneath what clients write, or all of them do again.
    pub fn wear_core(&mut self, rng: &mut Rng) {
        if rng.chance(1, 6) || self.core.worn() >= MOST {
            self.marks.hit("the core took writes again");
            self.renew_core();
            return;
        }
        let all = u64::from(self.exported);
        let sector = u64::from(self.clients.some_place(rng)) / 8 * 8;
        let blocks = rng.pick(&[1, 1, 1, 3, 20, 300, 3000, all / 8]);
        let end = (sector + blocks * 8).min(all.next_multiple_of(8));
        let few = blocks < 300;
        let until = match rng.below(4) {
            0 => rng.range(1..3_000_000_000),
            1 => rng.range(1..90_000_000_000),
            2 if few => Nanos::MAX - NOTICED,
            _ => rng.range(1..300_000_000_000),
        };
        let until = self.now.saturating_add(until).min(Nanos::MAX - NOTICED);
        let spoils = few && rng.chance(1, 2);
        self.marks.hit(if spoils {
            "a part of the core went bad"
        } else {
            "a part of the core took no writes"
        });
        self.trace.say(|| {
            format!("sectors {sector} to {end} of the core take no writes until {until}, spoiled: {spoils}")
        });
        self.core.wear(sector * 512..end * 512, until, spoils);
        self.worn.ranges.push((sector as u32..end as u32, until));
    }

    /// Most of the core takes no writes for so long.
    pub fn refuse_most(&mut self, ns: Nanos) {
        let (end, until) = (self.exported / 64 * 56, self.now + ns);
        self.trace.say(|| format!("sectors 0 to {end} of the core take no writes until {until}"));
        self.core.wear(0..u64::from(end) * 512, until, false);
        self.worn.ranges.push((0..end, until));
    }

    /// True if the engine has given up waiting for room in this life.
    pub fn has_given_up(&self) -> bool {
        self.worn.gave_up.is_some()
    }

    /// The core takes every write again.
    pub fn renew_core(&mut self) {
        self.core.renew();
        let now = self.now;
        self.worn.ranges.iter_mut().for_each(|(_, until)| *until = now.min(*until));
    }

    /// True if that was so long ago that nothing may fail because of it any more.
    pub fn is_renewed(&self) -> bool {
        self.worn.ranges.iter().all(|(_, until)| until + NOTICED < self.now)
    }

    /// Looks at what the engine makes of it.
    pub(super) fn watch_worn(&mut self) {
        if !self.worn.ranges.is_empty() && self.engine.as_ref().is_some_and(|e| e.gives_up(self.now)) {
            if self.worn.gave_up.is_none() {
                self.marks.hit("a cache that nothing makes room in");
            }
            self.worn.gave_up = Some(self.now);
        }
    }

    /// True if a change may fail because of it: something it touches may have been refused, or there was no room.
    pub(super) fn was_refused(&mut self, asked: &Asked) -> bool {
        let (first, end) = (asked.first / 8 * 8, (asked.first + asked.count).next_multiple_of(8));
        let meets = |(range, until): &(Range<u32>, Nanos)| {
            range.start < end && first < range.end && until + NOTICED >= asked.since()
        };
        let refused = !asked.is_read()
            && (self.worn.ranges.iter().any(meets)
                || self.worn.gave_up.is_some_and(|at| at >= asked.since()));
        if refused {
            self.marks.hit("failed over a part that took no writes");
        }
        refused
    }

    /// Looks at what failed writes have spoiled.
    pub(super) fn note_spoiled(&mut self) {
        let spoiled = self.core.spoiled();
        // What is under way to a core that is not ours any more spoils somebody else's.
        let is_ours = |e: &E| (0..e.shards()).all(|shard| !e.is_fenced(shard));
        let ours = self.engine.as_ref().is_some_and(is_ours);
        for sector in spoiled.iter().map(|s| *s as u32) {
            let changes = |(first, count): (u32, u32)| {
                (first / 8 * 8..(first + count).next_multiple_of(8)).contains(&sector)
            };
            if ours && self.engine.as_ref().is_some_and(|e| e.has_sector(sector)) {
                self.marks.hit("spoiled beneath the cache");
                self.worn.kept.insert(sector, self.now);
            } else if ours && !self.clients.changes().any(changes) {
                // Nobody else writes the core: the engine had what lay between dirty blocks in its hands.
                self.marks.hit("spoiled between what the cache has");
                self.worn.kept.insert(sector, self.now);
            } else {
                self.marks.hit("spoiled beside the cache");
                // Where it had been spoiled before, a write has mended it meanwhile: a sector that is bad is not spoiled again.
                // The core had what the cache was to keep since, and the cache was free to drop it.
                self.keep_no_more(sector..sector + 1);
                self.once_bad.insert(sector);
            }
        }
        if !spoiled.is_empty() {
            self.doubt_reads();
        }
    }

    /// True if the cache must still have the sector.
    pub(super) fn is_kept(&self, sector: u32) -> bool {
        self.worn.kept.contains_key(&sector) && !self.is_alone()
    }

    /// Sectors in the range that the cache must still have.
    pub(super) fn kept_in(&self, range: Range<u32>) -> impl Iterator<Item = u32> {
        self.worn.kept.range(range).map(|(s, _)| *s)
    }

    /// The cache need not have these sectors any more: a change of them failed, say.
    pub(super) fn keep_no_more(&mut self, range: Range<u32>) {
        let gone: Vec<u32> = self.kept_in(range).collect();
        for sector in gone {
            self.worn.kept.remove(&sector);
            self.once_bad.insert(sector);
        }
    }

    /// The process dies: what the engine may not have noted yet may be lost.
    pub(super) fn crash_worn(&mut self) {
        let changing: Vec<(u32, u32)> = self.clients.changes().collect();
        for (first, count) in changing {
            self.keep_no_more(first / 8 * 8..(first + count).next_multiple_of(8));
        }
        let fresh: Vec<u32> =
            self.worn.kept.iter().filter(|(_, at)| self.now < *at + NOTED).map(|(s, _)| *s).collect();
        for sector in fresh {
            self.keep_no_more(sector..sector + 1);
        }
        self.worn.gave_up = None;
    }
}
