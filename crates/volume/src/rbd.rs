//! An RBD image as the core of a volume: taken before the cache is opened, kept while it is served, and given back, or left
//! with its lock as a witness.

mod held_image;
mod lock_text;
pub(crate) mod start_io;

pub(crate) use held_image::HeldImage;

use held_image::Unserved;
use lock_text::{decode, encode, witness_of};
use start_io::{PATIENCE, goes_on, while_ours};

use crate::cache;
use crate::core::{Backing, CoreSpec, OpenCore};
use crate::held_cache::{HeldCache, SharedSuperblock};
use crate::identity::of_controller;
use crate::options::{CacheOptions, RbdOptions, ServeOptions};
use crate::reservation;
use crate::signals::{CutOff, StopSignals};
use anyhow::{Context, Result, bail};
use loligo_block::keys::SNAPSHOT_DEADLINE;
use loligo_block::{CacheDevice, KeyedText, keyed};
use loligo_ceph::AttachedImage;
use loligo_ceph::attach::{self, AttachRequest, Attachment};
use loligo_ceph::attach_marker::AttachMarker;
use loligo_ceph::cancel::{self, Cancellable};
use loligo_ceph::lease::Poller;
use loligo_ceph::lock_record::{LockRecord, Loss};
use loligo_ceph::quiesce::{Clients, Quiescer, Report};
use loligo_ceph::spec::ImageSpec;
use loligo_client::outcome::Absent;
use loligo_engine::api::Control;
use loligo_engine::params::{LargeWrites, Params};
use loligo_format::superblock::{CoreIdentity, Superblock};
use loligo_format::units::BLOCK;
use loligo_log::say;
use loligo_shard::{Command, Handle, Response};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Ends the process with `code`, where clients of Ceph are left in it: an orderly exit would take their libraries' data from
/// threads that still run.
pub fn end(code: ExitCode) -> ExitCode {
    if cancel::has_left_clients() {
        // SAFETY: whatever was to be written is; nothing that an orderly exit runs is missed.
        unsafe { libc::_exit(i32::from(code != ExitCode::SUCCESS)) };
    }
    code
}

/// Takes the image that `spec` names for the cache that the options name.
///
/// # Errors
/// Every refusal, with cause and mend.
pub(crate) fn open(
    o: &ServeOptions,
    spec: &ImageSpec,
    signals: &StopSignals,
) -> Result<(OpenCore, HeldImage)> {
    let (place, found) = match &o.cache {
        Some(c) => cache::peek(c)?,
        None => (None, None),
    };
    let place = place.map(|p| p.silenced_by(signals.silence()));
    // Its lock is taken, and a stop reaches whatever hangs from here on.
    signals.passes()?;
    let cache = o.cache.as_ref().map(|c| cache_side(o, c, found.as_ref()));
    let may_be_dirty = cache.as_ref().is_some_and(|c| c.dirty);
    let file = place.as_ref().map(|p| p.file.clone());
    let unserved = found.as_ref().map(|sb| sb.uuid).zip(file.clone());
    let mut stored = found.zip(file);
    let mut remember = |record: &LockRecord| -> Result<(), String> {
        let Some((sb, file)) = &mut stored else { return Ok(()) };
        if let Some(mirror) = file.mirror() {
            // An image that a dead owner had is noted before the cache is opened.
            mirror.begin().map_err(|e| format!("the legs of the mirrored cache cannot be labelled: {e}"))?;
        }
        sb.core_record = encode(record);
        sb.store(&mut file.sync_io()).map_err(|e| format!("the superblock cannot be written: {e}"))
    };
    let request = AttachRequest {
        spec,
        cache,
        steal: o.rbd.steal,
        without_cache: o.rbd.without_cache,
        destage: o.rbd.destage,
        quiesce_attempts: o.rbd.quiesce_attempts(),
        lease: o.rbd.lease,
        remember: &mut remember,
    };
    let attachment =
        cancel::attach_while(request, goes_on(spec, signals)).map_err(|why| match why.errno() {
            // No monitor answers, and one may come.
            Some(libc::ETIMEDOUT) => Absent(keyed!("{why}")).into(),
            _ => anyhow::Error::from(why),
        })?;
    let Attachment { image, notices, changed, warnings } = attachment.ok_or(CutOff)?;
    for warning in warnings {
        say!("warning: {warning}");
    }
    if let Some(why) = image.why_librbd() {
        say!("dirty data goes to the image through librbd: {why}");
    }
    let identity = CoreIdentity { size: image.reach(), id: image.identity.to_string() };
    let core = OpenCore {
        spec: CoreSpec::Image(spec.clone()),
        backing: Backing::Image(image.clone()),
        identity,
        home: None,
        cache_file: place,
        changed,
        params: tunables(o),
    };
    let mut held = HeldImage {
        image: Some(image.clone()),
        notices: Some(notices),
        poller: None,
        may_be_dirty,
        marked: false,
        void: Arc::default(),
        unserved: unserved.map(|(uuid, file)| Unserved { file, uuid, suspect: changed }),
        silence: signals.silence().clone(),
        identity: of_controller(o.identity.as_deref()),
    };
    held.poller = Some(Poller::start(image)?);
    Ok((core, held))
}

