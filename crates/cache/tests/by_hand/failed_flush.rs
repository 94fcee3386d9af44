//! A flush of the core that fails once and then succeeds, as a kernel flushes that tells of lost pages once.

use crate::hand::{Hand, MIB};
use loligo_block::{IoError, IoKind, OpKind, ReqError, ReqKind};
use loligo_cache::api::{Control, Dev, Event};
use loligo_cache::open::Devices;

const VOLATILE: Devices = Devices { core_volatile: true, ..Hand::DEVICES };

fn core_flush(h: &Hand) -> Option<usize> {
    h.pending.iter().position(|p| p.0 == Dev::Core && matches!(p.1.kind, OpKind::Flush))
}

fn zeroing(h: &Hand) -> Option<usize> {
    h.pending.iter().position(|p| matches!(p.1.kind, OpKind::WriteZeroes { .. }))
}

/// Completes what is asked of the cache and, where `core`, what is asked of the core but flushes and zeroes.
fn complete_but_flushes(h: &mut Hand, core: bool) {
    let other = |h: &Hand| {
        h.pending.iter().position(|(dev, op)| match dev {
            Dev::Cache => true,
            Dev::Core => core && !matches!(op.kind, OpKind::Flush | OpKind::WriteZeroes { .. }),
        })
    };
    while let Some(at) = other(h) {
        h.now += 1000;
        h.complete(at, false);
    }
}

/// The operation at `at` fails, and with it all that the core was to keep.
fn fail(h: &mut Hand, at: usize) {
    h.disk.fill(0);
    let (_, op) = h.pending.remove(at);
    let result = Err(IoError::new(IoKind::Io, "write-back failed"));
    h.event(Event::Done { tag: op.tag, buf: None, result });
}

#[test]
fn nothing_becomes_clean_after_a_failed_core_flush() {
    let mut h = Hand::with(VOLATILE);
    for window in 0..12 {
        let id = h.fill(window * MIB, MIB, 1 + window as u8);
        for _ in 0..10_000 {
            complete_but_flushes(&mut h, false);
            if h.answer(id).is_some() {
                break;
            }
            h.tick(1_000_000);
        }
        assert_eq!(h.answer(id), Some(Ok(())), "{window}");
    }
    let flush = h.submit(ReqKind::Flush, 0, 0);
    complete_but_flushes(&mut h, false);
    assert_eq!(h.answer(flush), Some(Ok(())));
    let dirty = h.shard.dirty_blocks();
    // Destage jobs have written; some wait for the flush under way, others for the next one.
    h.control(Control::FlushDirty);
    complete_but_flushes(&mut h, true);
    assert!(core_flush(&h).is_some() && h.shard.dirty_blocks() == dirty, "{dirty}");
    let zeros = h.submit(ReqKind::WriteZeroes { unmap: false }, 11 * MIB, MIB);
    complete_but_flushes(&mut h, true);
    let at = core_flush(&h).unwrap();
    fail(&mut h, at);
    assert!(h.shard.poisoned().is_some());
    // The zeroes end, and would ask for a flush that succeeds.
    let at = zeroing(&h).expect("they are at the core");
    h.complete(at, false);
    assert_eq!((core_flush(&h), h.answer(zeros)), (None, Some(Err(ReqError::Io))));
    h.quiet(false);
    let h = h.again(VOLATILE);
    assert!(h.shard.dirty_blocks() >= dirty - 256, "{} of {dirty} are dirty", h.shard.dirty_blocks());
}
