//! One controller's side of the LUN: its key, fence and writes.

use super::raw;
use super::target::{Delay, Target};
use anyhow::{Context, Result};
use loligo_pair::fence::{BlockFence, Fence};
use loligo_pair::reservation::Key;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

pub(super) const A: Key = Key(0xa);
pub(super) const B: Key = Key(0xb);
pub(super) const BLOCK: usize = 4096;

#[repr(C, align(4096))]
struct Aligned([u8; BLOCK]);

/// A controller.
pub(super) struct Side {
    pub(super) fence: BlockFence,
    pub(super) file: File,
}

impl Side {
    fn new(path: &Path) -> Result<Side> {
        let mut options = File::options();
        let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
        Ok(Side { fence: BlockFence::open(path)?, file: file.with_context(|| path.display().to_string())? })
    }

    /// Writes a block of `byte` past the page cache.
    pub(super) fn put(&self, delay: Delay, byte: u8) -> io::Result<()> {
        put(&self.file, delay.place(), byte)
    }

    /// The first byte of the block at the place of `delay`.
    pub(super) fn get(&self, delay: Delay) -> io::Result<u8> {
        get_at(&self.file, delay.place())
    }

    /// A slow write of new bytes that is in the array by now, in a thread.
    pub(super) fn slow_put(&self, target: &Target<'_>) -> Result<Slow> {
        let (file, byte) = (self.file.try_clone()?, self.get(Delay::Long)?.wrapping_add(1));
        let thread = spawn(move || (put(&file, Delay::Long.place(), byte), Instant::now()));
        sleep(target.long / 4);
        Ok(Slow(thread))
    }
}

/// A slow write under way.
pub(super) struct Slow(JoinHandle<(io::Result<()>, Instant)>);

impl Slow {
    /// Its end, and when that was.
    pub(super) fn end(self) -> (io::Result<()>, Instant) {
        self.0.join().expect("a write does not panic")
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }
}

pub(super) fn put(file: &File, at: u64, byte: u8) -> io::Result<()> {
    let block = Box::new(Aligned([byte; BLOCK]));
    file.write_all_at(&block.0, at)
}

pub(super) fn get_at(file: &File, at: u64) -> io::Result<u8> {
    let mut block = Box::new(Aligned([0; BLOCK]));
    file.read_exact_at(&mut block.0, at)?;
    Ok(block.0[0])
}

/// True if the reservation forbade it.
pub(super) fn is_refused<T>(done: &io::Result<T>) -> bool {
    done.as_ref().err().and_then(io::Error::raw_os_error) == Some(libc::EBADE)
}

/// Both sides of a LUN that nobody is registered with.
pub(super) fn fresh(target: &Target<'_>) -> Result<(Side, Side)> {
    (target.set_delay)(Delay::None);
    let (a, b) = (Side::new(&target.a)?, Side::new(&target.b)?);
    raw::clear(&b.file).context("clearing what the claim before left")?;
    Ok((a, b))
}

/// The same, with both registered; the side `holder` holds the LUN.
pub(super) fn pair(target: &Target<'_>, holder: Option<Key>) -> Result<(Side, Side)> {
    let (mut a, mut b) = fresh(target)?;
    measured("register", || a.fence.register(Key::NONE, A))?;
    b.fence.register(Key::NONE, B)?;
    match holder {
        Some(A) => measured("reserve", || a.fence.reserve(A))?,
        Some(_) => b.fence.reserve(B)?,
        None => {}
    }
    Ok((a, b))
}

/// The result of `work`, whose time is printed.
pub(super) fn measured<T, E>(what: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let begun = Instant::now();
    let done = work();
    figure(what, begun.elapsed());
    done
}

pub(super) fn figure(what: &str, time: Duration) {
    println!("figure {what}: {:.1} ms", time.as_secs_f64() * 1e3);
}
