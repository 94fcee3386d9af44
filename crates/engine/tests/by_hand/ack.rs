//! The moment at which writes are answered.

use crate::hand::Hand;
use loligo_block::OpKind;
use loligo_engine::api::Control;
use loligo_engine::params::{Ack, Params};

/// Completes whatever writes, and no flush.
fn complete_writes(h: &mut Hand) {
    while let Some(at) = h.pending.iter().position(|(_, op)| op.changes_data()) {
        h.complete(at, false);
    }
}

#[test]
fn a_durable_answer_waits_for_the_flush_of_the_cache() {
    let mut h = Hand::new();
    let written = h.fill(0, 4096, 1);
    complete_writes(&mut h);
    assert_eq!(h.answer(written), Some(Ok(())), "the cache has it");
    h.control(Control::SetParams(Params { ack: Ack::Durable, ..Params::default() }));
    h.quiet(false);
    let durable = [8192, 65536].map(|at| h.fill(at, 4096, 2));
    complete_writes(&mut h);
    assert_eq!(durable.map(|id| h.answer(id)), [None, None]);
    let flushes = h.pending.iter().filter(|p| matches!(p.1.kind, OpKind::Flush)).count();
    assert!(flushes > 0, "nobody makes it durable");
    h.quiet(false);
    assert_eq!(durable.map(|id| h.answer(id)), [Some(Ok(())); 2]);
}
