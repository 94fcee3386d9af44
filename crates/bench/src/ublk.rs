//! What a volume costs beyond its transport: a ublk device over memory, bare and cached, beside one on the same transport that
//! answers every request at once. Alternated, with the processor time of each request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use loligo_block::{Answer, Buf, Reply, ReqKind, Ring, Shared};
use loligo_export::Export;
use loligo_export::blockdev::Name;
use loligo_export::ublk::{Device, Queue, Traits};
use serde::{Deserialize, Serialize};

use crate::bed::{Bed, Place, direct};
use crate::facts::Facts;
use crate::fio::{FileEngine, Job, Rw};
use crate::server::{Server, Volume, bare_args};
use crate::stats::{Ratio, median, pairs, ratio};
use crate::table::Table;
use crate::units;

/// How the comparison runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Program, folder, interrupt.
    pub place: Place,
    /// Size of the device, bytes.
    pub size: u64,
    /// Runs of each side.
    pub pairs: usize,
    /// Length of a run.
    pub time: Duration,
}

impl Options {
    /// A device of 64 MiB, five pairs of 5 s runs.
    pub fn new(place: Place) -> Options {
        Options { place, size: 64 << 20, pairs: 5, time: Duration::from_secs(5) }
    }
}

/// A file system in memory, so that nothing but the program takes time.
const MEMORY: &str = "/dev/shm";
/// In the user data of the null target's entries.
const MARK: u64 = 1 << 56;
const RING_ENTRIES: u32 = 256;
/// How soon the null target notices that it is to end.
const LOOK_NS: u64 = 50_000_000;

/// One load on one kind of volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The load in words.
    pub load: String,
    /// `bare` or `cached`.
    pub volume: String,
    /// Median requests per second.
    pub iops: f64,
    /// The null target's.
    pub null_iops: f64,
    /// The first over the second.
    pub ratio: Ratio,
    /// Processor microseconds of the service for each request.
    pub cpu_us: f64,
    /// Those of the null target's thread.
    pub null_cpu_us: f64,
}

/// The comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overhead {
    /// The machine.
    pub facts: Facts,
    /// One for each load and volume.
    pub rows: Vec<Row>,
}

/// Requests and processor time of a run.
#[derive(Debug, Clone, Copy)]
struct Cost {
    iops: f64,
    cpu_us: f64,
}