/// The tunables that a cache in front of an image starts with. Clients of a shared array wait for that, and not for the cluster,
/// as long as there is room.
fn tunables(o: &ServeOptions) -> Params {
    let large_writes = if o.reservation.is_some() { LargeWrites::Cached } else { LargeWrites::Past };
    Params { large_writes, snapshot_deadline: o.rbd.snapshot_deadline.as_secs(), ..Params::default() }
}

fn cache_side(o: &ServeOptions, c: &CacheOptions, found: Option<&Superblock>) -> attach::Cache {
    // One that is replaced takes its dirty data with it.
    let kept = found.filter(|sb| !(c.create || c.replaces(sb)));
    attach::Cache {
        cache: found.map(|s| s.uuid_text()).unwrap_or_default(),
        volume: o.name.clone(),
        core: kept.map(|s| s.core.id.clone()),
        dirty: kept.is_some_and(|s| !s.clean || s.dirty_blocks > 0),
        dirty_bytes: kept.filter(|s| s.clean).map(|s| s.dirty_blocks * BLOCK),
        record: found.and_then(|s| decode(&s.core_record)),
        force: c.force,
        is_alone: reservation::is_alone(o, c),
    }
}

/// Says in cache and image that they belong together, before anything is acknowledged.
///
/// # Errors
/// If either cannot be written, or the start is stopped first.
pub(crate) fn marry(
    held: &mut HeldImage,
    spec: &ImageSpec,
    file: &CacheDevice,
    sb: &mut Superblock,
    signals: &StopSignals,
) -> Result<()> {
    let (image, mark) = (held.image().clone(), mark_of(sb, &held.identity));
    let marks = image.clone();
    // It may be there as soon as it is sent, whatever the answer.
    held.marked = true;
    let marked = Cancellable::begin(move || marks.set_mark(mark))?;
    while_ours(&image, spec, signals, marked)?.ok_or(CutOff)??;
    sb.core_record = encode(&image.record());
    sb.store(&mut file.sync_io()).context("the superblock cannot be written")?;
    held.may_be_dirty = true;
    Ok(())
}

/// Says in the image that what its cache holds is void, and leaves that there when the image is given back.
///
/// # Errors
/// If the image cannot be written.
pub(crate) fn void(held: &mut HeldImage, cache: &HeldCache) -> Result<()> {
    let void = AttachMarker { void: true, ..mark_of(&cache.superblock.lock(), &held.identity) };
    let image = held.image().clone();
    let begun = Instant::now();
    let marks = image.clone();
    let marked = Cancellable::begin(move || marks.set_mark(void))?
        .while_waited_for(|| !image.is_lost() && begun.elapsed() < PATIENCE)?;
    let Some(marked) = marked else { bail!("the cluster does not answer") };
    marked?;
    held.marked = false;
    held.void.store(true, Relaxed);
    Ok(())
}

/// The marker that the image keeps of its cache.
fn mark_of(sb: &Superblock, identity: &str) -> AttachMarker {
    AttachMarker::new(sb.uuid_text(), sb.generation, identity.to_owned(), sb.name.clone())
}

