//! A volume from its options to its end, and `loligo serve`: one of them in the foreground.

mod check;
mod core_only;
pub(crate) mod live;
mod size;
mod trouble;
mod undo;

use crate::absent::Absent;
use crate::block::{self, BlockOptions};
use crate::control::{Api, ControlThread, Served};
pub use crate::core::CoreSpec;
use crate::core::OpenCore;
use crate::labelled_core::{LabelledCore, Wanted};
use crate::last_cache::{CoreNames, LastCache};
use crate::memory::Memory;
use crate::metrics::Scraped;
use crate::operator_log::say;
use crate::pool::{Governing, Share};
use crate::rbd::{HeldImage, RbdOptions, SharedSuperblock};
use crate::refusals::{self, Refusals};
use crate::signals::StopSignals;
use crate::status::Status;
use crate::ublk::Devices;
use crate::volume_state::{Info, Keeping, VolumeState};
use crate::{cache, core, descriptors, metrics, names, rbd, stats, stop, systemd};
use anyhow::{Context, Result};
pub(crate) use check::check;
use loligo_block::lease::Hold;
use loligo_block::{CacheDevice, DeviceSpec};
use loligo_engine::FallbackState;
use loligo_export::blockdev::{BlockDevice, Claim};
use loligo_export::fuse::{Mount, Mountpoint};
use loligo_export::ublk::Traits;
use loligo_export::{Credentials, Export, ExportSpec, Limits, ListenAddr, Listener, TlsContext};
use loligo_format::mode::Mode;
use loligo_format::superblock::Superblock;
use loligo_format::units::BLOCK;
use loligo_shard::{Backend, Plan, Running, Snapshot};
use sd_notify::NotifyState;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use undo::{Note, Of, Phase, StartUndo};

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
    /// Give up what a cache holds that the core lacks, where that is served without one.
    pub force: bool,
    /// Where clients come from.
    pub listen: Vec<ExportSpec>,
    /// What the block devices among these are like.
    pub block: BlockOptions,
    /// With it, clients must use TLS.
    pub tls: Option<Credentials>,
    /// Where Prometheus text is served.
    pub metrics: Option<SocketAddr>,
    /// The file that is rewritten every second.
    pub stats_json: Option<PathBuf>,
    /// Destage everything before the end.
    pub flush_on_stop: bool,
    /// Tunables that are not to have their default, by key.
    pub params: Vec<(String, String)>,
    /// Bytes of a new core that are kept for a label, before its content. Without a cache only 0: the core is all content, whatever
    /// it begins with.
    pub data_offset: Option<u64>,
}

impl CacheOptions {
    /// Whether a new cache is to be made in place of this one, whatever it says of itself.
    pub(crate) fn replaces(&self, sb: &Superblock) -> bool {
        self.replace.as_ref() == Some(&sb.uuid_text())
    }

    /// Whether this one was being attached when its service ended, so that a label that does not name it was not
    /// reached.
    pub(crate) fn was_attaching(&self, sb: &Superblock) -> bool {
        self.expected.as_ref().is_some_and(|last| last.attaching && last.uuid == sb.uuid_text())
    }
}

