//! Content that only memory has: a write to the core failed, and what the core has in its place is nothing good, though it may
//! read well.

use crate::doubt::{bridged, spoil, stays};
use crate::hand::{Hand, MIB, SECOND};
use crate::rewritten::{
    BLOCK, DIRTY, GAP, SPAN, at_core, cache_only, fail, fail_over, merged, merging, small, take_all_slots,
    until,
};
use loligo_block::{Answer, Buf, IoError, IoKind, Op, OpKind, ReqKind};
use loligo_engine::api::{Control, Dev, Event};
use loligo_engine::open::Devices;
use loligo_engine::params::{AdmissionKind, Params};

/// A read of a block.
fn ask(h: &mut Hand, at: u64) -> u64 {
    h.submit(ReqKind::Read, at, BLOCK)
}

/// The answer to it: the first byte.
fn said(h: &Hand, id: u64) -> Option<u8> {
    let answer = h.answers.iter().find(|a| a.0 == id)?;
    match &answer.1 {
        Ok(Answer::Data(data)) => Some(data[0][0]),
        other => panic!("{other:?}"),
    }
}

/// The pending read of so many bytes of a device.
fn reading(h: &Hand, dev: Dev, len: u64) -> Option<usize> {
    h.pending.iter().position(|p| p.0 == dev && matches!(&p.1.kind, OpKind::Read(b) if b.len() as u64 == len))
}

/// Completes what is pending at the core, and what follows of that there. No time passes.
fn core_only(h: &mut Hand) {
    while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Core) {
        h.complete(i, false);
    }
}

/// Takes data read from the core into the cache at once.
fn admit(h: &mut Hand) {
    h.control(Control::SetParams(Params { admission: AdmissionKind::Always, ..Params::default() }));
    h.controlled.clear();
}

/// Writes one sector of the block at `at`.
fn sector(h: &mut Hand, at: u64, byte: u8) -> u64 {
    h.submit(ReqKind::Write(Buf::copy_of(&[byte; 512]).freeze()), at, 512)
}

#[test]
fn a_gap_that_a_failed_merge_spoiled_is_not_read() {
    let mut h = Hand::new();
    admit(&mut h);
    let place = merged(&mut h, false);
    fail(&mut h, place, SPAN);
    let read = ask(&mut h, place + GAP);
    if let Some(i) = reading(&h, Dev::Core, BLOCK) {
        h.complete(i, false);
    }
    h.pass(5 * SECOND);
    assert_eq!((said(&h, read), h.read(place + GAP)), (Some(5), Ok(5)));
    assert_eq!(h.disk[(place + GAP) as usize], 5);
}

#[test]
fn a_spoiled_gap_that_was_read_is_not_kept_for_good() {
    let mut h = Hand::new();
    admit(&mut h);
    let place = merged(&mut h, false);
    h.refused = place + GAP..place + GAP + BLOCK;
    fail(&mut h, place, SPAN);
    ask(&mut h, place + GAP);
    if let Some(i) = reading(&h, Dev::Core, BLOCK) {
        h.complete(i, false);
    }
    cache_only(&mut h);
    h.tick(SECOND / 10);
    cache_only(&mut h);
    h.pass(5 * SECOND);
    stays(h, place + GAP);
}

#[test]
fn a_read_at_the_core_as_a_merge_fails_gets_what_was_there() {
    let mut h = Hand::new();
    admit(&mut h);
    let place = merging(&mut h, false);
    let read = ask(&mut h, place + GAP);
    let merge = reading(&h, Dev::Core, SPAN).expect("the span is being read");
    h.complete(merge, false);
    fail(&mut h, place, SPAN);
    // The core sees the read before it is written again, and answers it late.
    let i = reading(&h, Dev::Core, BLOCK).expect("it was asked for");
    let (dev, mut asked) = h.pending.remove(i);
    asked.kind = OpKind::Read(Buf::copy_of(&[0xee; 4096]));
    let mend = |h: &Hand| h.pending.iter().position(|p| p.0 == Dev::Core);
    while let Some(i) = mend(&h) {
        h.complete(i, false);
    }
    assert_eq!(h.disk[(place + GAP) as usize], 5);
    let OpKind::Read(buf) = asked.kind else { unreachable!() };
    assert!(dev == Dev::Core && said(&h, read).is_none());
    h.event(Event::Done { tag: asked.tag, buf: Some(buf), result: Ok(()) });
    h.pass(SECOND);
    assert_eq!((said(&h, read), h.read(place + GAP)), (Some(5), Ok(5)));
}

