//! The loads against both sides: their regions and lengths.

use std::time::Duration;

use crate::fio::{Job, Rw, Target, Verify};
use crate::units;

/// Bytes of the core.
pub(super) const CORE: u64 = 1 << 30;
/// Bytes of the cache file.
pub(super) const CACHE: u64 = 256 << 20;
/// Bytes of each of the verified regions.
pub(super) const REGION: u64 = CORE / 32;
/// The part of the core that the measured loads use; the rest is for verification.
pub(super) const LOAD: u64 = CORE - 4 * REGION;
/// Range of the reads that are warm: half the cache.
pub(super) const WORKING_SET: u64 = CACHE / 2;
/// Offset of the region that no load touches: it keeps the content the core was made with.
pub(super) const UNTOUCHED: u64 = LOAD;
/// Offset of the region written before the loads, with checksums.
pub(super) const EARLY: u64 = CORE - 2 * REGION;
/// Offset of the region written before the loads and again after them, with version words.
pub(super) const REWRITTEN: u64 = CORE - REGION;
/// Free space that a run needs: two cores and a cache, and some slack for logs.
pub(super) const NEED: u64 = 2 * CORE + CACHE + (64 << 20);

/// Length of each random load but the write.
const RANDOM: Duration = Duration::from_secs(10);
/// Of the random write on the bare core.
const WRITE_BARE: Duration = Duration::from_secs(20);
/// Of the random write on the cached one: from an empty cache through a full one.
const WRITE_CACHED: Duration = Duration::from_secs(55);
/// Of each sequential load.
const SEQUENTIAL: Duration = Duration::from_secs(6);
/// Most that dirty data is waited for between two loads.
pub(super) const SETTLE: Duration = Duration::from_secs(12);

/// Length of a whole run, about.
pub(super) fn expected() -> Duration {
    RANDOM * 4 + WRITE_BARE + WRITE_CACHED + SEQUENTIAL * 4 + SETTLE + Duration::from_secs(35)
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
pub(super) fn loads() -> Vec<Load> {
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
        range: LOAD,
        bare: SEQUENTIAL,
        cached: SEQUENTIAL,
        fills: false,
    };
    let warm = format!("warm working set of {}", units::bytes(WORKING_SET as f64));
    let whole = format!("uniform over {}", units::bytes(LOAD as f64));
    vec![
        random("4K random read", Rw::RandRead, WORKING_SET, RANDOM, RANDOM, warm.clone()),
        random("4K random 70/30", Rw::RandMix(70), WORKING_SET, RANDOM, RANDOM, warm),
        random("4K random write", Rw::RandWrite, LOAD, WRITE_BARE, WRITE_CACHED, whole),
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
pub(super) fn warm_up(target: Target) -> Job {
    Job::new(target, Rw::Read, 64 << 10, 8).within(0, WORKING_SET)
}

/// Large writes with address and CRC32C in every block.
pub(super) fn checksummed(target: Target) -> Job {
    let mut job = Job::new(target, Rw::Write, 128 << 10, 8).within(EARLY, REGION);
    job.verify = Some(Verify::Crc32c);
    job
}

/// Small random writes, each block with its address and the word of this version.
pub(super) fn versioned(target: Target, version: u8) -> Job {
    let mut job = Job::new(target, Rw::RandWrite, 4096, 16).within(REWRITTEN, REGION);
    job.verify = Some(Verify::Version(0x10f1_1600 + u32::from(version)));
    job.seed = u64::from(version);
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_regions_lie_outside_the_loads_and_apart() {
        assert_eq!(REGION, 32 << 20);
        let starts = [UNTOUCHED, EARLY, REWRITTEN];
        assert!(starts[0] >= LOAD && starts[0] + REGION <= starts[1] && starts[1] + REGION <= starts[2]);
        assert_eq!(starts[2] + REGION, CORE);
        for load in loads() {
            assert!(load.range <= LOAD, "{}", load.name);
        }
        const { assert!(WORKING_SET < CACHE) };
    }

    #[test]
    fn the_default_run_is_expected_to_end_within_four_minutes() {
        assert!(expected() < Duration::from_secs(230));
    }
}
