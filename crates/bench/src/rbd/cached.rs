//! The cached side: `loligo serve` in front of an image, and the states that it is measured in.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bed::Bed;
use crate::fio::{Job, Rw, Target};
use crate::server::{Server, Volume};
use crate::watch::{Stats, Watch};

/// Requests in flight while the cache is filled.
const FILL_DEPTH: u32 = 64;
/// Pieces of filling, each of as many bytes as the cache, after which it is as full as it gets.
const FILL_PIECES: u64 = 20;
/// Growth of the dirty share that a piece makes at least while the cache fills.
const GROWTH: f64 = 0.02;
/// Share of the steady dirty share at which it counts as reached again.
const NEARLY: f64 = 0.97;
/// OSDs write what they deferred after the answer; a client that comes next is not to pay for it.
const QUIET: Duration = Duration::from_secs(3);

/// A cached volume that is served.
pub(crate) struct Cached<'a> {
    bed: &'a Bed,
    server: Server,
    watch: Watch,
    name: &'static str,
    cache_bytes: u64,
    /// The steady dirty share, 0..=1, once it was seen.
    steady: Option<f64>,
    seed: u64,
}

impl<'a> Cached<'a> {
    /// Serves `core` through a new cache.
    pub(crate) fn start(
        bed: &'a Bed,
        name: &'static str,
        core: String,
        cache_bytes: u64,
        mode: &'static str,
        destage: Option<&str>,
    ) -> Result<Cached<'a>> {
        let stats = bed.path(&format!("{name}.json"));
        let cache = format!("{name}.cache");
        let volume = Volume { mode, stats: Some(stats.clone()), ..bed.volume(&cache, cache_bytes, core) };
        let mut args = volume.args();
        if let Some(way) = destage {
            args.extend(["--destage".to_owned(), way.to_owned()]);
        }
        let server = bed.loligo(name, &args)?;
        let watch = Watch::new(&stats);
        Ok(Cached { bed, server, watch, name, cache_bytes, steady: None, seed: 1000 })
    }

    /// Its address for fio.
    pub(crate) fn target(&self) -> Target {
        self.server.target()
    }

    /// The command that serves it.
    pub(crate) fn command(&self) -> &str {
        self.server.command()
    }

    /// Fails if the server is gone, with what it said.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.server.check()
    }

    /// Its statistics of this moment.
    pub(crate) fn stats(&mut self) -> Result<Stats> {
        self.check()?;
        serde_json::from_str(&self.ask(&["stats", self.name, "--json"])?).context("what 'loligo stats' says")
    }

    /// The course of its statistics, a look a second.
    pub(crate) fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        self.bed.ask(&self.bed.path(""), args)
    }

    /// Everything dirty is on the cluster, and stays so while nobody writes.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.ask(&["flush", self.name])?;
        let left = self.stats()?.dirty_bytes;
        ensure!(left == 0, "{left} bytes are dirty after 'loligo flush {}'", self.name);
        self.bed.stop().sleep(QUIET)?;
        Ok(())
    }

    /// Switches the mode, with everything dirty destaged.
    pub(crate) fn mode(&mut self, mode: &str) -> Result<()> {
        self.ask(&["mode", self.name, mode, "--flush"]).map(drop)
    }

    /// Drives it to the dirty share that random writes at depth 64 keep it at.
    pub(crate) fn fill(&mut self) -> Result<f64> {
        let (mut before, mut still) = (self.stats()?.dirty(), 0);
        for _ in 0..FILL_PIECES {
            if self.steady.is_some_and(|steady| before >= NEARLY * steady) {
                return Ok(before);
            }
            self.seed += 1;
            let mut job = Job::new(self.target(), Rw::RandWrite, 4096, FILL_DEPTH);
            // Once it was full, less is missing.
            job.total = Some(if self.steady.is_some() { self.cache_bytes / 4 } else { self.cache_bytes });
            job.seed = self.seed;
            self.bed.run(&job)?;
            let after = self.stats()?.dirty();
            still = if after < before + GROWTH { still + 1 } else { 0 };
            if self.steady.is_none() && still == 2 {
                self.steady = Some(after);
                return Ok(after);
            }
            before = after;
        }
        // It wavers: what it is now is as steady as it gets.
        self.steady = Some(before);
        Ok(before)
    }

    /// Processor time of the whole server so far, seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        crate::cpu::of_process(self.server.id())
    }

    /// Stops it with everything on the cluster, and removes the cache.
    pub(crate) fn end(mut self) -> Result<()> {
        self.flush()?;
        self.bed.end(self.server)?;
        let cache = self.bed.path(&format!("{}.cache", self.name));
        std::fs::remove_file(&cache).with_context(|| format!("removing {}", cache.display()))
    }
}
