//! The note on each leg of a mirrored device, and which leg is believed at an open.

use super::flaw::{Flaw, Flaws};
use std::fmt;

/// One of the two devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// On this controller's array.
    Local,
    /// On its partner's.
    Mirror,
}

impl Leg {
    /// Both of them.
    pub const BOTH: [Leg; 2] = [Leg::Local, Leg::Mirror];

    /// Its place in a pair of things.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The other one.
    pub fn other(self) -> Leg {
        match self {
            Leg::Local => Leg::Mirror,
            Leg::Mirror => Leg::Local,
        }
    }
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Leg::Local => "local",
            Leg::Mirror => "mirror",
        })
    }
}

/// The state of a leg in its note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkState {
    /// Both legs have all that was acknowledged.
    InStep {
        /// Nothing was under way when it was written, and both are alike.
        clean: bool,
    },
    /// The other leg may lack what this one has.
    Alone,
    /// It is being copied to, and nothing on it may be believed.
    Stale,
}

/// The note on a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The same on both legs, and on no others.
    pub set: [u8; 16],
    /// Higher than that of any note that it replaces, on either leg.
    pub generation: u64,
    /// The same on legs that have one history. A leg that goes on alone begins another.
    pub line: u64,
    /// The line before this one.
    pub parent: u64,
    /// Its state.
    pub state: MarkState,
    /// Bytes of content.
    pub size: u64,
}

impl Mark {
    /// The first note of the first of two new legs.
    pub fn first(set: [u8; 16], line: u64, size: u64) -> Mark {
        Mark { set, generation: 1, line, parent: 0, state: MarkState::Alone, size }
    }

    /// The note of a leg that goes on alone in a line of its own.
    pub(super) fn alone(self, top: u64, line: u64) -> Mark {
        Mark { generation: top + 1, line, parent: self.line, state: MarkState::Alone, ..self }
    }

    /// The note of both legs.
    pub(super) fn in_step(self, top: u64, clean: bool) -> Mark {
        Mark { generation: top + 1, state: MarkState::InStep { clean }, ..self }
    }
}

/// A number that is drawn from `seed`, another for each `generation`.
pub(super) fn new_line(seed: u64, generation: u64) -> u64 {
    let mut x = seed ^ generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        x = (x ^ (x >> 30)).wrapping_mul(factor);
    }
    x ^ (x >> 31)
}

/// One leg as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It cannot be reached.
    Missing,
    /// Nothing is on it, or what is there may be overwritten.
    Blank,
    /// It has a note.
    Marked(Mark),
}

/// The answer to an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Two blank legs, both to get their first note.
    New,
    /// Both are alike.
    InStep(Mark),
    /// One of them is believed.
    On {
        /// The leg.
        leg: Leg,
        /// Its note.
        mark: Mark,
        /// The other one is there, and is copied to.
        joins: bool,
    },
}

/// The reason why neither leg may be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Both have gone on alone, or one has a history that the other does not know.
    SplitBrain,
    /// Their notes belong to different volumes.
    Strangers,
    /// The leg is in step with one that cannot be seen, and that may have gone on alone.
    Unseen(Leg),
    /// The leg that is there was being copied to.
    Stale(Leg),
    /// Both were being copied to.
    BothStale,
    /// Neither has a note, and this leg cannot be reached.
    Nothing(Leg),
    /// Neither can be reached.
    Missing,
}

/// Says which leg is believed. `alone`: a leg that was in step is, though the other cannot be seen.
///
/// # Errors
/// If neither may be believed.
pub fn decide(seen: [Seen; 2], alone: bool, flaws: &Flaws) -> Result<Opening, Refused> {
    match seen {
        [Seen::Missing, Seen::Missing] => Err(Refused::Missing),
        [Seen::Blank, Seen::Blank] => Ok(Opening::New),
        [Seen::Missing, Seen::Blank] => Err(Refused::Nothing(Leg::Local)),
        [Seen::Blank, Seen::Missing] => Err(Refused::Nothing(Leg::Mirror)),
        [Seen::Marked(local), Seen::Marked(mirror)] => of_two(local, mirror, flaws),
        [Seen::Marked(mark), other] => of_one(Leg::Local, mark, other, alone, flaws),
        [other, Seen::Marked(mark)] => of_one(Leg::Mirror, mark, other, alone, flaws),
    }
}

fn of_one(leg: Leg, mark: Mark, other: Seen, alone: bool, flaws: &Flaws) -> Result<Opening, Refused> {
    let joins = other == Seen::Blank;
    match mark.state {
        MarkState::Stale => Err(Refused::Stale(leg)),
        MarkState::InStep { .. } if !alone && !flaws.has(Flaw::AloneUnasked) => Err(Refused::Unseen(leg)),
        MarkState::InStep { .. } | MarkState::Alone => Ok(Opening::On { leg, mark, joins }),
    }
}

