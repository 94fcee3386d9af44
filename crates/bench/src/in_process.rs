//! A shard in this process, without any transport: what a write costs before NBD adds its hop.

use crate::drive::{request, scatter};
use crate::engine::format_options;
use crate::fio::{Latency, Measured};
use crate::interrupt::Interrupt;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use loligo_block::{
    Buf, CacheDevice, DeviceFile, DeviceSpec, OpenOptions as FileOptions, ReqKind, Request, SyncFile,
};
use loligo_engine::open::{self, Devices, OpenOptions};
use loligo_engine::params::Params;
use loligo_format::mode::Mode;
use loligo_shard::StandaloneShard;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

/// A write-back volume of one shard.
pub(crate) struct InProcess {
    shard: StandaloneShard,
    runs: u64,
}

impl InProcess {
    /// A new cache on the whole file `cache`, in front of `core`.
    pub(crate) fn new(cache: &Path, core: &DeviceSpec) -> Result<InProcess> {
        InProcess::on(DeviceFile::open(cache, &FileOptions::default())?.into(), u32::MAX, core)
    }

    /// A new cache on `cache`, of which `limit` slots are there, in front of `core`.
    pub(crate) fn on(cache: CacheDevice, limit: u32, core: &DeviceSpec) -> Result<InProcess> {
        let disk = DeviceFile::open(core.path(), &FileOptions::default())?;
        let (near, far) = (cache.geometry(), disk.geometry());
        let mut dev = cache.sync_io();
        let mut sb = open::format(&mut dev, &format_options(near.size, far.size))?;
        sb.layout.limit = limit;
        let options = OpenOptions { force: false, params: Params::default(), bug: None };
        let opened = open::open(&mut dev, &mut SyncFile::new(disk.clone()), sb, &options)?;
        let (sb, mut cores) = opened.into_engines(Mode::Wb, &options, &Devices::of(near, far));
        let volume = (sb.data_start, sb.data_length);
        let shard = StandaloneShard::new(cores.remove(0), cache, (core, disk), volume)?;
        Ok(InProcess { shard, runs: 0 })
    }

    /// Writes 4 KiB to random places of the first `span` bytes, `depth` at a time, for `time`.
    pub(crate) fn write(
        &mut self,
        depth: usize,
        span: u64,
        time: Duration,
        stop: &Interrupt,
    ) -> Result<Measured> {
        self.runs += 1;
        let mut histogram: Histogram<u64> =
            Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")?;
        let mut since = vec![Instant::now(); depth];
        let mut free: Vec<usize> = (0..depth).collect();
        let mut answers = Vec::with_capacity(depth);
        let (begun, mut sent, mut total) = (Instant::now(), 0u64, 0u64);
        loop {
            let over = begun.elapsed() >= time;
            if over && free.len() == depth {
                break;
            }
            stop.check()?;
            let mut requests = Vec::with_capacity(depth);
            while !over && let Some(id) = free.pop() {
                sent += 1;
                since[id] = Instant::now();
                let kind = ReqKind::Write(Buf::alloc(BLOCK as usize).freeze());
                let offset = scatter(self.runs << 40 | sent, span / BLOCK) * BLOCK;
                requests.push(Request { id: id as u64, ..request(kind, offset) });
            }
            self.shard.turn(requests.into_iter(), &mut answers)?;
            for reply in answers.drain(..) {
                ensure!(reply.result.is_ok(), "a write failed: {:?}", reply.result);
                let took = since[reply.id as usize].elapsed().as_nanos() as u64;
                histogram.saturating_record(took);
                total += took;
                free.push(reply.id as usize);
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let at = |q: f64| histogram.value_at_quantile(q);
        Ok(Measured {
            requests: sent,
            seconds,
            iops: sent as f64 / seconds,
            bytes_per_second: (sent * BLOCK) as f64 / seconds,
            latency: Latency {
                mean_ns: total as f64 / sent.max(1) as f64,
                p50_ns: at(0.5),
                p90_ns: at(0.9),
                p99_ns: at(0.99),
                p999_ns: at(0.999),
                max_ns: histogram.max(),
            },
            ..Measured::default()
        })
    }

    /// Waits until nothing is dirty any more.
    pub(crate) fn drain(&mut self, limit: Duration, stop: &Interrupt) -> Result<()> {
        let begun = Instant::now();
        while self.shard.stats().dirty_bytes > 0 {
            stop.check()?;
            ensure!(begun.elapsed() < limit, "the cache did not drain within {} s", limit.as_secs());
            self.shard.turn(std::iter::empty(), &mut Vec::new())?;
        }
        Ok(())
    }
}
