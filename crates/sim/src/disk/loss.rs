//! The remains that a crash leaves of writes that were not durable yet.

use crate::rng::Rng;

/// The sectors of one write that reach the medium.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subset {
    None,
    All,
    Before(u64),
    From(u64),
    Some,
}

impl Subset {
    pub(super) fn draw(rng: &mut Rng, sectors: u64) -> Subset {
        match rng.below(5) {
            0 => Subset::None,
            1 => Subset::All,
            2 => Subset::Before(rng.below(sectors + 1)),
            3 => Subset::From(rng.below(sectors + 1)),
            _ => Subset::Some,
        }
    }

    pub(super) fn holds(self, rng: &mut Rng, sector: u64) -> bool {
        match self {
            Subset::None => false,
            Subset::All => true,
            Subset::Before(n) => sector < n,
            Subset::From(n) => sector >= n,
            Subset::Some => rng.chance(1, 2),
        }
    }
}

/// The choice of completed but unflushed writes that reach the medium at a power loss.
#[derive(Debug, Clone, Copy)]
pub(super) enum LossStyle {
    None,
    All,
    /// Those before the nth, in order of completion.
    Before(u64),
    /// Those from the nth on: later ones overtake earlier ones.
    From(u64),
    /// One is lost, all others arrive.
    AllBut(u64),
    /// Whole writes by chance.
    Whole,
    /// Each write torn in its own way.
    Torn,
}

impl LossStyle {
    pub(super) fn draw(rng: &mut Rng, writes: u64) -> LossStyle {
        match rng.below(8) {
            0 => LossStyle::None,
            1 => LossStyle::All,
            2 => LossStyle::Before(rng.below(writes + 1)),
            3 => LossStyle::From(rng.below(writes + 1)),
            4 => LossStyle::AllBut(rng.below(writes + 1)),
            5 => LossStyle::Whole,
            _ => LossStyle::Torn,
        }
    }

    pub(super) fn subset(self, rng: &mut Rng, nth: u64, sectors: u64) -> Subset {
        let whole = |b| if b { Subset::All } else { Subset::None };
        match self {
            LossStyle::None => Subset::None,
            LossStyle::All => Subset::All,
            LossStyle::Before(n) => whole(nth < n),
            LossStyle::From(n) => whole(nth >= n),
            LossStyle::AllBut(n) => whole(nth != n),
            LossStyle::Whole => whole(rng.chance(1, 2)),
            LossStyle::Torn => Subset::draw(rng, sectors),
        }
    }
}
