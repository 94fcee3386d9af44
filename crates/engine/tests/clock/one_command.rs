//! A disk that takes one command at a time: a USB disk, a file of somebody else's FUSE file system.

use crate::world::{MIB, Model, S, World};
use loligo_engine::params::Params;

/// The rate of such a disk without a cache, writes of 4 KiB a second.
const RAW: u64 = 124;

#[test]
fn a_core_of_one_command_at_a_time_is_merged_soon() {
    let span = 1024 * MIB;
    let mut w = World::new(288 * MIB, span, Params::default(), Model::one_at_a_time());
    while w.engine.stats().dirty_bytes * 10 < w.engine.stats().cache_bytes * 8 {
        w.load(S, S, 32, span);
    }
    let rates = w.load(70 * S, 10 * S, 32, span);
    assert!(rates[6] >= 20 * RAW * 10, "a minute after it was full, in each 10 s: {rates:?}");
    // What it found out it keeps: denser windows are not tried run by run again.
    assert!(rates[2..].iter().all(|n| *n >= 15 * RAW * 10), "{rates:?}");
}
