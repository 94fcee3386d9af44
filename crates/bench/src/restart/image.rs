//! A full cache without its data: the engine itself fills it, over a sparse file that takes everything but zeros.
//!
//! Superblocks, checkpoints and journal are byte for byte what the engine writes. The blocks are zeros, which a sparse
//! file has anyway and which the sparse core has too, so that every checksum is right and nothing but holes stands for
//! the data.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use loligo_block::{DeviceFile, IoError, Op, OpKind, OpenOptions as FileOptions, ReqKind, SyncFile};
use loligo_engine::Router;
use loligo_engine::api::{Dev, Event};
use loligo_engine::open::{self, Devices, OpenOptions};
use loligo_engine::params::{AdmissionKind, Params, SeqCutoff};
use loligo_format::mode::Mode;
use loligo_format::superblock::Superblock;
use loligo_format::units::BLOCK;

use crate::drive::{Driver, World, permuted, request, scatter};
use crate::engine::Nothing;
use crate::interrupt::Interrupt;

/// The lines that a full cache holds: so many of the core's blocks, spread over all of it, each in a place of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lines {
    /// Number of them.
    pub(super) count: u64,
    /// Blocks of the core for each.
    stride: u64,
}

impl Lines {
    fn new(count: u64, core: u64) -> Lines {
        Lines { count, stride: core / BLOCK / count }
    }

    /// Byte of the volume at which the `i`th line lies; they are in no order.
    pub(super) fn offset(&self, i: u64) -> u64 {
        (permuted(i, self.count) * self.stride + scatter(i, self.stride)) * BLOCK
    }
}

fn failed(e: &std::io::Error) -> IoError {
    IoError::from_errno(e.raw_os_error().unwrap_or(5), "the cache file")
}

/// The cache file during service, and a core of zeros.
struct Sparse {
    file: File,
    /// Offset of the first slot.
    data: u64,
}

impl World for Sparse {
    fn carry_out(&mut self, dev: Dev, op: Op) -> Event {
        let slots = dev == Dev::Cache && op.offset >= self.data;
        let mut result = Ok(());
        let mut back = None;
        match op.kind {
            OpKind::Read(mut buf) => {
                if dev == Dev::Core || slots {
                    buf.fill(0);
                } else {
                    result = self.file.read_exact_at(&mut buf, op.offset).map_err(|e| failed(&e));
                }
                back = Some(buf);
            }
            OpKind::Write { data, .. } if slots && data.iter().all(|b| *b == 0) => {}
            OpKind::Write { data, .. } if dev == Dev::Cache => {
                result = self.file.write_all_at(&data, op.offset).map_err(|e| failed(&e));
            }
            // Nothing is dirty, so nothing is written to the core; what is flushed is synchronised at the end.
            _ => {}
        }
        Event::Done { tag: op.tag, buf: back, result }
    }
}

/// Fills the empty, cleanly stopped cache of one shard at `path`, and stops it cleanly again. `progress` gets lines done
/// and in all.
pub(super) fn fill(path: &Path, stop: &Interrupt, mut progress: impl FnMut(u64, u64)) -> Result<Lines> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut dev = SyncFile::new(DeviceFile::open(path, &FileOptions::default())?);
    let sb = Superblock::load(&mut dev)?;
    ensure!(sb.layout.shards == 1 && sb.clean, "a new cache of one shard is wanted");
    let (core, layout) = (sb.core.size, sb.layout.shard(0));
    // Every read miss is kept at once.
    let params =
        Params { admission: AdmissionKind::Always, seq_cutoff: SeqCutoff::Never, ..Params::default() };
    let options = OpenOptions { force: false, params, bug: None };
    let devices = Devices { journal_unit: 4096, core_unmaps: true, ..Devices::PLAIN };
    let opened = open::open(&mut dev, &mut Nothing::of(core), sb, &options)?;
    let (mut sb, mut cores) = opened.into_engines(Mode::Wt, &options, &devices);
    let router = Router::new(sb.data_length, 512, sb.striping(), params.seq_promotion);
    let mut d = Driver::new(cores.remove(0), router, Sparse { file, data: layout.data });
    // As many as there are before the engine begins to evict: it keeps this part free (its reserve and its room at hand).
    let slots = u64::from(layout.slots);
    let lines = Lines::new(slots - (slots / 64).max(320) - (slots / 128).clamp(64, 8192), core);
    let step = 1 << 18;
    for from in (0..lines.count).step_by(step) {
        stop.check()?;
        progress(from, lines.count);
        let n = (lines.count - from).min(step as u64);
        d.drive(n, 256, |i| request(ReqKind::Read, lines.offset(from + i)))?;
    }
    d.stop().context("stopping the engine that filled the cache")?;
    let stats = d.engine.stats();
    let held = stats.occupied_bytes / BLOCK;
    ensure!(
        held + stats.evictions >= lines.count && stats.evictions * 1000 <= lines.count,
        "{held} of {} lines were kept",
        lines.count
    );
    open::close(&mut dev, &mut sb, &[d.engine.last_seq()], Mode::Wt, d.engine.dirty_blocks(), None)?;
    progress(lines.count, lines.count);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::format_options;
    use std::collections::BTreeSet;

    #[test]
    fn lines_are_distinct_blocks_inside_the_core() {
        let lines = Lines::new(10_000, 1 << 30);
        let all: BTreeSet<u64> = (0..lines.count).map(|i| lines.offset(i)).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|at| at % BLOCK == 0 && *at < 1 << 30));
    }

    #[test]
    fn a_filled_cache_is_clean_and_full_without_its_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        let (size, core) = (64 << 20, 1 << 30);
        File::create(&path).and_then(|file| file.set_len(size)).unwrap();
        let open = || SyncFile::new(DeviceFile::open(&path, &FileOptions::default()).unwrap());
        open::format(&mut open(), &format_options(size, core)).unwrap();
        let mut said = Vec::new();
        let lines = fill(&path, &Interrupt::default(), |done, all| said.push((done, all))).unwrap();
        assert_eq!(said.last(), Some(&(lines.count, lines.count)));
        let sb = Superblock::load(&mut open()).unwrap();
        assert!(sb.clean && sb.dirty_blocks == 0);
        let options = OpenOptions { force: false, params: Params::default(), bug: None };
        let opened = open::open(&mut open(), &mut Nothing::of(core), sb, &options).unwrap();
        let (_, cores) = opened.into_engines(Mode::Wt, &options, &Devices::PLAIN);
        let held = cores[0].stats().occupied_bytes / BLOCK;
        assert!(held * 1000 >= lines.count * 999, "{held} of {} lines", lines.count);
    }
}
