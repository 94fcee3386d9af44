//! A cache that goes while changes are under way: what the core holds afterwards.

use crate::hand::{Hand, MIB, SECOND};
use loligo_block::{IoError, IoKind, OpKind, ReqError, ReqKind};
use loligo_engine::FallbackState;
use loligo_engine::api::{Control, Dev, Event};
use loligo_engine::refusal::NeedsCache;
use loligo_format::mode::Mode;

/// Completes what is written to the cache, and its flushes; slots that are being read stay under way.
fn complete_cache_writes(h: &mut Hand) {
    let written =
        |h: &Hand| h.pending.iter().position(|p| p.0 == Dev::Cache && !matches!(p.1.kind, OpKind::Read(_)));
    while let Some(i) = written(h) {
        h.complete(i, false);
    }
}

/// Everything that is asked of the cache fails.
fn fail_cache(h: &mut Hand) {
    while let Some(at) = h.pending.iter().position(|p| p.0 == Dev::Cache) {
        let (_, op) = h.pending.remove(at);
        let result = Err(IoError::new(IoKind::Gone, "gone"));
        h.event(Event::Done { tag: op.tag, buf: None, result });
    }
}

#[test]
fn a_write_destaged_by_a_freeze_outlives_the_cache() {
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.fill(8192, 4096, 2);
    h.quiet(false);
    h.control(Control::SetMode(Mode::Wt));
    // A destage job has the window: its slots are being read.
    h.control(Control::FlushDirty);
    assert!(!h.slot_reads().is_empty());
    // Over dirty data, so it goes to the cache first, and is answered once the core has it.
    let write = h.fill(0, 4096, 7);
    complete_cache_writes(&mut h);
    assert_eq!(h.answer(write), None);
    let freeze = h.control(Control::Freeze);
    h.quiet(false);
    assert_eq!((h.outcome(freeze), h.shard.dirty_blocks(), h.disk[0]), (Some(&Ok(())), 0, 7));
    let gone = h.control(Control::FallBack("the cache is gone".into()));
    let on = h.control(Control::Confirm);
    h.control(Control::Thaw);
    h.quiet(false);
    assert_eq!((h.outcome(gone), h.outcome(on)), (Some(&Ok(())), Some(&Ok(()))));
    assert_eq!((h.answer(write), h.disk[0]), (Some(Ok(())), 7));
}

#[test]
fn the_cache_is_needed_while_an_overwrite_is_on_its_way() {
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.quiet(false);
    h.tick(SECOND / 100);
    h.quiet(false);
    h.control(Control::SetMode(Mode::Wt));
    h.control(Control::FlushDirty);
    // Until the core has the block, and the record that says so is on its way.
    while !h.pending.iter().any(|p| p.0 == Dev::Core) {
        assert!(!h.pending.is_empty());
        h.complete(0, false);
    }
    let at = h.pending.iter().position(|p| p.0 == Dev::Core).unwrap();
    h.complete(at, false);
    let clean: Vec<u64> = h.pending.iter().map(|p| p.1.tag).collect();
    let write = h.fill(0, 4096, 7);
    // That record is written; what the new write asked for is not.
    for tag in clean {
        let at = h.pending.iter().position(|p| p.1.tag == tag).unwrap();
        h.complete(at, false);
    }
    assert_eq!((h.shard.dirty_blocks(), h.answer(write), h.disk[0]), (0, None, 1));
    assert!(h.shard.needs_cache() == Some(NeedsCache::Dirty));
    fail_cache(&mut h);
    h.control(Control::Confirm);
    h.quiet(false);
    assert_eq!((h.shard.alone(), h.answer(write), h.disk[0]), (None, Some(Err(ReqError::Io)), 1));
}