#[test]
fn a_gap_that_waits_for_a_slot_is_read_from_memory() {
    let mut h = small();
    let place = merged(&mut h, false);
    take_all_slots(&mut h);
    h.refused = place + GAP..place + GAP + BLOCK;
    fail(&mut h, place, SPAN);
    core_only(&mut h);
    let read = ask(&mut h, place + GAP);
    core_only(&mut h);
    assert_eq!(said(&h, read), Some(5));
    h.pass(5 * SECOND);
    stays(h, place + GAP);
}

#[test]
fn a_freeze_ends_where_its_moment_is_overwritten_in_memory() {
    for part in [BLOCK, 512] {
        let mut h = Hand::new();
        let place = merged(&mut h, false);
        let freeze = h.control(Control::Freeze);
        h.submit(ReqKind::Write(Buf::copy_of(&vec![7; part as usize]).freeze()), place + GAP, part);
        spoil(&mut h, place + GAP);
        fail(&mut h, place, SPAN);
        core_only(&mut h);
        h.pass(100 * SECOND);
        let said = h.outcome(freeze).expect("it comes to an end");
        assert!(said.as_ref().is_err_and(|why| why.contains("refuses a block")), "{said:?}");
        assert_eq!(h.shard.frozen(), None);
    }
}

#[test]
fn a_flush_names_a_gap_that_came_into_the_cache_late() {
    for core_volatile in [true, false] {
        let mut h = Hand::with(Devices { core_volatile, ..Hand::DEVICES });
        let place = merged(&mut h, false);
        let flush = h.asked;
        spoil(&mut h, place + GAP);
        fail(&mut h, place, SPAN);
        let flushes = |p: &(Dev, Op)| p.0 == Dev::Core && matches!(p.1.kind, OpKind::Flush);
        for _ in 0..1000 {
            let Some(i) = h.pending.iter().position(|p| !flushes(p)) else { break };
            h.complete(i, false);
        }
        assert_eq!(h.shard.dirty_blocks(), if core_volatile { DIRTY + 1 } else { 1 });
        h.pass(5 * SECOND);
        let said = h.outcome(flush).expect("it ends");
        assert!(said.as_ref().is_err_and(|why| why.contains("refuses a block of 4 KiB")), "{said:?}");
    }
}

/// A freeze over a gap that was changed in part before it: the core refuses the rest, which is being put together. The pending read
/// of what was changed, and the freeze.
fn frozen_over_part() -> (Hand, u64, u64, u64) {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    sector(&mut h, place + GAP, 7);
    cache_only(&mut h);
    let freeze = h.control(Control::Freeze);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    core_only(&mut h);
    let read = reading(&h, Dev::Cache, BLOCK).expect("it is put together");
    let tag = h.pending[read].1.tag;
    (h, place, tag, freeze)
}

#[test]
fn a_freeze_over_a_part_that_rots_comes_to_an_end() {
    let (mut h, _, tag, freeze) = frozen_over_part();
    let read = h.pending.iter().position(|p| p.1.tag == tag).expect("it is pending");
    let slot = h.pending[read].1.offset as usize;
    h.cache[slot] ^= 0xff;
    h.pass(100 * SECOND);
    let said = h.outcome(freeze).expect("it comes to an end");
    assert!(said.as_ref().is_err_and(|why| why.contains("does not match its checksum")), "{said:?}");
}

#[test]
fn a_freeze_over_a_part_taken_meanwhile_holds_the_moment() {
    let (mut h, place, tag, freeze) = frozen_over_part();
    (h.refused, h.bad) = (0..0, 0..0);
    h.control(Control::FlushDirty);
    for _ in 0..100 {
        while let Some(i) = h.pending.iter().position(|p| p.1.tag != tag) {
            h.complete(i, false);
        }
        h.tick(SECOND / 10);
    }
    assert_eq!((h.disk[(place + GAP) as usize], h.outcome(freeze)), (7, None));
    h.pass(100 * SECOND);
    assert_eq!(h.outcome(freeze), Some(&Ok(())));
    assert_eq!([0, 512].map(|b| h.disk[(place + GAP + b) as usize]), [7, 5]);
}

