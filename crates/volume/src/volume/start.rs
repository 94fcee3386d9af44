//! The start of a volume, in phases. A start that comes to nothing takes back what it began, in the other order.
//!
//! | phase | it begins | it is taken back by |
//! |---|---|---|
//! | [`Claimed::of`] | the control socket, listeners, mount points, names of block devices | the guards' end |
//! | [`Opened::of`] | the lock of the core, of an image the attach | the guards' end: the core before the image |
//! | [`Opened::prepare`] | a new cache, the word "in use" in an old one | the end of [`Made`]; [`cache::close_unserved`] |
//! | [`StartUndo::begin`] | the kernel's device, the core's label, the daemon's note | [`StartUndo::take_back`] |
//! | [`Running`] | the threads | nothing: cache, label and note stay as after a crash |
//! | [`Prepared::keep`], [`serve`] | the keeping of an image, tunables, mounts, devices, the control API | the stop |

use super::undo::{Finals, Note, Of, Phase, StartUndo, beside};
use super::{Promised, Shutdown, Volume};
use crate::cache::{self, Made};
use crate::core::{self, Backing, CoreSpec, OpenCore};
use crate::doors::Doors;
use crate::held_cache::HeldCache;
use crate::labelled_core::LabelledCore;
use crate::last_cache::LastCache;
use crate::memory::{ControlApi, ServedApi};
use crate::options::{CacheOptions, ServeOptions, check};
use crate::pool::Governing;
use crate::rbd::{self, HeldImage, ImageGuard};
use crate::refusals::Refusals;
use crate::reservation::Holding;
use crate::signals::{CutOff, StopSignals};
use crate::ublk::Devices;
use crate::volume_state::{Ends, Keeping, VolumeState, info_of};
use crate::{block, control_socket, reservation, stats, stop};
use anyhow::Result;
use loligo_block::lease::{Lease, boottime};
use loligo_block::{DeviceSpec, Geometry, keyed};
use loligo_client::outcome::Absent;
use loligo_export::blockdev::{BlockDevice, Claim};
use loligo_export::fuse::{Mount, Mountpoint};
use loligo_export::ublk::Traits;
use loligo_export::{Credentials, Export, ExportSpec, Limits, ListenAddr, Listener, SocketSpec, TlsContext};
use loligo_format::units::BLOCK;
use loligo_log::say;
use loligo_shard::{Backend, Leases, Plan, Running};
use std::sync::Arc;
use std::time::Duration;

impl Volume {
    /// Opens cache and core and starts to serve. When this returns, clients may come. The cache that it is
    /// served through is given to `note` before anybody can be served. Its last state is given again if the
    /// start fails after that.
    ///
    /// # Errors
    /// Every refusal, with cause and mend.
    pub fn start(
        options: ServeOptions,
        signals: &StopSignals,
        control: &dyn ControlApi,
        note: Note<'_>,
    ) -> Result<Volume> {
        let options = checked(options)?;
        let tls = options.tls.as_ref().map(TlsContext::load).transpose()?;
        let mut claimed = Claimed::of(&options, signals)?;
        // Before anything is opened: its locks end at this host.
        let asked = boottime();
        reservation::check(&options)?;
        let holding = Holding::begin(&options, signals.silence(), asked)?;
        let array = holding.as_ref().map(Holding::lease);
        let mut opened = Opened::of(&options, signals)?;
        Phase::Core.is_over()?;
        let mut prepared = opened.prepare(&options, signals)?;
        // Asked once: a core that has failed by the time of the stop has no names any more.
        let known_as = options.core.names();
        let held = prepared.held.take();
        let of = Of { options: &options, held: held.as_ref(), known_as: &known_as, note };
        let mut undo = StartUndo::with(prepared.finals.take());
        // After all that can be refused.
        let (traits, threads) = (prepared.traits(&options), prepared.threads);
        if let Err(why) = undo.begin(&of, &mut opened.core, (&traits, threads), prepared.through) {
            return Err(undo.take_back(why, &of, &mut opened.core, opened.image.as_mut()));
        }
        let mut kernel = undo.kernel.unwrap_or_default();
        opened.begin_service();
        let info = info_of(&options, held.as_ref(), claimed.specs(&options), prepared.export.size);
        let promised = prepared.promised();
        let (export, turns) = (prepared.export.clone(), prepared.turns);
        let running = match prepared.run(&mut claimed, (&opened, array.clone()), tls.clone(), signals) {
            Ok(running) => running,
            Err(why) => {
                // Some of them may have begun: cache, label and note stay as after a crash, from which the next start recovers.
                kernel.end();
                return Err(why);
            }
        };
        // It is not looked at again, and to be let go of with the cache.
        opened.core.cache_file = None;
        let (governing, kept, kept_by) = match opened.keep(&options, held.as_ref(), &running) {
            Ok((governing, kept)) => (governing, kept, Ok(())),
            Err(why) => (None, None, Err(why)),
        };
        let mark = opened.core.home.as_ref().map(LabelledCore::mark);
        let ends =
            Ends { silence: signals.silence().clone(), image: opened.image.as_ref().map(HeldImage::weak) };
        let app = Arc::new(
            VolumeState::new(info, running.handle().clone(), kept, mark)
                .with_tls(tls)
                .ended_by(ends)
                .held_by(array)
                .mirrored_by(held.as_ref().and_then(|h| h.file.mirror().cloned()))
                .listening(Doors::of(&options)),
        );
        let unknown = of.last(None);
        let Opened { core, image } = opened;
        let left = Shutdown { keeping: Keeping(app.clone()), core, held, image, void: false };
        let served =
            kept_by.and_then(|()| serve(&options, claimed, (&export, turns), &app, control, &mut kernel));
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
            told: promised,
            fails: false,
            poisoned: false,
            refusals: Refusals::default(),
            told_fenced: false,
            core_only: false,
            expired: false,
            _api: api,
            governing,
            holding,
        })
    }
}