impl ServeOptions {
    fn wanted(&self) -> Wanted {
        let (home, bare) = (self.data_offset, self.cache.is_none());
        Wanted { home, bare, force: self.cache.as_ref().map_or(self.force, |c| c.force) }
    }
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
    /// Shards: threads, but for an RBD image, which has one.
    pub shards: Option<u16>,
    /// Percent of the core that is not exported.
    pub core_reserve: Option<u8>,
    /// Insist on a new cache.
    pub create: bool,
    /// Overwrite, or give up, what stands in the way.
    pub force: bool,
    /// The cache of this UUID holds nothing that may be believed: a new one is made in its place.
    pub replace: Option<String>,
    /// The cache that this volume was last served through, where that is known.
    pub expected: Option<LastCache>,
    /// Why the core may be another cache's: asked where nothing in this one can be compared with it.
    pub disputed: Option<String>,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// Every refusal, with cause and mend.
pub fn run(options: ServeOptions) -> Result<ExitCode> {
    // The thread of the log carries no request out: it need not inherit what follows.
    loligo_log::begin_service().context("starting the thread of the log")?;
    descriptors::raise();
    // Before any other thread, for they inherit it.
    block::prepare(&options);
    let signals = StopSignals::catch()?;
    let metrics = options.metrics.map(metrics::bind).transpose()?;
    let control = ControlThread::start()?;
    let mut volume = Volume::start(options, &signals, &control, &|_| Ok(()))?;
    let app = volume.app.clone();
    let served: Served = Arc::new(move || {
        vec![Scraped { name: app.name.clone(), state: Status::Serving, app: Some(app.clone()) }]
    });
    let _scrapes = metrics.map(|m| control.serve_metrics(m, served)).transpose()?;
    // The reader may have closed the pipe; the volume is served all the same.
    systemd::notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
    loligo_log::outln!("ready");
    loligo_log::flush_output();
    let mut next = Instant::now() + LOOK;
    let mut failed = Ok(());
    while failed.is_ok() && !signals.within(GLANCE) && !volume.has_failed() {
        if Instant::now() >= next {
            next += LOOK;
            volume.look(None);
            systemd::notify(&[NotifyState::Watchdog]);
        }
        failed = volume.glance();
    }
    systemd::notify(&[
        NotifyState::Stopping,
        NotifyState::Status("stopping: what was promised is made durable"),
    ]);
    volume.stop(&signals)?;
    failed.map(|()| ExitCode::SUCCESS)
}

/// Between two looks at a served volume.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Between two glances at what cannot wait for a look: somebody may stand there.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);

/// A served volume.
#[derive(Debug)]
pub(crate) struct Volume {
    options: ServeOptions,
    running: Running,
    pub(crate) app: Arc<VolumeState>,
    mounts: Vec<Mount>,
    devices: Vec<BlockDevice>,
    kernel: Devices,
    left: Shutdown,
    /// The names of its core.
    known_as: CoreNames,
    told: Promised,
    /// An exchange of engines broke off: every request fails.
    fails: bool,
    /// It has been said that the cache is poisoned.
    poisoned: bool,
    /// What has been said of sectors that the core refuses.
    refusals: Refusals,
    /// Its cache is gone, and the core serves alone.
    core_only: bool,
    /// It has been said that the lease is over.
    expired: bool,
    /// Its control socket; the name is somebody else's to have when it is gone.
    _api: Api,
    /// With a share of a pool: it grows and shrinks as long.
    governing: Option<Governing>,
}

/// What its clients were told of it at the start, which holds whatever is put under them.
#[derive(Debug, Clone, Copy)]
struct Promised {
    /// Bytes of a block.
    block: u32,
    /// What is answered may be lost until it is flushed.
    volatile: bool,
}

impl Volume {
    /// Opens cache and core and starts to serve. When this returns, clients may come. What it is served through is given to `note`
    /// before anybody can be, and how that was left again where the start fails after that.
    ///
    /// # Errors
    /// Every refusal, with cause and mend.
    pub(crate) fn start(
        options: ServeOptions,
        signals: &StopSignals,
        control: &ControlThread,
        note: Note<'_>,
    ) -> Result<Volume> {
        check(&options)?;
        block::check(&options)?;
        let mut options = options;
        options.listen = block::choose(&options.listen);
        let tls = options.tls.as_ref().map(TlsContext::load).transpose()?;
        signals.goes_on()?;
        let name = names::claim(&options.name)?;
        leaves(signals, name.addr());
        if let Some(path) = &options.stats_json {
            stats::can_write(path)?;
        }
        let (mut listeners, mut mountpoints, mut claims) = (Vec::new(), Vec::new(), Vec::new());
        for spec in &options.listen {
            let spec = match spec {
                ExportSpec::Socket(spec) => spec,
                ExportSpec::Fuse(path) => {
                    mountpoints.push(Mountpoint::claim(path)?);
                    continue;
                }
                ExportSpec::Block(name) | ExportSpec::Loop(name) => {
                    let claim = block::claim(name, &options.block)?;
                    signals.leaves(claim.file());
                    claims.push(claim);
                    continue;
                }
                ExportSpec::Ublk(_) => continue,
            };
            let listener = Listener::open(spec, Credentials::guard(options.tls.as_ref())).map_err(|why| {
                match why.is_not_yet() {
                    true => Absent(why.to_string()).into(),
                    false => anyhow::Error::from(why),
                }
            })?;
            leaves(signals, listener.addr());
            if matches!(spec.addr, ListenAddr::Tcp(a) if a.port() == 0) {
                say!("listening on {}", listener.addr());
            }
            listeners.push(listener);
        }
        signals.goes_on()?;
        // In this order: a refusal further down must let go of the core before the image that it reads can be closed.
        let (mut image, mut core) = match &options.core {
            CoreSpec::Device(spec) => {
                let of_cache = || options.cache.as_ref().map_or(Ok(None), cache::remembers);
                (None, core::open(spec.clone(), options.wanted(), of_cache)?)
            }
            CoreSpec::Image(spec) => {
                let (core, held) = rbd::open(&options, spec, signals)?;
                (Some(held), core)
            }
        };
        let geometry = core.backing.geometry();
        let mut export =
            Export::new(&options.name, core.identity.size).with_min_block(geometry.logical_block);
        export.fast_zero = geometry.can_unmap;

        let turns = geometry.rotational || matches!(core.spec, CoreSpec::Device(DeviceSpec::Hdd { .. }));
        let (mut volatile, mut threads, mut through) = (geometry.volatile_cache, 1, false);
        let (backend, held, made, finals) = match &options.cache {
            None => {
                signals.passes()?;
                if let Some(home) = &core.home {
                    home.refuse_bare(options.force)?;
                }
                export.rotational = turns;
                (Backend::Uncached, None, None, None)
            }
            Some(cache) => {
                if let Some(home) = &mut core.home {
                    // Before anything is made or opened: a core is not to be lost for the sake of a start that is refused.
                    let (place, found) = if cache.create { (None, None) } else { cache::peek(cache)? };
                    let found = found.filter(|sb| !cache.replaces(sb));
                    let place = place.filter(|_| found.is_some());
                    home.settle(place.as_ref().map(|p| &p.file), found.as_ref(), cache.force)?;
                    let attaching = found.as_ref().is_some_and(|sb| cache.was_attaching(sb));
                    home.refuse_other(found.as_ref(), attaching, cache.force)?;
                }
                let mut watch = |_: u64, _: u64| match signals.within(Duration::ZERO) {
                    true => Err(cache::CutOff.into()),
                    false => Ok(()),
                };
                let mut opened = cache::open(&options.name, cache, &core, signals, &mut watch)?;
                let dirty: u64 = opened.engines.iter().map(|core| core.dirty_blocks()).sum();
                let finals = opened
                    .was_clean
                    .then(|| (opened.engines.iter().map(|core| core.last_seq()).collect::<Vec<_>>(), dirty));
                if let (Some(image), CoreSpec::Image(spec)) = (&mut image, &options.core) {
                    let married = rbd::marry(image, spec, &opened.file, &mut opened.superblock, signals);
                    if let Err(why) = married {
                        let closed = finals.map_or(Ok(()), |(finals, dirty)| {
                            cache::close_unserved(&mut opened.file.sync_io(), &finals, dirty)
                        });
                        return Err(undo::beside(why, closed));
                    }
                }
                export.size = opened.superblock.data_length;
                export = export.with_min_block(geometry.logical_block);
                threads = if core.spec.is_one_threads() { 1 } else { opened.engines.len() };
                through = dirty == 0 && !cache.mode.is_ahead_of_core();
                volatile |= opened.file.geometry().volatile_cache;
                let backend = Backend::Cached {
                    cache: opened.file.clone(),
                    engines: opened.engines,
                    data_start: opened.superblock.data_start,
                };
                let held = HeldCache::new(opened.file, opened.share, opened.superblock);
                (backend, Some(held), opened.made, finals)
            }
        };
        let mut traits = Traits::new(&export, geometry.physical_block, volatile);
        traits.rotational = options.block.rotational.of(turns);
        // Asked once: a core that has failed by the time of the stop has no names any more.
        let known_as = options.core.names();
        let of = Of { options: &options, held: held.as_ref(), known_as: &known_as, note };
        let mut undo = StartUndo::with(finals);
        // After all that can be refused.
        if let Err(why) = undo.begin(&of, &mut core, (&traits, threads), through) {
            return Err(undo.take_back(why, &of, &mut core, image.as_mut()));
        }
        if let Some(image) = &mut image {
            image.begin_service();
        }
        // What is noted from here on is to be there.
        if let Some(made) = made {
            made.keep();
        }
        let unknown = of.last(None);
        let mut kernel = undo.kernel.unwrap_or_default();
        let sockets = listeners.iter().map(|l| l.spec().to_string());
        let mounts = mountpoints.iter().map(|m| ExportSpec::Fuse(m.path().to_owned()).to_string());
        let blocks = claims.iter().map(|c| ExportSpec::Loop(c.name().to_owned()).to_string());
        let others =
            options.listen.iter().filter(|w| matches!(w, ExportSpec::Ublk(_))).map(ExportSpec::to_string);
        let specs = sockets.chain(mounts).chain(blocks).chain(others).collect();
        let info = Info::new(&options, held.as_ref(), specs, export.size);
        let lease = image.as_ref().map(|i| i.image().lease.clone());
        let plan = Plan {
            export: export.clone(),
            limits: Limits::default(),
            tls: tls.clone(),
            listeners,
            core: core.source(),
            lease,
            backend,
        };
        signals.started();
        let running = match loligo_shard::start(plan) {
            Ok(running) => running,
            Err(why) => {
                // Some of them may have undo: cache, label and note stay as after a crash, from which the next start recovers.
                kernel.end();
                return Err(anyhow::Error::from(why).context("the volume's threads cannot start"));
            }
        };
        // It is not looked at again, and to be let go of with the cache.
        core.cache_file = None;
        let mut keeps = || -> Result<_> {
            Phase::Threads.is_over()?;
            let share = held.as_ref().and_then(|h| h.share.clone());
            let governing =
                share.map(|s| s.pool().clone().govern(s, running.handle().clone())).transpose()?;
            let Some(image) = &mut image else { return Ok((governing, None)) };
            let sb = held.as_ref().map(|h| (h.superblock.clone(), h.file.clone()));
            Ok((governing, Some(rbd::keep(image, running.handle(), sb, &options.rbd)?)))
        };
        let (governing, kept, kept_by) = match keeps() {
            Ok((governing, kept)) => (governing, kept, Ok(())),
            Err(why) => (None, None, Err(why)),
        };
        let mark = core.home.as_ref().map(LabelledCore::mark);
        let app = Arc::new(VolumeState::new(info, running.handle().clone(), kept, mark).with_tls(tls));
        let left = Shutdown { keeping: Keeping(app.clone()), core, held, image, void: false };
        let told = Promised { block: export.min_block, volatile };
        let exports = Exports { mountpoints, claims, turns };
        let served =
            kept_by.and_then(|()| serve(&options, exports, &export, &app, (name, control), &mut kernel));
        let (mounts, devices, api) = match served {
            Ok(served) => served,
            Err(why) => {
                let dirty = stop::stop(&options, signals, running, (Vec::new(), kernel), &app, left)?;
                if let Some(cache) = unknown {
                    note(Some(LastCache { dirty_bytes: Some(dirty * BLOCK), ..cache }))?;
                }
                return Err(why);
            }
        };
        Ok(Volume {
            options,
            running,
            app,
            mounts,
            devices,
            kernel,
            left,
            known_as,
            told,
            fails: false,
            poisoned: false,
            refusals: Refusals::default(),
            core_only: false,
            expired: false,
            _api: api,
            governing,
        })
    }

