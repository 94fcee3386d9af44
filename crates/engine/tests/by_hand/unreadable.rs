//! Sectors of the cache's metadata that cannot be read at a start.

use crate::hand::Hand;
use loligo_block::{IoError, IoKind, ReqKind, SyncIo};
use loligo_engine::api::Control;
use loligo_engine::open::{self, OpenOptions};
use loligo_engine::params::Params;
use loligo_format::layout::ShardLayout;
use loligo_format::mode::Mode;
use loligo_format::record::{JournalId, parse};
use loligo_format::superblock::Superblock;
use std::ops::Range;

/// A device with bytes that cannot be read until they are written.
struct Spotty {
    bytes: Vec<u8>,
    bad: Range<u64>,
}

impl Spotty {
    fn is_bad(&self, offset: u64, len: usize) -> bool {
        offset < self.bad.end && self.bad.start < offset + len as u64
    }
}

impl SyncIo for Spotty {
    fn size(&self) -> u64 {
        self.bytes.size()
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        if self.is_bad(offset, buf.len()) {
            return Err(IoError::new(IoKind::Io, "a bad sector"));
        }
        self.bytes.read_at(offset, buf)
    }
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        if self.is_bad(offset, data.len()) {
            self.bad = 0..0;
        }
        self.bytes.write_at(offset, data)
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// Dirty, acknowledged and flushed blocks in a cache whose service was killed. The next start meets one unreadable sector.
struct Killed {
    bytes: Vec<u8>,
    disk: Vec<u8>,
    shard: ShardLayout,
    id: JournalId,
}

impl Killed {
    fn new(flushed: bool) -> Killed {
        let mut h = Hand::new();
        h.fill(0, 64 * 4096, 7);
        h.quiet(false);
        if flushed {
            h.submit(ReqKind::Flush, 0, 0);
            h.quiet(false);
        }
        assert_eq!(h.shard.dirty_blocks(), 64);
        Killed::of(h)
    }

    fn of(mut h: Hand) -> Killed {
        let mut bytes = std::mem::take(&mut h.cache);
        let sb = Superblock::load(&mut bytes).unwrap();
        let id = JournalId { cache: sb.cache_id(), shard: 0 };
        Killed { shard: sb.layout.shard(0), bytes, disk: std::mem::take(&mut h.disk), id }
    }

    /// The frames in the ring: where each begins and ends on the device.
    fn frames(&self) -> Vec<Range<u64>> {
        let mut at = self.shard.journal;
        let next = |at: u64| parse(&self.bytes[at as usize..], self.id, |_| ()).ok();
        let mut frames = Vec::new();
        while let Some(h) = next(at) {
            frames.push(at..at + u64::from(h.total));
            at += u64::from(h.total);
        }
        frames
    }

    /// A start where the sector at `bad` cannot be read: the dirty blocks, and the frames given up.
    fn start(&mut self, bad: u64, force: bool) -> Result<(u64, u64), String> {
        let mut dev = Spotty { bytes: self.bytes.clone(), bad: bad..bad + 512 };
        let sb = Superblock::load(&mut dev).map_err(|e| format!("superblock: {e}"))?;
        let o = OpenOptions { force, params: Params::default(), bug: None };
        let opened = open::open(&mut dev, &mut self.disk, sb, &o).map_err(|e| format!("open: {e}"))?;
        Ok((opened.dirty_blocks(), opened.report.frames_lost))
    }
}

#[test]
fn an_unreadable_superblock_is_no_loss_of_the_other() {
    for at in [0, 512 << 10] {
        assert_eq!(Killed::new(true).start(at, false), Ok((64, 0)), "{at}");
    }
}

#[test]
fn an_unreadable_root_is_no_loss_of_the_other() {
    let mut killed = Killed::new(true);
    for at in killed.shard.roots {
        assert_eq!(killed.start(at, false), Ok((64, 0)), "{at}");
    }
}

#[test]
fn an_unreadable_sector_of_unused_ring_is_no_loss() {
    let mut killed = Killed::new(true);
    let (first, len) = (killed.shard.journal, killed.shard.journal_len);
    assert_eq!(killed.start(first + len - 4096, false), Ok((64, 0)));
    assert_eq!(killed.start(first + len / 2, false), Ok((64, 0)));
}

#[test]
fn an_unreadable_frame_is_given_up_by_force_alone() {
    for flushed in [true, false] {
        let mut killed = Killed::new(flushed);
        let frames = killed.frames();
        // Whether it was acknowledged nobody can say: it was, or it is the place of one that was never written.
        let end = frames.last().unwrap().end;
        for at in frames.iter().flat_map(|f| [f.start, f.end - 512]).chain([end]) {
            let why = killed.start(at, false).expect_err("a write may be missing");
            assert!(why.contains("frame"), "{why}");
            let (dirty, lost) = killed.start(at, true).expect("forced");
            assert!(lost > 0 && (dirty == 0 || at != frames[0].start), "{dirty} {lost}");
        }
    }
}

/// A core whose last content was written through, and whose cache had older content of it before. The record of the newer one lies
/// behind a frame that cannot be read.
#[test]
fn nothing_clean_is_believed_once_frames_are_given_up() {
    let written_through = || {
        let mut h = Hand::new();
        h.fill(0, 3 * 4096, 1);
        h.quiet(false);
        h.control(Control::FlushDirty);
        h.quiet(false);
        let stop = h.control(Control::Stop);
        h.quiet(false);
        assert_eq!(h.outcome(stop), Some(&Ok(())));
        let mut h = h.again(Hand::DEVICES);
        h.control(Control::SetMode(Mode::Wt));
        h.quiet(false);
        h.fill(0, 3 * 4096, 2);
        h.quiet(false);
        h.submit(ReqKind::Flush, 0, 0);
        h.quiet(false);
        assert_eq!((h.shard.dirty_blocks(), h.disk[0]), (0, 2));
        h
    };
    let h = written_through();
    let frames = Killed::of(h).frames();
    let mut given_up = 0;
    for frame in frames {
        let h = written_through();
        let mut dev = Spotty { bytes: h.cache, bad: frame.start..frame.start + 512 };
        let (mut disk, sb) = (h.disk, Superblock::load(&mut dev).unwrap());
        let o = OpenOptions { force: true, params: Params::default(), bug: None };
        let opened = open::open(&mut dev, &mut disk, sb, &o).expect("forced");
        given_up += opened.report.frames_lost;
        let shard = opened.into_engines(Mode::Wb, &o, &Hand::DEVICES).1.remove(0);
        let mut h = Hand { shard, cache: dev.bytes, disk, ..Hand::new() };
        assert_eq!(h.read(0), Ok(2), "older than what the core has");
        // A sector of one block, and two blocks around one that could be written along with them.
        h.fill(512, 512, 3);
        h.fill(2 * 4096, 4096, 3);
        h.quiet(false);
        h.control(Control::FlushDirty);
        h.quiet(false);
        assert_eq!([0, 512, 1024, 4096, 8192].map(|at| h.disk[at]), [2, 3, 2, 2, 3]);
    }
    assert!(given_up > 0);
}
