//! Sectors of the core that cannot be read, and what can be answered all the same.

use crate::hand::{CORE, Hand, MIB, SECOND};
use loligo_block::{Answer, Buf, IoError, IoKind, ReqError, ReqKind, SyncIo};
use loligo_engine::api::{Control, Dev};
use loligo_engine::open::{self, Comparison, Devices, OpenOptions};
use loligo_engine::params::{AdmissionKind, Params};
use loligo_format::mode::Mode;
use loligo_format::superblock::Superblock;
use std::ops::Range;

const KIB: u64 = 1 << 10;

/// All that a read answers.
fn read(h: &mut Hand, offset: u64, len: u64) -> Result<Vec<u8>, ReqError> {
    let id = h.submit(ReqKind::Read, offset, len);
    h.quiet(false);
    let at = h.answers.iter().position(|a| a.0 == id).expect("reads wait for nothing");
    match h.answers.remove(at).1? {
        Answer::Data(segments) => Ok(segments.iter().flat_map(|s| s.iter().copied()).collect()),
        other => panic!("{other:?}"),
    }
}

/// Sectors that all hold one byte each.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|b| [*b; 512]).collect()
}

#[test]
fn a_bad_sector_beneath_a_cached_block_fails_no_read() {
    let mut h = Hand::new();
    h.disk[..MIB as usize].fill(9);
    h.bad = 4096..4096 + 512;
    h.fill(4096, 4096, 1);
    h.quiet(false);
    let all = read(&mut h, 0, 3 * 4096);
    assert_eq!(all, Ok(sectors(&[[9; 8], [1; 8], [9; 8]].concat())));
    // The same once it is clean and goes bad again.
    h.control(Control::FlushDirty);
    h.quiet(false);
    assert_eq!(h.shard.dirty_blocks(), 0);
    assert_eq!(read(&mut h, 0, 3 * 4096), Ok(sectors(&[[9; 8], [1; 8], [9; 8]].concat())));
}

#[test]
fn a_bad_sector_that_was_overwritten_fails_no_read_of_its_block() {
    let mut h = Hand::new();
    h.disk[..MIB as usize].fill(9);
    h.bad = 1024..1536;
    // The bad sector and the one behind it.
    h.submit(ReqKind::Write(Buf::copy_of(&[1; 1024]).freeze()), 1024, 1024);
    h.quiet(false);
    assert_eq!(read(&mut h, 0, 4096), Ok(sectors(&[9, 9, 1, 1, 9, 9, 9, 9])));
    assert_eq!(read(&mut h, 512, 1024), Ok(sectors(&[9, 1])));
    assert_eq!(read(&mut h, 0, 64 * KIB).map(|d| d.len()), Ok(64 << 10));
}

#[test]
fn sectors_beside_a_bad_one_are_read_and_the_bad_one_fails() {
    let mut h = Hand::new();
    h.disk[..MIB as usize].fill(9);
    h.bad = 1024..1536;
    assert_eq!(read(&mut h, 0, 1024), Ok(vec![9; 1024]));
    assert_eq!(read(&mut h, 1536, 8192), Ok(vec![9; 8192]));
    for (at, len) in [(1024, 512), (0, 4096), (512, 64 * KIB)] {
        assert_eq!(read(&mut h, at, len), Err(ReqError::Io), "{len} bytes at {at}");
    }
    assert!(h.pending.is_empty() && h.shard.in_flight() == 0);
}

#[test]
fn a_cached_block_that_rotted_over_a_bad_sector_fails() {
    let mut h = Hand::new();
    h.control(Control::SetMode(Mode::Wt));
    h.fill(4096, 4096, 1);
    h.quiet(false);
    h.tick(SECOND);
    h.quiet(false);
    let at = h.cache.windows(4096).rposition(|w| w == [1; 4096]).expect("it is there");
    h.cache[at] ^= 1;
    h.bad = 4096..4608;
    assert_eq!(read(&mut h, 0, 3 * 4096), Err(ReqError::Io));
    assert_eq!(read(&mut h, 4608, 512), Ok(vec![1; 512]), "beside it the core repairs");
}

#[test]
fn what_is_filled_beneath_a_change_that_fails_is_served() {
    let mut h = Hand::new();
    let params = Params { admission: AdmissionKind::Always, ..Params::default() };
    h.control(Control::SetParams(params));
    h.fill(4096, 4096, 1);
    h.quiet(false);
    let at = h.cache.windows(4096).rposition(|w| w == [1; 4096]).expect("it is there");
    h.cache[at] ^= 1;
    // Block 0 is on its way into the cache.
    h.submit(ReqKind::Read, 0, 4096);
    let from_core = |h: &Hand| h.pending.iter().position(|p| p.0 == Dev::Core);
    let core = from_core(&mut h).expect("it was missed");
    h.complete(core, false);
    // Half of each of the two blocks: what block 1 holds must be read first.
    let write = h.fill(2048, 4096, 2);
    let merge = h.pending[h.slot_reads()[0]].1.tag;
    h.tick(SECOND);
    while let Some(i) = h.pending.iter().position(|p| p.1.tag != merge) {
        h.complete(i, false);
    }
    assert_eq!((h.answer(write), h.shard.stats().fills), (None, 1));
    h.quiet(false);
    assert_eq!(h.answer(write), Some(Err(ReqError::Io)));
    h.submit(ReqKind::Read, 0, 4096);
    assert_eq!(from_core(&h), None, "it is in the cache");
}

/// A device with bad bytes, and how many reads met them.
struct Bad<'a>(&'a mut Vec<u8>, Range<u64>, u64);