/// A device whose requests are answered at once.
struct Null {
    device: Option<Device>,
    path: PathBuf,
    task: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Null {
    fn start(size: u64) -> Result<Null> {
        let name = format!("null-{}", std::process::id());
        let mut export = Export::new(&name, size);
        export.rotational = false;
        let mut device =
            Device::claim(&name, Name::for_ublk(&name, &[])?, &Traits::new(&export, 4096, false), 1)?;
        let queue = device.queues()?.pop().context("a device has a queue")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (said, number) = channel();
        let ends = stop.clone();
        let thread = std::thread::Builder::new()
            .name("null".into())
            .spawn(move || answer_all(queue, &ends, &said))
            .context("the null target's thread")?;
        let task = number.recv().map_err(|_| anyhow!("the null target has no io_uring"))?;
        device.go_live(|| false)?;
        let path = device.path();
        Ok(Null { device: Some(device), path, task, stop, thread: Some(thread) })
    }

    fn times(&self) -> PathBuf {
        format!("/proc/self/task/{}/stat", self.task).into()
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        let Some(mut device) = self.device.take() else { return };
        device.let_go();
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        device.end();
    }
}

/// The transport of a volume's thread, and nothing behind it.
fn answer_all(mut queue: Queue, stop: &AtomicBool, said: &Sender<u32>) {
    let Ok(mut ring) = Ring::new(RING_ENTRIES) else { return };
    let _ = said.send(rustix::thread::gettid().as_raw_nonzero().get() as u32);
    let zeros: Shared = Buf::zeroed(1 << 20).freeze();
    let mut fired = Vec::new();
    queue.fetch(&mut ring, 0, MARK);
    while !stop.load(Ordering::Acquire) {
        if ring.submit_and_wait(1, Some(LOOK_NS)).is_err() {
            return;
        }
        ring.reap(|event| fired.push(event));
        for event in fired.drain(..) {
            let Some(request) = queue.fired(event) else { continue };
            let answer = match request.kind {
                ReqKind::Read => {
                    Answer::Data(std::iter::once(zeros.slice(0..request.len as usize)).collect())
                }
                _ => Answer::Done,
            };
            queue.answer(Reply { id: request.id, result: Ok(answer) });
        }
        queue.flush(&mut ring, MARK);
    }
}

/// Processor seconds that a process or thread has used.
fn used(stat: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(stat).with_context(|| stat.display().to_string())?;
    // The name in parentheses may hold blanks.
    let rest = text.rsplit_once(") ").context("an unknown form of /proc/PID/stat")?.1;
    let ticks: u64 = rest.split(' ').skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Runs it.
///
/// # Errors
/// Where there is no ublk, or a run fails.
pub fn run(opts: &Options) -> Result<Overhead> {
    let bed = Bed::in_folder(&opts.place, Path::new(MEMORY), opts.size * 4)?;
    let null = Null::start(opts.size)?;
    let core = bed.file("core", opts.size)?.display().to_string();
    let mut rows = Vec::new();
    for volume in ["bare", "cached"] {
        let name = format!("{volume}-{}", std::process::id());
        let mut args = if volume == "bare" {
            bare_args(&core)
        } else {
            // Everything fits: no destaging is waited for, only done.
            let cached = Volume {
                cache: bed.path("cache"),
                cache_bytes: opts.size * 2,
                core: core.clone(),
                mode: "wb",
                stats: None,
                flush_on_stop: false,
            };
            cached.args()
        };
        args.extend(["--listen".to_owned(), format!("ublk:{name}")]);
        let server = bed.loligo(volume, &args)?;
        let path = PathBuf::from("/dev/loligo").join(&name);
        for (load, rw, depth) in [
            ("4K random write qd1", Rw::RandWrite, 1),
            ("4K random write qd32", Rw::RandWrite, 32),
            ("4K random read qd1", Rw::RandRead, 1),
            ("4K random read qd32", Rw::RandRead, 32),
        ] {
            let job = |path: &Path, round: usize| {
                let mut job = Job::new(direct(path, FileEngine::IoUring), rw, 4096, depth).lasting(opts.time);
                job.seed = round as u64 + 1;
                job
            };
            let ours = |round| cost(&bed, &job(&path, round), &process(&server));
            let theirs = |round| cost(&bed, &job(&null.path, round), &null.times());
            rows.push(row(load, volume, &pairs(opts.pairs, ours, theirs)?));
        }
        bed.end(server)?;
    }
    Ok(Overhead { facts: bed.facts(), rows })
}

fn process(server: &Server) -> PathBuf {
    format!("/proc/{}/stat", server.id()).into()
}

fn cost(bed: &Bed, job: &Job, times: &Path) -> Result<Cost> {
    let before = used(times)?;
    let run = bed.run(job)?;
    let requests = run.iops * job.time.unwrap_or_default().as_secs_f64();
    Ok(Cost { iops: run.iops, cpu_us: (used(times)? - before) * 1e6 / requests.max(1.0) })
}

fn row(load: &str, volume: &str, all: &[(Cost, Cost)]) -> Row {
    let side = |pick: fn(&(Cost, Cost)) -> f64| median(&all.iter().map(pick).collect::<Vec<_>>());
    let iops: Vec<(f64, f64)> = all.iter().map(|(a, b)| (a.iops, b.iops)).collect();
    Row {
        load: load.to_owned(),
        volume: volume.to_owned(),
        iops: side(|pair| pair.0.iops),
        null_iops: side(|pair| pair.1.iops),
        ratio: ratio(&iops, 17),
        cpu_us: side(|pair| pair.0.cpu_us),
        null_cpu_us: side(|pair| pair.1.cpu_us),
    }
}

impl Overhead {
    /// One line per load and volume.
    pub fn table(&self) -> Table {
        let mut table =
            Table::new(["load", "volume", "IOPS", "null IOPS", "ratio", "95 %", "CPU us", "null CPU us"]);
        for row in &self.rows {
            table.row([
                row.load.clone(),
                row.volume.clone(),
                units::number(row.iops),
                units::number(row.null_iops),
                units::times(row.ratio.value),
                row.ratio.interval(),
                units::number(row.cpu_us),
                units::number(row.null_cpu_us),
            ]);
        }
        table
    }
}
