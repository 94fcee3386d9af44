//! A frozen core: what goes there, what does not, and who waits.

use crate::hand::{CORE, Hand, MIB, SECOND};
use loligo_block::{OpKind, ReqError, ReqKind};
use loligo_engine::api::{Control, Dev};
use loligo_engine::open::Devices;
use loligo_engine::params::{Params, SeqCutoff};
use loligo_format::mode::Mode;

const UNMAPS: Devices = Devices { core_unmaps: true, ..Hand::DEVICES };

/// The first byte of each of these blocks of the core.
fn core<const N: usize>(h: &Hand, blocks: [u64; N]) -> [u8; N] {
    blocks.map(|b| h.disk[b as usize * 4096])
}

/// Freezes with nothing under way; the core holds the moment when it returns.
fn frozen(h: &mut Hand) {
    let id = h.control(Control::Freeze);
    h.quiet(false);
    assert_eq!((h.outcome(id), h.shard.frozen()), (Some(&Ok(())), Some(0)));
}

/// Half an hour in which the core must not be changed.
fn stays(h: &mut Hand) {
    let before = h.disk.clone();
    for _ in 0..1800 {
        h.tick(SECOND);
        assert!(h.leaves_core());
        h.quiet(false);
    }
    assert!(h.disk == before);
}

#[test]
fn the_core_gets_what_came_before_the_freeze_and_nothing_after() {
    for core_groups in [false, true] {
        let mut h = Hand::with(Devices { core_groups, ..Hand::DEVICES });
        for block in 0..100 {
            h.fill(block * 4096, 4096, 1);
        }
        h.quiet(false);
        let id = h.control(Control::Freeze);
        assert_eq!(h.shard.frozen(), Some(100));
        // Over all of it, whole and in part, before any of it has reached the core; and next to it.
        let over: Vec<u64> =
            (0..100).map(|b| h.fill(b * 4096, if b % 2 == 0 { 4096 } else { 512 }, 2)).collect();
        h.fill(100 * 4096, 4096, 2);
        h.fill(20 * MIB, 4096, 2);
        let cache = |p: &(Dev, loligo_block::Op)| p.0 == Dev::Cache;
        while let Some(i) = h.pending.iter().position(cache) {
            h.complete(i, false);
        }
        assert!(over.iter().all(|id| h.answer(*id) == Some(Ok(()))), "no write waits for the core");
        assert_eq!(h.outcome(id), None);
        h.quiet(false);
        assert_eq!(h.outcome(id), Some(&Ok(())));
        assert!(h.disk[..100 * 4096].iter().all(|b| *b == 1) && core(&h, [100, 5120]) == [0, 0]);
        assert_eq!(h.shard.dirty_blocks(), 102);
        assert_eq!([h.read(0), h.read(4096), h.read(100 * 4096)], [Ok(2); 3]);
        stays(&mut h);
        assert!(h.shard.stats().pinned_blocks >= 90, "few were replaced before they were written");
        let thaw = h.control(Control::Thaw);
        let flush = h.control(Control::FlushDirty);
        h.quiet(false);
        assert_eq!(
            (h.outcome(thaw), h.outcome(flush), h.shard.frozen()),
            (Some(&Ok(())), Some(&Ok(())), None)
        );
        assert_eq!(core(&h, [0, 1, 99, 100, 5120]), [2; 5]);
        assert_eq!(h.disk[4096 + 512], 1, "the rest of a block that was written in part");
    }
}

#[test]
fn a_pinned_slot_is_not_reused_before_the_core_has_it() {
    let mut h = Hand::new();
    for window in 0..8 {
        h.fill(window * MIB, MIB, 1);
        h.quiet(false);
    }
    let id = h.control(Control::Freeze);
    // The core is slow: everything else goes on, until every slot would have been used again.
    let quiet_cache = |h: &mut Hand| {
        while let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Cache) {
            h.now += 100_000;
            h.complete(i, false);
        }
    };
    for round in 2..9 {
        for window in 0..8 {
            h.fill(window * MIB, MIB, round);
            quiet_cache(&mut h);
            h.tick(SECOND);
            quiet_cache(&mut h);
        }
    }
    assert!(h.outcome(id).is_none() && h.shard.stats().cache_write_bytes > 60 * MIB);
    h.quiet(false);
    assert_eq!(h.outcome(id), Some(&Ok(())));
    assert!(h.disk[..8 * MIB as usize].iter().all(|b| *b == 1));
}