    /// Whether a thread has ended by itself: [`Volume::stop`] says why.
    pub(crate) fn has_failed(&self) -> bool {
        self.running.has_failed()
    }

    /// To be called every second or so: says what has changed for the worse, settles what is to become of a cache that is gone, and
    /// rewrites the statistics.
    pub(crate) fn look(&mut self, memory: Option<&dyn Memory>) {
        let snapshots = self.app.handle.snapshots();
        let waits = snapshots.iter().any(|s| s.fallback == Some(FallbackState::Waiting));
        // Before anything is said, for which somebody may have to be waited.
        if !waits {
            self.fail_together(&snapshots);
        }
        if let Some(why) = snapshots
            .iter()
            .find_map(|s| s.poisoned.as_ref())
            .filter(|_| !(self.poisoned || self.core_only || waits || self.left.held.is_none()))
        {
            self.poisoned = true;
            say!(
                "error: the cache no longer acknowledges anything: {why}. Everything acknowledged before is on it: stop the service, mend \
                 the device and start it again"
            );
        }
        if let Some(why) = snapshots
            .iter()
            .filter(|s| s.fallback == Some(FallbackState::Failed) || self.left.held.is_none())
            .find_map(|s| s.poisoned.as_ref())
            .filter(|_| (self.core_only || self.left.held.is_none()) && !self.poisoned)
        {
            self.poisoned = true;
            say!(
                "error: the volume has no cache and acknowledges nothing any more: {why}. Writes since the last flush may be lost: mend                  the core and start the volume again"
            );
        }
        let refused = refusals::told(&snapshots, self.app.core_start());
        if let Some(line) = self.refusals.line(Instant::now(), refused) {
            say!("{line}");
        }
        if let Some(now) = self.app.lease().filter(|now| (*now == Hold::Expired) != self.expired) {
            self.expired = !self.expired;
            say!(
                "{}",
                match now {
                    Hold::Expired =>
                        "warning: no word from the cluster for as long as the lease: requests wait until there is one",
                    Hold::Valid => "the cluster has answered: requests go on",
                    Hold::Lost => "the cluster has answered, and the image is somebody else's",
                }
            );
        }
        self.kernel.look();
        stats::rewrite(&self.options, &self.app, true);
        if waits {
            self.mind_cache(&snapshots, memory);
        }
    }

