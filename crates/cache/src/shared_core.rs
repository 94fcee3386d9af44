//! The shards that one thread has share its core: each knows what the others want of it, so that together they keep no
//! more dirty than a snapshot may take, and each knows its part of the rate while all of them are frozen.

use crate::core::Core;

/// What shards want of a core that they share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Blocks dirty or about to be, and versions that a freeze keeps besides.
    dirty: u64,
    /// Blocks that a freeze has yet to bring to the core.
    pinned: u64,
    /// Blocks brought to it so far.
    pub(crate) destaged: u64,
    /// Blocks a second that it takes from all of them, the highest that one measured.
    rate: u64,
}

impl Demand {
    fn plus(self, other: Demand) -> Demand {
        Demand {
            dirty: self.dirty + other.dirty,
            pinned: self.pinned + other.pinned,
            destaged: self.destaged + other.destaged,
            rate: self.rate.max(other.rate),
        }
    }
}

/// Tells each of the shards of one thread what the others want. One that is alone has nothing to hear.
pub fn share(shards: &mut [&mut Core]) {
    if shards.len() < 2 {
        return;
    }
    let all: Vec<Demand> = shards.iter().map(|core| core.demand()).collect();
    for (n, core) in shards.iter_mut().enumerate() {
        let others = all.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, d)| *d);
        core.others = others.fold(Demand::default(), Demand::plus);
    }
}

impl Core {
    fn demand(&self) -> Demand {
        Demand {
            dirty: self.dirty_and_kept(),
            pinned: self.frozen().unwrap_or(0),
            destaged: self.destage.total(),
            rate: self.destage.shared_rate(),
        }
    }

    /// Blocks a second that the core takes from all shards that share it.
    fn rate_of_all(&self) -> u64 {
        match self.destage.shared_rate() {
            0 => self.others.rate,
            own => own,
        }
    }

    /// Dirty blocks of this shard that go to the core in `seconds`, beside what the others have. Each may have its even part of
    /// all, so that none that was first keeps the others from anything. 0: the rate is not known.
    pub(crate) fn destaged_in(&self, seconds: u64) -> u64 {
        let all = self.rate_of_all() * seconds;
        let even = all / u64::from(self.cfg.stripe.by.shards);
        if self.others == Demand::default() { all } else { all.saturating_sub(self.others.dirty).max(even) }
    }

    /// Blocks a second that the core takes from this shard in a freeze, in which all shards bring theirs.
    pub(crate) fn frozen_rate(&self) -> u64 {
        let (own, others) = (self.frozen().unwrap_or(0), self.others.pinned);
        if others == 0 { self.rate_of_all() } else { self.rate_of_all() * own / (own + others) }
    }
}
