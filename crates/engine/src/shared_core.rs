//! The shards that one thread has share its core: each knows what the others want of it, so that together they keep no
//! more dirty than a snapshot may take, and each knows its part of the rate while all of them are frozen.

use crate::destage::Destage;
use crate::destage::demand::Demand;
use crate::engine::Engine;

/// Tells each of the shards of one thread what the others want. One that is alone has nothing to hear.
pub fn share(shards: &mut [&mut Engine]) {
    if shards.len() < 2 {
        return;
    }
    let demand =
        |shard: &&mut Engine| shard.destage.demand(shard.dirty_and_kept(), shard.frozen().unwrap_or(0));
    let all: Vec<Demand> = shards.iter().map(demand).collect();
    for (n, shard) in shards.iter_mut().enumerate() {
        let others = all.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, d)| *d);
        shard.destage.others = others.fold(Demand::default(), Demand::plus);
    }
}

impl Destage {
    /// Blocks a second that the core takes from all shards that share it.
    fn rate_of_all(&self) -> u64 {
        match self.shared_rate() {
            0 => self.others.rate,
            own => own,
        }
    }

    /// The wants of this shard; `dirty`: blocks that are or will be, `pinned`: those that a freeze has yet to bring to the core.
    fn demand(&self, dirty: u64, pinned: u64) -> Demand {
        Demand { dirty, pinned, destaged: self.total(), rate: self.shared_rate() }
    }

    /// Dirty blocks of this shard, one of `shards`, that go to the core in `seconds`, beside what the others have. Each may have
    /// its even part of all, so that none that was first keeps the others from anything. 0: the rate is not known.
    pub(crate) fn destaged_in(&self, seconds: u64, shards: u16) -> u64 {
        let all = self.rate_of_all() * seconds;
        if self.others == Demand::default() {
            all
        } else {
            all.saturating_sub(self.others.dirty).max(all / u64::from(shards))
        }
    }

    /// Blocks a second that the core takes from this shard in a freeze, in which all shards bring theirs, and this one `own`.
    pub(crate) fn frozen_rate(&self, own: u64) -> u64 {
        match self.others.pinned {
            0 => self.rate_of_all(),
            others => self.rate_of_all() * own / (own + others),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{self, Devices, FormatOptions, OpenOptions};
    use crate::params::Params;
    use loligo_format::mode::Mode;
    use loligo_format::superblock::CoreIdentity;

    const SPAN: u64 = 250_000_000;
    /// Blocks that go to the core within the deadline of [`two`] at the rate that tests let it have.
    const IN_TIME: u64 = 20_000;

    /// The shards of a cache that may keep five seconds' work dirty.
    fn two() -> Vec<Engine> {
        let (mut cache, mut core) = (vec![0; 320 << 20], vec![0; 64 << 20]);
        let format = FormatOptions {
            uuid: [1; 16],
            name: "t".into(),
            cache_size: 320 << 20,
            core: CoreIdentity { size: 64 << 20, id: String::new() },
            line_size: 4096,
            shards: 2,
            stripe: 5,
            mode: Mode::Wb,
            core_reserve: 0,
            journal_len: 0,
        };
        let superblock = open::format(&mut cache, &format).expect("a cache");
        let params = Params { snapshot_deadline: 5, ..Params::default() };
        let options = OpenOptions { force: false, params, bug: None };
        let opened = open::open(&mut cache, &mut core, superblock, &options).expect("it opens");
        opened.into_engines(Mode::Wb, &options, &Devices { core_snapshots: true, ..Devices::PLAIN }).1
    }

    fn told(shards: &mut [Engine]) {
        share(&mut shards.iter_mut().collect::<Vec<_>>());
    }

    /// The first shard is busy for a while, and the core takes 4,000 blocks a second.
    fn measure(shards: &mut [Engine]) {
        for i in 1..40 {
            shards[0].destage.pacer.destaged(i * SPAN, 1_000, 0, true);
        }
    }

    fn frozen_rate(shard: &Engine) -> u64 {
        shard.destage.frozen_rate(shard.frozen().unwrap_or(0))
    }

    fn near(found: u64, wanted: u64) -> bool {
        found.abs_diff(wanted) * 20 <= wanted
    }

    #[test]
    fn shards_of_one_core_share_what_a_snapshot_may_take() {
        let mut shards = two();
        measure(&mut shards);
        told(&mut shards);
        let limits = |shards: &[Engine]| [0, 1].map(|n| shards[n].dirty_limit());
        // The second has measured nothing, and goes by the first.
        assert!(limits(&shards).into_iter().all(|n| near(n, IN_TIME)), "{:?}", limits(&shards));
        shards[0].space.pending_dirty = IN_TIME / 4;
        told(&mut shards);
        assert!(near(shards[1].dirty_limit(), IN_TIME * 3 / 4), "{:?}", limits(&shards));
        // None is kept from its even part.
        shards[0].space.pending_dirty = IN_TIME;
        told(&mut shards);
        assert!(near(shards[1].dirty_limit(), IN_TIME / 2), "{:?}", limits(&shards));
    }

    #[test]
    fn shards_that_drain_together_have_a_part_of_the_rate_each() {
        let mut shards = two();
        measure(&mut shards);
        told(&mut shards);
        assert!(near(frozen_rate(&shards[0]), IN_TIME / 5), "{}", frozen_rate(&shards[0]));
        shards[0].destage.others.pinned = 100;
        assert_eq!(frozen_rate(&shards[0]), 0, "the other alone has pinned versions left");
    }

    #[test]
    fn one_shard_hears_nothing_and_has_the_whole_rate() {
        let mut shards = two();
        shards.truncate(1);
        measure(&mut shards);
        told(&mut shards);
        assert_eq!(shards[0].destage.others, Demand::default());
        assert_eq!(frozen_rate(&shards[0]), shards[0].destage.rate());
        assert!(near(shards[0].dirty_limit(), IN_TIME), "{}", shards[0].dirty_limit());
    }
}
