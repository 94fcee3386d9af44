//! The time that anything stays dirty.

use crate::world::{MIB, MS, Model, S, World};
use loligo_block::ReqKind;
use loligo_engine::api::Control;
use loligo_engine::params::Params;
use std::collections::VecDeque;

const GIB: u64 = 1 << 30;

/// Some dirty blocks, far fewer than the low watermark, and one hit in 150 ms for so long; how many are dirty then.
fn trickle(params: Params, time: u64) -> u64 {
    let mut w = World::new(64 * MIB, 256 * MIB, params, Model::one_at_a_time());
    for i in 0..1000 {
        w.write_block(i % 200 * MIB + i / 200 * 8192);
    }
    assert_eq!(w.engine.dirty_blocks(), 1000);
    let end = w.now + time;
    while w.now < end {
        let id = w.submit(ReqKind::Read, 0, 4096);
        assert!(w.wait(id, S).is_some());
        w.done.clear();
        w.pass(150 * MS);
    }
    w.engine.dirty_blocks()
}

#[test]
fn a_trickle_of_hits_keeps_nothing_dirty_beyond_its_age() {
    assert_eq!(trickle(Params::default(), 32 * S), 0);
}

#[test]
fn an_age_of_zero_is_no_bound() {
    let params = Params { destage_age: 0, ..Params::default() };
    assert_eq!(trickle(params, 60 * S), 1000);
}

#[test]
fn a_bound_set_while_running_counts_at_once() {
    let params = Params { destage_age: 0, ..Params::default() };
    let mut w = World::new(64 * MIB, 256 * MIB, params, Model::one_at_a_time());
    w.write_block(0);
    let hits = |w: &mut World, n: u64| {
        for _ in 0..n {
            let id = w.submit(ReqKind::Read, 0, 4096);
            assert!(w.wait(id, S).is_some());
            w.done.clear();
            w.pass(100 * MS);
        }
    };
    hits(&mut w, 600);
    assert_eq!(w.engine.dirty_blocks(), 1);
    w.ask(Control::SetParams(Params { destage_age: 2, ..params }), S);
    hits(&mut w, 20);
    assert_eq!(w.engine.dirty_blocks(), 0);
}

#[test]
fn a_block_rewritten_all_the_time_reaches_the_core_too() {
    let mut w = World::new(64 * MIB, 256 * MIB, Params::default(), Model::one_at_a_time());
    let written = w.engine.stats().core_write_bytes;
    for _ in 0..400 {
        for block in 0..20 {
            w.write_block(block * 8192);
        }
        w.pass(100 * MS);
    }
    assert!(w.engine.stats().core_write_bytes > written, "40 s, and the core has seen nothing of it");
}

#[test]
fn one_dirty_block_far_out_on_a_large_core_is_found() {
    let size = 4 << 40;
    let mut w = World::new(64 * MIB, size, Params::default(), Model::one_at_a_time());
    w.write_block(size - MIB);
    w.pass(5 * S);
    assert_eq!(w.engine.dirty_blocks(), 0);
}

/// Reads of a core of its own, never fewer than 8 at once, for so long: how many were done.
fn crowd(w: &mut World, time: u64) -> u64 {
    let (end, mut done) = (w.now + time, 0);
    let ask = |w: &mut World| {
        let at = GIB + w.random(6 * GIB / 4096) * 4096;
        w.submit(ReqKind::Read, at, 4096)
    };
    let mut under_way: VecDeque<u64> = (0..8).map(|_| ask(w)).collect();
    while w.now < end {
        let first = under_way.pop_front().expect("eight");
        let next = ask(w);
        under_way.push_back(next);
        assert!(w.wait(first, 10 * S).is_some());
        w.done.retain(|d| d.0 != first);
        done += 1;
    }
    done
}

#[test]
fn a_core_without_a_pause_takes_old_dirty_data_in_its_share() {
    let params = Params { destage_age: 0, ..Params::default() };
    let mut w = World::new(64 * MIB, 8 * GIB, params, Model::one_at_a_time());
    let before = crowd(&mut w, 20 * S);
    for i in 0..100 {
        w.write_block(i * MIB);
    }
    crowd(&mut w, 60 * S);
    assert_eq!(w.engine.dirty_blocks(), 100, "no bound, no share");
    w.ask(Control::SetParams(Params::default()), S);
    let during = crowd(&mut w, 20 * S);
    crowd(&mut w, 40 * S);
    assert_eq!(w.engine.dirty_blocks(), 0);
    assert!(during * 10 >= before * 8, "{before} reads in 20 s without it, {during} beside it");
}
