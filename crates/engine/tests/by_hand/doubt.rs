//! Writes that the core refuses of what the cache has clean: it may be the only good copy from then on.

use crate::hand::{CORE, Hand, MIB, SECOND};
use loligo_block::{Answer, Buf, OpKind, ReqError, ReqKind};
use loligo_engine::api::{Control, Dev};
use loligo_format::mode::Mode;

const BLOCK: u64 = 4096;
const PLACE: u64 = 10 * MIB;

/// The core neither takes nor reads the block at `at` from now on.
pub fn spoil(h: &mut Hand, at: u64) {
    h.refused = at..at + BLOCK;
    h.bad = h.refused.clone();
}

/// Writes more through the cache than it holds.
pub fn crowd(h: &mut Hand) {
    for i in 0..160 {
        h.fill(20 * MIB + i * MIB / 4, MIB / 4, 9);
        h.pass(SECOND / 2);
    }
}

/// The block at `at` holds 5, whatever comes; in the end the core has it.
pub fn stays(mut h: Hand, at: u64) {
    crowd(&mut h);
    assert_eq!(h.read(at), Ok(5), "after evictions");
    let mut h = h.again(Hand::DEVICES);
    crowd(&mut h);
    assert_eq!(h.read(at), Ok(5), "after a restart");
    (h.refused, h.bad) = (0..0, 0..0);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    assert_eq!((h.shard.dirty_blocks(), h.disk[at as usize]), (0, 5));
}

/// A clean block between two dirty ones, whose run is at the core.
pub fn bridged() -> Hand {
    let mut h = Hand::new();
    h.fill(PLACE + BLOCK, BLOCK, 5);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    h.fill(PLACE, BLOCK, 1);
    h.fill(PLACE + 2 * BLOCK, BLOCK, 1);
    h.quiet(false);
    spoil(&mut h, PLACE + BLOCK);
    h
}

#[test]
fn a_block_refused_as_a_probe_stays_until_it_is_taken() {
    let mut h = Hand::new();
    h.fill(PLACE, BLOCK, 5);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    h.refused = 0..CORE;
    h.fill(MIB, BLOCK, 1);
    h.pass(5 * SECOND);
    assert_eq!(h.shard.dirty_blocks(), 2, "it was written again");
    spoil(&mut h, PLACE);
    h.pass(60 * SECOND);
    stays(h, PLACE);
}

#[test]
fn a_filler_that_is_refused_stays_until_it_is_taken() {
    let mut h = bridged();
    h.pass(5 * SECOND);
    assert_eq!([0, 2].map(|b| h.disk[(PLACE + b * BLOCK) as usize]), [1, 1]);
    stays(h, PLACE + BLOCK);
}

#[test]
fn a_freeze_over_a_refused_filler_ends_with_an_error() {
    let mut h = bridged();
    let freeze = h.control(Control::Freeze);
    h.pass(100 * SECOND);
    let said = h.outcome(freeze).expect("it comes to an end");
    assert!(said.as_ref().is_err_and(|why| why.contains("refuses a block")), "{said:?}");
    assert_eq!(h.shard.frozen(), None);
}

#[test]
fn a_flush_over_a_refused_filler_names_it() {
    let mut h = bridged();
    let said = h.flush_dirty().cloned();
    assert!(said.is_some_and(|r| r.is_err()), "the core lacks it");
    let named = PLACE + BLOCK..PLACE + 2 * BLOCK;
    assert!(h.shard.core_refuses().is_some_and(|r| r.ranges == std::slice::from_ref(&named)));
    assert!(h.shard.needs_cache().is_some());
}

#[test]
fn an_outage_makes_few_clean_blocks_dirty() {
    let mut h = Hand::new();
    for i in 0..40 {
        h.fill(i * MIB, BLOCK, 5);
    }
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    h.refused = 0..CORE;
    h.fill(50 * MIB, BLOCK, 1);
    h.pass(3600 * SECOND);
    assert!((2..=4).contains(&h.shard.dirty_blocks()), "{} are dirty", h.shard.dirty_blocks());
    h.refused = 0..0;
    h.pass(40 * SECOND);
    assert_eq!((h.shard.dirty_blocks(), h.shard.core_failing()), (0, None));
}