impl SyncIo for Bad<'_> {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        if offset < self.1.end && self.1.start < offset + buf.len() as u64 {
            self.2 += 1;
            return Err(IoError::new(IoKind::Io, "a bad sector"));
        }
        self.0.read_at(offset, buf)
    }
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.0.write_at(offset, data)
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// Destages everything, opens the cache again and compares it with a core that has these bad bytes; also how many reads failed.
fn compared(h: &mut Hand, bad: Range<u64>) -> (Comparison, u64) {
    compared_while(h, bad, || true)
}

/// The same, for as long as that is said to be worth it.
fn compared_while(h: &mut Hand, bad: Range<u64>, patient: impl FnMut() -> bool) -> (Comparison, u64) {
    h.control(Control::FlushDirty);
    h.quiet(false);
    h.tick(SECOND);
    h.quiet(false);
    let options = OpenOptions { force: false, params: Params::default(), bug: None };
    let superblock = Superblock::load(&mut h.cache).unwrap();
    let opened = open::open(&mut h.cache, &mut h.disk, superblock, &options).unwrap();
    assert_eq!(opened.dirty_blocks(), 0);
    let mut disk = Bad(&mut h.disk, bad, 0);
    let c = opened.compare(&mut disk, 1000, patient).unwrap();
    (c, disk.2)
}

#[test]
fn a_bad_sector_of_the_core_does_not_fail_the_comparison() {
    let mut h = Hand::new();
    h.fill(0, 16 * 4096, 1);
    h.quiet(false);
    let (c, failed) = compared(&mut h, 8192..8704);
    assert_eq!((c.compared, c.different, c.unreadable, failed), (15, 0, 1, 1));
}

#[test]
fn comparing_with_many_unreadable_blocks_ends_soon() {
    let mut h = Hand::new();
    h.fill(0, 256 * 4096, 1);
    for window in 1..40 {
        h.fill(window * MIB, 8192, 1);
    }
    h.quiet(false);
    let (one, failed) = compared(&mut h, 0..MIB);
    assert_eq!((one.compared, one.untried, one.different, failed), (78, 252, 0, 4), "{one:?}");
    let (all, failed) = compared(&mut h, 0..CORE);
    assert_eq!((all.compared, all.untried, all.unreadable, failed), (0, 318, 16, 16), "{all:?}");
}

#[test]
fn comparing_ends_when_its_failed_reads_took_too_long() {
    let mut h = Hand::new();
    for window in 0..40 {
        h.fill(window * MIB, 8192, 1);
    }
    h.quiet(false);
    let mut left = 2;
    let (c, failed) = compared_while(&mut h, MIB..30 * MIB, || {
        left -= 1;
        left > 0
    });
    assert_eq!((c.unreadable, failed), (2, 2), "{c:?}");
    assert_eq!(c.compared + c.unreadable + c.untried, 80, "{c:?}");
}

#[test]
fn a_waiter_hears_of_its_own_block_while_the_core_seems_down() {
    let mut h = Hand::with(Devices { core_groups: true, ..Hand::DEVICES });
    h.refused = 4096..CORE;
    for window in 1..12 {
        h.fill(window * MIB, 8192, 5);
    }
    h.quiet(false);
    let flush = h.control(Control::FlushDirty);
    h.pass(20 * SECOND);
    assert!(h.outcome(flush).is_some_and(Result::is_err), "{:?}", h.outcome(flush));
    assert!(h.shard.core_failing().is_some(), "it takes nothing");
    h.fill(0, 8192, 6);
    h.quiet(false);
    h.control(Control::SetMode(Mode::Wt));
    let taken = h.fill(0, 4096, 7);
    let refused = h.fill(4096, 4096, 7);
    h.pass(60 * SECOND);
    assert_eq!((h.answer(taken), h.answer(refused)), (Some(Ok(())), Some(Err(ReqError::Io))));
    assert_eq!(h.disk[0], 7);
}

#[test]
fn what_the_cache_got_while_the_core_was_asked_fails_no_read() {
    let mut h = Hand::new();
    h.control(Control::SetParams(Params { admission: AdmissionKind::Always, ..Params::default() }));
    h.disk[..MIB as usize].fill(9);
    h.fill(4096, 4096, 1);
    h.quiet(false);
    h.control(Control::FlushDirty);
    h.quiet(false);
    h.bad = 4096..4096 + 512;
    let all = h.submit(ReqKind::Read, 0, 3 * 4096);
    h.complete(0, false);
    // What lies on either side is asked for by itself; another read brings the right one into the cache.
    let right = h.pending.iter().position(|p| p.1.offset == 8192).expect("it is read by itself");
    let asked = h.pending.remove(right);
    h.quiet(false);
    assert_eq!(h.read(8192), Ok(9));
    h.pass(SECOND);
    assert!(h.shard.has_sector(8192), "it was taken in");
    h.bad = 8192..8192 + 512;
    h.pending.push(asked);
    h.quiet(false);
    let at = h.answers.iter().position(|a| a.0 == all).expect("it is answered");
    assert!(h.answers.remove(at).1.is_ok());
}

#[test]
fn a_bad_sector_beneath_the_cache_fails_no_read_past_it() {
    let mut h = Hand::new();
    h.disk[..MIB as usize].fill(9);
    h.fill(4096, 4096, 1);
    h.quiet(false);
    h.control(Control::FlushDirty);
    h.quiet(false);
    h.control(Control::SetMode(Mode::Pt));
    h.quiet(false);
    h.bad = 4096..4096 + 512;
    assert_eq!(read(&mut h, 0, 3 * 4096), Ok(sectors(&[[9; 8], [1; 8], [9; 8]].concat())));
}
