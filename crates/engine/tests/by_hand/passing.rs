//! A read error that passes, while a start looks for what became durable.

use crate::hand::{Hand, MIB, SECOND};
use loligo_block::{IoError, IoKind, ReqKind, SyncIo};
use loligo_engine::open::{self, OpenOptions};
use loligo_engine::params::Params;
use loligo_format::mode::Mode;
use loligo_format::superblock::Superblock;

/// A cache of which one read of one block fails: the one after so many others of it.
struct Passing<'a> {
    cache: &'a mut Vec<u8>,
    at: u64,
    before: u32,
    reads: u32,
}

impl SyncIo for Passing<'_> {
    fn size(&self) -> u64 {
        self.cache.len() as u64
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        if (offset..offset + buf.len() as u64).contains(&self.at) {
            self.reads += 1;
            if self.reads == self.before + 1 {
                return Err(IoError::new(IoKind::Io, "an error that passes"));
            }
        }
        self.cache.read_at(offset, buf)
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.cache.write_at(offset, data)
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// The only slot that holds `byte` all over.
fn slot_of(cache: &[u8], byte: u8) -> usize {
    let mut blocks = cache.chunks_exact(4096);
    blocks.position(|b| b.iter().all(|x| *x == byte)).expect("it was written") * 4096
}

#[test]
fn a_lost_version_is_not_kept_for_a_read_error_that_passes() {
    for before in 0..3 {
        let mut h = Hand::new();
        h.fill(MIB, 4096, 1);
        h.quiet(false);
        h.submit(ReqKind::Flush, 0, 0);
        h.quiet(false);
        h.fill(MIB, 4096, 2);
        h.quiet(false);
        // Its record is in the journal; its data goes with the power.
        let at = slot_of(&h.cache, 2);
        h.cache[at..at + 4096].fill(0);
        let options = OpenOptions { force: false, params: Params::default(), bug: None };
        let sb = Superblock::load(&mut h.cache).unwrap();
        let mut cache = Passing { cache: &mut h.cache, at: at as u64, before, reads: 0 };
        let opened = open::open(&mut cache, &mut h.disk, sb, &options).unwrap();
        assert!(cache.reads > 1, "the slot is looked at");
        h.shard = opened.into_engines(Mode::Wb, &options, &Hand::DEVICES).1.remove(0);
        (h.pending, h.now) = (Vec::new(), h.now + SECOND);
        assert_eq!(h.read(MIB), Ok(1), "the read after {before} others failed");
    }
}