/// The slots whose content is `byte` throughout hold something else from now on.
fn rot(h: &mut Hand, byte: u8) {
    let slots = h.cache.chunks_exact_mut(BLOCK as usize);
    let rotten = slots.filter(|s| s.iter().all(|b| *b == byte)).map(|s| s[0] ^= 0xff).count();
    assert!(rotten > 0);
}

#[test]
fn a_cached_gap_that_had_rotted_stays_when_it_is_refused() {
    let mut h = Hand::new();
    let place = merged(&mut h, true);
    rot(&mut h, 5);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    h.pass(5 * SECOND);
    stays(h, place + GAP);
}

#[test]
fn a_cached_gap_found_rotten_as_it_is_written_is_not_lost() {
    let mut h = Hand::new();
    let place = merged(&mut h, true);
    rot(&mut h, 5);
    let read = ask(&mut h, place + GAP);
    let slot = h.slot_reads()[0];
    h.complete(slot, false);
    if let Some(i) = reading(&h, Dev::Core, BLOCK) {
        h.complete(i, false);
    }
    assert_eq!(said(&h, read), Some(5));
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    core_only(&mut h);
    h.pass(5 * SECOND);
    stays(h, place + GAP);
}

#[test]
fn a_filler_that_leaves_the_cache_as_it_is_written_is_not_lost() {
    let mut h = bridged();
    (h.refused, h.bad) = (0..0, 0..0);
    h.control(Control::FlushDirty);
    let place = 10 * MIB + BLOCK;
    let is = |h: &Hand, i: usize| {
        let slot = h.pending[i].1.offset as usize;
        h.cache[slot] == 5
    };
    until(&mut h, |h| h.slot_reads().into_iter().find(|i| is(h, *i)));
    let filler = h.slot_reads().into_iter().find(|i| is(&h, *i)).expect("it is read for the run");
    h.complete(filler, false);
    assert!(!h.slot_reads().is_empty(), "the run waits for others");
    // What the run will write is good. The slot is not any more, and is on its way out.
    rot(&mut h, 5);
    let mine: Vec<u64> = h.pending.iter().map(|p| p.1.tag).collect();
    let read = ask(&mut h, place);
    while let Some(i) = h.pending.iter().position(|p| !mine.contains(&p.1.tag)) {
        h.complete(i, false);
    }
    assert_eq!(said(&h, read), Some(5));
    while at_core(&h, 3 * BLOCK).is_none() {
        assert!(!h.pending.is_empty(), "no time is to pass");
        h.complete(0, false);
    }
    spoil(&mut h, place);
    fail_over(&mut h, 3 * BLOCK, place);
    core_only(&mut h);
    h.pass(5 * SECOND);
    stays(h, place);
}

#[test]
fn a_part_that_finds_no_slot_is_not_read_again_and_again() {
    let mut h = small();
    let place = merged(&mut h, false);
    let gaps: Vec<u64> = (0..DIRTY - 1).map(|i| place + (2 * i + 1) * BLOCK).collect();
    for gap in &gaps {
        sector(&mut h, *gap, 7);
    }
    cache_only(&mut h);
    take_all_slots(&mut h);
    h.refused = place..place + SPAN;
    fail(&mut h, place, SPAN);
    h.disk[place as usize..][..SPAN as usize].fill(0xee);
    core_only(&mut h);
    let mut reads = 0;
    while let Some(i) = h.slot_reads().first().copied() {
        reads += 1;
        assert!(reads <= gaps.len(), "nothing has changed since");
        h.complete(i, false);
    }
    h.pass(5 * SECOND);
    h.refused = 0..0;
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    for gap in gaps {
        assert_eq!([0, 512].map(|b| h.disk[(gap + b) as usize]), [7, 5]);
    }
}
#[test]
fn a_window_whose_merge_failed_is_not_merged_again() {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    fail(&mut h, place, SPAN);
    h.pass(5 * SECOND);
    assert_eq!(h.shard.dirty_blocks(), 0);
    for _ in 0..60 {
        for i in 0..DIRTY {
            h.fill(place + 2 * i * BLOCK, BLOCK, 1);
        }
        cache_only(&mut h);
        let flush = h.control(Control::FlushDirty);
        while h.outcome(flush).is_none() {
            assert_eq!(reading(&h, Dev::Core, SPAN), None, "it is merged");
            if h.pending.is_empty() {
                h.tick(SECOND / 10);
            } else {
                h.now += 1000;
                h.complete(0, false);
            }
        }
    }
}