/// `options`, of which nothing can be refused without a look at a device.
fn checked(mut options: ServeOptions) -> Result<ServeOptions> {
    check(&options)?;
    block::check(&options)?;
    options.listen = block::choose(&options.listen);
    Ok(options)
}

/// Has a socket at a path removed if the start is cut off.
fn leaves(signals: &StopSignals, addr: &ListenAddr) {
    if let ListenAddr::Unix(path) = addr {
        signals.leaves(path);
    }
}

/// Places where clients come, and the volume's name. Each is a guard, which lets go of its place.
struct Claimed {
    /// The control socket, which stands for the name.
    name: Listener,
    listeners: Vec<Listener>,
    mountpoints: Vec<Mountpoint>,
    claims: Vec<Claim>,
}

impl Claimed {
    fn of(options: &ServeOptions, signals: &StopSignals) -> Result<Claimed> {
        signals.goes_on()?;
        let name = control_socket::claim(&options.name)?;
        leaves(signals, name.addr());
        if let Some(path) = &options.stats_json {
            stats::can_write(path)?;
        }
        let mut claimed =
            Claimed { name, listeners: Vec::new(), mountpoints: Vec::new(), claims: Vec::new() };
        for spec in &options.listen {
            match spec {
                ExportSpec::Socket(spec) if spec.when_told => {}
                ExportSpec::Socket(spec) => claimed.listeners.push(listen(spec, options, signals)?),
                ExportSpec::Fuse(path) => claimed.mountpoints.push(Mountpoint::claim(path)?),
                ExportSpec::Block(name) | ExportSpec::Loop(name) => {
                    let claim = block::claim(name, &options.block)?;
                    signals.leaves(claim.file());
                    claimed.claims.push(claim);
                }
                ExportSpec::Ublk(_) => {}
            }
        }
        signals.goes_on()?;
        Phase::Claim.is_over()?;
        Ok(claimed)
    }

    /// The exports through which clients come, in the words of the volume's description.
    fn specs(&self, options: &ServeOptions) -> Vec<String> {
        let sockets = self.listeners.iter().map(|l| l.spec().to_string());
        let mounts = self.mountpoints.iter().map(|m| ExportSpec::Fuse(m.path().to_owned()).to_string());
        let blocks = self.claims.iter().map(|c| ExportSpec::Loop(c.name().to_owned()).to_string());
        let others =
            options.listen.iter().filter(|w| matches!(w, ExportSpec::Ublk(_))).map(ExportSpec::to_string);
        sockets.chain(mounts).chain(blocks).chain(others).collect()
    }
}

