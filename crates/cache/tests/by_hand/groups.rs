//! Destaging to a core that takes groups of writes.

use crate::hand::{Hand, MIB, SECOND};
use loligo_block::OpKind;
use loligo_cache::api::{Control, Dev};
use loligo_cache::open::Devices;

fn grouped() -> Hand {
    Hand::with(Devices { core_groups: true, ..Hand::DEVICES })
}

/// The pieces of every group at the core now: offset and length.
fn groups(h: &Hand) -> Vec<Vec<(u64, usize)>> {
    h.pending
        .iter()
        .filter(|p| p.0 == Dev::Core)
        .map(|(_, op)| match &op.kind {
            OpKind::WriteMany(pieces) => {
                assert_eq!(op.offset, pieces[0].0);
                pieces.iter().map(|(at, data)| (*at, data.len())).collect()
            }
            other => panic!("not a group: {other:?}"),
        })
        .collect()
}

/// Completes whatever the cache device is asked, until only the core has something to do.
fn quiet_cache(h: &mut Hand) {
    while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Cache) {
        h.complete(i, false);
    }
}

#[test]
fn the_runs_of_a_window_go_to_the_core_in_one_group_and_nothing_between_them_is_read_or_written() {
    let mut h = grouped();
    for (at, len, byte) in
        [(0, 8192, 1), (16384, 4096, 2), (MIB - 512, 512, 3), (40960, 1024, 4), (MIB, 512, 5)]
    {
        h.fill(at, len, byte);
    }
    h.quiet(false);
    let flush = h.control(Control::FlushDirty);
    quiet_cache(&mut h);
    assert_eq!(
        groups(&h),
        [vec![(0, 8192), (16384, 4096), (40960, 1024), (MIB - 512, 512)], vec![(MIB, 512)]]
    );
    h.quiet(false);
    assert_eq!((h.outcome(flush), h.shard.dirty_blocks()), (Some(&Ok(())), 0));
    let byte = |at: u64| h.disk[at as usize];
    assert_eq!([0, 8191, 8192, 16384, 20480, 40960, 41984].map(byte), [1, 1, 0, 2, 0, 4, 0]);
    assert_eq!([MIB - 513, MIB - 512, MIB - 1, MIB, MIB + 512].map(byte), [0, 3, 3, 5, 0]);
    let s = h.shard.stats();
    assert_eq!((s.core_groups, s.core_group_pieces), (2, 5));
}

#[test]
fn a_group_holds_at_most_256_pieces_sector_runs_counted() {
    let mut h = grouped();
    // Two runs of one sector in each of 200 blocks.
    for block in 0..200 {
        h.fill(block * 4096, 512, 1);
        h.fill(block * 4096 + 1024, 512, 2);
        h.quiet(false);
    }
    let flush = h.control(Control::FlushDirty);
    quiet_cache(&mut h);
    assert_eq!(groups(&h).iter().map(Vec::len).collect::<Vec<_>>(), [256, 144]);
    h.quiet(false);
    assert_eq!(h.outcome(flush), Some(&Ok(())));
}

#[test]
fn sixty_four_windows_are_under_way_at_a_time_whoever_uses_the_core() {
    let mut h = grouped();
    for window in 0..64 {
        h.fill(window * MIB, 4096, 7);
    }
    h.quiet(false);
    h.submit(loligo_block::ReqKind::Read, 63 * MIB + 65536, 4096);
    let read = h.pending.pop();
    h.control(Control::FlushDirty);
    quiet_cache(&mut h);
    assert_eq!(groups(&h).len(), 64);
    h.pending.extend(read);
    h.quiet(false);
}

#[test]
fn a_group_that_fails_leaves_its_blocks_dirty_and_is_tried_again() {
    let mut h = grouped();
    h.fill(0, 4096, 9);
    h.fill(8192, 4096, 9);
    h.quiet(false);
    h.tick(SECOND);
    h.quiet(true);
    assert_eq!(h.shard.dirty_blocks(), 2);
    for _ in 0..3 {
        h.tick(SECOND);
        h.quiet(false);
    }
    assert_eq!((h.shard.dirty_blocks(), h.disk[8192]), (0, 9));
}
