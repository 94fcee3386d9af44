//! Blocks that count as refused in a cache that is full.

use crate::hand::{Hand, MIB, SECOND};
use loligo_engine::api::{Control, Dev};

/// Windows that the core refuses as a whole, behind one that it takes, and blocks beside them that fill the cache.
const WINDOWS: u64 = 6;
const BESIDE: u64 = 96;

#[test]
fn damaged_blocks_of_a_dead_window_count_once() {
    let mut h = Hand::new();
    h.control(Control::Limit(2048));
    h.pass(SECOND);
    for window in 1..=WINDOWS {
        h.fill(window * MIB, MIB, 3);
        while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Cache && p.1.changes_data()) {
            h.complete(i, false);
        }
    }
    // Half of a window is damaged.
    let mut damaged = 0;
    for slot in h.cache.chunks_exact_mut(4096).filter(|slot| slot[..] == [3; 4096]).take(128) {
        slot[0] = 4;
        damaged += 1;
    }
    assert_eq!(damaged, 128);
    h.refused = MIB..(WINDOWS + 1) * MIB;
    for _ in 0..10 {
        // The core takes something now and then: it is no core that is gone.
        h.fill(0, 4096, 1);
        h.pass(5 * SECOND);
    }
    let refused = h.shard.stats().refused_blocks;
    assert_eq!((h.shard.dirty_blocks(), refused), (WINDOWS * 256, WINDOWS * 256));
    // From now on the core answers nothing, which is no refusal.
    let cache = |h: &mut Hand| {
        while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Cache) {
            h.complete(i, false);
        }
    };
    for i in 0..BESIDE + 8 {
        h.fill(20 * MIB + i * MIB / 4, 4096, 1);
    }
    for _ in 0..1000 {
        h.tick(SECOND / 10);
        cache(&mut h);
    }
    assert_eq!(h.shard.dirty_blocks(), WINDOWS * 256 + BESIDE, "it is full");
    assert!(h.shard.core_refuses().is_some_and(|r| !r.full), "{} blocks are only waited for", BESIDE);
}
