//! A core that somebody else has taken.

use crate::hand::{Hand, MIB, SECOND};
use loligo_block::{OpKind, ReqError, ReqKind};
use loligo_engine::api::{Control, Dev};
use loligo_engine::open::Devices;
use loligo_format::mode::Mode;

const GONE: Option<Result<(), ReqError>> = Some(Err(ReqError::Shutdown));
const VOLATILE: Devices = Devices { core_volatile: true, ..Hand::DEVICES };

fn fence(h: &mut Hand) {
    let id = h.control(Control::Fence("host b has it".into()));
    assert_eq!(h.outcome(id), Some(&Ok(())));
    assert_eq!(h.shard.fenced(), Some("host b has it"));
}

#[test]
fn a_fence_refuses_every_request_and_dirty_data_survives() {
    let mut h = Hand::with(VOLATILE);
    h.fill(0, 8192, 1);
    h.fill(MIB, 4096, 2);
    h.quiet(false);
    let dirty = h.shard.dirty_blocks();
    // One of each kind, none of which is over.
    let asked = [
        h.submit(ReqKind::Read, 5 * MIB, 4096),
        h.submit(ReqKind::Read, 0, 4096),
        h.fill(0, 4096, 3),
        h.fill(2048, 4096, 4),
        h.submit(ReqKind::WriteZeroes { unmap: true }, 0, MIB),
        h.submit(ReqKind::WriteZeroes { unmap: true }, 8 * MIB, MIB),
        h.submit(ReqKind::Flush, 0, 0),
    ];
    let flush = h.control(Control::FlushDirty);
    assert!(asked.iter().all(|id| h.answer(*id).is_none()));
    fence(&mut h);
    assert!(asked.iter().all(|id| h.answer(*id) == GONE), "{:?}", h.answers);
    assert_eq!(h.outcome(flush), Some(&Err("host b has it".into())));
    for kind in [ReqKind::Read, ReqKind::Discard, ReqKind::Status, ReqKind::WriteZeroes { unmap: false }] {
        let id = h.submit(kind, 0, 4096);
        assert_eq!(h.answer(id), GONE);
    }
    h.quiet(false);
    assert!(h.answers.len() == 13, "answered twice: {:?}", h.answers);
    for _ in 0..5 {
        h.tick(SECOND);
        assert!(h.leaves_core());
        h.quiet(false);
    }
    let refused = h.control(Control::FlushDirty);
    assert_eq!(h.outcome(refused), Some(&Err("host b has it".into())));
    let stop = h.control(Control::Stop);
    h.quiet(false);
    assert_eq!(h.outcome(stop), Some(&Ok(())));
    assert_eq!(h.shard.dirty_blocks(), dirty);
    assert!(h.disk.iter().all(|b| *b == 0), "nothing went to the core");
    let mut h = h.again(VOLATILE);
    assert_eq!(h.shard.dirty_blocks(), dirty);
    assert!([1, 3].contains(&h.read(0).unwrap()) && h.read(MIB) == Ok(2));
}

#[test]
fn a_fenced_destage_ends_without_a_clean_mark() {
    for groups in [false, true] {
        let devices = Devices { core_groups: groups, ..VOLATILE };
        let mut h = Hand::with(devices);
        for i in 0..300 {
            h.fill(i * 16384, 4096, 5);
        }
        h.quiet(false);
        h.control(Control::FlushDirty);
        while h.leaves_core() {
            h.complete(0, false);
        }
        fence(&mut h);
        let out = |h: &Hand| {
            let writes = |p: &&(Dev, loligo_block::Op)| p.0 == Dev::Core && p.1.changes_data();
            h.pending.iter().filter(writes).count()
        };
        let mut left = out(&h);
        assert!(left > 0);
        while !h.pending.is_empty() {
            h.complete(0, false);
            assert!(out(&h) <= left, "a write followed");
            left = out(&h);
        }
        h.tick(SECOND);
        h.quiet(false);
        assert_eq!(h.shard.dirty_blocks(), 300);
        let stop = h.control(Control::Stop);
        h.quiet(false);
        assert_eq!((h.outcome(stop), h.shard.in_flight()), (Some(&Ok(())), 0));
        assert_eq!(h.again(devices).shard.dirty_blocks(), 300);
    }
}

#[test]
fn a_fenced_write_loses_its_copy_and_keeps_its_intent() {
    let mut h = Hand::with(VOLATILE);
    // A clean block under it.
    h.fill(0, 4096, 1);
    h.quiet(false);
    let flushed = h.control(Control::FlushDirty);
    h.quiet(false);
    assert_eq!(h.outcome(flushed), Some(&Ok(())));
    h.control(Control::SetMode(Mode::Wt));
    let write = h.fill(0, 4096, 2);
    while h.leaves_core() {
        h.complete(0, false);
    }
    fence(&mut h);
    assert_eq!(h.answer(write), GONE);
    h.quiet(false);
    let stop = h.control(Control::Stop);
    h.quiet(false);
    assert_eq!(h.outcome(stop), Some(&Ok(())));
    assert!(!h.pending.iter().any(|p| p.0 == Dev::Core && matches!(p.1.kind, OpKind::Flush)));
    // The core's flush never came: it may hold either, and the cache must claim neither.
    h.disk[0] = 7;
    assert_eq!(h.again(VOLATILE).read(0), Ok(7));
}