fn of_two(local: Mark, mirror: Mark, flaws: &Flaws) -> Result<Opening, Refused> {
    if local.set != mirror.set {
        return Err(Refused::Strangers);
    }
    let stale = |mark: Mark| mark.state == MarkState::Stale;
    let in_step = |mark: Mark| matches!(mark.state, MarkState::InStep { .. });
    if stale(local) && stale(mirror) {
        return Err(Refused::BothStale);
    }
    if flaws.has(Flaw::LocalAlwaysWins) {
        return Ok(Opening::On { leg: Leg::Local, mark: local, joins: true });
    }
    let alike = local.generation == mirror.generation && local.line == mirror.line;
    let clean = |mark: Mark| mark.state == MarkState::InStep { clean: true };
    if alike && in_step(local) && in_step(mirror) {
        let crashed = !(flaws.has(Flaw::CrashForgotten) || clean(local) && clean(mirror));
        // Operations that were under way may be on one leg alone.
        return Ok(match crashed {
            true => Opening::On { leg: Leg::Local, mark: local, joins: true },
            false => Opening::InStep(local),
        });
    }
    let mirror_wins = stale(local) || (!stale(mirror) && mirror.generation > local.generation);
    let (leg, winner, loser) =
        if mirror_wins { (Leg::Mirror, mirror, local) } else { (Leg::Local, local, mirror) };
    let known = loser.line == winner.line || loser.line == winner.parent;
    let behind = loser.generation < winner.generation && in_step(loser) && known;
    if !stale(loser) && !behind {
        return Err(Refused::SplitBrain);
    }
    Ok(Opening::On { leg, mark: winner, joins: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 7;

    fn mark(generation: u64, state: MarkState, line: u64, parent: u64) -> Mark {
        Mark { set: [1; 16], generation, line, parent, state, size: 1 << 20 }
    }

    fn step(generation: u64, clean: bool) -> Mark {
        mark(generation, MarkState::InStep { clean }, LINE, 0)
    }

    fn open(local: Seen, mirror: Seen) -> Result<Opening, Refused> {
        decide([local, mirror], false, &Flaws::default())
    }

    fn on(leg: Leg, mark: Mark, joins: bool) -> Result<Opening, Refused> {
        Ok(Opening::On { leg, mark, joins })
    }

    use Seen::{Blank, Marked, Missing};

    #[test]
    fn two_legs_stopped_cleanly_are_alike() {
        let clean = step(4, true);
        assert_eq!(open(Marked(clean), Marked(clean)), Ok(Opening::InStep(clean)));
    }

    #[test]
    fn after_a_crash_the_mirror_is_copied_anew() {
        let mark = step(4, false);
        assert_eq!(open(Marked(mark), Marked(mark)), on(Leg::Local, mark, true));
        // The note of a clean stop reached one leg.
        let clean = step(5, true);
        assert_eq!(open(Marked(mark), Marked(clean)), on(Leg::Mirror, clean, true));
    }

    #[test]
    fn a_leg_that_went_on_alone_is_believed() {
        let (old, alone) = (step(4, false), mark(5, MarkState::Alone, 8, LINE));
        assert_eq!(open(Marked(old), Marked(alone)), on(Leg::Mirror, alone, true));
        assert_eq!(open(Missing, Marked(alone)), on(Leg::Mirror, alone, false));
        assert_eq!(open(Blank, Marked(alone)), on(Leg::Mirror, alone, true));
    }

    #[test]
    fn a_leg_in_step_is_not_believed_without_the_other() {
        let old = step(4, true);
        for other in [Missing, Blank] {
            assert_eq!(open(Marked(old), other), Err(Refused::Unseen(Leg::Local)));
            let asked = decide([Marked(old), other], true, &Flaws::default());
            assert_eq!(asked, on(Leg::Local, old, other == Blank));
        }
    }

    #[test]
    fn a_leg_that_is_copied_to_is_never_believed() {
        let (stale, sound) = (mark(5, MarkState::Stale, 8, LINE), mark(5, MarkState::Alone, 8, LINE));
        for other in [Missing, Blank] {
            let asked = decide([Marked(stale), other], true, &Flaws::default());
            assert_eq!(asked, Err(Refused::Stale(Leg::Local)));
        }
        assert_eq!(open(Marked(stale), Marked(sound)), on(Leg::Mirror, sound, true));
        assert_eq!(open(Marked(stale), Marked(stale)), Err(Refused::BothStale));
        // The sound leg was noted as in step, and the other not yet.
        let joined = mark(6, MarkState::InStep { clean: false }, 8, LINE);
        assert_eq!(open(Marked(joined), Marked(stale)), on(Leg::Local, joined, true));
    }

    #[test]
    fn two_legs_that_went_on_alone_are_refused() {
        let a = mark(5, MarkState::Alone, 8, LINE);
        let b = mark(5, MarkState::Alone, 9, LINE);
        assert_eq!(open(Marked(a), Marked(b)), Err(Refused::SplitBrain));
        let later = mark(9, MarkState::InStep { clean: true }, 9, LINE);
        assert_eq!(open(Marked(a), Marked(later)), Err(Refused::SplitBrain));
        let far = mark(9, MarkState::InStep { clean: true }, 11, 10);
        assert_eq!(open(Marked(step(4, false)), Marked(far)), Err(Refused::SplitBrain));
    }

    #[test]
    fn legs_of_different_volumes_are_strangers() {
        let other = Mark { set: [2; 16], ..step(4, true) };
        assert_eq!(open(Marked(step(4, true)), Marked(other)), Err(Refused::Strangers));
    }

    #[test]
    fn without_a_note_both_legs_must_be_there() {
        assert_eq!(open(Blank, Blank), Ok(Opening::New));
        assert_eq!(open(Blank, Missing), Err(Refused::Nothing(Leg::Mirror)));
        assert_eq!(open(Missing, Missing), Err(Refused::Missing));
    }
}
