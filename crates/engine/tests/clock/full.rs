//! A cache full of blocks that the core refuses, as a thin volume without space does.

use crate::world::{MIB, MS, Model, S, US, World};
use loligo_block::ReqKind;
use loligo_engine::api::Control;
use loligo_engine::params::Params;

/// So much of the core has space behind it, and takes writes.
const THERE: u64 = 64 * MIB;

/// The smallest share, over a core that takes nothing behind [`THERE`].
fn thin(disk: Model) -> World {
    let params = Params { destage_age: 0, ..Params::default() };
    let mut w = World::new(32 * MIB, 256 * MIB, params, disk);
    assert_eq!(w.ask(Control::Limit(2048), 10 * S), Some(Ok(())));
    w.unwritable.push(THERE..256 * MIB);
    w
}

fn disk() -> Model {
    Model::new(1, 400 * US, 2 * US, MS)
}

/// New blocks of 64 windows that the core refuses, until the cache is full of them and some writers find no room. The core
/// is well but for those: it has taken a block since each of the windows first failed.
fn filled(w: &mut World) -> Vec<u64> {
    let place = |i: u64| THERE + i % 64 * MIB + i / 64 * 32_768;
    let mut ids: Vec<u64> = (0..1500).map(|i| w.write(place(i), 4096)).collect();
    w.pass(150 * S);
    let good = w.write(0, 4096);
    w.pass(150 * S);
    assert!(ok(w, good));
    ids.extend((1500..2048).map(|i| w.write(place(i), 4096)));
    w.pass(30 * S);
    let waits = |w: &World, id: &u64| !w.done.iter().any(|d| d.0 == *id);
    let waiting: Vec<u64> = ids.into_iter().filter(|id| waits(w, id)).collect();
    assert!(waiting.len() > 20 && w.done.iter().all(|d| d.2), "{} wait: {:?}", waiting.len(), w.done);
    waiting
}

fn ok(w: &World, id: u64) -> bool {
    w.done.iter().any(|d| d.0 == id && d.2)
}

#[test]
fn a_writer_behind_refused_blocks_fails_in_bounded_time() {
    let mut w = thin(disk());
    for id in filled(&mut w) {
        assert!(w.wait(id, 120 * S).is_some(), "it waits for ever");
        assert!(!ok(&w, id));
    }
    w.write(THERE + 96 * MIB, 4096);
    w.pass(200 * S);
    let refused = w.engine.core_refuses().expect("it is told");
    assert!(refused.full, "{refused:?}");
}

#[test]
fn beside_refused_blocks_that_fill_the_cache_the_rest_goes_on() {
    let mut w = thin(disk());
    let last = *filled(&mut w).last().expect("some wait");
    assert!(w.wait(last, 120 * S).is_some());
    w.write(THERE + 96 * MIB, 4096);
    w.pass(200 * S);
    // A new place that the core takes, in part of a block and as a whole; what is dirty; and what is read.
    for (offset, len) in [(MIB, 4096), (2 * MIB + 512, 1024), (3 * MIB, MIB), (THERE, 4096)] {
        let id = w.write(offset, len);
        assert!(w.wait(id, S).is_some() && ok(&w, id), "the write at {offset}");
    }
    let read = w.submit(ReqKind::Read, THERE, 4096);
    assert!(w.wait(read, S).is_some() && ok(&w, read));
    let refused = w.write(250 * MIB, 4096);
    assert!(w.wait(refused, S).is_some() && !ok(&w, refused), "it is told at once");
    let flush = w.submit(ReqKind::Flush, 0, 0);
    assert!(w.wait(flush, S).is_some() && ok(&w, flush));
}

#[test]
fn writers_go_on_once_the_core_takes_writes_again() {
    let mut w = thin(disk());
    let last = *filled(&mut w).last().expect("some wait");
    assert!(w.wait(last, 120 * S).is_some());
    w.unwritable.clear();
    w.pass(60 * S);
    assert_eq!(w.engine.core_refuses(), None);
    for i in 0..200 {
        w.write_block(THERE + i * MIB / 2);
    }
    assert_eq!(w.ask(Control::FlushDirty, 60 * S), Some(Ok(())));
}

#[test]
fn a_slow_core_that_refuses_a_block_is_waited_for() {
    // 10 s for each operation.
    let mut w = thin(Model::new(1, 10 * S, US, MS));
    w.unwritable.clear();
    w.unwritable.push(THERE..THERE + 4096);
    let ids: Vec<u64> = (0..1900).map(|i| w.write(THERE + i * 32_768, 4096)).collect();
    w.pass(600 * S);
    assert!(w.failed > 0 && w.done.len() < ids.len(), "some wait");
    assert!(w.done.iter().all(|d| d.2), "nobody hears of an error");
    let first = ids.iter().find(|id| !w.done.iter().any(|d| d.0 == **id)).copied().expect("one waits");
    assert!(w.wait(first, 3600 * S).is_some() && ok(&w, first));
}

/// 1,500 windows that the core refuses fill a cache of 32,768 slots. Clean blocks that it takes lie close together in it.
#[test]
fn refused_blocks_of_many_windows_hold_nobody_longer() {
    const WINDOWS: u64 = 1500;
    let params = Params { destage_age: 0, ..Params::default() };
    let fast = Model::new(64, 100 * US, US, MS);
    let mut w = World::new(128 * MIB, (WINDOWS + 64) * MIB, params, fast);
    for i in 0..2000 {
        w.write(i % 64 * MIB + i / 64 * 8192, 4096);
        if i % 64 == 0 {
            w.pass(MS);
        }
    }
    w.pass(20 * S);
    w.unwritable.push(THERE..(WINDOWS + 64) * MIB);
    let (mut sent, mut grew, mut dirty) = (0, 0, 0);
    while w.done.iter().all(|d| d.2) {
        while w.done.len() as u64 + 64 > sent - 2000.min(sent) {
            w.write(THERE + sent % WINDOWS * MIB + sent / WINDOWS * 4096 % MIB, 4096);
            sent += 1;
        }
        w.pass(S / 10);
        if w.engine.dirty_blocks() > dirty {
            (grew, dirty) = (w.now, w.engine.dirty_blocks());
        }
        assert!(
            grew == 0 || w.now < grew + 200 * S,
            "{dirty} blocks are dirty, and writers wait for {} s",
            (w.now - grew) / S
        );
    }
    assert!(dirty > 30_000, "{dirty} blocks were dirty: it was not full");
}