#[test]
fn a_freeze_waits_for_writes_at_the_core_and_lets_no_more_in() {
    let mut h = Hand::with(UNMAPS);
    h.control(Control::SetMode(Mode::Wt));
    let at_core = h.fill(0, 4096, 1);
    while h.leaves_core() {
        h.complete(0, false);
    }
    let id = h.control(Control::Freeze);
    let behind = h.fill(MIB, 4096, 2);
    let over = h.fill(0, 4096, 3);
    assert!(h.outcome(id).is_none() && h.answer(at_core).is_none());
    h.quiet(false);
    assert_eq!((h.outcome(id), h.answer(at_core)), (Some(&Ok(())), Some(Ok(()))));
    assert_eq!((core(&h, [0, 256]), h.answer(behind), h.answer(over)), ([1, 0], None, None));
    stays(&mut h);
    h.control(Control::Thaw);
    h.quiet(false);
    assert_eq!((core(&h, [0, 256]), h.answer(behind), h.answer(over)), ([3, 2], Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_write_through_dirty_data_waits_for_the_thaw() {
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.quiet(false);
    frozen(&mut h);
    h.fill(4096, 4096, 2);
    h.quiet(false);
    h.control(Control::SetMode(Mode::Wt));
    let through = h.fill(4096, 4096, 3);
    h.quiet(false);
    stays(&mut h);
    assert_eq!((h.answer(through), h.read(4096)), (None, Ok(2)));
    h.control(Control::Thaw);
    h.quiet(false);
    h.tick(SECOND);
    h.quiet(false);
    assert_eq!((h.answer(through), core(&h, [0, 1])), (Some(Ok(())), [1, 3]));
}

#[test]
fn long_streams_stay_in_the_cache_while_the_core_is_frozen() {
    let mut h = Hand::new();
    h.control(Control::SetParams(Params { seq_cutoff: SeqCutoff::Always, ..Params::default() }));
    frozen(&mut h);
    let id = h.stream(0, MIB, 7);
    h.quiet(false);
    assert_eq!((h.answer(id), core(&h, [0]), h.shard.dirty_blocks()), (Some(Ok(())), [0], 256));
    h.control(Control::Thaw);
    let id = h.stream(MIB, MIB, 8);
    h.quiet(false);
    assert_eq!((h.answer(id), core(&h, [256])), (Some(Ok(())), [8]));
}

#[test]
fn in_a_freeze_zeroes_stay_in_the_cache_and_discards_do_nothing() {
    let mut h = Hand::with(UNMAPS);
    h.fill(0, 3 * MIB, 1);
    h.quiet(false);
    frozen(&mut h);
    let zeroes = h.submit(ReqKind::WriteZeroes { unmap: true }, MIB, MIB);
    let discard = h.submit(ReqKind::Discard, 2 * MIB, MIB);
    h.quiet(false);
    assert_eq!([h.answer(zeroes), h.answer(discard)], [Some(Ok(())); 2]);
    assert_eq!([h.read(0), h.read(MIB), h.read(2 * MIB)], [Ok(1), Ok(0), Ok(1)]);
    assert_eq!(core(&h, [0, 256, 511, 512]), [1; 4]);
    stays(&mut h);
    // A crash makes nothing of the freeze: the newest versions count.
    let mut h = h.again(UNMAPS);
    assert_eq!((h.read(MIB), h.read(2 * MIB), h.shard.frozen()), (Ok(0), Ok(1), None));
}

#[test]
fn zeroes_without_room_wait_for_the_thaw_and_hold_up_nobody() {
    let mut h = Hand::with(UNMAPS);
    frozen(&mut h);
    let zeroes: Vec<u64> =
        (0..40).map(|w| h.submit(ReqKind::WriteZeroes { unmap: true }, w * MIB, MIB)).collect();
    for _ in 0..20 {
        h.quiet(false);
        h.tick(SECOND);
    }
    let done = zeroes.iter().filter(|id| h.answer(**id).is_some()).count();
    assert!((5..20).contains(&done), "{done} of 40 in a cache of less than 32 MiB");
    let write = h.fill(50 * MIB, 4096, 5);
    h.quiet(false);
    h.tick(SECOND);
    h.quiet(false);
    assert_eq!(h.answer(write), Some(Ok(())));
    h.control(Control::Thaw);
    for _ in 0..20 {
        h.quiet(false);
        h.tick(SECOND);
    }
    assert!(zeroes.iter().all(|id| h.answer(*id) == Some(Ok(()))));
}

#[test]
fn a_freeze_waits_for_a_core_that_fails_until_it_works_again() {
    let mut h = Hand::new();
    h.fill(0, 8192, 1);
    h.quiet(false);
    let id = h.control(Control::Freeze);
    for _ in 0..5 {
        h.quiet(true);
        h.fill(0, 4096, 2);
        h.quiet(true);
        h.tick(SECOND);
    }
    assert_eq!((h.outcome(id), h.shard.frozen()), (None, Some(2)));
    for _ in 0..3 {
        h.quiet(false);
        h.tick(SECOND);
    }
    assert_eq!((h.outcome(id), core(&h, [0, 1])), (Some(&Ok(())), [1, 1]));
    h.control(Control::Thaw);
    h.fill(4096, 4096, 3);
    let id = h.control(Control::Freeze);
    h.quiet(true);
    h.fill(0, 4096, 4);
    h.quiet(true);
    let thaw = h.control(Control::Thaw);
    assert_eq!((h.outcome(id), h.outcome(thaw)), (Some(&Err("given up".into())), Some(&Ok(()))));
    for _ in 0..3 {
        h.quiet(false);
        h.tick(SECOND);
    }
    assert_eq!((core(&h, [0, 1]), h.shard.dirty_blocks()), ([4, 3], 0), "the newest version wins");
}

#[test]
fn a_freeze_is_refused_with_the_reason_where_it_cannot_be_kept() {
    let refused = |h: &mut Hand| {
        let id = h.control(Control::Freeze);
        h.outcome(id).cloned().expect("at once").unwrap_err()
    };
    let mut h = Hand::new();
    let thaw = h.control(Control::Thaw);
    assert_eq!((h.outcome(thaw), h.shard.frozen()), (Some(&Ok(())), None));
    frozen(&mut h);
    assert!(refused(&mut h).contains("frozen already"));
    h.control(Control::Fence("host b has it".into()));
    assert_eq!((refused(&mut h).as_str(), h.shard.frozen()), ("host b has it", None));

    // Stopped in the middle of one: it is given up, and what waited for the thaw is carried out.
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.quiet(false);
    h.control(Control::SetMode(Mode::Wt));
    let id = h.control(Control::Freeze);
    let held = h.fill(MIB, 4096, 2);
    let stop = h.control(Control::Stop);
    assert!(h.outcome(id).is_some_and(|r| r.as_ref().unwrap_err().contains("stopped")));
    assert!(refused(&mut h).contains("stopped"));
    h.quiet(false);
    assert_eq!((h.answer(held), h.outcome(stop)), (Some(Ok(())), Some(&Ok(()))));

    // Dirty data that does not match its checksum cannot be brought to the core.
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.quiet(false);
    let at = h.cache.windows(4096).rposition(|w| w == [1; 4096]).expect("it is there");
    h.cache[at] ^= 1;
    let id = h.control(Control::Freeze);
    h.quiet(false);
    assert!(h.outcome(id).is_some_and(|r| r.as_ref().unwrap_err().contains("byte 0 of the volume")));
    assert_eq!(h.shard.frozen(), None);
    h.fill(0, 4096, 2);
    h.quiet(false);
    frozen(&mut h);
    assert_eq!(core(&h, [0]), [2]);
}

#[test]
fn a_core_that_is_lost_while_it_is_frozen_keeps_what_is_dirty() {
    let mut h = Hand::new();
    h.fill(0, MIB, 1);
    h.quiet(false);
    let id = h.control(Control::Freeze);
    h.fill(0, MIB, 2);
    let held = h.control(Control::SetMode(Mode::Wt));
    assert_eq!(h.outcome(held), Some(&Ok(())));
    let held = h.fill(5 * MIB, 4096, 2);
    h.control(Control::Fence("host b has it".into()));
    assert_eq!(
        (h.outcome(id), h.answer(held)),
        (Some(&Err("host b has it".into())), Some(Err(ReqError::Shutdown)))
    );
    h.quiet(false);
    let stop = h.control(Control::Stop);
    h.quiet(false);
    assert_eq!((h.outcome(stop), h.shard.in_flight()), (Some(&Ok(())), 0));
    let mut h = h.again(Hand::DEVICES);
    assert_eq!((h.shard.dirty_blocks(), [1, 2].map(|v| h.read(0) == Ok(v)).contains(&true)), (256, true));
}

#[test]
fn before_the_answer_there_is_room_for_two_seconds_of_writes() {
    let mut h = Hand::new();
    // All of the cache is taken, most of it clean.
    h.control(Control::SetParams(Params { seq_cutoff: SeqCutoff::Never, ..Params::default() }));
    for at in (0..40 * MIB).step_by(256 << 10) {
        h.fill(at, 256 << 10, 1);
        h.quiet(false);
        h.tick(SECOND / 100);
        h.quiet(false);
    }
    h.control(Control::FlushDirty);
    h.quiet(false);
    let free = |h: &Hand| h.shard.stats().cache_bytes / 4096 - h.shard.stats().occupied_bytes / 4096;
    let before = free(&h);
    // A thousand blocks a second.
    for i in 0..500 {
        h.fill(i * 4096, 4096, 2);
        h.quiet(false);
        h.tick(SECOND / 1000);
        h.quiet(false);
    }
    let id = h.control(Control::Freeze);
    for _ in 0..50 {
        h.quiet(false);
        h.tick(SECOND / 100);
    }
    assert_eq!(h.outcome(id), Some(&Ok(())));
    assert!(before < 1000 && free(&h) >= 1800, "{before} slots free, then {}", free(&h));
    let ids: Vec<u64> = (0..1500).map(|i| h.fill(CORE - MIB * 8 + i * 4096, 4096, 3)).collect();
    h.quiet(false);
    assert!(ids.iter().filter(|id| h.answer(**id).is_some()).count() > 1400);
    assert!(h.leaves_core());
}

#[test]
fn dirty_data_stays_within_what_a_snapshot_may_wait_for() {
    /// The most dirty blocks under a load of fresh writes on a core that takes 500 blocks a second.
    fn most(deadline: u64, core_snapshots: bool) -> u64 {
        let mut h = Hand::with(Devices { core_snapshots, ..Hand::DEVICES });
        let params =
            Params { destage_rate: 500, snapshot_deadline: deadline, destage_low: 0, ..Params::default() };
        h.control(Control::SetParams(params));
        let mut most = 0;
        for i in 0..30_000u64 {
            h.fill(i * 37 % 16_000 * 4096, 4096, 1);
            h.quiet(false);
            h.tick(SECOND / 1000);
            if i > 15_000 {
                most = most.max(h.shard.dirty_blocks());
            }
        }
        most
    }
    let (free, off, kept) = (most(2, false), most(0, true), most(2, true));
    assert!(free > 3000 && off > 3000, "{free} {off}");
    assert!((300..2200).contains(&kept), "{kept} dirty blocks, at 500 blocks a second and two seconds");
}

#[test]
fn a_flush_of_all_waits_for_what_a_freeze_left_behind() {
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.quiet(false);
    h.control(Control::Freeze);
    h.fill(0, 4096, 2);
    let flush = h.control(Control::FlushDirty);
    h.quiet(false);
    h.tick(SECOND);
    assert_eq!((core(&h, [0]), h.outcome(flush)), ([1], None));
    assert!(h.pending.iter().all(|p| !matches!(p.1.kind, OpKind::WriteMany(_))));
    h.control(Control::Thaw);
    h.quiet(false);
    assert_eq!((core(&h, [0]), h.outcome(flush)), ([2], Some(&Ok(()))));
}

#[test]
fn a_freeze_waits_behind_no_probe_that_reads_hold_back() {
    let mut h = Hand::new();
    h.control(Control::SetParams(Params { destage_age: 0, ..Params::default() }));
    h.fill(10 * MIB, 4096, 5);
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    h.fill(MIB, 4096, 1);
    h.quiet(false);
    h.refused = MIB..2 * MIB;
    let at_core = |h: &Hand| h.pending.iter().position(|p| p.0 == Dev::Core);
    h.tick(SECOND);
    while at_core(&h).is_none() {
        h.complete(0, false);
        if h.pending.is_empty() {
            h.tick(SECOND / 10);
        }
    }
    let refused = at_core(&h).expect("it was sent");
    h.complete(refused, false);
    h.refused = 0..0;
    // A slot is read to be written again, and one of what was refused. Before they are there a client clears that, and others
    // read what is not cached, without end.
    assert_eq!(h.slot_reads().len(), 2, "{:?}", h.pending);
    h.submit(ReqKind::WriteZeroes { unmap: false }, MIB, MIB);
    let other = |h: &Hand| (0..h.pending.len()).find(|i| !h.slot_reads().contains(i));
    while let Some(i) = other(&h) {
        h.complete(i, false);
    }
    assert_eq!(h.shard.dirty_blocks(), 0);
    let mut read = h.submit(ReqKind::Read, 30 * MIB, 4096);
    while let Some(i) = h.slot_reads().first().copied() {
        h.complete(i, false);
    }
    let freeze = h.control(Control::Freeze);
    for i in 1..100 {
        let next = h.submit(ReqKind::Read, 30 * MIB + i * 8192, 4096);
        while h.answer(read).is_none() {
            h.complete(0, false);
        }
        read = next;
        h.tick(SECOND / 10);
    }
    assert_eq!(h.outcome(freeze), Some(&Ok(())), "{:?}", h.pending);
}
