//! A flush of the core that fails once and then succeeds, as a kernel flushes that tells of lost pages once.

use crate::hand::{Hand, MIB};
use loligo_block::{Buf, IoError, IoKind, Op, OpKind, ReqError, ReqKind, Request};
use loligo_engine::FallbackState;
use loligo_engine::api::{Control, Dev, Event, Hint};
use loligo_engine::open::Devices;
use loligo_format::mode::Mode;

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

#[test]
fn a_part_that_waited_when_everything_failed_is_told_of_once() {
    let mut h = Hand::with(VOLATILE);
    h.control(Control::SetMode(Mode::Wt));
    h.fill(MIB, 4096, 6);
    h.quiet(false);
    let first = h.fill(0, 4096, 7);
    complete_but_flushes(&mut h, false);
    assert!(h.pending.iter().any(|p| p.0 == Dev::Core), "its write is under way");
    // A part of a larger request, behind it.
    h.asked += 1;
    let kind = ReqKind::Write(Buf::copy_of(&[8; 4096]).freeze());
    let part = Request { id: h.asked, kind, offset: 0, len: 4096, fua: false };
    h.event(Event::Submit(part, Hint { split: true, ..Hint::default() }));
    h.control(Control::FlushCore);
    let at = core_flush(&h).expect("it is asked for");
    fail(&mut h, at);
    assert!(h.shard.poisoned().is_some());
    h.quiet(true);
    assert_eq!([first, h.asked - 1].map(|id| h.answer(id)), [Some(Err(ReqError::Io)); 2]);
}

#[test]
fn whoever_does_without_the_cache_hears_of_a_failed_flush() {
    let mut h = Hand::with(VOLATILE);
    h.control(Control::SetMode(Mode::Wt));
    let write = h.fill(0, 4096, 7);
    h.quiet(false);
    assert_eq!(h.answer(write), Some(Ok(())));
    let first = h.control(Control::FlushCore);
    let at = core_flush(&h).expect("it is asked for");
    h.complete(at, false);
    assert_eq!(h.outcome(first), Some(&Ok(())));
    let second = h.control(Control::FlushCore);
    let at = core_flush(&h).expect("it is asked for");
    fail(&mut h, at);
    assert!(h.outcome(second).is_some_and(Result::is_err), "{:?}", h.outcome(second));
    assert!(h.shard.has_failed_core_flush());
    // One that succeeds would say that what was lost is there.
    let third = h.control(Control::FlushCore);
    assert!(core_flush(&h).is_none() && h.outcome(third).is_some_and(Result::is_err));
}

#[test]
fn a_failed_flush_of_a_client_is_told_once_the_cache_goes() {
    let mut h = Hand::with(VOLATILE);
    h.control(Control::SetMode(Mode::Wt));
    h.fill(0, 4096, 7);
    h.quiet(false);
    h.submit(ReqKind::Flush, 0, 0);
    complete_but_flushes(&mut h, true);
    let waits = h.control(Control::FlushCore);
    let at = core_flush(&h).expect("the client's is under way");
    fail(&mut h, at);
    assert!(core_flush(&h).is_none() && h.outcome(waits).is_some_and(Result::is_err));
}

/// The core serves alone, and one write of a client is acknowledged.
fn alone() -> Hand {
    let mut h = Hand::with(VOLATILE);
    h.control(Control::SetMode(Mode::Wt));
    h.control(Control::FallBack("the cache is gone".into()));
    h.control(Control::Confirm);
    assert_eq!(h.shard.alone(), Some(FallbackState::Serving));
    let write = h.fill(0, 4096, 7);
    h.quiet(false);
    assert_eq!(h.answer(write), Some(Ok(())));
    h
}

