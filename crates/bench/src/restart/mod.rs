//! Figure 5: a full cache comes back. A 64 GiB cache of 4 KiB lines, filled by the engine, is served, loaded with writes,
//! killed with SIGKILL under load and started again: when is the first read answered, and which lines still hit?

mod image;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::bed::{Bed, Place};
use crate::facts::Facts;
use crate::figure::{Figure, Runs};
use crate::fio::{self, Job, Rw};
use crate::interrupt::Interrupt;
use crate::nbd::Client;
use crate::rng::SplitMix64;
use crate::server::{Server, Volume};
use crate::table::Table;
use crate::units;
use crate::watch::Watch;
use image::Lines;

/// The mark for the first answer, seconds.
const ANSWER_S: f64 = 1.0;
/// The mark for the share of lines that still hit.
const KEPT: f64 = 0.99;

/// Disk space that loads may need beside the holes: journal and image, written lines, what is destaged of them.
const ROOM: u64 = 6 << 30;
/// Writes a second while the server is killed.
const LAST_WRITES: u32 = 2_000;

/// Three kills, 5 s of writes before each.
pub const RUNS: Runs = Runs::new(3, 5);

/// Bytes of the cache.
const CACHE: u64 = 64 << 30;
/// Bytes of the core.
const CORE: u64 = 1 << 40;
/// Lines read before and after each kill.
const SAMPLE: u64 = 20_000;

/// One kill and start.
#[derive(Serialize)]
struct Round {
    /// From the start of the process to the answer to the first read.
    answer_s: f64,
    /// From the signal, the end of the killed process included, to the same answer.
    answer_from_kill_s: f64,
    /// From the start of the process to its `ready`.
    ready_s: f64,
    /// Recovery's own words.
    said: String,
    /// Of the sampled lines, those that hit before the kill.
    hits_before: u64,
    /// Of the same lines, those that hit after the start.
    hits_after: u64,
}

impl Round {
    /// Lines that still hit over lines that hit before; at most 1, though a line that missed before may hit now, for the
    /// look at it was its second touch.
    fn kept(&self) -> f64 {
        (self.hits_after as f64 / self.hits_before.max(1) as f64).min(1.0)
    }
}

#[derive(Serialize)]
struct Restart {
    facts: Facts,
    /// Lines in the cache.
    lines: u64,
    /// Of the cache's data capacity, the part that they fill.
    full: f64,
    /// Lines read before and after each kill.
    sample: u64,
    rounds: Vec<Round>,
    /// Every first answer came within [`ANSWER_S`] of the start.
    in_time: bool,
    /// Every time at least [`KEPT`] of the lines still hit.
    warm: bool,
}

/// Runs it.
///
/// # Errors
/// Where the volume does not come back, or a run fails.
pub fn run(place: &Place, runs: Runs) -> Result<impl Figure> {
    let bed = Bed::new(place, ROOM)?;
    let core = bed.path("core");
    File::create_new(&core)?.set_len(CORE).context("a sparse core")?;
    let volume = Volume {
        stats: Some(bed.path("stats.json")),
        ..bed.volume("cache", CACHE, format!("file:{}", core.display()))
    };
    let mut args = volume.args();
    args.push("--sparse".to_owned());
    // The service makes the cache, as it would for a user; the engine fills it; the service takes it over.
    bed.end(bed.loligo("volume", &args)?)?;
    let begun = Instant::now();
    let mut next = 0;
    let lines = image::fill(&volume.cache, bed.stop(), |done, all| {
        if done * 10 / all >= next {
            next = done * 10 / all + 1;
            loligo_log::say!("filling the cache: {done} of {all} lines");
        }
    })?;
    loligo_log::say!("filled in {:.0} s", begun.elapsed().as_secs_f64());
    let mut test = Test {
        load: runs.time,
        bed: &bed,
        args: &args,
        lines,
        watch: Watch::new(&bed.path("stats.json")),
        socket: bed.path("volume.nbd"),
    };
    let mut server = bed.loligo("volume", &args)?;
    let first = bed.look(&mut test.watch)?;
    let full = first.occupied_bytes as f64 / first.cache_bytes as f64;
    let mut rounds = Vec::new();
    for number in 0..runs.rounds {
        let round;
        (server, round) = test.round(server, number as u64)?;
        loligo_log::say!(
            "kill {} of {}: answered after {:.2} s, {:.2} % of the lines still hit; {}",
            number + 1,
            runs.rounds,
            round.answer_s,
            round.kept() * 100.0,
            round.said
        );
        rounds.push(round);
    }
    bed.end(server)?;
    Ok(Restart {
        facts: bed.facts(),
        lines: lines.count,
        full,
        sample: SAMPLE,
        in_time: rounds.iter().all(|r| r.answer_s <= ANSWER_S),
        warm: rounds.iter().all(|r| r.kept() >= KEPT),
        rounds,
    })
}

struct Test<'a> {
    load: Duration,
    bed: &'a Bed,
    args: &'a [String],
    lines: Lines,
    watch: Watch,
    socket: PathBuf,
}

