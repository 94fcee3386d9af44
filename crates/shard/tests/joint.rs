//! Claims about the shards of a volume that one thread has: they serve as one, and a freeze is one moment of all of them.

use loligo_block::{
    Answer, Buf, CacheDevice, Completion, Device, DeviceFile, Geometry, Op, OpKind,
    OpenOptions as FileOptions, RamDevice, ReqError, ReqKind, Request, Ring, Submit, SyncFile, SyncIo,
};
use loligo_engine::Engine;
use loligo_engine::api::Control;
use loligo_engine::open::{self, Devices, FormatOptions, OpenOptions};
use loligo_engine::params::Params;
use loligo_export::{Export, Limits, Volume};
use loligo_format::mode::Mode;
use loligo_format::superblock::{CoreIdentity, Superblock};
use loligo_shard::{Backend, Command, CoreSource, Handle, Leases, Plan, Response, Running, start};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MIB: u64 = 1 << 20;
const CORE: u64 = 48 * MIB;
const SHARDS: u16 = 3;
/// Exponent of the windows in a stripe.
const STRIPE: u8 = 1;
const LONG: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(200);
/// Blocks written in turn, each in another stripe.
const PLACES: u64 = 24;

/// Memory that others can look into. Changes of the stripes of those shards whose bits are set are not over until none is.
struct Seen {
    ram: Arc<Mutex<RamDevice>>,
    stuck: Arc<AtomicU64>,
    held: Vec<Op>,
}

impl Seen {
    fn is_stuck(&self, op: &Op) -> bool {
        let at = match &op.kind {
            OpKind::Write { .. } | OpKind::WriteZeroes { .. } | OpKind::Discard { .. } => op.offset,
            OpKind::WriteMany(pieces) => pieces[0].0,
            _ => return false,
        };
        self.stuck.load(Ordering::Relaxed) >> owner(at) & 1 == 1
    }
}

impl Device for Seen {
    fn geometry(&self) -> Geometry {
        self.ram.lock().expect("memory").geometry()
    }
    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        if self.is_stuck(&op) {
            self.held.push(op);
            return Submit::Taken;
        }
        self.ram.lock().expect("memory").submit(ring, now, op)
    }
    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        let mut ram = self.ram.lock().expect("memory");
        if self.stuck.load(Ordering::Relaxed) == 0 {
            for op in self.held.drain(..) {
                let Submit::Finished(c) = ram.submit(ring, now, op) else { panic!("memory does it at once") };
                out.push(c);
            }
        }
        ram.poll(ring, now, out);
    }
    fn next_deadline(&self) -> Option<u64> {
        // Looks again every millisecond or so.
        (!self.held.is_empty()).then_some(1)
    }
    fn in_flight(&self) -> usize {
        self.held.len()
    }
}

/// The shard that has the byte at `offset`.
fn owner(offset: u64) -> u64 {
    (offset / (MIB << STRIPE)) % u64::from(SHARDS)
}

/// The place of the write with this number: each to the shard after the one before.
fn place(n: u64) -> u64 {
    (n % PLACES) * (MIB << STRIPE)
}

struct Rig {
    dir: std::path::PathBuf,
    cache: DeviceFile,
    ram: Arc<Mutex<RamDevice>>,
    stuck: Arc<AtomicU64>,
    running: Option<Running>,
}

