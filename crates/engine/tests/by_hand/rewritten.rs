//! Places of the core that are written although nothing dirty goes there: gaps of a read-merge-write, fillers, and clean blocks that
//! are written again. A write that fails may spoil them.

use crate::doubt::{bridged, crowd, spoil, stays};
use crate::hand::{CORE, Hand, MIB, SECOND};
use loligo_block::{Buf, OpKind, ReqKind};
use loligo_engine::api::{Control, Dev};

pub const BLOCK: u64 = 4096;
/// Blocks of a window that are dirty, every other one: between them lies what only the core has.
pub const DIRTY: u64 = 16;
/// A block in a gap.
pub const GAP: u64 = 3 * BLOCK;

/// The pending write of so many bytes to the core.
pub fn at_core(h: &Hand, len: u64) -> Option<usize> {
    h.pending.iter().position(|p| p.0 == Dev::Core && p.1.changes_data() && p.1.len() == len)
}

/// Completes what is pending at the cache, and what follows of that.
pub fn cache_only(h: &mut Hand) {
    while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Cache) {
        h.now += 1000;
        h.complete(i, false);
    }
}

/// Goes on until something is pending at the core that `is` names.
pub fn until(h: &mut Hand, is: impl Fn(&Hand) -> Option<usize>) {
    for _ in 0..10_000 {
        if is(h).is_some() {
            return;
        }
        if h.pending.is_empty() {
            h.tick(SECOND / 10);
        } else {
            h.now += 1000;
            h.complete(0, false);
        }
    }
    panic!("it never comes to that");
}

/// A window with dirty blocks that has been read and merged, and whose write is at the core: where it begins.
/// The blocks between them hold 5, and are clean in the cache if `cached`.
pub fn merged(h: &mut Hand, cached: bool) -> u64 {
    let place = merging(h, cached);
    until(h, |h| at_core(h, SPAN));
    place
}

/// The same window while it is being read.
pub fn merging(h: &mut Hand, cached: bool) -> u64 {
    h.disk.fill(5);
    if cached {
        (1..17).for_each(|window| _ = h.fill(window * MIB + GAP, BLOCK, 5));
        assert_eq!(h.flush_dirty(), Some(&Ok(())));
        // What is clean fills the cache, and those blocks are the oldest.
        for i in 0..72 {
            h.fill(40 * MIB + i * MIB / 4, MIB / 4, 9);
            h.pass(SECOND / 2);
        }
    }
    for round in 0..60 {
        let place = (round % 16 + 1) * MIB;
        for i in 0..DIRTY {
            h.fill(place + 2 * i * BLOCK, BLOCK, 1);
        }
        cache_only(h);
        let flush = h.control(Control::FlushDirty);
        while h.outcome(flush).is_none() {
            if h.pending.is_empty() {
                h.tick(SECOND / 10);
            }
            if h.pending.iter().any(|p| p.0 == Dev::Core && matches!(p.1.kind, OpKind::Read(_))) {
                return place;
            }
            if !h.pending.is_empty() {
                h.now += 1000;
                h.complete(0, false);
            }
        }
        h.controlled.clear();
    }
    panic!("nothing is merged here");
}

/// The write that is at the core fails there, and leaves nothing good of the gap.
pub fn fail(h: &mut Hand, place: u64, len: u64) {
    fail_over(h, len, place + GAP);
}

/// The same, of the block at `spoiled`.
pub fn fail_over(h: &mut Hand, len: u64, spoiled: u64) {
    let i = at_core(h, len).expect("it is at the core");
    h.complete(i, true);
    h.disk[spoiled as usize..][..BLOCK as usize].fill(0xee);
}

/// A freeze whose run is at the core, over the clean block that lies in it: the place of the run, and the freeze.
fn frozen_over_filler() -> (Hand, u64, u64) {
    let mut h = bridged();
    (h.refused, h.bad) = (0..0, 0..0);
    let freeze = h.control(Control::Freeze);
    until(&mut h, |h| at_core(h, 3 * BLOCK));
    (h, 10 * MIB, freeze)
}

pub const SPAN: u64 = (2 * DIRTY - 1) * BLOCK;

#[test]
fn a_gap_that_a_failed_merge_spoiled_is_written_again() {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    fail(&mut h, place, SPAN);
    h.pass(5 * SECOND);
    assert_eq!(h.shard.dirty_blocks(), 0);
    assert_eq!([0, 1, 3, 30].map(|b| h.disk[(place + b * BLOCK) as usize]), [1, 5, 5, 1]);
    assert_eq!(h.shard.core_failing(), None);
}

