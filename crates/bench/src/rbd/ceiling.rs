//! The ceiling for any cache on this machine: a raw O_DIRECT access to the file system that holds the cache, plus the hop of an NBD
//! server that keeps its data in memory.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::{Bench, Cell};
use crate::bed::direct;
use crate::fio::{FileEngine, Measured};
use crate::server::Server;

/// Both parts.
pub(crate) struct Ceiling {
    raw: PathBuf,
    hop: Server,
}

/// One measurement of both.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) raw: Measured,
    pub(crate) hop: Measured,
}

impl Parts {
    /// Mean latency of both together, nanoseconds.
    pub(crate) fn mean_ns(&self) -> f64 {
        self.raw.latency.mean_ns + self.hop.latency.mean_ns
    }
}

impl Ceiling {
    /// A file of `bytes`, and a server of as many.
    pub(crate) fn new(bench: &Bench<'_>, bytes: u64) -> Result<Ceiling> {
        let raw = bench.bed.file("raw", bytes)?;
        let hop = bench.bed.nbdkit("memory", &["memory", &format!("size={bytes}")])?;
        Ok(Ceiling { raw, hop })
    }

    /// The load on both, one after the other.
    pub(crate) fn measure(&self, bench: &Bench<'_>, cell: &Cell, round: usize) -> Result<Parts> {
        let of = |target, side: &str| -> Result<Measured> {
            let run = bench.bed.run(&cell.job(target, Duration::ZERO, bench.record.seed()))?;
            bench.record.tell(&cell.what, side, round, &run);
            Ok(run)
        };
        let raw = of(direct(&self.raw, FileEngine::IoUring), "raw cache file")?;
        let hop = of(self.hop.target(), "NBD memory")?;
        Ok(Parts { raw, hop })
    }

    /// Removes both.
    pub(crate) fn end(self, bench: &Bench<'_>) -> Result<()> {
        bench.bed.end(self.hop)?;
        Ok(std::fs::remove_file(&self.raw)?)
    }
}