impl Rig {
    fn new(name: &str) -> Rig {
        let dir = std::env::temp_dir().join(format!("loligo-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let path = dir.join("cache");
        let _ = std::fs::remove_file(&path);
        let cache = DeviceFile::create(&path, 64 * MIB, &FileOptions::default()).expect("a file");
        let format = FormatOptions {
            uuid: [7; 16],
            name: "t".into(),
            cache_size: 64 * MIB,
            core: CoreIdentity { size: CORE, id: String::new() },
            line_size: 4096,
            shards: SHARDS,
            stripe: STRIPE,
            mode: Mode::Wb,
            core_reserve: 0,
            journal_len: 0,
        };
        open::format(&mut SyncFile::new(cache.clone()), &format).expect("format");
        let ram = Arc::new(Mutex::new(RamDevice::new(CORE).expect("memory")));
        let mut rig = Rig { dir, cache, ram, stuck: Arc::default(), running: None };
        rig.start();
        rig
    }

    /// Serves what the cache holds. Clients of the life before are not asked.
    fn start(&mut self) {
        let device = Seen { ram: self.ram.clone(), stuck: self.stuck.clone(), held: Vec::new() };
        let plan = Plan {
            export: Export::new("vol", CORE),
            limits: Limits::default(),
            tls: None,
            listeners: Vec::new(),
            core: CoreSource::Device(Box::new(device)),
            leases: Leases::default(),
            backend: Backend::Cached {
                cache: CacheDevice::from(self.cache.clone()),
                engines: self.recovered(),
                data_start: 0,
            },
        };
        self.running = Some(start(plan).expect("a thread"));
    }

    fn recovered(&self) -> Vec<Engine> {
        let mut cache = SyncFile::new(self.cache.clone());
        let options = OpenOptions { force: false, params: Params::default(), bug: None };
        let sb = Superblock::load(&mut cache).expect("superblock");
        let devices =
            Devices { cache_volatile: true, core_volatile: true, core_groups: true, ..Devices::PLAIN };
        let mut ram = self.ram.lock().expect("memory");
        open::open(&mut cache, &mut *ram, sb, &options)
            .expect("open")
            .into_engines(Mode::Wb, &options, &devices)
            .1
    }

    fn handle(&self) -> Handle {
        self.running.as_ref().expect("it runs").handle().clone()
    }

    /// The number of the write that the core holds at the place of number `n`.
    fn on_core(&self, n: u64) -> u64 {
        let mut raw = [0; 8];
        let mut block = [0; 4096];
        self.ram.lock().expect("memory").read_at(place(n), &mut block).expect("readable");
        raw.copy_from_slice(&block[..8]);
        u64::from_le_bytes(raw)
    }

    fn end(mut self) {
        self.running.take().expect("it runs").join().expect("a clean end");
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn ask(handle: &Handle, kind: ReqKind, offset: u64, len: u64) -> Result<Answer, ReqError> {
    let (send, answer) = channel();
    let request = Request { id: 0, kind, offset, len, fua: false };
    let answered = move |result: Result<Answer, ReqError>| {
        let _ = send.send(result);
    };
    handle.local(0).ask(request, Box::new(answered));
    answer.recv_timeout(LONG).expect("an answer")
}

/// Write number `n`.
fn write(handle: &Handle, n: u64) {
    let mut data = [0; 4096];
    data[..8].copy_from_slice(&n.to_le_bytes());
    ask(handle, ReqKind::Write(Buf::copy_of(&data).freeze()), place(n), 4096).expect("a write");
}

/// The newest number at the place of number `n`.
fn read(handle: &Handle, n: u64) -> u64 {
    match ask(handle, ReqKind::Read, place(n), 4096).expect("a read") {
        Answer::Data(pieces) => u64::from_le_bytes(pieces[0][..8].try_into().expect("8 bytes")),
        _ => panic!("no data"),
    }
}

/// The newest write up to `last` at the place of `n`.
fn newest(n: u64, last: u64) -> u64 {
    let behind = (last + PLACES - n % PLACES) % PLACES;
    last.saturating_sub(behind)
}

#[test]
fn a_freeze_is_one_moment_of_all_shards() {
    let rig = Rig::new("one-moment");
    let (handle, done) = (rig.handle(), Arc::new(AtomicU64::new(0)));
    let over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (handle, done, over) = (handle.clone(), done.clone(), over.clone());
        std::thread::spawn(move || {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                n += 1;
                write(&handle, n);
                done.store(n, Ordering::SeqCst);
            }
            n
        })
    };
    for round in 0..20 {
        while done.load(Ordering::SeqCst) < PLACES * (round + 2) {
            std::thread::yield_now();
        }
        let before = done.load(Ordering::SeqCst);
        handle.control(&Control::Freeze).expect("a moment");
        let moment: Vec<u64> = (0..PLACES).map(|n| rig.on_core(n)).collect();
        let last = *moment.iter().max().expect("places");
        assert!(last >= before, "write {before} was answered, and {last} is the last: {moment:?}");
        for n in 0..PLACES {
            assert_eq!(moment[n as usize], newest(n, last), "round {round}, place {n}: {moment:?}");
        }
        // It stays as it is while clients go on.
        while done.load(Ordering::SeqCst) < last + PLACES {
            std::thread::yield_now();
        }
        assert_eq!((0..PLACES).map(|n| rig.on_core(n)).collect::<Vec<_>>(), moment);
        handle.control(&Control::Thaw).expect("an end");
    }
    over.store(true, Ordering::Relaxed);
    let last = writer.join().expect("a writer");
    handle.control(&Control::FlushDirty).expect("a flush");
    for n in 0..PLACES {
        assert_eq!(rig.on_core(n), newest(n, last), "place {n}");
    }
    rig.end();
}

#[test]
fn a_freeze_that_one_shard_holds_up_is_thawed_in_all() {
    let rig = Rig::new("thawed");
    let handle = rig.handle();
    (1..=PLACES).for_each(|n| write(&handle, n));
    rig.stuck.store(0b010, Ordering::Relaxed);
    let frozen = handle.send(0, Command::Control(Control::Freeze));
    assert!(frozen.recv_timeout(MOMENT).is_err(), "one shard is not there yet");
    assert_eq!(rig.on_core(0), PLACES, "another is");
    // Both are frozen: the newest of neither goes to the core.
    (PLACES + 1..=2 * PLACES).for_each(|n| write(&handle, n));
    handle.control(&Control::Thaw).expect("an end");
    assert!(matches!(frozen.recv_timeout(LONG), Ok(Response::Done(Err(_)))), "whoever waited is told");
    rig.stuck.store(0, Ordering::Relaxed);
    handle.control(&Control::FlushDirty).expect("all of them go on");
    (PLACES + 1..=2 * PLACES).for_each(|n| assert_eq!(rig.on_core(n), n));
    rig.end();
}

#[test]
fn dirty_data_of_all_shards_outlives_a_crash() {
    let mut rig = Rig::new("outlives");
    rig.stuck.store(0b111, Ordering::Relaxed);
    let handle = rig.handle();
    (1..=PLACES).for_each(|n| write(&handle, n));
    ask(&handle, ReqKind::Flush, 0, 0).expect("a flush");
    // A request over a border is one: its parts are two shards'.
    let border = MIB << STRIPE;
    let data = Buf::copy_of(&[9; 8192]).freeze();
    ask(&handle, ReqKind::Write(data), border - 4096, 8192).expect("a write over a border");
    // Ended without a stop, as by a kill.
    let ended = rig.running.take().expect("it runs").join().expect("an end");
    assert_eq!(ended.len(), usize::from(SHARDS));
    assert!(ended.iter().all(|e| e.dirty_blocks > 0), "{ended:?}");
    assert!((0..PLACES).all(|n| rig.on_core(n) == 0));
    rig.start();
    let handle = rig.handle();
    for n in 1..=PLACES {
        let want = if place(n) == border { u64::from_le_bytes([9; 8]) } else { n };
        assert_eq!(read(&handle, n), want, "place {n}");
    }
    assert_eq!(handle.snapshots().len(), usize::from(SHARDS));
    rig.end();
}
