//! A cache full of what the core refuses: nothing that is dirty can make room, however long a writer waits.

use crate::api::Nanos;

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

    /// Looks at a full cache; `all`: true if everything dirty in it is refused, which is asked now and then.
    pub(crate) fn look(&mut self, now: Nanos, all: impl FnOnce() -> bool) {
        if self.looked.is_none_or(|at| now >= at + LOOK) {
            self.looked = Some(now);
            self.since = all().then(|| self.since.unwrap_or(now));
        }
        self.lasts = self.since.is_some_and(|since| now >= since + LASTING) || self.is_barren(now);
    }

    /// True if it has been so for a minute.
    pub(crate) fn lasts(&self) -> bool {
        self.lasts
    }

    /// True if the core has refused for so long, and goes on: of one that has become silent meanwhile that is not known.
    fn is_barren(&self, now: Nanos) -> bool {
        self.refusals.is_some_and(|(first, last)| last - first >= LASTING && now - last < LASTING)
    }

    /// The time to look again, while somebody waits for room.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.since.map(|since| since + LASTING).or(self.looked.map(|at| at + LOOK))
    }
}