fn listen(spec: &SocketSpec, options: &ServeOptions, signals: &StopSignals) -> Result<Listener> {
    let listener = Listener::open(spec, Credentials::guard(options.tls.as_ref())).map_err(|why| match why
        .is_not_yet()
    {
        true => Absent(keyed!("{why}")).into(),
        false => anyhow::Error::from(why),
    })?;
    leaves(signals, listener.addr());
    if matches!(spec.addr, ListenAddr::Tcp(a) if a.port() == 0) {
        say!("listening on {}", listener.addr());
    }
    Ok(listener)
}

/// The core, open. A refusal lets go of it before the image that it reads is closed: fields end in this order.
struct Opened {
    core: OpenCore,
    image: Option<HeldImage>,
}

impl Opened {
    fn of(options: &ServeOptions, signals: &StopSignals) -> Result<Opened> {
        match &options.core {
            CoreSpec::Device(spec) => {
                let of_cache = || options.cache.as_ref().map_or(Ok(None), cache::remembers);
                let core = core::open(spec.clone(), options.wanted(), signals.silence(), of_cache)?;
                Ok(Opened { core, image: None })
            }
            CoreSpec::Image(spec) => {
                let (core, held) = rbd::open(options, spec, signals)?;
                Ok(Opened { core, image: Some(held) })
            }
        }
    }

    /// Prepares what the threads are to serve: the core as it is, or the cache in front of it, opened or made.
    fn prepare(&mut self, options: &ServeOptions, signals: &StopSignals) -> Result<Prepared> {
        if let Backing::File(file) = &self.core.backing {
            reservation::refuse_buffered(options, file.file())?;
        }
        let geometry = self.core.backing.geometry();
        let mut export =
            Export::new(&options.name, self.core.identity.size).with_min_block(geometry.logical_block);
        export.fast_zero = geometry.can_unmap;
        let turns = geometry.rotational || matches!(self.core.spec, CoreSpec::Device(DeviceSpec::Hdd { .. }));
        let mut prepared = Prepared {
            backend: Backend::Uncached,
            held: None,
            made: None,
            finals: None,
            export,
            threads: 1,
            through: false,
            volatile: geometry.volatile_cache,
            turns,
            geometry,
        };
        match &options.cache {
            None => {
                signals.passes()?;
                if let Some(home) = &self.core.home {
                    home.refuse_bare(options.force)?;
                }
                prepared.export.rotational = turns;
            }
            Some(cache) => {
                self.settle_label(cache)?;
                self.open_cache(options, cache, signals, &mut prepared)?;
            }
        }
        Ok(prepared)
    }

    /// Refuses what the core's label has against `cache`, before anything is made or opened: a core is not to be lost for the sake of
    /// a start that is refused.
    fn settle_label(&mut self, cache: &CacheOptions) -> Result<()> {
        let Some(home) = &mut self.core.home else { return Ok(()) };
        let (place, found) = if cache.create { (None, None) } else { cache::peek(cache)? };
        let found = found.filter(|sb| !cache.replaces(sb));
        let place = place.filter(|_| found.is_some());
        home.settle(place.as_ref().map(|p| &p.file), found.as_ref(), cache.force)?;
        let attaching = found.as_ref().is_some_and(|sb| cache.was_attaching(sb));
        home.refuse_other(found.as_ref(), attaching, cache.force)
    }

    fn open_cache(
        &mut self,
        options: &ServeOptions,
        cache: &CacheOptions,
        signals: &StopSignals,
        prepared: &mut Prepared,
    ) -> Result<()> {
        let mut watch = |_: u64, _: u64| match signals.within(Duration::ZERO) {
            true => Err(CutOff.into()),
            false => Ok(()),
        };
        let mut opened = cache::open(&options.name, cache, &self.core, signals, &mut watch)?;
        let legs = opened.file.mirror().into_iter().flat_map(|mirror| mirror.files());
        legs.chain([opened.file.file()]).try_for_each(|file| reservation::refuse_buffered(options, file))?;
        let dirty: u64 = opened.engines.iter().map(|engine| engine.dirty_blocks()).sum();
        let last_seqs = || opened.engines.iter().map(|engine| engine.last_seq()).collect();
        let finals = opened.was_clean.then(|| Finals { last_seqs: last_seqs(), dirty_blocks: dirty });
        if let (Some(image), CoreSpec::Image(spec)) = (&mut self.image, &options.core)
            && let Err(why) = rbd::marry(image, spec, &opened.file, &mut opened.superblock, signals)
        {
            let closed = finals.map_or(Ok(()), |finals| {
                cache::close_unserved(&mut opened.file.sync_io(), &finals.last_seqs, finals.dirty_blocks)
            });
            return Err(beside(why, closed));
        }
        prepared.finals = finals;
        prepared.export.size = opened.superblock.data_length;
        prepared.threads = if self.core.spec.is_one_threads() { 1 } else { opened.engines.len() };
        prepared.through = dirty == 0 && !cache.mode.is_ahead_of_core();
        prepared.volatile |= opened.file.geometry().volatile_cache;
        prepared.backend = Backend::Cached {
            cache: opened.file.clone(),
            engines: opened.engines,
            data_start: opened.superblock.data_start,
        };
        prepared.held = Some(HeldCache::new(opened.file, opened.share, opened.superblock));
        prepared.made = opened.made;
        Ok(())
    }