impl Test<'_> {
    /// Load, a look at the sample, a kill under load, a start, and a look at the same sample.
    fn round(&mut self, server: Server, number: u64) -> Result<(Server, Round)> {
        let mut writes = Job::new(server.target(), Rw::RandWrite, 4096, 32).lasting(self.load);
        writes.seed = 1 + number;
        self.bed.run(&writes)?;
        let hits_before = self.sample(number)?;
        // Few enough not to replace lines of the sample in numbers that count, and something is in flight at any moment.
        writes.rate_iops = Some(LAST_WRITES);
        writes.seed = 1_000 + number;
        let last = Background::start(writes, &self.socket)?;
        self.bed.stop().sleep(Duration::from_millis(1500))?;
        let killed = Instant::now();
        drop(server);
        drop(last);
        let at = self.lines.offset(0);
        let started = Instant::now();
        let first = first_answer(self.socket.clone(), at, self.bed.stop().clone());
        let server = self.bed.loligo("volume", self.args)?;
        let ready_s = started.elapsed().as_secs_f64();
        let answered = first.recv().context("nothing was answered")??;
        let hits_after = self.sample(number)?;
        let round = Round {
            answer_s: (answered - started).as_secs_f64(),
            answer_from_kill_s: (answered - killed).as_secs_f64(),
            ready_s,
            said: server
                .said()
                .lines()
                .find_map(|l| l.find("recovered ").map(|at| l[at..].to_owned()))
                .unwrap_or_default(),
            hits_before,
            hits_after,
        };
        Ok((server, round))
    }

    /// Reads the sample; how many of its lines hit.
    fn sample(&mut self, number: u64) -> Result<u64> {
        let before = self.bed.look(&mut self.watch)?;
        let mut client = Client::connect(&self.socket, "volume")?;
        let mut rng = SplitMix64::new(number);
        let mut block = vec![0; 4096];
        for i in 0..SAMPLE {
            if i % 1024 == 0 {
                self.bed.stop().check()?;
            }
            client.read(self.lines.offset(rng.below(self.lines.count)), &mut block)?;
        }
        let after = self.bed.look(&mut self.watch)?;
        let hits = after.read_hits - before.read_hits;
        let seen = hits + after.read_misses - before.read_misses;
        ensure!(seen == SAMPLE, "{seen} reads were counted, {} were made", SAMPLE);
        Ok(hits)
    }
}

/// Connects as soon as it can and reads one line; when that was answered.
fn first_answer(socket: PathBuf, at: u64, stop: Interrupt) -> mpsc::Receiver<Result<Instant>> {
    let (send, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let limit = Instant::now() + Duration::from_secs(120);
        loop {
            let read = Client::connect(&socket, "volume").and_then(|mut c| c.read(at, &mut [0; 4096]));
            let done = match read {
                Ok(()) => Ok(Instant::now()),
                Err(e) if Instant::now() > limit || stop.check().is_err() => Err(e),
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            // Whoever waited may have given up.
            let _ = send.send(done);
            return;
        }
    });
    answer
}

/// A load that is expected to fail with its server; dropping it ends it.
struct Background {
    stop: Interrupt,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Background {
    fn start(job: Job, socket: &Path) -> Result<Background> {
        let stop = Interrupt::default();
        let scratch = socket.parent().context("the socket's folder")?.to_owned();
        let flag = stop.clone();
        let thread = std::thread::spawn(move || {
            // The server is killed under it, so it ends with an error.
            let _ = fio::run(&job, &scratch, &flag, &mut |_| ());
        });
        Ok(Background { stop, thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Figure for Restart {
    fn table(&self) -> Table {
        let mut table = Table::new([
            "kill",
            "first answer",
            "from the kill",
            "ready",
            "hits before",
            "hits after",
            "lines kept",
        ]);
        let seconds = |s: f64| units::time(s * 1e9);
        for (i, r) in self.rounds.iter().enumerate() {
            table.row([
                (i + 1).to_string(),
                seconds(r.answer_s),
                seconds(r.answer_from_kill_s),
                seconds(r.ready_s),
                units::number(r.hits_before as f64),
                units::number(r.hits_after as f64),
                format!("{:.2} %", r.kept() * 100.0),
            ]);
        }
        let empty = String::new;
        let word = |met: bool| if met { "met" } else { "missed" };
        table.row([
            "mark".to_owned(),
            format!("{}: {}", seconds(ANSWER_S), word(self.in_time)),
            empty(),
            empty(),
            empty(),
            empty(),
            format!("{:.0} %: {}", KEPT * 100.0, word(self.warm)),
        ]);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(answer_s: f64, hits_after: u64) -> Round {
        Round {
            answer_s,
            answer_from_kill_s: answer_s,
            ready_s: answer_s,
            said: String::new(),
            hits_before: 1000,
            hits_after,
        }
    }

    #[test]
    fn a_start_that_forgets_lines_is_seen_in_what_is_kept() {
        assert_eq!(round(0.5, 1000).kept(), 1.0);
        assert_eq!(round(0.5, 989).kept(), 0.989);
        assert_eq!(round(0.5, 1001).kept(), 1.0);
    }
}
