//! The client: an open loop of 4 KiB reads and writes on images and volumes, each checked against what its block may hold.
//!
//! An operation is due at a fixed time, whatever became of those before it, and its time counts from then.

use super::ledger::Ledger;
use super::op::{Op, READY, Report, STOP};
use super::stamp::BLOCK;
use super::target::Target;
use super::volume::VolumeAddress;
use anyhow::{Context, Result, bail, ensure};
use loligo_ceph::spec::ImageSpec;
use loligo_log::{flush_output, out, outln};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Of so many operations as the second number, the first are reads.
const READS: [u64; 2] = [3, 10];
/// Writes at a time while the images are written.
const DEPTH: usize = 32;
/// The time that images have to be written.
const FILL: Duration = Duration::from_secs(120);
/// The time that outstanding operations have to end once the load has.
const PATIENCE: Duration = Duration::from_secs(150);
/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(5);
/// Errors that are told in words.
const WORDS: usize = 8;

/// The client's load.
#[derive(Debug, clap::Args)]
pub struct Load {
    /// The images, POOL/IMAGE
    #[arg(long = "image", value_name = "IMAGE", required_unless_present = "volumes")]
    images: Vec<ImageSpec>,
    /// The volumes by NBD, ADDRESS:PORT[/EXPORT]; they are numbered after the images
    #[arg(long = "volume", value_name = "ADDRESS")]
    volumes: Vec<VolumeAddress>,
    /// Operations a second on each
    #[arg(long, default_value_t = 30)]
    rate: u32,
    /// The number that choices and contents come from
    #[arg(long)]
    seed: u64,
}

/// The time, as the kernel's clock had it when the client began and counted on since: it never jumps.
#[derive(Debug, Clone, Copy)]
struct Clock {
    began: Instant,
    began_ms: f64,
}

impl Clock {
    fn new() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { began: Instant::now(), began_ms: since.as_secs_f64() * 1e3 }
    }

    fn ms(&self, at: Instant) -> f64 {
        self.began_ms + at.saturating_duration_since(self.began).as_secs_f64() * 1e3
    }
}

/// Operations by the time at which they were due.
#[derive(Debug, Default)]
struct Ops {
    next: u64,
    outstanding: BTreeMap<u64, (bool, Instant)>,
    ended: Vec<Op>,
}

/// The load on one image or volume.
#[derive(Debug)]
struct Lane {
    number: usize,
    target: Target,
    clock: Clock,
    ledger: Mutex<Ledger>,
    ops: Mutex<Ops>,
    errors: Mutex<Vec<String>>,
}

impl Lane {
    fn open(number: usize, (target, bytes): (Target, u64), seed: u64, clock: Clock) -> Result<Arc<Lane>> {
        let blocks = bytes / BLOCK as u64;
        ensure!(blocks > 0, "number {number} of what is written to is smaller than a block");
        let ledger = Ledger::new(seed, number as u64, blocks);
        Ok(Arc::new(Lane {
            number,
            target,
            clock,
            ledger: Mutex::new(ledger),
            ops: Mutex::default(),
            errors: Mutex::default(),
        }))
    }

    /// Writes every block that is used, so that nothing of an earlier run is left there.
    fn fill(self: &Arc<Lane>) -> Result<()> {
        let left = Arc::new(());
        let begun = Instant::now();
        let count = self.ledger.lock().len();
        for spot in 0..=count {
            let most = if spot < count { DEPTH } else { 0 };
            while Arc::strong_count(&left) > 1 + most {
                ensure!(
                    begun.elapsed() < FILL,
                    "number {} is not written after {} s",
                    self.number,
                    FILL.as_secs()
                );
                std::thread::sleep(LOOK / 5);
            }
            if spot == count {
                break;
            }
            let (writing, block, content) = self.ledger.lock().begin_write_to(spot);
            let (lane, token) = (self.clone(), left.clone());
            let done = move |result: Result<(), String>| {
                lane.ledger.lock().end_write(writing, result.is_ok());
                if let Err(why) = &result {
                    lane.note(why);
                }
                drop(token);
            };
            self.target.begin_write(block * BLOCK as u64, content, Box::new(done));
        }
        let counts = &mut self.ledger.lock().counts;
        if counts.errors > 0 {
            bail!(
                "{} writes of {count} failed before the load: {}",
                counts.errors,
                self.errors.lock().join("; ")
            );
        }
        *counts = super::ledger::Counts::default();
        Ok(())
    }

    fn note(&self, why: &str) {
        let mut errors = self.errors.lock();
        if errors.len() < WORDS {
            errors.push(why.to_owned());
        }
    }

