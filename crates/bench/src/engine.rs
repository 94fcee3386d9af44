//! The engine alone: one shard over memory, 4 KiB requests, CPU time of the thread that runs it.
//!
//! The measurement has everything that a request costs but the transport: routing, index, policy, checksum, the copies to and
//! from the devices' memory, journal and effects. OCF's comparable figures (memory volumes, one queue): 0.42 M/s read
//! hits and 0.31 M/s new-line writes a core.

use crate::drive::{Driver, World, request, scatter};
use crate::stats::median;
use anyhow::{Context, Result, ensure};
use loligo_block::{Buf, Completion, Device, IoError, Op, OpKind, RamDevice, ReqKind, Ring, Submit, SyncIo};
use loligo_engine::api::{Dev, Event};
use loligo_engine::open::{self, Devices, FormatOptions, OpenOptions};
use loligo_engine::params::Params;
use loligo_engine::{Engine, Router};
use loligo_format::mode::Mode;
use loligo_format::superblock::{CoreIdentity, Superblock};
use serde::Serialize;

/// Requests handed over at a time.
const DEPTH: u64 = 32;
/// Bytes of the core behind the cache whose index is filled.
const INDEX_CORE: u64 = 1 << 40;

/// The sizes of the measurements
#[derive(Debug, clap::Args)]
pub struct EngineOptions {
    /// Bytes that the requests go over (a power of two)
    #[arg(long, default_value = "4g", value_parser = loligo_block::parse_size)]
    pub working_set: u64,
    /// Requests in each measurement
    #[arg(long, default_value_t = 2_000_000)]
    pub requests: u64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Cache whose index is filled for the memory figure; 0 skips it
    #[arg(long, default_value = "64g", value_parser = loligo_block::parse_size)]
    pub index_cache: u64,
}

/// Requests per second of thread CPU time, and memory per line.
#[derive(Debug, Clone, Serialize)]
pub struct EngineResult {
    /// 4 KiB reads of cached blocks.
    pub read_hit_iops: f64,
    /// 4 KiB writes over dirty blocks.
    pub write_hit_iops: f64,
    /// 4 KiB writes of blocks not cached, to free slots.
    pub write_miss_iops: f64,
    /// Growth of the resident set over the lines of a full cache, or what the engine says it holds, whichever is more,
    /// bytes.
    pub bytes_per_line: f64,
    /// Lines of that cache.
    pub lines: u64,
    /// The memory by the engine's own account, bytes per line.
    pub ram: Vec<(String, f64)>,
}

/// A device that keeps nothing: for filling an index without its data.
pub(crate) struct Nothing {
    size: u64,
    /// Superblocks and roots, written before service, so that they can be read back.
    kept: std::collections::BTreeMap<u64, Vec<u8>>,
}

impl Nothing {
    /// One of `size` bytes.
    pub(crate) fn of(size: u64) -> Nothing {
        Nothing { size, kept: Default::default() }
    }
}

impl SyncIo for Nothing {
    fn size(&self) -> u64 {
        self.size
    }
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        buf.fill(0);
        if let Some(d) = self.kept.get(&offset) {
            buf[..d.len()].copy_from_slice(d);
        }
        Ok(())
    }
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.kept.insert(offset, data.to_vec());
        Ok(())
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// An empty write-back cache of one shard with 4 KiB lines.
pub(crate) fn format_options(cache: u64, core: u64) -> FormatOptions {
    FormatOptions {
        uuid: *b"loligo-benchmark",
        name: "bench".into(),
        cache_size: cache,
        core: CoreIdentity { size: core, id: String::new() },
        line_size: 4096,
        shards: 1,
        stripe: 0,
        mode: Mode::Wb,
        core_reserve: 0,
        journal_len: 0,
    }
}

/// Nothing is destaged or paced while the cache fills: the engine's own cost is what is measured.
fn open_options() -> OpenOptions {
    OpenOptions {
        force: false,
        params: Params { destage_low: 90, destage_rate: 1, ..Params::default() },
        bug: None,
    }
}

const DEVICES: Devices = Devices { core_unmaps: true, ..Devices::PLAIN };

fn start(cache: &mut dyn SyncIo, core: &mut dyn SyncIo, o: &FormatOptions) -> Result<(Engine, Router)> {
    open::format(cache, o)?;
    let sb = Superblock::load(cache)?;
    let opened = open::open(cache, core, sb, &open_options())?;
    let (sb, mut cores) = opened.into_engines(Mode::Wb, &open_options(), &DEVICES);
    Ok((cores.remove(0), Router::new(sb.data_length, 512, sb.striping(), 8)))
}

struct Ram {
    cache: RamDevice,
    core: RamDevice,
    ring: Ring,
}

impl World for Ram {
    fn expect(&self, dev: Dev, op: &Op) {
        if dev == Dev::Cache { self.cache.expect(op) } else { self.core.expect(op) }
    }

    fn carry_out(&mut self, dev: Dev, op: Op) -> Event {
        let d = if dev == Dev::Cache { &mut self.cache } else { &mut self.core };
        match d.submit(&mut self.ring, 0, op) {
            Submit::Finished(Completion { tag, buf, result }) => Event::Done { tag, buf, result },
            _ => unreachable!("memory answers at once"),
        }
    }
}

