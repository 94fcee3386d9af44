//! Sectors of the core that cannot be written, or not be read.

use crate::world::{MIB, MS, Model, S, US, World};
use loligo_block::ReqKind;
use loligo_engine::api::Control;
use loligo_engine::params::Params;
use loligo_format::mode::Mode;
use std::ops::Range;

/// A quick disk.
fn disk() -> Model {
    Model::new(1, 300 * US, 2 * US, MS)
}

/// The only block of [`one_unwritable`] that is refused.
const REFUSED: Range<u64> = 5 * MIB + 60 * 4096..5 * MIB + 61 * 4096;

/// 100 blocks of window 5, some of them neighbours, and one in each of 100 other windows; one of the first cannot be written.
fn one_unwritable() -> World {
    let mut w = World::new(256 * MIB, 256 * MIB, Params::default(), disk());
    w.unwritable.push(5 * MIB + 60 * 4096 + 512..5 * MIB + 60 * 4096 + 1024);
    for i in 0..100 {
        w.write_block(5 * MIB + (i + i / 10) * 4096);
        w.write_block((20 + i) * MIB);
    }
    w
}

#[test]
fn an_unwritable_sector_keeps_only_its_own_block_dirty() {
    let mut w = one_unwritable();
    w.pass(20 * S);
    assert_eq!(w.engine.dirty_blocks(), 1);
    assert_eq!(w.engine.stats().refused_blocks, 1);
    // What is written beside it later goes on too.
    for i in 0..20 {
        w.write_block(5 * MIB + (150 + i) * 4096);
    }
    w.pass(20 * S);
    assert_eq!(w.engine.dirty_blocks(), 1);
}

#[test]
fn a_flush_writes_all_it_can_and_names_refused_sectors() {
    let mut w = one_unwritable();
    let said = w.ask(Control::FlushDirty, 20 * S).expect("it comes to an end").expect_err("not all of it");
    assert_eq!(w.engine.dirty_blocks(), 1, "{said}");
    let refused = w.engine.core_refuses().expect("it is told");
    assert_eq!((&refused.ranges[..], refused.places, refused.untried), (&[REFUSED][..], 1, 0));
    assert!(said.contains(&refused.why) && said.contains("refuses a block"), "{said}");
    assert_eq!(w.engine.core_failing(), None, "the core is well but for that");
    // The disk has remapped it.
    w.unwritable.clear();
    assert_eq!(w.ask(Control::FlushDirty, 20 * S), Some(Ok(())));
    assert_eq!((w.engine.dirty_blocks(), w.engine.core_refuses()), (0, None));
}

#[test]
fn a_freeze_over_a_refused_sector_ends_and_names_it() {
    let mut w = one_unwritable();
    let said = w.ask(Control::Freeze, 20 * S).expect("it comes to an end").expect_err("not all of it");
    assert!(said.contains("refuses a block"), "{said}");
    assert!(w.engine.core_refuses().is_some_and(|r| r.ranges == [REFUSED]), "{said}");
    assert_eq!(w.engine.frozen(), None);
    // Nobody waits for a thaw.
    w.write_block(6 * MIB);
    w.pass(20 * S);
    assert_eq!(w.engine.dirty_blocks(), 1);
}

#[test]
fn a_refused_block_that_is_dropped_is_forgotten() {
    let mut w = one_unwritable();
    w.pass(20 * S);
    assert_eq!(w.engine.stats().refused_blocks, 1);
    w.unwritable.clear();
    let id = w.submit(ReqKind::WriteZeroes { unmap: false }, 5 * MIB, MIB);
    assert!(w.wait(id, 10 * S).is_some());
    w.pass(S);
    assert_eq!((w.engine.stats().refused_blocks, w.engine.core_refuses()), (0, None));
    assert_eq!(w.ask(Control::FlushDirty, 20 * S), Some(Ok(())));
}

#[test]
fn a_refused_block_is_tried_ever_more_seldom_and_heals() {
    let mut w = one_unwritable();
    w.pass(60 * S);
    let failed = w.failed;
    w.pass(600 * S);
    let tries = w.failed - failed;
    assert!((10..=30).contains(&tries), "{tries} tries in ten minutes");
    w.unwritable.clear();
    w.pass(31 * S);
    assert_eq!((w.engine.dirty_blocks(), w.engine.stats().refused_blocks), (0, 0));
}

