//! The loads against both sides: their regions and lengths.

use std::time::Duration;

use crate::fio::{Job, Rw, Target, Verify};
use crate::units;

/// Sizes of the demo's parts, all in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// The core.
    pub core: u64,
    /// The cache file.
    pub cache: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { core: 1 << 30, cache: 256 << 20 }
    }
}

impl Sizes {
    /// The part of the core that the measured loads use; the rest is for verification.
    pub(super) fn load(&self) -> u64 {
        self.core - 4 * self.region()
    }

    /// Range of the reads that are warm: half the cache.
    pub(super) fn working_set(&self) -> u64 {
        (self.cache / 2).min(self.load())
    }

    /// Length of each of the verified regions.
    pub(super) fn region(&self) -> u64 {
        self.core / 32
    }

    /// Offset of the region that no load touches: it keeps the content the core was made with.
    pub(super) fn untouched(&self) -> u64 {
        self.load()
    }

    /// Offset of the region written before the loads, with checksums.
    pub(super) fn early(&self) -> u64 {
        self.core - 2 * self.region()
    }

    /// Offset of the region written before the loads and again after them, with version words.
    pub(super) fn rewritten(&self) -> u64 {
        self.core - self.region()
    }

    /// Free space that a run needs: two cores and a cache, and some slack for logs.
    pub(super) fn need(&self) -> u64 {
        2 * self.core + self.cache + (64 << 20)
    }
}

/// How long each load runs.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// 4K random read and 70/30, each side.
    pub random: Duration,
    /// 4K random write on the bare core.
    pub write_bare: Duration,
    /// 4K random write through the cache: several times as long as it takes to fill it.
    pub write_cached: Duration,
    /// 512K sequential, each side and direction.
    pub sequential: Duration,
    /// At most this long between two loads for the dirty data to drain.
    pub settle: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times {
            random: Duration::from_secs(10),
            write_bare: Duration::from_secs(20),
            write_cached: Duration::from_secs(55),
            sequential: Duration::from_secs(6),
            settle: Duration::from_secs(12),
        }
    }
}

impl Times {
    /// About how long a whole run takes.
    pub(super) fn expected(&self) -> Duration {
        let loads = self.random * 4 + self.write_bare + self.write_cached + self.sequential * 4;
        loads + self.settle + Duration::from_secs(35)
    }
}

/// One load of the demo.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) detail: String,
    pub(super) rw: Rw,
    pub(super) block: u64,
    pub(super) depth: u32,
    pub(super) range: u64,
    pub(super) bare: Duration,
    pub(super) cached: Duration,
    /// Its course over time is plotted.
    pub(super) fills: bool,
}

/// The loads in the order in which they run: those on the warm working set come before the one that pushes it out.
pub(super) fn loads(sizes: &Sizes, times: &Times) -> Vec<Load> {
    let (set, all) = (sizes.working_set(), sizes.load());
    let random = |name, rw, range, bare, cached, detail: String| Load {
        name,
        detail: format!("{detail}, depth 32"),
        rw,
        block: 4096,
        depth: 32,
        range,
        bare,
        cached,
        fills: rw == Rw::RandWrite,
    };
    let sequential = |name, rw| Load {
        name,
        detail: "depth 4".to_owned(),
        rw,
        block: 512 << 10,
        depth: 4,
        range: all,
        bare: times.sequential,
        cached: times.sequential,
        fills: false,
    };
    let warm = format!("warm working set of {}", units::bytes(set as f64));
    let whole = format!("uniform over {}", units::bytes(all as f64));
    vec![
        random("4K random read", Rw::RandRead, set, times.random, times.random, warm.clone()),
        random("4K random 70/30", Rw::RandMix(70), set, times.random, times.random, warm),
        random("4K random write", Rw::RandWrite, all, times.write_bare, times.write_cached, whole),
        sequential("512K sequential read", Rw::Read),
        sequential("512K sequential write", Rw::Write),
    ]
}

impl Load {
    /// The fio job for one side.
    pub(super) fn job(&self, target: Target, time: Duration) -> Job {
        Job::new(target, self.rw, self.block, self.depth).within(0, self.range).lasting(time)
    }
}

/// One pass over the working set.
pub(super) fn warm_up(sizes: &Sizes, target: Target) -> Job {
    Job::new(target, Rw::Read, 64 << 10, 8).within(0, sizes.working_set())
}

/// Large writes with address and CRC32C in every block.
pub(super) fn checksummed(sizes: &Sizes, target: Target) -> Job {
    let mut job = Job::new(target, Rw::Write, 128 << 10, 8).within(sizes.early(), sizes.region());
    job.verify = Some(Verify::Crc32c);
    job
}

/// Small random writes, each block with its address and the word of this version.
pub(super) fn versioned(sizes: &Sizes, target: Target, version: u8) -> Job {
    let mut job = Job::new(target, Rw::RandWrite, 4096, 16).within(sizes.rewritten(), sizes.region());
    job.verify = Some(Verify::Version(0x10f1_1600 + u32::from(version)));
    job.seed = u64::from(version);
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_regions_lie_outside_the_loads_and_apart() {
        let sizes = Sizes::default();
        let region = sizes.region();
        assert_eq!(region, 32 << 20);
        let starts = [sizes.untouched(), sizes.early(), sizes.rewritten()];
        assert!(
            starts[0] >= sizes.load() && starts[0] + region <= starts[1] && starts[1] + region <= starts[2]
        );
        assert_eq!(starts[2] + region, sizes.core);
        for load in loads(&sizes, &Times::default()) {
            assert!(load.range <= sizes.load(), "{}", load.name);
        }
        assert!(sizes.working_set() < sizes.cache);
    }

    #[test]
    fn the_default_run_is_expected_to_end_within_four_minutes() {
        assert!(Times::default().expected() < Duration::from_secs(230));
    }
}
