//! From an opened volume to running threads, and back.

use crate::clients::{Clients, Leases};
use crate::devices::MOST;
use crate::engine_setup::{self, EngineSetup};
use crate::message::{Command, Handle, ThreadMailbox};
use crate::reactor::{Driver, Reactor};
use loligo_block::{CacheDevice, CoreFile, DevId, Device, DeviceSpec, IoError, IoKind, Ring};
use loligo_engine::Engine;
use loligo_export::{Export, Limits, Listener, Server, TlsContext};
use loligo_format::mode::Mode;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Submissions the ring takes per system call.
pub(crate) const RING_ENTRIES: u32 = 256;
pub(crate) const CORE_ID: DevId = DevId(0);

/// The cache as one of a thread's engines has it, by its place among them.
pub(crate) fn cache_id(engine: usize) -> DevId {
    DevId(1 + engine as u16)
}

/// All that caches may have.
pub(crate) fn cache_ids() -> impl Iterator<Item = DevId> {
    (0..MOST).flat_map(|engine| CacheDevice::ids(cache_id(engine)))
}

/// The server of a volume's clients.
#[derive(Debug)]
pub enum Backend {
    /// A cache: one engine per shard. Each has a thread; over a core that belongs to one thread they have that one.
    Cached {
        /// The open cache device.
        cache: CacheDevice,
        /// The shards, recovered.
        engines: Vec<Engine>,
        /// First byte of the core that is exported.
        data_start: u64,
    },
    /// Nothing: the core is exported as it is.
    Uncached,
}

/// The place of a volume's core.
pub enum CoreSource {
    /// In a file or on a block device, which each thread reaches for itself.
    File(DeviceSpec, CoreFile),
    /// Behind a device that one thread must have to itself.
    Device(Box<dyn Device + Send>),
}

impl std::fmt::Debug for CoreSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CoreSource::File(spec, _) => spec.fmt(f),
            CoreSource::Device(d) => d.geometry().fmt(f),
        }
    }
}

/// A volume, ready to run.
#[derive(Debug)]
pub struct Plan {
    /// The export that clients see.
    pub export: Export,
    /// The most that they may hold, all threads together.
    pub limits: Limits,
    /// With it, nothing but TLS is served.
    pub tls: Option<TlsContext>,
    /// The listeners that they come from.
    pub listeners: Vec<Listener>,
    /// The slow device.
    pub core: CoreSource,
    /// Answers leave only while they hold.
    pub leases: Leases,
    /// Cached or not.
    pub backend: Backend,
}

/// The state in which a shard was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Its last journal frame.
    pub last_seq: u64,
    /// Dirty blocks.
    pub dirty_blocks: u64,
    /// Its mode.
    pub mode: Mode,
}

/// The last word of a thread.
#[derive(Debug)]
struct Last {
    result: Result<Vec<Ended>, IoError>,
    /// It stays until a device answers that nobody waits for, since the kernel may reach its buffers until then.
    stays: bool,
}

/// See [`Ring::outlive`]; set by the thread once it has a ring.
type Outlives = Arc<OnceLock<OwnedFd>>;

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    /// The things that must outlive its ring, in whatever way it ends.
    ring: Outlives,
    last: Receiver<Last>,
}

/// The threads of a volume.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    threads: Vec<Thread>,
}

impl Running {
    /// The handle to talk to the threads.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// True if a thread has ended by itself; [`Running::join`] says why.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(|thread| thread.handle.is_finished())
    }

    /// Ends the threads and waits for them, but not for devices that were abandoned. The result is the state
    /// in which each shard was left; nothing for a bare volume.
    ///
    /// # Errors
    /// If one fails; the error is that of the first.
    pub fn join(mut self) -> Result<Vec<Ended>, IoError> {
        let (result, staying) = self.end();
        staying.wait_elsewhere();
        result
    }

    /// Ends the threads and waits until they do nothing more by themselves. The result has those that stay until the kernel has
    /// nothing of their devices. Failures are of no use to whoever is not to write any more.
    pub fn end_now(mut self) -> Staying {
        self.end().1
    }

    fn end(&mut self) -> (Result<Vec<Ended>, IoError>, Staying) {
        drop(self.handle.send_all(|| Command::End));
        let mut ended = Vec::new();
        let mut result = Ok(());
        let mut staying = Staying(Vec::new());
        for thread in std::mem::take(&mut self.threads) {
            let last = thread.last.recv();
            let panicked = match &last {
                Ok(Last { stays: true, .. }) => {
                    staying.0.push(thread);
                    false
                }
                Ok(_) | Err(_) => thread.handle.join().is_err(),
            };
            match last {
                Ok(Last { result: Ok(end), .. }) if !panicked => ended.extend(end),
                Ok(Last { result: Err(e), .. }) => result = result.and(Err(e)),
                Ok(_) | Err(_) => {
                    result = result.and(Err(IoError::new(IoKind::Io, "a thread of the volume panicked")))
                }
            }
        }
        (result.map(|()| ended), staying)
    }
}