#[test]
fn an_unwritable_sector_does_not_slow_other_writers() {
    let span = 512 * MIB;
    let mut w = World::new(64 * MIB, span, Params::default(), disk());
    w.load(15 * S, S, 32, span);
    let before = w.load(10 * S, S / 4, 32, span);
    let middle = span / 2;
    w.unwritable.push(middle..middle + 4096);
    w.write_block(middle);
    let after = w.load(20 * S, S / 4, 32, span);
    let least = before.iter().min().expect("many") / 2;
    assert!(after.iter().all(|n| *n >= least), "{before:?}, then {after:?}");
    assert!(w.failed > 0, "it was tried");
}

#[test]
fn a_window_that_is_dead_as_a_whole_ends_a_flush() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    w.unwritable.push(7 * MIB..8 * MIB);
    for i in 0..200 {
        w.write_block(7 * MIB + i * 4096);
        w.write_block(i % 100 * 2 * MIB);
    }
    let said = w.ask(Control::FlushDirty, 60 * S).expect("it comes to an end").expect_err("not all of it");
    assert!(said.contains("refuses 200 blocks"), "{said}");
    let refused = w.engine.core_refuses().expect("it is told");
    assert_eq!((refused.places, refused.ranges[0].start), (1, 7 * MIB));
    let tried = 7 * MIB + (200 - refused.untried) * 4096;
    assert_eq!(refused.ranges[0].end, tried, "only what was tried");
    let rest = tried..7 * MIB + 200 * 4096;
    assert_eq!(refused.untried_ranges, std::slice::from_ref(&rest), "the rest is named as such");
    assert_eq!(w.engine.dirty_blocks(), 200);
    assert!(w.failed < 60, "{} failures", w.failed);
    w.unwritable.clear();
    assert_eq!(w.ask(Control::FlushDirty, 60 * S), Some(Ok(())));
    assert_eq!(w.engine.dirty_blocks(), 0);
}

#[test]
fn an_unreadable_gap_does_not_keep_its_neighbours_dirty() {
    let mut w = World::new(256 * MIB, 128 * MIB, Params::default(), Model::one_at_a_time());
    let dirty = |w: &mut World| {
        let ids: Vec<u64> = (0..64 * 128).map(|i| w.write(i / 128 * MIB + i % 128 * 8192, 4096)).collect();
        ids.iter().for_each(|id| assert!(w.wait(*id, 1000 * S).is_some()));
        w.done.clear();
    };
    let mut read = 0;
    for _ in 0..8 {
        dirty(&mut w);
        let before = w.engine.stats().core_read_bytes;
        assert_eq!(w.ask(Control::FlushDirty, 3000 * S), Some(Ok(())));
        read = w.engine.stats().core_read_bytes - before;
    }
    assert!(read > 32 * MIB, "windows are read, merged and written here: {read} bytes");
    let gap = 40 * MIB + 101 * 4096;
    w.unreadable.push(gap..gap + 512);
    dirty(&mut w);
    assert_eq!(w.ask(Control::FlushDirty, 3000 * S), Some(Ok(())));
    assert_eq!(w.engine.dirty_blocks(), 0);
    let failed = w.failed;
    dirty(&mut w);
    assert_eq!(w.ask(Control::FlushDirty, 3000 * S), Some(Ok(())));
    assert_eq!(w.failed, failed, "it is not read again");
}

#[test]
fn good_sectors_beside_bad_ones_take_writes_in_wt() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    w.unwritable.push(7 * MIB..7 * MIB + 17 * 4096);
    for i in 0..200 {
        w.write_block(7 * MIB + i * 4096);
        w.write_block(i % 100 * 2 * MIB);
    }
    w.pass(5 * S);
    assert_eq!(w.ask(Control::SetMode(Mode::Wt), 60 * S), Some(Ok(())));
    let ids: Vec<u64> = (20..200).map(|i| w.write(7 * MIB + i * 4096, 4096)).collect();
    ids.iter().for_each(|id| assert!(w.wait(*id, 100 * S).is_some()));
    let failed = w.done.iter().filter(|d| !d.2).count();
    assert_eq!(failed, 0, "writes to good sectors were answered with an error");
}