/// Keeps an image while it is served.
#[derive(Debug)]
pub struct ImageGuard {
    pub(crate) image: Arc<AttachedImage>,
    pub(crate) quiescer: Quiescer,
    /// Seconds: whoever takes a snapshot waits for that, whatever is set later. 0: as long as it takes.
    deadline: u64,
    _poller: Poller,
}

impl ImageGuard {
    /// The reason why the deadline for snapshots cannot be set to so many seconds now.
    pub(crate) fn refuse_deadline(&self, seconds: u64) -> Option<KeyedText> {
        let started = self.deadline;
        let more = started != 0 && (seconds == 0 || seconds > started);
        more.then(|| {
            keyed!(
                "snapshot-deadline {seconds}: those who take snapshots wait for the {started} s that the service was started with; for \
                 more dirty data than that, start it with {SNAPSHOT_DEADLINE:#} {seconds}"
            )
        })
    }
}

/// Starts to keep the image of a running volume.
///
/// # Errors
/// If no thread can be had.
pub(crate) fn keep(
    held: &mut HeldImage,
    handle: &Handle,
    sb: Option<(SharedSuperblock, CacheDevice)>,
    options: &RbdOptions,
) -> Result<ImageGuard> {
    let image = held.image().clone();
    let (Some(notices), Some(poller)) = (held.notices.take(), held.poller.take()) else {
        bail!("the image is kept already")
    };
    let void = held.void.clone();
    let clients = Box::new(Volume { image: image.clone(), handle: handle.clone(), sb, void });
    let quiescer = Quiescer::start(image.clone(), notices, clients, options.quiesce_attempts())?;
    Ok(ImageGuard { image, quiescer, deadline: options.snapshot_deadline.as_secs(), _poller: poller })
}

/// The cache, as the quiescer of its image sees it.
struct Volume {
    image: Arc<AttachedImage>,
    handle: Handle,
    sb: Option<(SharedSuperblock, CacheDevice)>,
    void: Arc<AtomicBool>,
}

impl Volume {
    /// Changes the superblock, durably if at all. The exported length by it; nothing where there is no cache.
    fn write_down(
        &self,
        change: impl FnOnce(&mut Superblock) -> Result<(), String>,
    ) -> Result<Option<u64>, String> {
        let Some((sb, file)) = &self.sb else { return Ok(None) };
        let mut sb = sb.lock();
        let mut next = sb.clone();
        change(&mut next)?;
        if next != *sb && !self.void.load(Relaxed) {
            next.store(&mut file.sync_io()).map_err(|e| format!("the superblock cannot be written: {e}"))?;
        }
        *sb = next;
        Ok(Some(sb.data_length))
    }

    /// Writes down in the cache what shows later whether somebody else had the image.
    fn note(&self, lost: Option<Loss>) {
        let noted = self.write_down(|sb| {
            sb.core_record = encode(&witness_of(self.image.record(), lost, &sb.core_record));
            Ok(())
        });
        if let Err(why) = noted {
            say!("warning: the cache of image {} does not know who had it: {why}", self.image.name);
        }
    }

    /// Goes along with another size of the image: first in the superblock, then for clients. The result is
    /// the part of it that they get.
    fn follow(&self, bytes: u64) -> Result<u64, String> {
        let grown = self.write_down(|sb| {
            if bytes > sb.core.size { sb.grow(bytes).map_err(|e| e.to_string()) } else { Ok(()) }
        });
        let length = grown?.map_or(bytes, |length| length.min(bytes));
        self.handle.wait_all(self.handle.send_all(|| Command::Resize(length)))?;
        Ok(length)
    }
}

impl Clients for Volume {
    fn freeze(&self) -> Receiver<Result<(), String>> {
        let (send, answer) = channel();
        let said = self.handle.send(0, Command::Control(Control::Freeze));
        // The engine's answer is of another kind; this thread only passes it on.
        std::thread::spawn(move || {
            let result = match said.recv() {
                Ok(Response::Done(result)) => result.map_err(String::from),
                Ok(Response::Snapshots(_)) | Err(_) => Err("the volume's thread has ended".to_owned()),
            };
            // The quiescer may have given up meanwhile.
            let _ = send.send(result);
        });
        answer
    }

