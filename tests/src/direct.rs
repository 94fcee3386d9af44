//! A mixed load on a block device, past the page cache, that knows what it may read.

use crate::history::{Crash, History, Kind, SECTOR, pattern};
use anyhow::{Result, anyhow};
use loligo_block::Buf;
use loligo_sim::rng::Rng;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Longest request, blocks.
const LONGEST: u64 = 32;
/// Bytes read at a time when everything is read.
const CHUNK: u64 = 1 << 20;

/// Opens a block device past the page cache.
///
/// # Errors
/// If the kernel refuses.
pub fn open(path: &Path, flags: i32) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT | flags).open(path)
}

/// The deeds of a load.
#[derive(Debug, Default, Clone, Copy)]
pub struct Done {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that failed: at most one per thread, which ends with it.
    pub failed: u64,
}

/// Writes, zeroes, reads and syncs by `threads` threads, each in a part of the device of its own, until `stop` says so or the
/// device fails. `block` is that of the device, bytes.
///
/// # Errors
/// Wrong data.
pub fn run(
    path: &Path,
    history: &mut History,
    rng: &mut Rng,
    (threads, block): (u64, u64),
    stop: impl Fn() -> bool + Sync,
) -> Result<Done> {
    let part = history.sectors() / threads;
    let shared = Mutex::new(history);
    std::thread::scope(|s| {
        let all: Vec<_> = (0..threads)
            .map(|i| {
                let (shared, stop) = (&shared, &stop);
                let worker = Worker { part: i * part..(i + 1) * part, block, rng: rng.fork() };
                s.spawn(move || worker.run(path, shared, stop))
            })
            .collect();
        let mut done = Done::default();
        for one in all {
            let one = one.join().map_err(|_| anyhow!("a thread of the load panicked"))??;
            done.answered += one.answered;
            done.failed += one.failed;
        }
        Ok(done)
    })
}

struct Worker {
    /// Sectors of its own.
    part: Range<u64>,
    block: u64,
    rng: Rng,
}

impl Worker {
    fn run(mut self, path: &Path, history: &Mutex<&mut History>, stop: &dyn Fn() -> bool) -> Result<Done> {
        let mut done = Done::default();
        let (Ok(file), Ok(durable)) = (open(path, 0), open(path, libc::O_DSYNC)) else {
            done.failed += 1;
            return Ok(done);
        };
        while !stop() {
            if self.one(&file, &durable, history)? {
                done.answered += 1;
            } else {
                done.failed += 1;
                break;
            }
        }
        Ok(done)
    }

    /// One request; false if it failed.
    fn one(&mut self, file: &File, durable: &File, history: &Mutex<&mut History>) -> Result<bool> {
        let lock = || history.lock();
        let per = self.block / SECTOR as u64;
        let len = self.rng.skewed(1..LONGEST + 1) * per;
        let start = self.part.start + self.rng.below((self.part.end - self.part.start - len) / per) * per;
        let sectors = start..start + len;
        let (at, bytes) = (start * SECTOR as u64, len * SECTOR as u64);
        match self.rng.below(100) {
            0..6 => {
                let issued = lock().flush_issued();
                let synced = file.sync_data().is_ok();
                if synced {
                    lock().flush_done(issued);
                }
                Ok(synced)
            }
            6..12 => {
                // A hole in a block device is a write of zeroes that may give the space back.
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let how = self.rng.pick(&[hole, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE]);
                let stamp = lock().issue(sectors.clone(), Kind::Zeroes);
                let zeroed = fallocate(file, how, at, bytes).is_ok();
                if zeroed {
                    lock().acknowledge(sectors, stamp, false);
                }
                Ok(zeroed)
            }
            12..60 => {
                let fua = self.rng.chance(1, 8);
                let stamp = lock().issue(sectors.clone(), Kind::Write);
                let mut data = Buf::alloc(bytes as usize);
                pattern(stamp, start, &mut data);
                let written = if fua { durable } else { file }.write_all_at(&data, at).is_ok();
                if written {
                    lock().acknowledge(sectors, stamp, fua);
                }
                Ok(written)
            }
            _ => {
                let mut data = Buf::alloc(bytes as usize);
                if file.read_exact_at(&mut data, at).is_err() {
                    return Ok(false);
                }
                lock().check(start, &data, None).map_err(anyhow::Error::msg)?;
                Ok(true)
            }
        }
    }
}

/// Reads the whole device and checks every sector; `after` is how the last life ended.
///
/// # Errors
/// Wrong data, and reads that fail.
pub fn verify(path: &Path, history: &mut History, after: Option<Crash>) -> Result<()> {
    let file = open(path, 0)?;
    let size = history.sectors() * SECTOR as u64;
    for at in (0..size).step_by(CHUNK as usize) {
        let mut data = Buf::alloc(CHUNK.min(size - at) as usize);
        file.read_exact_at(&mut data, at)?;
        history.check(at / SECTOR as u64, &data, after).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}
