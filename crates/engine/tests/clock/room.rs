//! Large writes and the room there is for them.

use crate::world::{MIB, MS, Model, S, US, World};
use loligo_engine::api::Control;
use loligo_engine::params::Params;

/// The smallest share, filled so far that 1 MiB fits neither below the low watermark nor beneath the wall.
fn crowded() -> World {
    let params = Params { destage_low: 90, destage_age: 0, ..Params::default() };
    let mut w = World::new(32 * MIB, 256 * MIB, params, Model::new(1, 400 * US, 2 * US, MS));
    assert_eq!(w.ask(Control::Limit(2048), 10 * S), Some(Ok(())));
    for i in 0..1420 {
        w.write_block(i * 8192);
    }
    w
}

#[test]
fn a_write_larger_than_the_free_room_is_let_in_piecewise() {
    let mut w = crowded();
    let large = w.write(128 * MIB, MIB);
    let small = w.write(200 * MIB, 4096);
    let over = w.write(0, 4096);
    for (id, what) in [(large, "the large write"), (small, "one behind it"), (over, "an overwrite")] {
        assert!(w.wait(id, 20 * S).is_some(), "{what} never returns; dirty: {}", w.engine.dirty_blocks());
    }
    assert!(w.done.iter().all(|d| d.2), "{:?}", w.done);
}

#[test]
fn many_large_writes_at_once_all_come_to_an_end() {
    let mut w = crowded();
    let mut ids: Vec<u64> = (0..12).map(|i| w.write((100 + i) * MIB, MIB)).collect();
    // Beside them, overlapping ones and a partial block at either end.
    ids.extend((0..4).map(|i| w.write((100 + 2 * i) * MIB + 512, MIB / 2)));
    for _ in 0..32 {
        let at = 180 * MIB + w.random(8192) * 4096;
        ids.push(w.write(at, 4096));
    }
    for id in &ids {
        assert!(w.wait(*id, 120 * S).is_some(), "write {id} never returns");
    }
    assert!(w.done.iter().all(|d| d.2), "{:?}", w.done);
    assert_eq!(w.ask(Control::FlushDirty, 300 * S), Some(Ok(())));
    assert_eq!(w.engine.dirty_blocks(), 0);
}

#[test]
fn a_large_write_in_pieces_behind_a_dead_core_fails() {
    let mut w = crowded();
    w.unwritable.push(0..256 * MIB);
    let large: Vec<u64> = (0..3).map(|i| w.write((128 + i) * MIB, MIB)).collect();
    for id in &large {
        assert!(w.wait(*id, 200 * S).is_some(), "it waits for ever");
    }
    assert!(large.iter().any(|id| w.done.iter().any(|d| d.0 == *id && !d.2)), "{:?}", w.done);
    w.unwritable.clear();
    w.pass(60 * S);
    let again = w.write(128 * MIB, MIB);
    assert!(w.wait(again, 60 * S).is_some());
    assert!(w.done.iter().any(|d| d.0 == again && d.2), "the core is back");
    assert_eq!(w.ask(Control::FlushDirty, 300 * S), Some(Ok(())));
}