#[test]
fn without_its_cache_a_failed_flush_is_final() {
    let mut h = alone();
    let one = h.submit(ReqKind::Flush, 0, 0);
    let at = core_flush(&h).unwrap();
    // It comes while that is under way, and so waits for a flush of its own.
    let two = h.submit(ReqKind::Flush, 0, 0);
    fail(&mut h, at);
    assert!(core_flush(&h).is_none(), "one that succeeds would say that the lost write is durable");
    let three = h.submit(ReqKind::Flush, 0, 0);
    let write = h.fill(0, 4096, 8);
    h.quiet(false);
    for id in [one, two, three, write] {
        assert_eq!(h.answer(id), Some(Err(ReqError::Io)), "{id}");
    }
    assert!(
        h.shard.poisoned().unwrap().to_string().contains("write-back failed"),
        "{:?}",
        h.shard.poisoned()
    );
    assert_eq!(h.read(0), Ok(0), "what is there stays readable");
}

#[test]
fn without_its_cache_flushes_go_one_at_a_time() {
    let mut h = alone();
    let flushes = |h: &Hand| h.pending.iter().filter(|p| matches!(p.1.kind, OpKind::Flush)).count();
    let ids = [(); 3].map(|()| h.submit(ReqKind::Flush, 0, 0));
    assert_eq!(flushes(&h), 1);
    h.complete(0, false);
    assert_eq!(ids.map(|id| h.answer(id)), [Some(Ok(())), None, None]);
    assert_eq!(flushes(&h), 1, "the others share one");
    h.quiet(false);
    assert_eq!(ids.map(|id| h.answer(id)), [Some(Ok(())); 3]);
}

#[test]
fn a_flush_asked_anew_fails_with_the_one_under_way() {
    let mut h = Hand::with(VOLATILE);
    h.control(Control::SetMode(Mode::Wt));
    let write = h.fill(0, 4096, 7);
    h.quiet(false);
    let ask = h.submit(ReqKind::Flush, 0, 0);
    complete_but_flushes(&mut h, true);
    let tag = h.pending[core_flush(&h).unwrap()].1.tag;
    assert_eq!((h.answer(write), h.answer(ask)), (Some(Ok(())), None));
    h.control(Control::FallBack("the cache is gone".into()));
    h.control(Control::Confirm);
    let at = h.pending.iter().position(|p| p.1.tag == tag).unwrap();
    fail(&mut h, at);
    h.quiet(false);
    assert_eq!(h.answer(ask), Some(Err(ReqError::Io)));
}

#[test]
fn a_second_stop_fails_after_one_whose_flush_failed() {
    let mut h = alone();
    let stop = h.control(Control::Stop);
    let at = core_flush(&h).unwrap();
    fail(&mut h, at);
    assert!(h.outcome(stop).unwrap().is_err());
    let again = h.control(Control::Stop);
    h.quiet(false);
    assert!(h.outcome(again).unwrap().is_err(), "{:?}", h.outcome(again));
}

#[test]
fn the_cache_has_one_flush_at_a_time() {
    let mut h = Hand::new();
    let flush = |h: &Hand| {
        let is = |p: &(Dev, Op)| p.0 == Dev::Cache && matches!(p.1.kind, OpKind::Flush);
        let under_way: Vec<usize> = (0..h.pending.len()).filter(|i| is(&h.pending[*i])).collect();
        assert!(under_way.len() <= 1, "of two, one alone is told of a failure");
        under_way.first().copied()
    };
    for i in 0..4000 {
        h.fill(i % 64 * 4096, 4096, 1);
        // Flushes of the cache take a hundred times as long as anything else.
        while let Some(at) = (0..h.pending.len()).find(|at| Some(*at) != flush(&h)) {
            h.now += 1000;
            h.complete(at, false);
        }
        if let Some(at) = flush(&h).filter(|_| i % 100 == 0) {
            h.complete(at, false);
        }
        h.tick(10_000_000);
    }
    assert!(h.shard.stats().checkpoints > 0);
}

/// The flush of the last checkpoint is then the first one of the cache, and nothing else happens.
#[test]
fn a_stop_of_a_cache_that_nobody_wrote_to_since_its_start_ends() {
    let mut h = Hand::new();
    h.fill(0, 4096, 1);
    h.quiet(false);
    let mut h = h.again(Hand::DEVICES);
    let stop = h.control(Control::Stop);
    h.quiet(false);
    assert_eq!(h.outcome(stop), Some(&Ok(())));
}