#[test]
fn a_write_in_wt_fails_only_where_its_block_was_tried() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    // Of a window in which nothing succeeds the rest is not tried, block 199 with it.
    w.unwritable.push(7 * MIB..7 * MIB + 199 * 4096);
    for i in 0..200 {
        w.write_block(7 * MIB + i * 4096);
    }
    w.write_block(100 * MIB);
    w.pass(5 * S);
    assert_eq!(w.ask(Control::SetMode(Mode::Wt), 60 * S), Some(Ok(())));
    for (block, good) in [(199, true), (0, false)] {
        let id = w.write(7 * MIB + block * 4096, 4096);
        assert!(w.wait(id, 100 * S).is_some());
        assert_eq!(w.done.iter().find(|d| d.0 == id).map(|d| d.2), Some(good), "block {block}");
    }
}

#[test]
fn a_flush_over_sectors_that_come_and_go_is_true() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    w.unwritable.push(7 * MIB..8 * MIB);
    for i in 0..200 {
        w.write_block(7 * MIB + i * 4096);
        w.write_block(i % 100 * 2 * MIB);
    }
    for round in 0..40 {
        w.pass(round * 317 * MS);
        let id = w.write(7 * MIB + (round % 200) * 4096, 4096);
        assert!(w.wait(id, 10 * S).is_some());
        w.unwritable.clear();
        if round % 3 != 0 {
            w.unwritable.push(7 * MIB + round * 4096..7 * MIB + (round + 5) * 4096);
        }
        let said = w.ask(Control::FlushDirty, 600 * S).expect("an end");
        if said.is_ok() {
            assert_eq!(w.engine.dirty_blocks(), 0, "round {round}");
        }
    }
}

#[test]
fn refused_blocks_of_an_idle_volume_are_tried_ever_more_seldom() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    for i in 0..5 {
        let at = (5 + 3 * i) * MIB;
        w.unwritable.push(at..at + 4096);
        w.write_block(at);
    }
    w.pass(60 * S);
    let failed = w.failed;
    w.pass(600 * S);
    let tries = w.failed - failed;
    assert!(tries <= 5 * 30, "{tries} tries in ten minutes of 5 blocks");
}

#[test]
fn a_flush_beside_five_refused_blocks_takes_the_good_ones() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    for i in 0..5 {
        let at = (5 + 3 * i) * MIB;
        w.unwritable.push(at..at + 4096);
        w.write_block(at);
    }
    w.pass(120 * S);
    let mut late = 0;
    for i in 0..60 {
        w.write_block((60 + i) * MIB);
        assert!(w.ask(Control::FlushDirty, 600 * S).expect("an end").is_err());
        late += u64::from(w.engine.dirty_blocks() > 5);
    }
    assert_eq!(late, 0, "flushes that ended with good blocks still dirty");
}

#[test]
fn a_good_block_beside_five_refused_ones_goes_to_the_core() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    for i in 0..5 {
        let at = (5 + 3 * i) * MIB;
        w.unwritable.push(at..at + 4096);
        w.write_block(at);
    }
    w.pass(60 * S);
    w.write_block(100 * MIB);
    w.pass(60 * S);
    let known = w.engine.stats().refused_blocks;
    assert_eq!(
        (w.engine.dirty_blocks(), known),
        (5, 5),
        "{:?} {:?}",
        w.engine.core_refuses(),
        w.engine.core_failing()
    );
}

#[test]
fn bad_leading_blocks_do_not_keep_the_rest_of_a_window() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    // 17 blocks (68 KiB) at the start of one window are dead, the other 183 are well.
    w.unwritable.push(7 * MIB..7 * MIB + 17 * 4096);
    for i in 0..200 {
        w.write_block(7 * MIB + i * 4096);
        w.write_block(i % 100 * 2 * MIB);
    }
    let said = w.ask(Control::FlushDirty, 60 * S).expect("an end").expect_err("not all");
    w.pass(600 * S);
    let s = w.engine.stats();
    assert_eq!((w.engine.dirty_blocks(), s.refused_blocks), (17, 17), "{said}");
}