    /// To be called some times a second: makes its block device what the kernel would not while it was open.
    ///
    /// # Errors
    /// Where the device is lost by that: the volume is to be started again.
    pub(crate) fn glance(&mut self) -> Result<()> {
        let app = &self.app;
        // Whoever opens or stops a device waits for what its volume answers.
        self.kernel.renew(&app.handle, || {
            let waits = |s: &Snapshot| s.poisoned.is_some() || s.fallback == Some(FallbackState::Waiting);
            app.lease().is_none_or(|now| now == Hold::Valid) && !app.handle.snapshots().iter().any(waits)
        })
    }

    /// The cache it is served through; nothing where it is bare.
    pub(crate) fn last_cache(&self) -> Option<LastCache> {
        let held = self.left.held.as_ref()?;
        let path = &self.options.cache.as_ref()?.path;
        Some(self.known_as.cache(path, held.uuid.clone(), None, self.core_only))
    }

    /// What it is served by now.
    pub(crate) fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// Whether the stop writes everything dirty to the core.
    pub(crate) fn flushes_on_stop(&self) -> bool {
        self.options.flush_on_stop
    }

    /// Has the stop do so, or not.
    pub(crate) fn flush_on_stop(&mut self, flush: bool) {
        self.options.flush_on_stop = flush;
    }

