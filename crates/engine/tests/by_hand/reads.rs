//! The read misses that are kept.

use crate::hand::{Hand, MIB, SECOND};
use loligo_block::{ReqKind, Request};
use loligo_engine::api::{Control, Event, Hint};
use loligo_engine::params::{AdmissionKind, Params};

const KIB: u64 = 1 << 10;

/// Reads `len` bytes that end a run of `run`.
fn read_in_run(h: &mut Hand, offset: u64, len: u64, run: u64) {
    h.asked += 1;
    let request = Request { id: h.asked, kind: ReqKind::Read, offset, len, fua: false };
    h.event(Event::Submit(request, Hint { run_bytes: run, ..Hint::default() }));
    h.quiet(false);
}

#[test]
fn a_long_run_of_reads_leaves_nothing_in_the_cache() {
    let mut h = Hand::new();
    let params = Params { admission: AdmissionKind::Always, promote_run: 128 * KIB, ..Params::default() };
    h.control(Control::SetParams(params));
    // A clean part in the middle of what is scanned.
    read_in_run(&mut h, MIB, 64 * KIB, 64 * KIB);
    // What is kept of reads goes into the journal when there is nothing more urgent.
    h.tick(SECOND);
    h.quiet(false);
    let kept = h.shard.stats();
    assert_eq!((kept.fills, kept.read_hits), (16, 0));
    for at in 0..4 * MIB / (64 * KIB) {
        read_in_run(&mut h, at * 64 * KIB, 64 * KIB, (at + 1) * 64 * KIB);
    }
    let s = h.shard.stats();
    assert_eq!(s.fills, 16 + 32, "the first 128 KiB of a run are as any reads");
    assert_eq!(s.read_hits, 1);
    assert_eq!(s.bypass[loligo_engine::stats::Bypass::Sequential as usize], 1024 - 32 - 16);
    // Without a limit they are kept.
    h.control(Control::SetParams(Params { promote_run: 0, ..params }));
    read_in_run(&mut h, 2 * MIB, 64 * KIB, 3 * MIB);
    assert_eq!(h.shard.stats().fills, 16 + 32 + 16);
}