#[test]
fn a_write_that_waits_for_its_intent_reaches_the_core_whole() {
    let mut h = Hand::new();
    h.control(Control::SetMode(Mode::Wt));
    let write = h.fill(0, 8192, 7);
    assert!(h.leaves_core() && h.shard.needs_cache().is_none());
    fail_cache(&mut h);
    assert_eq!(h.shard.alone(), Some(FallbackState::Waiting));
    h.control(Control::Confirm);
    h.quiet(false);
    assert_eq!((h.answer(write), [h.disk[0], h.disk[8191]]), (Some(Ok(())), [7, 7]));
}

#[test]
fn no_flush_holds_while_a_clean_record_is_lost_with_the_cache() {
    for noted in [true, false] {
        let mut h = Hand::new();
        h.control(Control::SetMode(Mode::Wt));
        // Opens the intent of the region.
        h.fill(8192, 4096, 9);
        h.quiet(false);
        h.control(Control::SetMode(Mode::Wb));
        h.fill(0, 4096, 1);
        h.submit(ReqKind::Flush, 0, 0);
        h.quiet(false);
        h.control(Control::SetMode(Mode::Wt));
        h.control(Control::FlushDirty);
        h.quiet(false);
        // Over a block whose version is dirty to a recovery until the cache is flushed.
        let write = h.fill(0, 4096, 2);
        h.quiet(false);
        assert_eq!((h.answer(write), h.disk[0]), (Some(Ok(())), 2));
        h.control(Control::FallBack("the cache is gone".into()));
        let flush = h.submit(ReqKind::Flush, 0, 0);
        h.quiet(false);
        assert_eq!((h.shard.alone(), h.answer(flush)), (Some(FallbackState::Waiting), None));
        h.control(if noted { Control::Confirm } else { Control::GiveUp("it cannot be noted".into()) });
        h.quiet(false);
        assert_eq!(h.answer(flush), Some(if noted { Ok(()) } else { Err(ReqError::Io) }));
        let later = h.submit(ReqKind::Flush, 0, 0);
        h.quiet(false);
        assert_eq!(h.answer(later), h.answer(flush));
    }
}

/// Mode wt with nothing dirty, and a clean block of 5 at 10 MiB that is being written again: the core refused a write.
fn probed() -> Hand {
    let mut h = Hand::new();
    h.fill(10 * MIB, 4096, 5);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    h.fill(MIB, 4096, 1);
    h.quiet(false);
    h.refused = MIB..2 * MIB;
    h.control(Control::FlushDirty);
    let probe = |h: &Hand| h.pending.iter().position(|p| p.0 == Dev::Core && p.1.offset == 10 * MIB);
    while probe(&h).is_none() {
        assert!(!h.pending.is_empty());
        h.now += 1000;
        h.complete(0, false);
    }
    h.refused = 0..0;
    // What was dirty is cleared by a client.
    h.submit(ReqKind::WriteZeroes { unmap: false }, MIB, MIB);
    while let Some(i) = (0..h.pending.len()).find(|i| Some(*i) != probe(&h)) {
        h.complete(i, false);
    }
    h.control(Control::SetMode(Mode::Wt));
    assert_eq!((h.shard.dirty_blocks(), h.pending.len()), (0, 1));
    h
}

#[test]
fn a_probe_under_way_does_not_need_the_cache() {
    let mut h = probed();
    let gone = h.control(Control::FallBack("the cache is gone".into()));
    assert_eq!((h.outcome(gone), h.shard.alone()), (Some(&Ok(())), Some(FallbackState::Waiting)));
}

#[test]
fn a_write_overtakes_no_probe_of_before_the_cache_went() {
    let mut h = probed();
    h.control(Control::FallBack("the cache is gone".into()));
    h.control(Control::Confirm);
    let write = h.fill(10 * MIB, 4096, 7);
    let freeze = h.control(Control::Freeze);
    // What came last is over first.
    while let Some(last) = h.pending.len().checked_sub(1) {
        h.complete(last, false);
    }
    assert_eq!(h.outcome(freeze), Some(&Ok(())));
    h.control(Control::Thaw);
    h.quiet(false);
    assert_eq!((h.answer(write), h.disk[10 * MIB as usize]), (Some(Ok(())), 7));
}