#[test]
fn a_gap_that_is_refused_stays_until_it_is_taken() {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    h.pass(5 * SECOND);
    assert_eq!((h.shard.dirty_blocks(), h.read(place + GAP)), (1, Ok(5)));
    let named = place + GAP..place + GAP + BLOCK;
    assert!(h.shard.core_refuses().is_some_and(|r| r.ranges == std::slice::from_ref(&named)));
    stays(h, place + GAP);
}

#[test]
fn a_gap_reads_well_from_the_moment_its_write_fails() {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    let mut reads = Vec::new();
    while h.shard.dirty_blocks() != 1 {
        let read = h.submit(ReqKind::Read, place + GAP, BLOCK);
        let at = h.pending.iter().position(|p| p.0 == Dev::Core && matches!(p.1.kind, OpKind::Read(_)));
        at.into_iter().for_each(|i| h.complete(i, false));
        reads.push(read);
        assert!(!h.pending.is_empty() && reads.len() < 1000);
        h.complete(0, false);
    }
    h.pass(SECOND);
    assert!(reads.iter().all(|id| h.answer(*id) == Some(Ok(()))));
}

#[test]
fn a_clean_block_in_a_merge_is_not_evicted_meanwhile() {
    let mut h = Hand::new();
    let place = merged(&mut h, true);
    spoil(&mut h, place + GAP);
    let evicted = h.shard.stats().evictions;
    // Much of what it holds gives way, while the write is at the core.
    for i in 0..60 {
        h.fill(20 * MIB + i * MIB / 4, MIB / 4, 9);
        cache_only(&mut h);
        h.tick(SECOND / 10);
        cache_only(&mut h);
    }
    assert!(h.shard.stats().evictions > evicted + 1000);
    fail(&mut h, place, SPAN);
    h.pass(5 * SECOND);
    stays(h, place + GAP);
}

#[test]
fn a_gap_changed_in_part_meanwhile_keeps_the_rest() {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    let write = h.submit(ReqKind::Write(Buf::copy_of(&[7; 512]).freeze()), place + GAP, 512);
    cache_only(&mut h);
    assert_eq!(h.answer(write), Some(Ok(())));
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    h.pass(5 * SECOND);
    assert_eq!(h.read(place + GAP), Ok(7));
    crowd(&mut h);
    let mut h = h.again(Hand::DEVICES);
    assert_eq!([h.read(place + GAP), h.read(place + GAP + 512)], [Ok(7), Ok(5)]);
    (h.refused, h.bad) = (0..0, 0..0);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    assert_eq!([0, 512, 4095].map(|b| h.disk[(place + GAP + b) as usize]), [7, 5, 5]);
}

/// A cache of as few slots as there can be.
pub fn small() -> Hand {
    let mut h = Hand::new();
    h.control(Control::Limit(2048));
    h.pass(SECOND);
    h.controlled.clear();
    h
}

/// Overwrites dirty blocks until no slot is free; those of the old versions are not durable, and cannot be used again.
pub fn take_all_slots(h: &mut Hand) {
    let cache = |h: &mut Hand| {
        let is = |p: &(Dev, loligo_block::Op)| p.0 == Dev::Cache && !matches!(p.1.kind, OpKind::Flush);
        while let Some(i) = h.pending.iter().position(is) {
            h.complete(i, false);
        }
    };
    h.fill(20 * MIB, 4 * BLOCK, 9);
    cache(h);
    let full = (0..4000).any(|_| {
        let id = h.fill(20 * MIB, 4 * BLOCK, 9);
        cache(h);
        h.answer(id).is_none()
    });
    assert!(full, "an overwrite waits");
}

#[test]
fn a_merge_goes_without_its_gaps_where_no_slot_is_free() {
    let mut h = small();
    let place = merging(&mut h, false);
    take_all_slots(&mut h);
    let read = h.pending.iter().position(|p| p.0 == Dev::Core && matches!(p.1.kind, OpKind::Read(_)));
    h.complete(read.expect("it is being read"), false);
    assert_eq!(at_core(&h, SPAN), None);
    assert!(at_core(&h, BLOCK).is_some(), "the dirty blocks are written by themselves");
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    assert_eq!([0, 1, 3, 30].map(|b| h.disk[(place + b * BLOCK) as usize]), [1, 5, 5, 1]);
}

