//! `loligo serve`: one volume in the foreground, from its options to its end.

use crate::app::{App, Info};
use crate::core::Backing;
pub use crate::core::CoreSpec;
use crate::rbd::{Held, RbdOptions, SharedSuperblock};
use crate::signals::StopSignals;
use crate::ublk::{Devices, Rotational};
use crate::{cache, control, core, metrics, names, rbd, stats, stop, ublk};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::lease::Hold;
use loligo_block::{DeviceFile, DeviceSpec};
use loligo_cache::mode::Mode;
use loligo_cache::superblock::{MAX_RESERVE, valid_line_size};
use loligo_export::fuse::{Mount, Mountpoint};
use loligo_export::ublk::Traits;
use loligo_export::{Credentials, Export, Limits, ListenAddr, Listener, TlsContext, Way};
use loligo_shard::{Backend, Plan, Running};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What to serve, and how. Sizes are in bytes; what is `None` comes from the superblock, or is the default of a new
/// cache.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The volume's name.
    pub name: String,
    /// The core.
    pub core: CoreSpec,
    /// How it is taken, if it is an RBD image.
    pub rbd: RbdOptions,
    /// The cache; `None` exports the core as it is.
    pub cache: Option<CacheOptions>,
    /// Where clients come from.
    pub listen: Vec<Way>,
    /// What a block device says of its seeks.
    pub rotational: Rotational,
    /// With it, clients must use TLS.
    pub tls: Option<Credentials>,
    /// Where Prometheus text is served.
    pub metrics: Option<SocketAddr>,
    /// The file that is rewritten every second.
    pub stats_json: Option<PathBuf>,
    /// Destage everything before the end.
    pub flush_on_stop: bool,
}

/// The cache of a volume.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// File or device.
    pub path: PathBuf,
    /// Bytes of it.
    pub size: Option<u64>,
    /// Do not write a new file whole.
    pub sparse: bool,
    /// The mode from now on.
    pub mode: Mode,
    /// Bytes of a cache line.
    pub line_size: Option<u32>,
    /// Threads.
    pub shards: Option<u16>,
    /// Percent of the core that is not exported.
    pub core_reserve: Option<u8>,
    /// Insist on a new cache.
    pub create: bool,
    /// Overwrite, or give up, what stands in the way.
    pub force: bool,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Every refusal, with cause and mend.
pub fn run(options: ServeOptions) -> Result<ExitCode> {
    check(&options)?;
    let signals = StopSignals::catch()?;
    let tls = options.tls.as_ref().map(TlsContext::load).transpose()?;
    let control = names::claim(&options.name)?;
    leaves(&signals, control.addr());
    if let Some(path) = &options.stats_json {
        stats::can_write(path)?;
    }
    let (mut listeners, mut mountpoints) = (Vec::new(), Vec::new());
    for way in &options.listen {
        let addr = match way {
            Way::Socket(addr) => addr,
            Way::Fuse(path) => {
                mountpoints.push(Mountpoint::claim(path)?);
                continue;
            }
            Way::Ublk(_) => continue,
        };
        let listener = Listener::bind(addr, tls.is_some())?;
        leaves(&signals, listener.addr());
        if matches!(addr, ListenAddr::Tcp(a) if a.port() == 0) {
            eprintln!("listening on {}", listener.addr());
        }
        listeners.push(listener);
    }
    let metrics = options.metrics.map(metrics::bind).transpose()?;
    // In this order: a refusal further down must let go of the core before the image that it reads can be closed.
    let (mut image, core) = match &options.core {
        CoreSpec::Device(spec) => (None, core::open(spec.clone())?),
        CoreSpec::Image(spec) => {
            let (core, held) = rbd::open(&options, spec)?;
            (Some(held), core)
        }
    };
    let geometry = core.backing.geometry();
    let mut export = Export::new(&options.name, core.identity.size).with_min_block(geometry.logical_block);
    export.fast_zero = geometry.can_unmap;

    let modelled = matches!(core.spec, CoreSpec::Device(DeviceSpec::Hdd { .. }));
    let (mut volatile, mut threads) = (geometry.volatile_cache, 1);
    let (backend, held, made) = match &options.cache {
        None => {
            export.rotational = geometry.rotational || modelled;
            (Backend::Bare, None, None)
        }
        Some(cache) => {
            let mut opened = cache::open(&options.name, cache, &core, &signals)?;
            if let Some(image) = &mut image {
                rbd::marry(image, &opened.file, &mut opened.superblock)?;
            }
            export.size = opened.superblock.home_length;
            export = export.with_min_block(geometry.logical_block);
            threads = opened.cores.len();
            let backend = Backend::Cached {
                cache: opened.file.clone(),
                cores: opened.cores,
                home_start: opened.superblock.home_start,
            };
            volatile |= opened.file.geometry().volatile_cache;
            let superblock = Arc::new(Mutex::new(opened.superblock));
            (backend, Some(HeldCache { file: opened.file, superblock }), opened.made)
        }
    };
    let mut traits = Traits::new(&export, geometry.physical_block, volatile);
    traits.rotational = match options.rotational {
        Rotational::Core => geometry.rotational || modelled,
        set => set == Rotational::Yes,
    };
    let uuid = held.as_ref().map(|h| h.superblock.lock().unwrap_or_else(PoisonError::into_inner).uuid_text());
    let mut devices = Devices::claim(&options.listen, &ublk::identity(uuid, &core), &traits, threads)?;
    let sockets = listeners.iter().map(|l| l.addr().to_string());
    let mounts = mountpoints.iter().map(|m| Way::Fuse(m.path().to_owned()).to_string());
    let blocks = options.listen.iter().filter(|w| matches!(w, Way::Ublk(_))).map(Way::to_string);
    let listen = sockets.chain(mounts).chain(blocks).collect();
    let info = Info::new(&options, held.as_ref(), listen, export.size);
    let backing = core.backing.clone();
    let lease = image.as_ref().map(|i| i.image().lease.clone());
    let plan = Plan {
        export: export.clone(),
        limits: Limits::default(),
        tls,
        listeners,
        core: core.source(),
        lease,
        backend,
    };
    signals.started();
    let running = loligo_shard::start(plan).context("the volume's threads cannot start")?;
    drop(core);
    let kept = match &mut image {
        Some(image) => {
            let sb = held.as_ref().map(|h| (h.superblock.clone(), h.file.clone()));
            Some(rbd::keep(image, running.handle(), sb, &options.rbd)?)
        }
        None => None,
    };
    let app = Arc::new(App::new(info, running.handle().clone(), kept));
    let left = Left { backing, held, image };
    let mounts = match devices.go_live(running.handle()).and_then(|()| mount(&mountpoints, &export, &app)) {
        Ok(mounts) => mounts,
        Err(why) => {
            stop::stop(&options, &signals, running, (Vec::new(), devices), &app, left)?;
            return Err(why);
        }
    };
    if let Some(made) = made {
        made.keep();
    }
    let _name = control::start(app.clone(), control, metrics)?;
    if let Some(path) = &options.stats_json {
        stats::write_file(path, &app, true)?;
    }
    let mut out = std::io::stdout();
    // Whoever started this may have closed the pipe; the volume is served all the same.
    let _ = writeln!(out, "ready").and_then(|()| out.flush());
    watch(&options, &signals, &running, &app)?;
    stop::stop(&options, &signals, running, (mounts, devices), &app, left)
}

