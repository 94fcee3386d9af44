//! A cache full of what the core refuses: nothing that is dirty can make room, however long a writer waits.

use super::Destage;
use crate::api::Nanos;
use crate::map::Map;

/// It is waited for so long, on the engine's clock. Each refused block is tried several times meanwhile. A core that is
/// slow, or answers nothing, refuses nothing: it is waited for without an end.
const LASTING: Nanos = 60_000_000_000;
/// Between two looks at all that is refused.
const LOOK: Nanos = 1_000_000_000;

/// Since when all that is dirty is refused, or nothing of it has been taken.
#[derive(Debug, Default)]
pub(crate) struct Jam {
    since: Option<Nanos>,
    /// The first and the newest refusal of something dirty since the core last took any. Clean blocks that it takes, and
    /// what clients write to it, make no room: they say nothing here.
    refusals: Option<(Nanos, Nanos)>,
    looked: Option<Nanos>,
    /// It has lasted for [`LASTING`].
    lasts: bool,
}

impl Jam {
    /// The core has taken something that was dirty, or there is room.
    pub(crate) fn over(&mut self) {
        (self.since, self.refusals, self.lasts) = (None, None, false);
    }

    /// The core has refused something that is dirty.
    pub(crate) fn refused(&mut self, now: Nanos) {
        let first = self.refusals.map_or(now, |(first, _)| first);
        self.refusals = Some((first, now));
    }

    /// Whether the core has refused for so long, and goes on: of one that has become silent meanwhile that is not known.
    fn is_barren(&self, now: Nanos) -> bool {
        self.refusals.is_some_and(|(first, last)| last - first >= LASTING && now - last < LASTING)
    }

    /// When to look again, while somebody waits for room.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.since.map(|since| since + LASTING).or(self.looked.map(|at| at + LOOK))
    }
}

impl Destage {
    /// Looks whether all that is dirty in a `full` cache is refused; `coming`: new dirty blocks on their way.
    pub(crate) fn look_for_jam(&mut self, now: Nanos, full: bool, map: &Map, coming: u64) {
        if !full {
            return self.jam.over();
        }
        if self.jam.looked.is_none_or(|at| now >= at + LOOK) {
            let all = self.all_is_refused(map, coming);
            self.jam.looked = Some(now);
            self.jam.since = all.then(|| self.jam.since.unwrap_or(now));
        }
        let jam = &mut self.jam;
        jam.lasts = jam.since.is_some_and(|since| now >= since + LASTING) || jam.is_barren(now);
    }

    /// Whether for a minute all that is dirty has been refused, or nothing of it taken while the core refused what it was asked for.
    pub(crate) fn is_jammed(&self) -> bool {
        self.jam.lasts
    }

    fn all_is_refused(&self, map: &Map, coming: u64) -> bool {
        let damaged = self.bad.iter().filter(|b| !self.stuck.counts(**b)).count() as u64;
        // Those that only memory has are not dirty yet.
        let is_dirty = |b: u32| map.index.get(b).is_some_and(|m| m.dirty != 0);
        let refused = self.stuck.count(|window| u64::from(map.index.window_dirty(window)), is_dirty);
        refused + damaged >= map.index.dirty_blocks() + coming
    }
}
