//! Destaging, completion by completion.

use crate::hand::{CORE, Hand, MIB, SECOND};
use loligo_block::{OpKind, ReqError, ReqKind};
use loligo_engine::api::{Control, Dev};
use loligo_format::mode::Mode;

#[test]
fn a_job_that_ends_above_the_limit_of_slot_reads_is_forgotten() {
    let mut h = Hand::new();
    for window in 0..40 {
        h.write(window * MIB, 4096);
    }
    h.submit(ReqKind::Flush, 0, 0);
    h.quiet(false);
    // Nobody there: the sweep begins, a block a window, with as many reads as it may.
    h.tick(SECOND);
    let reads = h.slot_reads();
    assert_eq!(reads.len(), 32);
    let last = h.pending[reads[31]].1.tag;
    // Clients come back: a read that stays at the core, and a new version of the block that is read last.
    h.submit(ReqKind::Read, 60 * MIB, 4096);
    h.write(31 * MIB, 4096);
    while let Some(i) =
        h.pending.iter().position(|p| matches!(p.1.kind, OpKind::Write { .. }) && p.0 == Dev::Cache)
    {
        h.complete(i, false);
    }
    let at = h.pending.iter().position(|p| p.1.tag == last).expect("it is still being read");
    h.complete(at, false);
    for _ in 0..5 {
        h.quiet(false);
        h.tick(SECOND);
    }
    assert_eq!(h.shard.dirty_blocks(), 0, "all of it was destaged");
}

/// Writes fresh blocks until one has to wait, with a core that takes nothing; its id.
fn fill(h: &mut Hand) -> u64 {
    for at in (0..CORE).step_by(64 << 10) {
        let id = h.write(at, 64 << 10);
        h.quiet(true);
        for _ in 0..50 {
            if h.answer(id).is_some() {
                break;
            }
            // The pacer may hold it back for a moment; a full cache does so for good.
            h.tick(SECOND / 50);
            h.quiet(true);
        }
        if h.answer(id).is_none() {
            return id;
        }
    }
    panic!("a cache of 32 MiB took {CORE} bytes");
}

#[test]
fn a_write_that_needs_room_behind_a_dead_core_fails_in_a_minute() {
    let mut h = Hand::new();
    let waits = fill(&mut h);
    let others: Vec<u64> = (0..300).map(|i| h.write(63 * MIB + i % 2 * 4096, 4096)).collect();
    let begun = h.now;
    while h.answer(waits).is_none() {
        h.tick(SECOND);
        h.quiet(true);
        assert!(h.now - begun < 100 * SECOND, "it waits for ever");
    }
    assert_eq!(h.answer(waits), Some(Err(ReqError::Io)));
    for id in others {
        assert_eq!(
            h.answer(id),
            Some(Err(ReqError::Io)),
            "those behind it, and those that wait for its blocks"
        );
    }
    let over = h.write(0, 4096);
    h.quiet(true);
    assert_eq!(h.answer(over), Some(Ok(())), "an overwrite needs nothing of the core");
    // The core is mended: the sweep finds out by itself, and there is room again.
    for _ in 0..10 {
        h.tick(SECOND);
        h.quiet(false);
    }
    let again = h.write(63 * MIB, 4096);
    h.quiet(false);
    assert_eq!(h.answer(again), Some(Ok(())));
}

#[test]
fn overwrites_short_of_slots_beside_a_dead_core_succeed() {
    let mut h = Hand::new();
    let waits = fill(&mut h);
    let begun = h.now;
    while h.answer(waits).is_none() {
        h.tick(SECOND);
        h.quiet(true);
        assert!(h.now - begun < 100 * SECOND, "it waits for ever");
    }
    // More at once than there are free slots: the rest comes when the first versions are out of the way.
    let over: Vec<u64> = (0..4).map(|i| h.fill(i * MIB, MIB, 5)).collect();
    for _ in 0..20 {
        h.quiet(true);
        h.tick(SECOND);
    }
    for id in over {
        assert_eq!(h.answer(id), Some(Ok(())), "it needs nothing of the core");
    }
}

#[test]
fn a_write_under_way_when_write_back_ends_is_in_the_core() {
    let mut h = Hand::new();
    let id = h.fill(MIB, 8192, 7);
    h.control(Control::SetMode(Mode::Wt));
    for _ in 0..1000 {
        if h.answer(id).is_some() {
            break;
        }
        if h.pending.is_empty() {
            h.tick(SECOND);
        } else {
            h.complete(0, false);
        }
    }
    assert_eq!(h.answer(id), Some(Ok(())));
    assert_eq!(h.disk[MIB as usize..][..8192], [7; 8192], "it was acknowledged in write-through mode");
    h.quiet(false);
    assert_eq!(h.shard.dirty_blocks(), 0);
}

/// Replaces a sector of a block that a flush waits for, after its slot was asked for and before the core is written.
fn replaced_meanwhile(h: &mut Hand) -> bool {
    h.tick(1000);
    if h.slot_reads().is_empty() {
        return false;
    }
    h.fill(512, 512, 2);
    while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Cache && p.1.changes_data()) {
        h.complete(i, false);
    }
    true
}

#[test]
fn a_flush_waits_for_what_is_left_of_a_block_replaced_meanwhile() {
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.submit(ReqKind::Flush, 0, 0);
    h.quiet(false);
    let flush = h.control(Control::FlushDirty);
    assert!(replaced_meanwhile(&mut h), "its slot is being read");
    for _ in 0..20 {
        h.quiet(false);
        if h.outcome(flush).is_some() {
            break;
        }
        h.tick(SECOND);
    }
    assert_eq!(h.outcome(flush), Some(&Ok(())));
    assert_eq!(h.disk[4095], 1, "what was there before the flush is in the core");
}