/// Threads of a volume that has ended, which stay until the kernel has nothing of their devices.
#[derive(Debug)]
pub struct Staying(Vec<Thread>);

impl Staying {
    /// Waits for them, however long that takes.
    pub fn wait(self) {
        for thread in self.0 {
            let _ = thread.handle.join();
            drop(thread.ring);
        }
    }

    /// The same in the background.
    fn wait_elsewhere(self) {
        if !self.0.is_empty() {
            let joins = std::thread::Builder::new().name("joiner".into());
            let _ = joins.spawn(move || self.wait());
        }
    }
}

impl Drop for Running {
    /// However whoever had them came to let go of them, a panic among that: nobody is served without somebody who looks after it.
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.end().1.wait_elsewhere();
        }
    }
}

/// The things that one thread starts with.
struct Seat {
    me: usize,
    export: Export,
    limits: Limits,
    tls: Option<TlsContext>,
    listeners: Vec<Listener>,
    leases: Leases,
    setup: EngineSetup,
    boxes: Arc<[ThreadMailbox]>,
}

/// Starts the threads; returns when all of them serve.
///
/// # Errors
/// If a thread or its ring cannot be had.
pub fn start(plan: Plan) -> Result<Running, IoError> {
    let shards = match (&plan.backend, &plan.core) {
        (Backend::Uncached, _) | (_, CoreSource::Device(_)) => 1,
        (Backend::Cached { engines, .. }, CoreSource::File(..)) => engines.len(),
    };
    let setups =
        engine_setup::all(plan.core, plan.backend, shards, (plan.export.size, plan.export.min_block))?;
    let boxes: Vec<ThreadMailbox> = (0..shards).map(|_| ThreadMailbox::new()).collect::<Result<_, _>>()?;
    let boxes: Arc<[ThreadMailbox]> = boxes.into();
    let limits = Limits {
        server_bytes: plan.limits.server_bytes / shards as u64,
        connections: plan.limits.connections.div_ceil(shards),
        ..plan.limits
    };
    let mut listeners = plan.listeners;
    let mut threads = Vec::new();
    let (started, starts) = channel();
    for (me, setup) in setups.into_iter().enumerate() {
        let seat = Seat {
            me,
            export: plan.export.clone(),
            limits: limits.clone(),
            tls: plan.tls.clone(),
            listeners: std::mem::take(&mut listeners),
            leases: plan.leases.clone(),
            setup,
            boxes: boxes.clone(),
        };
        let (started, (says, last)) = (started.clone(), channel());
        let ring = Outlives::default();
        let outlives = ring.clone();
        let handle = std::thread::Builder::new()
            .name(format!("shard-{me}"))
            .spawn(move || run(seat, &started, &says, &outlives));
        let handle = handle.map_err(|e| IoError::new(IoKind::Io, format!("starting a thread: {e}")))?;
        threads.push(Thread { handle, ring, last });
    }
    drop(started);
    let running = Running { handle: Handle::new(boxes), threads };
    if starts.iter().take(shards).count() < shards {
        // One has ended without saying that it runs: joining says why.
        return Err(running
            .join()
            .err()
            .unwrap_or_else(|| IoError::new(IoKind::Io, "a thread did not start")));
    }
    Ok(running)
}

fn ended(core: &Engine) -> Ended {
    Ended { last_seq: core.last_seq(), dirty_blocks: core.dirty_blocks(), mode: core.mode() }
}

fn run(seat: Seat, started: &Sender<()>, says: &Sender<Last>, outlives: &OnceLock<OwnedFd>) {
    let say = |result, stays| {
        // Nobody may be waiting any more.
        let _ = says.send(Last { result, stays });
    };
    let ring = match Ring::new(RING_ENTRIES) {
        Ok(ring) => ring,
        Err(why) => return say(Err(why), false),
    };
    match ring.outlive() {
        Ok(fd) => drop(outlives.set(fd)),
        Err(why) => {
            return say(Err(IoError::new(IoKind::Io, format!("a thread's ring: {why}"))), false);
        }
    }
    let engine = seat.setup.make(&seat.boxes);
    let server = Server::new(seat.export, seat.limits, seat.tls);
    let clients = Clients::new(server, seat.leases);
    let mut reactor = Reactor::new(seat.me, ring, clients, engine, seat.boxes, seat.listeners);
    let _ = started.send(());
    let result = reactor.run().map(|()| match &reactor.engine {
        Driver::Uncached(_) => Vec::new(),
        Driver::Cached(e) => e.engines().iter().map(ended).collect(),
    });
    if result.is_ok() && reactor.ring.in_flight() > 0 {
        // A leg of a mirror that was left has still to answer: nobody waits for it.
        cache_ids().for_each(|id| reactor.ring.disown(id, "the volume has ended"));
    }
    let stays = reactor.ring.has_orphans();
    if stays {
        reactor.leave();
    }
    say(result, stays);
}
