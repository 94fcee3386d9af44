//! Destaging to a core that takes groups of writes.

use crate::hand::{Hand, MIB, SECOND};
use loligo_block::OpKind;
use loligo_engine::api::{Control, Dev};
use loligo_engine::open::{Devices, Large};
use loligo_engine::params::{LargeWrites, Params};

const LARGE: Large = Large { least: 64 << 10, always: 512 << 10 };
const GROUPED: Devices = Devices { core_groups: true, core_large: LARGE, ..Hand::DEVICES };

fn grouped() -> Hand {
    Hand::with(GROUPED)
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
fn the_runs_of_a_window_go_to_the_core_in_one_group() {
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
fn sixty_four_windows_are_under_way_beside_clients() {
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
fn a_failed_group_leaves_its_blocks_dirty_and_is_tried_again() {
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

/// The plain writes at the core now, by their place in `pending`: offset and length.
fn direct(h: &Hand) -> Vec<(usize, u64, usize)> {
    let of = |(i, (dev, op)): (usize, &(Dev, loligo_block::Op))| match (&op.kind, dev) {
        (OpKind::Write { data, .. }, Dev::Core) => Some((i, op.offset, data.len())),
        _ => None,
    };
    h.pending.iter().enumerate().filter_map(of).collect()
}

/// A cache so full of dirty blocks (all of them `1`, every other one of the volume) that large writes leave it to small ones;
/// destaging stands still at the core.
fn crowded() -> Hand {
    let mut h = grouped();
    crowd(&mut h);
    h
}

fn crowd(h: &mut Hand) {
    for block in 0..16_384 / 2 {
        let id = h.fill(block * 8192, 4096, 1);
        h.now += 1_000_000;
        quiet_cache(h);
        if h.answer(id).is_none() {
            return;
        }
    }
    panic!("there was room for everything");
}

#[test]
fn a_large_write_past_the_cache_ends_dirty_data_beneath_it() {
    let mut h = crowded();
    let (at, dirty) = (4 * MIB, h.shard.dirty_blocks());
    let id = h.fill(at, 256 << 10, 2);
    quiet_cache(&mut h);
    // Jobs that read older versions of these blocks are under way and write first, or not at all.
    for _ in 0..1000 {
        let Some((i, place, len)) = direct(&h).first().copied() else {
            h.complete(0, false);
            quiet_cache(&mut h);
            continue;
        };
        assert_eq!((place, len, h.answer(id)), (at, 256 << 10, None));
        h.complete(i, false);
        break;
    }
    quiet_cache(&mut h);
    assert_eq!(h.answer(id), Some(Ok(())));
    assert!(h.shard.dirty_blocks() <= dirty - 32, "every other block beneath it was dirty");
    assert_eq!(h.shard.stats().bypass[loligo_engine::stats::Bypass::Large as usize], 1);
    let flush = h.control(Control::FlushDirty);
    h.quiet(false);
    assert_eq!(h.outcome(flush), Some(&Ok(())));
    let large = &h.disk[at as usize..][..256 << 10];
    assert!(large.iter().all(|b| *b == 2), "an older version went over it");
    assert_eq!([h.read(at - 8192), h.read(at), h.read(at + (256 << 10))], [Ok(1), Ok(2), Ok(1)]);
}

#[test]
fn dirty_data_beneath_a_large_write_stays_gone_after_a_crash() {
    let mut h = crowded();
    let id = h.fill(4 * MIB, 256 << 10, 2);
    while h.answer(id).is_none() {
        quiet_cache(&mut h);
        let next = direct(&h).first().map_or(0, |d| d.0);
        if h.answer(id).is_none() {
            h.complete(next, false);
        }
    }
    let mut h = h.again(GROUPED);
    assert_eq!([h.read(4 * MIB - 8192), h.read(4 * MIB), h.read(4 * MIB + 8192)], [Ok(1), Ok(2), Ok(2)]);
}

#[test]
fn a_large_write_that_the_core_refuses_is_taken_by_the_cache() {
    let mut h = crowded();
    let id = h.fill(4 * MIB, 256 << 10, 2);
    for _ in 0..1000 {
        quiet_cache(&mut h);
        match direct(&h).first().copied() {
            Some((i, ..)) => h.complete(i, true),
            None if h.answer(id).is_some() => break,
            None => {
                h.now += SECOND / 10;
                h.complete(0, false);
            }
        }
    }
    assert_eq!((h.answer(id), h.disk[4 * MIB as usize] == 2), (Some(Ok(())), false));
    assert_eq!(h.read(4 * MIB), Ok(2));
}

/// A cache without a free slot to spare: clean blocks everywhere, a third of what it may hold dirty.
fn full_with_room() -> Hand {
    let mut h = grouped();
    for block in 0..16_384 / 2 {
        h.fill(block * 8192, 4096, 1);
        h.now += 1_000_000;
        h.quiet(false);
    }
    let flush = h.control(Control::FlushDirty);
    h.quiet(false);
    assert_eq!(h.outcome(flush), Some(&Ok(())));
    for block in 0..2500 {
        h.fill(block * 8192, 4096, 2);
        h.now += 1_000_000;
        quiet_cache(&mut h);
    }
    h.now += SECOND;
    h
}

#[test]
fn large_writes_and_streams_are_gathered_while_there_is_credit() {
    let mut h = full_with_room();
    let dirty = h.shard.dirty_blocks();
    assert!(dirty > 1500, "the low watermark is passed: {dirty}");
    // Nothing is dirty there: the last quarter of the volume.
    for i in 0..4 {
        h.now += SECOND;
        let id = h.stream(48 * MIB + i * (64 << 10), 64 << 10, 3);
        quiet_cache(&mut h);
        assert_eq!(h.answer(id), Some(Ok(())));
    }
    assert_eq!(direct(&h).len(), 0);
    // All at once is more than there is credit for.
    let ids: Vec<u64> = (0..64).map(|i| h.stream(56 * MIB + i * (64 << 10), 64 << 10, 3)).collect();
    quiet_cache(&mut h);
    let cached = ids.iter().filter(|id| h.answer(**id).is_some()).count();
    assert!((1..64).contains(&cached), "{cached} had credit");
    assert!(!direct(&h).is_empty());
}

#[test]
fn overwrites_of_dirty_data_need_no_room_and_stay_in_the_cache() {
    let mut h = grouped();
    h.fill(5 * MIB, 64 << 10, 1);
    let full = crowded().shard.dirty_blocks();
    for block in 0..full * 9 / 10 {
        h.fill(block * 8192, 4096, 1);
        h.now += 1_000_000;
        quiet_cache(&mut h);
    }
    let (overwrites, beside) = (h.fill(5 * MIB, 64 << 10, 9), h.fill(60 * MIB, 64 << 10, 9));
    quiet_cache(&mut h);
    assert_eq!((h.answer(overwrites), h.answer(beside)), (Some(Ok(())), None));
    assert_eq!(direct(&h).iter().map(|d| d.1).collect::<Vec<_>>(), [60 * MIB]);
}

#[test]
fn destaging_all_but_stops_while_clients_write_the_core() {
    let mut h = full_with_room();
    // What is under way ends.
    while let Some(i) = h.pending.iter().position(|p| matches!(p.1.kind, OpKind::WriteMany(_))) {
        h.fill(48 * MIB, 512 << 10, 3);
        h.complete(i, false);
        quiet_cache(&mut h);
    }
    let before = h.shard.stats().core_groups;
    for _ in 0..10 {
        h.tick(SECOND / 10);
        quiet_cache(&mut h);
        while let Some(i) = h.pending.iter().position(|p| matches!(p.1.kind, OpKind::WriteMany(_))) {
            h.complete(i, false);
            quiet_cache(&mut h);
        }
    }
    let groups = h.shard.stats().core_groups - before;
    assert!((5..=11).contains(&groups), "one in a tenth of a second: {groups}");
    h.quiet(false);
    for _ in 0..5 {
        h.tick(SECOND);
        h.quiet(false);
    }
    assert_eq!(h.shard.dirty_blocks(), 0, "it goes on once they are done");
}

#[test]
fn a_flush_has_its_turn_in_a_window_of_busy_clients() {
    let mut h = grouped();
    h.fill(0, 4096, 1);
    h.quiet(false);
    let first = h.fill(512 << 10, 512 << 10, 2);
    quiet_cache(&mut h);
    let flush = h.control(Control::FlushDirty);
    quiet_cache(&mut h);
    let second = h.fill(512 << 10, 512 << 10, 3);
    let beside = h.fill(64 << 10, 448 << 10, 4);
    quiet_cache(&mut h);
    assert_eq!((direct(&h).len(), groups_only(&h)), (1, 0));
    h.complete(direct(&h)[0].0, false);
    quiet_cache(&mut h);
    assert_eq!((h.answer(first), direct(&h).len(), groups_only(&h)), (Some(Ok(())), 0, 1));
    h.quiet(false);
    assert_eq!([second, beside].map(|id| h.answer(id)), [Some(Ok(())); 2]);
    assert_eq!(h.outcome(flush), Some(&Ok(())));
    assert_eq!([h.read(0), h.read(512 << 10)], [Ok(1), Ok(3)]);
}

/// Groups at the core.
fn groups_only(h: &Hand) -> usize {
    h.pending.iter().filter(|p| matches!(p.1.kind, OpKind::WriteMany(_))).count()
}

#[test]
fn half_a_mebibyte_goes_to_the_core_whatever_room_there_is() {
    let mut h = grouped();
    let id = h.fill(8 * MIB, 512 << 10, 3);
    quiet_cache(&mut h);
    assert_eq!((direct(&h).len(), h.answer(id)), (1, None));
    h.quiet(false);
    assert_eq!((h.answer(id), h.shard.dirty_blocks(), h.read(8 * MIB)), (Some(Ok(())), 0, Ok(3)));
}

/// Clients with 16 writes under way at any time, in front of a core that takes one group each 25 ms.
#[derive(Default)]
struct Load {
    waiting: Vec<u64>,
    written: u64,
}

impl Load {
    /// Goes on for so long. The result is the number of writes answered in each tenth of a second.
    fn run(&mut self, h: &mut Hand, tenths: usize) -> Vec<usize> {
        self.go_on(h, tenths, true)
    }

    /// The same while the core answers (`core`), or says nothing at all.
    fn go_on(&mut self, h: &mut Hand, tenths: usize, core: bool) -> Vec<usize> {
        let tenth = |load: &mut Load, h: &mut Hand| {
            let mut answered = 0;
            for ms in 0..100 {
                h.tick(SECOND / 1000);
                quiet_cache(h);
                if core
                    && ms % 25 == 0
                    && let Some(i) = h.pending.iter().position(|p| p.0 == Dev::Core)
                {
                    h.complete(i, false);
                    quiet_cache(h);
                }
                let under_way = load.waiting.len();
                load.waiting.retain(|id| h.answer(*id).is_none());
                answered += under_way - load.waiting.len();
                h.answers.clear();
                while load.waiting.len() < 16 {
                    load.written += 1;
                    load.waiting.push(h.fill(load.written * 7919 % 16_384 * 4096, 4096, 2));
                }
            }
            answered
        };
        (0..tenths).map(|_| tenth(self, h)).collect()
    }
}

/// A crowded cache, its clients, and how many of their writes are answered in a tenth of a second.
fn loaded(devices: Devices) -> (Hand, Load, usize) {
    let mut h = Hand::with(devices);
    crowd(&mut h);
    h.answers.clear();
    let mut load = Load::default();
    let before = load.run(&mut h, 60).split_off(40);
    let usual = before.iter().sum::<usize>() / before.len();
    let dirty = h.shard.dirty_blocks();
    println!("{dirty} dirty, {usual} a tenth; {before:?}");
    assert!(dirty > 5500, "{dirty} dirty blocks are no crowd");
    (h, load, usual)
}

#[test]
fn a_snapshot_slows_clients_of_a_crowded_cache_and_stops_none() {
    let (mut h, mut load, usual) = loaded(Devices { core_snapshots: true, ..GROUPED });
    let freeze = h.control(Control::Freeze);
    let mut during = Vec::new();
    while h.outcome(freeze).is_none() {
        during.extend(load.run(&mut h, 1));
        assert!(during.len() < 100, "{during:?}");
    }
    let quiesced = load.run(&mut h, 10);
    h.control(Control::Thaw);
    let after = load.run(&mut h, 10);
    println!("{during:?}, {quiesced:?}, {after:?}");
    for tenths in [&during, &quiesced, &after] {
        assert!(tenths.iter().all(|n| *n > usual / 5), "stopped: {usual} before, then {tenths:?}");
    }
}

#[test]
fn a_core_that_pauses_slows_clients_and_stops_none() {
    let (mut h, mut load, usual) = loaded(GROUPED);
    let during = load.go_on(&mut h, 8, false);
    let after = load.run(&mut h, 10);
    println!("{during:?}, {after:?}");
    assert!(during.iter().all(|n| *n > usual / 10), "stopped: {usual} before, then {during:?}");
    // What was let in last, when room was dear, holds nobody up afterwards.
    assert!(after.iter().all(|n| *n > usual / 5), "still held up: {usual} before, then {after:?}");
}

#[test]
fn large_writes_are_cached_while_there_is_room_if_so_tuned() {
    let mut h = grouped();
    let past = h.fill(0, MIB, 1);
    quiet_cache(&mut h);
    assert_eq!((h.answer(past), direct(&h).len()), (None, 1), "it waits for the core");
    h.quiet(false);
    h.control(Control::SetParams(Params { large_writes: LargeWrites::Cached, ..Params::default() }));
    let cached = h.fill(8 * MIB, MIB, 2);
    let writes = h.pending.iter().filter(|p| p.0 == Dev::Cache && p.1.changes_data()).count();
    assert_eq!(writes, 2, "its data and the records of it");
    quiet_cache(&mut h);
    assert_eq!((h.answer(cached), direct(&h).len()), (Some(Ok(())), 0), "nobody waits for the core");
    assert_eq!(h.read(9 * MIB - 4096), Ok(2));
    // Without room it is the core's again.
    let mut h = crowded();
    h.control(Control::SetParams(Params { large_writes: LargeWrites::Cached, ..Params::default() }));
    let past = h.fill(4 * MIB, MIB, 3);
    quiet_cache(&mut h);
    for _ in 0..1000 {
        // Jobs with older versions of these blocks write first.
        if !direct(&h).is_empty() {
            break;
        }
        h.complete(0, false);
        quiet_cache(&mut h);
    }
    assert_eq!((direct(&h).len(), h.answer(past)), (1, None));
}

#[test]
fn slots_that_follow_one_another_are_written_at_once() {
    let mut h = Hand::new();
    h.fill(0, 128 << 10, 1);
    h.quiet(false);
    let id = h.fill(512, 64 << 10, 2);
    while let Some(at) = h.pending.iter().position(|p| matches!(p.1.kind, OpKind::Read(_))) {
        h.complete(at, false);
    }
    let writes = h.pending.iter().filter(|p| p.0 == Dev::Cache && p.1.changes_data());
    let mut lens: Vec<u64> = writes.map(|p| p.1.len()).filter(|len| *len >= 4096).collect();
    lens.sort_unstable();
    assert_eq!(lens, [4096, 4096, 60 << 10], "the ends are merged with what is there");
    h.quiet(false);
    assert_eq!(h.answer(id), Some(Ok(())));
    assert_eq!(h.flush_dirty(), Some(&Ok(())));
    let byte = |at: usize| h.disk[at];
    assert_eq!([0, 511, 512, 4096, 65_536, 66_047, 66_048, 131_071].map(byte), [1, 1, 2, 2, 2, 2, 1, 1]);
}

#[test]
fn large_writes_wait_for_credit_that_is_near_if_so_tuned() {
    let mut h = full_with_room();
    h.control(Control::SetParams(Params { large_writes: LargeWrites::Cached, ..Params::default() }));
    let ids: Vec<u64> = (0..16).map(|i| h.stream(56 * MIB + i * (64 << 10), 64 << 10, 3)).collect();
    for _ in 0..100 {
        quiet_cache(&mut h);
        h.tick(1_000_000);
    }
    assert_eq!(direct(&h).len(), 0);
    assert!(ids.iter().all(|id| h.answer(*id) == Some(Ok(()))), "they wait for the core");
}