    fn thaw(&self) {
        if let Err(why) = self.handle.control(&Control::Thaw) {
            tracing::warn!(%why, "the cache cannot go on after a snapshot");
        }
    }

    fn lose(&self, why: &str) {
        say!(
            "error: image {} is another client's now: {why}. Every request fails; what the cache holds stays as it is. Stop the \
             service; a start takes the image again if nobody else had it, and says what is to be decided if somebody had",
            self.image.name
        );
        drop(self.handle.send(0, Command::Control(Control::Fence(why.to_owned()))));
        self.note(Some(Loss::now(why)));
    }

    fn lock_record_changed(&self) {
        self.note(None);
    }

    fn cut(&self, bytes: u64) -> Result<(), String> {
        self.write_down(|sb| {
            sb.note_cut(bytes);
            Ok(())
        })
        .map(drop)
    }

    fn resized(&self, bytes: u64) {
        let name = &self.image.name;
        match self.follow(bytes) {
            Ok(size) => say!(
                "image {name} has {bytes} bytes now, and this volume {size}: clients see it when they connect again"
            ),
            Err(why) => {
                say!("warning: image {name} has {bytes} bytes now, and this volume does not follow: {why}")
            }
        }
    }
}

/// The word for a lease that was confirmed in time.
const VALID: &str = "valid";

/// The numbers of an image.
#[derive(Debug, serde::Serialize)]
pub struct Numbers {
    image: String,
    id: String,
    /// The reason why dirty data goes through librbd; null: by object.
    librbd: Option<String>,
    groups: u64,
    group_extents: u64,
    group_bytes: u64,
    primers: u64,
    turned_back: u64,
    refreshes: u64,
    /// Objects that are written at a time; 0: nothing was written yet.
    depth: u64,
    lease: &'static str,
    /// The cause for which answers wait: `network`, `watch` or `lock`; null: they do not.
    lacks: Option<&'static str>,
    snapshots: Report,
}

impl Numbers {
    /// The same for Prometheus: name, whether it only grows, and value.
    pub fn metrics(&self) -> [(&'static str, bool, f64); 13] {
        let count = |n: u64| n as f64;
        let is = |yes: bool| f64::from(u8::from(yes));
        [
            ("rbd_groups", true, count(self.groups)),
            ("rbd_group_extents", true, count(self.group_extents)),
            ("rbd_group_bytes", true, count(self.group_bytes)),
            ("rbd_primers", true, count(self.primers)),
            ("rbd_turned_back", true, count(self.turned_back)),
            ("rbd_refreshes", true, count(self.refreshes)),
            ("rbd_depth", false, count(self.depth)),
            ("rbd_snapshots_quiesced", true, count(self.snapshots.quiesced)),
            ("rbd_snapshots_refused", true, count(self.snapshots.refused)),
            ("rbd_snapshot_last_wait_seconds", false, self.snapshots.last_wait),
            ("rbd_grouped", false, is(self.librbd.is_none())),
            ("rbd_lease_valid", false, is(self.lease == VALID)),
            ("rbd_lost", false, is(self.snapshots.lost.is_some())),
        ]
    }
}

/// The numbers of now.
pub fn numbers(kept: &ImageGuard) -> Numbers {
    use loligo_block::lease::Hold;
    let c = &kept.image.counters;
    Numbers {
        image: kept.image.name.clone(),
        id: kept.image.identity.to_string(),
        librbd: kept.image.why_librbd(),
        groups: c.groups.load(Relaxed),
        group_extents: c.extents.load(Relaxed),
        group_bytes: c.group_bytes.load(Relaxed),
        primers: c.primers.load(Relaxed),
        turned_back: c.turned_back.load(Relaxed),
        refreshes: c.refreshes.load(Relaxed),
        depth: c.depth.load(Relaxed),
        lease: match kept.image.lease.now() {
            Hold::Valid => VALID,
            Hold::Expired => "expired",
            Hold::Lost => "lost",
        },
        lacks: kept.image.lacks(),
        snapshots: kept.quiescer.report(),
    }
}