#[test]
fn a_write_behind_a_refused_filler_loses_nothing_beside_it() {
    let mut h = bridged();
    h.control(Control::FlushDirty);
    let at_core = |h: &Hand| h.pending.iter().position(|p| p.0 == Dev::Core && p.1.changes_data());
    while at_core(&h).is_none() {
        h.now += 1000;
        h.complete(0, false);
    }
    h.control(Control::SetMode(Mode::Wt));
    let write = ReqKind::Write(Buf::copy_of(&[7; 512]).freeze());
    let write = h.submit(write, PLACE + BLOCK, 512);
    // It waits for its intent, then for the window.
    while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Cache) {
        h.complete(i, false);
    }
    let run = at_core(&h).expect("it was sent");
    assert!(matches!(&h.pending[run].1.kind, OpKind::Write { data, .. } if data.len() == 3 * 4096));
    h.complete(run, false);
    h.pass(10 * SECOND);
    assert!(h.answer(write).is_some());
    let read = h.submit(ReqKind::Read, PLACE + BLOCK + 512, 7 * 512);
    h.quiet(false);
    let answer = h.answers.iter().find(|a| a.0 == read).map(|a| a.1.clone());
    let Some(Ok(Answer::Data(data))) = answer else { panic!("{answer:?}") };
    assert!(data.iter().all(|s| s.iter().all(|b| *b == 5)));
}

#[test]
fn a_write_in_wt_ends_once_the_core_takes_its_block() {
    let mut h = Hand::new();
    h.fill(PLACE, BLOCK, 5);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    let sector = |h: &mut Hand, byte| {
        let kind = ReqKind::Write(Buf::copy_of(&[byte; 512]).freeze());
        h.submit(kind, PLACE, 512)
    };
    sector(&mut h, 6);
    h.quiet(false);
    h.control(Control::SetMode(Mode::Wt));
    // Over dirty data: it is answered once the core has it, and the first try is refused with what is clean in the block.
    let write = sector(&mut h, 7);
    let at_core = |h: &Hand| h.pending.iter().position(|p| p.0 == Dev::Core && p.1.changes_data());
    while at_core(&h).is_none() {
        assert!(!h.pending.is_empty());
        h.now += 1000;
        h.complete(0, false);
    }
    let refused = at_core(&h).expect("it was sent");
    h.complete(refused, true);
    for _ in 0..1000 {
        if h.pending.is_empty() {
            h.tick(SECOND / 10);
        } else {
            h.now += 1000;
            h.complete(0, false);
        }
    }
    assert_eq!((h.answer(write), h.shard.dirty_blocks()), (Some(Ok(())), 0));
    assert_eq!([0, 512].map(|at| h.disk[(PLACE + at) as usize]), [7, 5]);
}

#[test]
fn a_doubted_version_that_rots_is_not_forgotten() {
    let mut h = Hand::new();
    h.fill(PLACE, BLOCK, 5);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    h.refused = PLACE..PLACE + BLOCK;
    h.fill(PLACE, 512, 7);
    h.quiet(false);
    h.submit(ReqKind::Flush, 0, 0);
    h.control(Control::FlushDirty);
    h.quiet(false);
    assert_eq!(h.shard.dirty_blocks(), 1);
    let rots = h.cache.chunks(4096).rposition(|b| b[0] == 7 && b[512] == 5).expect("its slot");
    h.cache[rots * 4096..][..4096].fill(0);
    h.refused = 0..0;
    let mut h = h.again(Hand::DEVICES);
    assert_eq!(h.read(PLACE), Err(ReqError::Io), "and not what the core had before");
}