#[test]
fn a_dead_window_counts_as_refused() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    w.unwritable.push(7 * MIB..8 * MIB);
    for i in 0..200 {
        w.write_block(7 * MIB + i * 4096);
        w.write_block(i % 100 * 2 * MIB);
    }
    w.pass(60 * S);
    assert_eq!(
        (w.engine.dirty_blocks(), w.engine.stats().refused_blocks),
        (200, 200),
        "{:?}",
        w.engine.core_refuses()
    );
}

#[test]
fn a_freeze_over_a_single_refused_block_ends() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    w.unwritable.push(5 * MIB..5 * MIB + 4096);
    w.write_block(5 * MIB);
    w.pass(20 * S);
    assert_eq!(w.engine.stats().refused_blocks, 1);
    let said = w.ask(Control::Freeze, 600 * S);
    assert!(said.is_some_and(|r| r.is_err()), "{:?} {:?}", w.engine.core_refuses(), w.engine.frozen());
}

#[test]
fn one_refused_block_of_an_idle_volume_is_no_lost_core() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    w.unwritable.push(5 * MIB..5 * MIB + 4096);
    w.write_block(5 * MIB);
    w.pass(120 * S);
    assert_eq!(w.engine.core_failing(), None, "{:?}", w.engine.core_refuses());
    w.done.clear();
    let counts = w.load(60 * S, S, 32, 256 * MIB);
    assert!(counts.iter().all(|n| *n > 0), "{counts:?}");
}

/// Five blocks in windows apart that the core refuses, of a volume that is idle but for them. It has a clean block or two.
fn five_refused() -> World {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    for i in 0..3 {
        w.write_block((100 + 20 * i) * MIB);
    }
    assert_eq!(w.ask(Control::FlushDirty, 60 * S), Some(Ok(())));
    for i in 0..5 {
        let at = (5 + 3 * i) * MIB;
        w.unwritable.push(at..at + 4096);
        w.write_block(at);
    }
    w
}

#[test]
fn a_core_that_refuses_five_blocks_is_never_called_gone() {
    let mut w = five_refused();
    let end = w.now + 200 * S;
    while w.now < end {
        w.advance(end);
        assert_eq!(w.engine.core_failing(), None, "after {} ms", w.now / MS);
    }
    assert_eq!((w.engine.dirty_blocks(), w.engine.stats().refused_blocks), (5, 5));
}

#[test]
fn a_freeze_over_five_refused_blocks_ends_soon() {
    let mut w = five_refused();
    w.pass(20 * S);
    let said = w.ask(Control::Freeze, 40 * S).expect("it comes to an end").expect_err("not all of it");
    assert!(said.contains("refuses 5 blocks"), "{said}");
}

#[test]
fn a_flush_takes_the_good_blocks_when_five_others_fail_first() {
    let mut w = five_refused();
    for i in 0..60 {
        w.write_block((60 + i) * MIB);
    }
    assert!(w.ask(Control::FlushDirty, 60 * S).expect("an end").is_err());
    assert_eq!(w.engine.dirty_blocks(), 5);
}

#[test]
fn a_core_that_is_gone_is_called_so_soon_and_comes_back() {
    let mut w = five_refused();
    w.unwritable.clear();
    w.unwritable.push(0..256 * MIB);
    w.pass(S);
    // One dirty block is enough.
    w.write_block(200 * MIB);
    w.pass(20 * S);
    assert!(w.engine.core_failing().is_some());
    let failed = w.failed;
    w.pass(600 * S);
    assert!(w.engine.core_failing().is_some());
    assert!(w.failed - failed < 1000, "{} tries in ten minutes", w.failed - failed);
    w.unwritable.clear();
    w.pass(40 * S);
    assert_eq!((w.engine.core_failing(), w.engine.dirty_blocks()), (None, 0));
}

#[test]
fn a_core_that_is_gone_under_one_dirty_block_is_called_so() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), disk());
    for i in 0..3 {
        w.write_block((100 + 20 * i) * MIB);
    }
    assert_eq!(w.ask(Control::FlushDirty, 60 * S), Some(Ok(())));
    w.unwritable.clear();
    w.unwritable.push(0..256 * MIB);
    w.write_block(5 * MIB);
    w.pass(20 * S);
    assert!(w.engine.core_failing().is_some(), "{:?}", w.engine.core_refuses());
}