/// A gap changed in part, whose rest the core refuses: the read of that part fails, the device being away for a moment where it is
/// not `rotten`.
fn part_fails(rotten: bool) -> (Hand, u64) {
    let mut h = Hand::new();
    let place = merged(&mut h, false);
    sector(&mut h, place + GAP, 7);
    cache_only(&mut h);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    core_only(&mut h);
    let read = reading(&h, Dev::Cache, BLOCK).expect("it is put together");
    if rotten {
        let slot = h.pending[read].1.offset as usize;
        h.cache[slot] ^= 0xff;
    } else {
        let (_, op) = h.pending.remove(read);
        let result = Err(IoError::new(IoKind::Io, "away"));
        h.event(Event::Done { tag: op.tag, buf: Some(Buf::alloc(BLOCK as usize)), result });
    }
    h.pass(5 * SECOND);
    (h, place + GAP)
}

#[test]
fn a_part_that_cannot_be_read_once_costs_nothing() {
    let (mut h, gap) = part_fails(false);
    assert_eq!(h.read(gap), Ok(7));
    (h.refused, h.bad) = (0..0, 0..0);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    assert_eq!([0, 512].map(|b| h.disk[(gap + b) as usize]), [7, 5]);
}

#[test]
fn a_part_that_has_rotted_does_not_take_the_rest_along() {
    let (mut h, gap) = part_fails(true);
    let rest = h.submit(ReqKind::Read, gap + 512, 7 * 512);
    h.quiet(false);
    assert_eq!(said(&h, rest), Some(5));
    assert!(h.read(gap).is_err(), "and not what the core had before");
    let told = h.flush_dirty().cloned();
    assert!(told.is_some_and(|r| r.is_err_and(|why| why.contains("does not match its checksum"))));
    // Whoever overwrites it mends it.
    h.fill(gap, BLOCK, 6);
    h.quiet(false);
    (h.refused, h.bad) = (0..0, 0..0);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    assert_eq!(h.disk[gap as usize], 6);
}

#[test]
fn bytes_that_the_core_fails_to_give_late_come_from_memory() {
    let mut h = Hand::new();
    let place = merging(&mut h, false);
    let read = h.submit(ReqKind::Read, place + GAP, 3 * BLOCK);
    // The core cannot read it in one go, and is asked for the rest.
    let whole = reading(&h, Dev::Core, 3 * BLOCK).expect("it was asked for");
    h.bad = place + GAP..place + GAP + BLOCK;
    h.complete(whole, false);
    let part = reading(&h, Dev::Core, BLOCK).map(|i| h.pending.remove(i));
    h.bad = 0..0;
    let merge = reading(&h, Dev::Core, SPAN).expect("the span is being read");
    h.complete(merge, false);
    spoil(&mut h, place + GAP);
    fail(&mut h, place, SPAN);
    h.pending.extend(part);
    h.pass(5 * SECOND);
    assert_eq!(said(&h, read), Some(5));
}

#[test]
fn a_merge_that_was_planned_before_the_core_failed_is_none() {
    let mut h = Hand::new();
    h.disk.fill(5);
    for round in 0..30 {
        let place = (2 * round + 1) * MIB;
        for i in 0..2 * DIRTY {
            h.fill(place + i / DIRTY * MIB + 2 * (i % DIRTY) * BLOCK, BLOCK, 1);
        }
        // All of it is durable: only their slots hold the jobs up.
        h.submit(ReqKind::Flush, 0, 0);
        cache_only(&mut h);
        let flush = h.control(Control::FlushDirty);
        while h.outcome(flush).is_none() {
            let Some(read) = reading(&h, Dev::Core, SPAN) else {
                if h.pending.is_empty() {
                    h.tick(SECOND / 10);
                } else {
                    h.now += 1000;
                    h.complete(0, false);
                }
                continue;
            };
            h.refused = place..place + MIB;
            h.complete(read, false);
            core_only(&mut h);
            while let Some(i) = h.slot_reads().first().copied() {
                h.complete(i, false);
            }
            assert_eq!(reading(&h, Dev::Core, SPAN), None, "it is merged beside a core that fails");
            h.pass(5 * SECOND);
        }
        h.refused = 0..0;
        assert_eq!(h.flush_dirty(), Some(&Ok(())));
    }
    assert!(h.disk[MIB as usize..][..MIB as usize].iter().all(|b| matches!(b, 1 | 5)));
}