    fn begin_service(&mut self) {
        if let Some(image) = &mut self.image {
            image.begin_service();
        }
    }

    /// Has a share of a pool grow and shrink, and an image kept, for as long as the volume is served.
    fn keep(
        &mut self,
        options: &ServeOptions,
        held: Option<&HeldCache>,
        running: &Running,
    ) -> Result<(Option<Governing>, Option<ImageGuard>)> {
        Phase::Threads.is_over()?;
        let share = held.and_then(|h| h.share.clone());
        let governing = share.map(|s| s.pool().clone().govern(s, running.handle().clone())).transpose()?;
        let Some(image) = &mut self.image else { return Ok((governing, None)) };
        let sb = held.map(|h| (h.superblock.clone(), h.file.clone()));
        Ok((governing, Some(rbd::keep(image, running.handle(), sb, &options.rbd)?)))
    }
}

/// Everything that is to be served, with nobody served yet.
struct Prepared {
    backend: Backend,
    held: Option<HeldCache>,
    /// The file of a new cache, removed where the start is refused.
    made: Option<Made>,
    /// The last state of a cache that was found stopped cleanly.
    finals: Option<Finals>,
    export: Export,
    threads: usize,
    /// The cache does not get ahead of the core.
    through: bool,
    /// Answered writes may be lost until they are flushed.
    volatile: bool,
    /// The core has heads to move.
    turns: bool,
    /// The core's.
    geometry: Geometry,
}

impl Prepared {
    /// The traits by which the kernel is to see it as a device.
    fn traits(&self, options: &ServeOptions) -> Traits {
        let mut traits = Traits::new(&self.export, self.geometry.physical_block, self.volatile);
        traits.rotational = options.block.rotational.of(self.turns);
        traits
    }

    fn promised(&self) -> Promised {
        Promised { block: self.export.min_block, volatile: self.volatile }
    }

    /// Starts the threads, which take the listeners.
    fn run(
        self,
        claimed: &mut Claimed,
        (opened, array): (&Opened, Option<Arc<Lease>>),
        tls: Option<TlsContext>,
        signals: &StopSignals,
    ) -> Result<Running> {
        // What is noted from here on is to be there.
        if let Some(made) = self.made {
            made.keep();
        }
        let plan = Plan {
            export: self.export,
            limits: Limits::default(),
            tls,
            listeners: std::mem::take(&mut claimed.listeners),
            core: opened.core.source(),
            leases: Leases { core: opened.image.as_ref().map(|i| i.image().lease.clone()), array },
            backend: self.backend,
        };
        signals.started();
        loligo_shard::start(plan)
            .map_err(|why| anyhow::Error::from(why).context("the volume's threads cannot start"))
    }
}

/// Mounts, block devices and the control API of a served volume.
type Exports = (Vec<Mount>, Vec<BlockDevice>, Box<dyn ServedApi>);

/// Sets the tunables, mounts the volume and makes its devices wherever that was asked for, and lets management come.
fn serve(
    options: &ServeOptions,
    claimed: Claimed,
    (export, turns): (&Export, bool),
    app: &Arc<VolumeState>,
    control: &dyn ControlApi,
    kernel: &mut Devices,
) -> Result<Exports> {
    app.set_params(&options.params)?;
    kernel.go_live(&app.handle)?;
    let mounts = mount(&claimed.mountpoints, export, app)?;
    let devices = block::serve(claimed.claims, export, &options.block, turns, app)?;
    let api = control.serve_volume(claimed.name, app.clone())?;
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