    /// Ends it: accepted requests are answered, everything acknowledged is made durable.
    ///
    /// # Errors
    /// Where something of that failed; what was acknowledged is safe on the cache all the same, and the next start recovers.
    pub(crate) fn stop(self, signals: &StopSignals) -> Result<u64> {
        let Volume {
            options, running, app, mut mounts, mut devices, kernel, mut left, core_only, fails, ..
        } = self;
        left.void |= core_only;
        // Its users get errors anyway.
        let fails = || fails || running.has_failed();
        mounts.extend(block::let_go(&mut devices, &options, signals, fails, &app));
        stop::stop(&options, signals, running, (mounts, kernel), &app, left)
    }
}

/// Exports of a volume that are its own threads' no business.
struct Exports {
    mountpoints: Vec<Mountpoint>,
    claims: Vec<Claim>,
    /// The core has heads to move.
    turns: bool,
}

/// Sets the tunables, mounts the volume and makes its devices wherever that was asked for, and lets management come.
fn serve(
    options: &ServeOptions,
    exports: Exports,
    export: &Export,
    app: &Arc<VolumeState>,
    (name, control): (Listener, &ControlThread),
    kernel: &mut Devices,
) -> Result<(Vec<Mount>, Vec<BlockDevice>, Api)> {
    app.set_params(&options.params)?;
    kernel.go_live(&app.handle)?;
    let mounts = mount(&exports.mountpoints, export, app)?;
    let devices = block::serve(exports.claims, export, &options.block, exports.turns, app)?;
    let api = control.serve_volume(name, app.clone())?;
    if let Some(path) = &options.stats_json {
        stats::write_file(path, app, true)?;
    }
    Phase::Exports.is_over()?;
    Ok((mounts, devices, api))
}

/// Mounts the volume wherever that was asked for. Each mount is one client.
fn mount(at: &[Mountpoint], export: &Export, app: &VolumeState) -> Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for (number, at) in at.iter().enumerate() {
        mounts.push(Mount::new(at, export, app.fuse.clone(), |desk| app.handle.serve_mount(number, desk))?);
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
    pub(crate) file: CacheDevice,
    /// With it the cache can grow and shrink.
    pub(crate) share: Option<Arc<Share>>,
    /// Held while it is written, which a device that answers nothing may make last.
    pub(crate) superblock: SharedSuperblock,
    /// It never changes: nobody waits for the superblock to be told it.
    pub(crate) uuid: String,
}

impl HeldCache {
    pub(crate) fn new(file: CacheDevice, share: Option<Arc<Share>>, superblock: Superblock) -> HeldCache {
        let uuid = superblock.uuid_text();
        HeldCache { file, share, superblock: Arc::new(Mutex::new(superblock)), uuid }
    }
}

/// What is left to be ended when the threads are.
#[derive(Debug)]
pub(crate) struct Shutdown {
    /// Ends before the image is closed.
    pub(crate) keeping: Keeping,
    pub(crate) core: OpenCore,
    pub(crate) held: Option<HeldCache>,
    pub(crate) image: Option<HeldImage>,
    /// What the cache holds is void.
    pub(crate) void: bool,
}