    /// Begins operations as they are due, until `stop`.
    fn drive(self: &Arc<Lane>, rate: u32, stop: &AtomicBool) {
        let gap = Duration::from_secs(1) / rate.max(1);
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if due > now {
                std::thread::sleep((due - now).min(LOOK));
                continue;
            }
            self.begin(due);
            due += gap;
        }
    }

    fn begin(self: &Arc<Lane>, due: Instant) {
        let write = self.ledger.lock().dice(READS[1]) >= READS[0];
        let op = {
            let mut ops = self.ops.lock();
            let op = ops.next;
            ops.next += 1;
            ops.outstanding.insert(op, (write, due));
            op
        };
        let lane = self.clone();
        if !write {
            let (reading, block) = self.ledger.lock().begin_read();
            let done = move |result: Result<Vec<u8>, String>| {
                lane.ended(op);
                if let Err(why) = &result {
                    lane.note(why);
                }
                lane.ledger.lock().end_read(reading, result.as_deref().ok());
            };
            return self.target.begin_read(block * BLOCK as u64, BLOCK, Box::new(done));
        }
        let (writing, block, content) = loop {
            let begun = self.ledger.lock().begin_write();
            match begun {
                Some(begun) => break begun,
                // Each block waits for a write. This one waits too: it is outstanding since it was due.
                None if due.elapsed() > PATIENCE => return,
                None => std::thread::sleep(LOOK),
            }
        };
        let done = move |result: Result<(), String>| {
            lane.ended(op);
            if let Err(why) = &result {
                lane.note(why);
            }
            lane.ledger.lock().end_write(writing, result.is_ok());
        };
        self.target.begin_write(block * BLOCK as u64, content, Box::new(done));
    }

    fn ended(&self, op: u64) {
        let now = Instant::now();
        let mut ops = self.ops.lock();
        if let Some((write, due)) = ops.outstanding.remove(&op) {
            let ended = self.op(write, due, now);
            ops.ended.push(ended);
        }
    }

    fn op(&self, write: bool, due: Instant, until: Instant) -> Op {
        let took_ms = until.saturating_duration_since(due).as_secs_f64() * 1e3;
        Op { image: self.number, write, due_ms: self.clock.ms(due), took_ms }
    }

    /// Waits for what is outstanding, then reads every block. Operations that do not end count with their age.
    fn finish(&self) {
        let begun = Instant::now();
        while !self.ops.lock().outstanding.is_empty() && begun.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        let now = Instant::now();
        let mut ops = self.ops.lock();
        let stuck: Vec<Op> =
            ops.outstanding.values().map(|(write, due)| self.op(*write, *due, now)).collect();
        ops.outstanding.clear();
        let count = stuck.len() as u64;
        ops.ended.extend(stuck);
        drop(ops);
        self.ledger.lock().counts.stuck = count;
        if count > 0 {
            // A read of such a block would wait as well.
            return self.note("the blocks were not read back: operations did not end");
        }
        let spots = self.ledger.lock().len();
        for spot in 0..spots {
            let block = self.ledger.lock().place(spot);
            let read = self.target.read(block * BLOCK as u64, BLOCK);
            if let Err(why) = &read {
                self.note(why);
            }
            self.ledger.lock().read_back(spot, read.as_deref().ok());
        }
    }
}

/// Runs the load until standard input says so or ends; its report goes to standard output.
///
/// # Errors
/// If an image or volume cannot be opened or written at the beginning.
pub fn serve(load: &Load) -> Result<()> {
    let clock = Clock::new();
    let images = load.images.iter().map(Target::image);
    let targets = images.chain(load.volumes.iter().map(Target::volume)).enumerate();
    let open = |(number, target): (usize, Result<_>)| Lane::open(number, target?, load.seed, clock);
    let lanes: Vec<Arc<Lane>> = targets.map(open).collect::<Result<_>>()?;
    for result in each(&lanes, |lane| lane.fill()) {
        result?;
    }
    outln!("{READY}");
    flush_output();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        for lane in &lanes {
            scope.spawn(|| lane.drive(load.rate, &stop));
        }
        let mut line = String::new();
        while line.trim() != STOP {
            line.clear();
            if std::io::stdin().lock().read_line(&mut line).context("reading the order to stop")? == 0 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    each(&lanes, |lane| lane.finish());
    let mut report = Report { ops: Vec::new(), counts: Vec::new(), errors: Vec::new() };
    for lane in &lanes {
        report.ops.append(&mut lane.ops.lock().ended);
        report.counts.push(lane.ledger.lock().counts);
        report.errors.append(&mut lane.errors.lock());
    }
    out!("{}\n", serde_json::to_string(&report)?);
    flush_output();
    if report.counts.iter().any(|counts| counts.stuck > 0) {
        // Closing an image waits for what is under way.
        std::process::exit(0);
    }
    Ok(())
}

fn each<T: Send>(lanes: &[Arc<Lane>], what: impl Fn(&Arc<Lane>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let all: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| what(lane))).collect();
        all.into_iter().map(|one| one.join().expect("the thread of a lane")).collect()
    })
}