impl World for () {
    fn carry_out(&mut self, _: Dev, op: Op) -> Event {
        let buf = if let OpKind::Read(b) = op.kind { Some(b) } else { None };
        Event::Done { tag: op.tag, buf, result: Ok(()) }
    }
}

/// Runs every measurement; `progress` hears what is being done.
///
/// # Errors
/// When there is not enough memory, or a request fails.
pub fn run(o: &EngineOptions, mut progress: impl FnMut(&str)) -> Result<EngineResult> {
    ensure!(o.working_set >= 64 << 20 && o.rounds > 0, "the working set must be 64 MiB or more");
    let (bytes_per_line, lines, ram) = if o.index_cache > 0 {
        progress("filling the index of a large cache");
        index(o)?
    } else {
        (0.0, 0, Vec::new())
    };
    let blocks = o.working_set / 4096;
    let (mut read, mut over, mut miss) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=o.rounds {
        progress(&format!("round {round} of {}", o.rounds));
        let cache_size = o.working_set + o.working_set / 4 + (64 << 20);
        let no_memory = || {
            format!("{} MiB of memory are needed: free some, or give a smaller working set", cache_size >> 20)
        };
        let mut w = Ram {
            cache: RamDevice::new(cache_size).with_context(no_memory)?,
            core: RamDevice::new(4 * o.working_set).with_context(no_memory)?,
            ring: Ring::new(8)?,
        };
        // Touch the device's pages first, so that the kernel's zeroing of fresh memory is not counted.
        let chunk = vec![0u8; 1 << 20];
        for at in (0..cache_size).step_by(1 << 20) {
            w.cache.write_at(at, &chunk)?;
        }
        let fo = format_options(cache_size, 4 * o.working_set);
        let (engine, router) = start(&mut w.cache, &mut w.core, &fo)?;
        let mut d = Driver::new(engine, router, w);
        // Each write brings a buffer of its own, as from a connection; what is in it does not matter.
        let write = |block: u64| request(ReqKind::Write(Buf::alloc(4096).freeze()), block * 4096);
        // A permutation: every block of the set once, in scattered order. Blocks lie four apart in the core.
        let order = |i: u64| (i.wrapping_mul(0x9E37_79B1) % blocks.next_power_of_two()) % blocks;
        let t = d.drive(blocks, DEPTH, |i| write(order(i) * 4))?;
        let before = d.engine.stats();
        ensure!(before.write_misses > blocks / 2, "the filling writes must miss");
        miss.push(before.write_misses as f64 / t);
        let read_back = |i| request(ReqKind::Read, order(scatter(i, blocks)) * 4 * 4096);
        let t = d.drive(o.requests, DEPTH, read_back)?;
        let mid = d.engine.stats();
        ensure!(mid.read_misses == 0, "{} reads missed", mid.read_misses);
        read.push(o.requests as f64 / t);
        let t = d.drive(o.requests, DEPTH, |i| write(order(scatter(i + 7, blocks)) * 4))?;
        ensure!(d.engine.stats().write_misses == mid.write_misses, "the overwrites must hit");
        over.push(o.requests as f64 / t);
    }
    Ok(EngineResult {
        read_hit_iops: median(&read),
        write_hit_iops: median(&over),
        write_miss_iops: median(&miss),
        bytes_per_line,
        lines,
        ram,
    })
}

fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("reading /proc/self/statm")?;
    let pages: u64 =
        text.split_whitespace().nth(1).and_then(|p| p.parse().ok()).context("/proc/self/statm")?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Bytes per line, lines, and where the bytes are.
type IndexFigure = (f64, u64, Vec<(String, f64)>);

/// Fills the index of a cache of `o.index_cache` bytes over devices that keep nothing.
fn index(o: &EngineOptions) -> Result<IndexFigure> {
    let before = resident()?;
    let mut cache = Nothing::of(o.index_cache);
    let mut none = Nothing::of(INDEX_CORE);
    let (engine, router) = start(&mut cache, &mut none, &format_options(o.index_cache, INDEX_CORE))?;
    drop(cache);
    let mut d = Driver::new(engine, router, ());
    let lines = d.engine.stats().cache_bytes / 4096;
    let fill = lines * 95 / 100;
    let span = INDEX_CORE / 4096;
    let payload = Buf::zeroed(4096).freeze();
    let stride = span / fill;
    d.drive(fill, 256, |i| {
        // Each block once, spread over the whole core, in scattered order.
        let at =
            (i.wrapping_mul(0x9E37_79B1) % fill.next_power_of_two()) % fill * stride + scatter(i, stride);
        request(ReqKind::Write(payload.clone()), at.min(span - 1) * 4096)
    })?;
    let grown = resident()?.saturating_sub(before);
    let per_line = |b: usize| b as f64 / lines as f64;
    // What a cache that has never evicted has not touched yet (the ghost) counts as well.
    let held: usize = d.engine.ram().iter().map(|(_, bytes)| bytes).sum();
    let grown = grown.max(held as u64);
    let ram = d.engine.ram().into_iter().map(|(what, b)| (what.to_string(), per_line(b))).collect();
    ensure!(d.engine.stats().occupied_bytes / 4096 > lines * 55 / 100, "the index did not fill");
    Ok((grown as f64 / lines as f64, lines, ram))
}