/// Mounts the volume wherever that was asked for. Each mount is one client.
fn mount(at: &[Mountpoint], export: &Export, app: &App) -> Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for (number, at) in at.iter().enumerate() {
        let volume = Arc::new(app.handle.local(number));
        mounts.push(Mount::new(at, export, volume, app.fuse.clone())?);
    }
    Ok(mounts)
}

fn leaves(signals: &StopSignals, addr: &ListenAddr) {
    if let ListenAddr::Unix(path) = addr {
        signals.leaves(path);
    }
}

/// The cache device while the engine has it, and what its superblock says.
#[derive(Debug)]
pub(crate) struct HeldCache {
    pub(crate) file: DeviceFile,
    pub(crate) superblock: SharedSuperblock,
}

/// What is left to be ended when the threads are.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) backing: Backing,
    pub(crate) held: Option<HeldCache>,
    pub(crate) image: Option<Held>,
}

/// Waits for a signal, rewriting the statistics every second.
fn watch(options: &ServeOptions, signals: &StopSignals, running: &Running, app: &App) -> Result<()> {
    let mut next = Instant::now() + Duration::from_secs(1);
    let (mut poisoned, mut expired) = (false, false);
    while !signals.within(next.saturating_duration_since(Instant::now())) {
        next += Duration::from_secs(1);
        if running.has_failed() {
            return Ok(());
        }
        let snapshots = app.handle.snapshots();
        if let Some(why) = snapshots.iter().find_map(|s| s.poisoned.as_ref()).filter(|_| !poisoned) {
            poisoned = true;
            eprintln!(
                "error: the cache no longer acknowledges anything: {why}. What it holds stays readable; stop the \
                 service, mend the device and start it again"
            );
        }
        if let Some(now) = app.lease().filter(|now| (*now == Hold::Expired) != expired) {
            expired = !expired;
            eprintln!(
                "{}",
                match now {
                    Hold::Expired =>
                        "warning: no word from the cluster for as long as the lease: requests wait until there is one",
                    Hold::Valid => "the cluster has answered: requests go on",
                    Hold::Lost => "the cluster has answered, and the image is somebody else's",
                }
            );
        }
        stats::rewrite(options, app, true);
    }
    Ok(())
}

fn check(o: &ServeOptions) -> Result<()> {
    names::check_name(&o.name)?;
    ensure!(
        !o.listen.is_empty(),
        "nobody could reach the volume: give --listen unix:PATH, tcp:ADDR:PORT, \
         fuse:MOUNTPOINT or ublk:NAME"
    );
    for (i, way) in o.listen.iter().enumerate() {
        // A port of 0 is another one each time.
        let fixed = !matches!(way, Way::Socket(ListenAddr::Tcp(a)) if a.port() == 0);
        ensure!(!fixed || !o.listen[..i].contains(way), "--listen {way} is given twice: once is enough");
    }
    let Some(c) = &o.cache else { return Ok(()) };
    if let Some(n) = c.line_size.filter(|n| !valid_line_size(*n)) {
        bail!("--line-size {n} is none: use 4k, 8k, 16k, 32k or 64k");
    }
    if let Some(n) = c.core_reserve.filter(|n| *n > MAX_RESERVE) {
        bail!("--core-reserve {n}: 0 to {MAX_RESERVE} percent of the core can be kept back");
    }
    if let Some(n) = c.shards.filter(|n| !(1..=loligo_cache::layout::MAX_SHARDS).contains(n)) {
        bail!("--shards {n}: 1 to {} threads can share a cache", loligo_cache::layout::MAX_SHARDS);
    }
    if let Some(why) = o.core.single_thread().filter(|_| c.shards.is_some_and(|n| n > 1)) {
        bail!("{why}: use it with --shards 1");
    }
    Ok(())
}