#[test]
fn a_gap_waits_in_memory_for_a_slot() {
    let mut h = small();
    let place = merged(&mut h, false);
    take_all_slots(&mut h);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Core) {
        h.complete(i, false);
    }
    let named = place + GAP..place + GAP + BLOCK;
    assert!(h.shard.core_refuses().is_some_and(|r| r.ranges == std::slice::from_ref(&named)));
    assert!(h.controlled.is_empty(), "the flush waits");
    h.pass(5 * SECOND);
    assert_eq!(h.read(place + GAP), Ok(5));
    let said = h.flush_dirty().cloned();
    assert!(said.is_some_and(|r| r.is_err()), "the core lacks it");
    stays(h, place + GAP);
}

#[test]
fn a_gap_finds_room_in_a_full_cache_and_is_named() {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    h.refused = MIB..CORE;
    h.bad = h.refused.clone();
    // Every slot becomes dirty while the write is at the core: overwrites may have the last of them.
    for i in 0..28 * 4 {
        h.fill(40 * MIB + i % 96 * MIB / 4, MIB / 4, 9);
        cache_only(&mut h);
        h.tick(SECOND / 10);
        cache_only(&mut h);
    }
    fail(&mut h, place, SPAN);
    h.pass(100 * SECOND);
    let refused = h.shard.core_refuses().expect("it is told");
    let gap = place + GAP;
    let all = refused.ranges.iter().chain(&refused.untried_ranges);
    assert!(all.clone().any(|r| r.contains(&gap)), "{refused:?}");
    assert!(h.flush_dirty().is_some_and(Result::is_err));
    assert_eq!(h.read(gap), Ok(5));
}

#[test]
fn a_freeze_over_a_filler_replaced_meanwhile_holds_the_moment() {
    let (mut h, place, freeze) = frozen_over_filler();
    h.fill(place + BLOCK, BLOCK, 7);
    cache_only(&mut h);
    fail_over(&mut h, 3 * BLOCK, place + BLOCK);
    h.pass(10 * SECOND);
    assert_eq!(h.outcome(freeze), Some(&Ok(())));
    assert_eq!([0, 1, 2].map(|b| h.disk[(place + b * BLOCK) as usize]), [1, 5, 1]);
    assert_eq!(h.read(place + BLOCK), Ok(7));
}

#[test]
fn a_freeze_over_a_spoiled_block_in_change_holds_the_moment() {
    let (mut h, place, freeze) = frozen_over_filler();
    // It has looked at the clean version; its record is on the way.
    h.fill(place + BLOCK, BLOCK, 7);
    fail_over(&mut h, 3 * BLOCK, place + BLOCK);
    h.pass(10 * SECOND);
    assert_eq!(h.outcome(freeze), Some(&Ok(())));
    assert_eq!([0, 1, 2].map(|b| h.disk[(place + b * BLOCK) as usize]), [1, 5, 1]);
}

#[test]
fn a_freeze_whose_moment_is_lost_in_a_gap_ends_with_an_error() {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    let freeze = h.control(Control::Freeze);
    h.fill(place + GAP, BLOCK, 7);
    cache_only(&mut h);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    h.pass(100 * SECOND);
    let said = h.outcome(freeze).expect("it comes to an end");
    assert!(said.as_ref().is_err_and(|why| why.contains("refuses a block")), "{said:?}");
    assert_eq!(h.shard.frozen(), None);
}

#[test]
fn a_flush_waits_for_a_clean_block_that_is_written_again() {
    let mut h = Hand::new();
    h.fill(10 * MIB, BLOCK, 5);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    h.refused = 0..CORE;
    h.fill(MIB, BLOCK, 1);
    let probe = |h: &Hand| {
        let is =
            |p: &(Dev, loligo_block::Op)| p.0 == Dev::Core && p.1.changes_data() && p.1.offset == 10 * MIB;
        h.pending.iter().position(is)
    };
    until(&mut h, probe);
    h.refused = 0..0;
    let flush = h.control(Control::FlushDirty);
    for _ in 0..200 {
        while let Some(i) = (0..h.pending.len()).find(|i| Some(*i) != probe(&h)) {
            h.complete(i, false);
        }
        h.tick(SECOND / 10);
    }
    assert_eq!((h.shard.dirty_blocks(), h.outcome(flush)), (0, None), "one write is at the core");
    let i = probe(&h).expect("it is still there");
    h.complete(i, true);
    h.disk[10 * MIB as usize..][..BLOCK as usize].fill(0xee);
    h.pass(10 * SECOND);
    assert!(h.outcome(flush).is_some(), "it comes to an end");
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    assert_eq!(h.disk[10 * MIB as usize], 5);
}
