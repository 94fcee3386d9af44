//! The cache device at start: made, formatted, recovered or refused.

mod number;
pub(crate) mod place;
mod recover;

use crate::blank;
use crate::core::{self, CoreSpec, OpenCore};
use crate::identity::device_id;
use crate::mirror;
use crate::options::{CacheOptions, IMAGE_SHARDS};
use crate::pool::{Pool, PoolSpec, Share, random_uuid};
use crate::signals::StopSignals;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::keys::{CACHE, CACHE_SIZE, CORE, CORE_RESERVE, CREATE, FORCE, LINE_SIZE, SHARDS, SPARSE};
use loligo_block::{
    CacheDevice, CacheIo, ConfigKey, DeviceFile, IoError, KeyedText, OpenOptions, SIGNATURE_PROBE, SyncIo,
    foreign_signature, keyed,
};
use loligo_client::outcome::{Absent, OrRefused};
use loligo_client::progress::Progress;
use loligo_engine::Engine;
use loligo_engine::open::{self as engine, FormatOptions, OpenError};
use loligo_format::in_place_label;
use loligo_format::layout::{Layout, LayoutError, MIN_CACHE, SHARD_BASE, SUPERBLOCKS};
use loligo_format::superblock::{SUPERBLOCK, SuperError, Superblock};
use loligo_format::units::{BLOCK, Striping};
use loligo_log::say;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use place::Place;
pub(crate) use recover::close_unserved;

/// Bytes of an image for each of several shards, so that it can double: the numbers of a shard's blocks reach 16 TiB.
const IMAGE_SHARD: u64 = 8 << 40;
/// Exponent of the windows in a stripe of an image: 32 MiB, as large as objects can be, so that what is dirty in one object is
/// one shard's, and goes out together.
const IMAGE_STRIPE: u8 = 5;
/// Told of bytes done and bytes in all while a cache file is written whole, which may take long; an error ends it.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// A cache ready to run.
#[derive(Debug)]
pub(crate) struct OpenCache {
    pub(crate) file: CacheDevice,
    /// With it the cache can grow and shrink while it is served.
    pub(crate) share: Option<Arc<Share>>,
    pub(crate) superblock: Superblock,
    pub(crate) engines: Vec<Engine>,
    /// It was found stopped cleanly, or is new.
    pub(crate) was_clean: bool,
    pub(crate) made: Option<Made>,
}

/// The contents of the device.
enum Found {
    Cache(Box<Superblock>),
    Blank,
    Foreign(&'static str),
    Damaged(KeyedText),
}

/// Opens the cache of `core`, making it first where it does not exist.
///
/// # Errors
/// Every refusal, with cause and mend.
pub(crate) fn open(
    name: &str,
    o: &CacheOptions,
    core: &OpenCore,
    signals: &StopSignals,
    watch: Watch<'_>,
) -> Result<OpenCache> {
    refuse_same_device(o, core)?;
    if is_there(o) {
        let place = match &core.cache_file {
            Some(place) => place.clone(),
            None => open_device(o)?,
        };
        signals.opened();
        signals.passes()?;
        return open_in(place.silenced_by(signals.silence()), name, o, core, (signals, watch));
    }
    refuse_missing(o)?;
    signals.passes()?;
    let file = signals.making(&o.path, || make_file(o))?;
    let made = Made { file: file.silenced_by(signals.silence()), path: o.path.clone() };
    let mut opened = open_in(made.file.clone().into(), name, o, core, (signals, watch))?;
    opened.made = Some(made);
    Ok(opened)
}

fn open_device(o: &CacheOptions) -> Result<Place> {
    if let Some(m) = &o.mirror {
        return Ok(Place { file: mirror::open(o, m)?, share: None });
    }
    let Some(spec) = PoolSpec::of(&o.path)? else {
        let file =
            DeviceFile::open(&o.path, &OpenOptions::default()).context("the cache cannot be opened")?;
        return Ok(file.into());
    };
    if o.size.is_some() || o.sparse {
        bail!(keyed!(
            "{CACHE_SIZE} and {SPARSE} are for caches of their own: the pool says how large a share is ('loligo cache resize')"
        ));
    }
    let pool = Pool::open(&spec.path)?;
    let share = pool.share_of(&spec.core)?;
    if let Some(n) = o.shards.filter(|n| *n != share.member().shards) {
        bail!(keyed!(
            "{SHARDS:#} {n}: {} was attached with {}; leave it out, or detach it and attach it anew",
            o.path.display(),
            share.member().shards
        ));
    }
    Ok(Place { file: share.device(), share: Some(Arc::new(share)) })
}

/// Reads the superblock of an existing cache before that is opened. Its device stays locked.
///
/// # Errors
/// If it cannot be read, is in use, or can be refused without a look at the core. Nobody is to lose a core, or others theirs, for
/// the sake of a start that is refused.
pub fn peek(o: &CacheOptions) -> Result<(Option<Place>, Option<Superblock>)> {
    if PoolSpec::of(&o.path)?.is_none() && !is_there(o) {
        refuse_missing(o)?;
        can_make(o)?;
        return Ok((None, None));
    }
    let place = open_device(o)?;
    let mut dev = place.file.sync_io();
    let found = look(&mut dev)?;
    refuse(o, &found, dev.size()).or_refused()?;
    let found = match found {
        Found::Cache(sb) => Some(*sb),
        Found::Blank | Found::Foreign(_) | Found::Damaged(_) => None,
    };
    Ok((Some(place), found))
}

/// A cache that exists, and is not to be made anew, which remembers its core; and whether it keeps a copy of a first block, sound or
/// not, of whatever cache.
///
/// # Errors
/// An error says what refuses it.
pub(crate) fn remembers(o: &CacheOptions) -> Result<Option<(Superblock, bool)>> {
    if o.create {
        return Ok(None);
    }
    let (Some(place), Some(sb)) = peek(o)? else { return Ok(None) };
    if o.replaces(&sb) {
        return Ok(None);
    }
    let (mut dev, mut keeps, mut raw) = (place.file.sync_io(), false, vec![0; BLOCK as usize]);
    for at in in_place_label::SAVED {
        dev.read_at(at, &mut raw).context("the cache cannot be read")?;
        keeps |= in_place_label::is_label(&raw);
    }
    Ok(Some((sb, keeps)))
}

/// True if there is something at the path of the cache, or in the pool that it names. The legs of a mirror are never made.
pub(crate) fn is_there(o: &CacheOptions) -> bool {
    o.mirror.is_some() || o.path.exists() || PoolSpec::of(&o.path).is_ok_and(|pool| pool.is_some())
}

/// Refuses what a start would, in so far as that is seen without a device that is in use.
///
/// # Errors
/// A cache that is not there, and is to be, or cannot be made.
pub fn foresee(o: &CacheOptions) -> Result<()> {
    if PoolSpec::of(&o.path)?.is_none() && !is_there(o) {
        refuse_missing(o)?;
        can_make(o)?;
    }
    Ok(())
}

/// A cache file that this start has made. Nobody was served through it yet: it goes with a start that is refused, still
/// locked, so that nobody who waits for it can have begun to use it.
#[derive(Debug)]
pub(crate) struct Made {
    file: DeviceFile,
    path: PathBuf,
}

impl Made {
    /// The start was not refused.
    pub(crate) fn keep(mut self) {
        self.path.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            tracing::debug!(file = %self.file.path().display(), "removing what a refused start made");
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn open_in(
    place: Place,
    name: &str,
    o: &CacheOptions,
    core: &OpenCore,
    (signals, watch): (&StopSignals, Watch<'_>),
) -> Result<OpenCache> {
    let Place { file, share } = place;
    for warning in file.warnings() {
        say!("warning: {warning}");
    }
    let mut dev = file.sync_io();
    let path = o.path.display();
    let (mut grown, mut drop_clean) = (false, false);
    let found = look(&mut dev)?;
    refuse(o, &found, dev.size()).or_refused()?;
    if let Some(mirror) = file.mirror() {
        mirror.begin().context("the legs of the mirrored cache cannot be labelled")?;
    }
    let superblock = match found {
        Found::Cache(sb) if o.create || o.replaces(&sb) => {
            let wanted = wanted(name, o, core, &dev, share.as_deref())?;
            say!("{}", what_is_lost(&o.path, &sb));
            format(wanted, o, &mut dev, watch)?
        }
        Found::Cache(sb) => {
            if sb.name != name {
                say!("{path} was made for the volume '{}': it is served as '{name}' from now on", sb.name);
            }
            // The last 4 KiB of a core that was no multiple of them are cached with zeros behind its end.
            grown = core.identity.size > sb.core.size && sb.cut.is_none();
            drop_clean = grown && sb.data_length % BLOCK != 0;
            accept_core(*sb, core)?
        }
        Found::Damaged(why) => {
            let wanted = wanted(name, o, core, &dev, share.as_deref())?;
            say!("{path}: {why}; whatever dirty data it held is lost, as {CREATE} {FORCE} ordered");
            format(wanted, o, &mut dev, watch)?
        }
        Found::Foreign(what) => {
            let wanted = wanted(name, o, core, &dev, share.as_deref())?;
            say!("{path} held {what}: overwritten, as {FORCE} ordered");
            dev.write_at(0, &vec![0; (SHARD_BASE.min(dev.size())) as usize])?;
            format(wanted, o, &mut dev, watch)?
        }
        Found::Blank => format(wanted(name, o, core, &dev, share.as_deref())?, o, &mut dev, watch)?,
    };
    let mut superblock = superblock;
    if let Some(share) = &share {
        superblock.layout.limit = share.limit()?;
        share.identify(&superblock.core.id)?;
    }
    let mut opened = recover::recover(name, o, core, file, superblock, (drop_clean, signals))?;
    opened.share = share;
    if grown {
        // Not before the core was compared: a wrong one must not make the right one look as if it had shrunk.
        opened.superblock.store(&mut dev).context("the superblock cannot be written")?;
    }
    Ok(opened)
}

/// A cache that was there, and is to be made anew only by an order.
fn refuse_missing(o: &CacheOptions) -> Result<()> {
    let Some(last) = o.expected.as_ref().filter(|_| !o.create) else { return Ok(()) };
    let path = o.path.display();
    let held = last.lost().unwrap_or_else(|| "nothing that its core does not have".to_owned());
    let text = keyed!(
        "the cache {path} is not there. It held {held}. Bring it back; or start the volume with {CREATE}, which makes a new cache \
         and gives that up"
    );
    Err(Absent(text).into())
}

/// Refuses what was found if it is not the cache that this volume was last served through.
fn refuse_unexpected(o: &CacheOptions, found: &Found) -> Result<()> {
    let Some(last) = o.expected.as_ref().filter(|_| !o.force) else { return Ok(()) };
    let other = match found {
        Found::Cache(sb) if sb.uuid_text() == last.uuid => return Ok(()),
        Found::Cache(sb) => format!("another cache, of volume '{}'", sb.name),
        Found::Blank if o.create => return Ok(()),
        Found::Blank => "nothing".to_owned(),
        // These are refused anyway.
        Found::Foreign(_) | Found::Damaged(_) => return Ok(()),
    };
    let Some(lost) = last.lost() else { return Ok(()) };
    bail!(keyed!(
        "{} holds {other}, and this volume was last served through cache {} at {}, which holds {lost}. Give that one; or start \
         the volume with {FORCE}, which gives it up; or, where the name is to have another core, 'loligo volume forget' it with {FORCE}",
        o.path.display(),
        last.uuid,
        last.path.display()
    ))
}

/// Refuses what the options do not allow to be done to what was found.
fn refuse(o: &CacheOptions, found: &Found, device: u64) -> Result<()> {
    refuse_unexpected(o, found)?;
    let path = o.path.display();
    match found {
        Found::Cache(sb) if o.create && !o.force && !o.replaces(sb) => bail!(keyed!(
            "{path} holds the cache of volume '{}' already: leave out {CREATE} to use it, or add {FORCE} to replace it",
            sb.name
        )),
        Found::Cache(sb) if !o.create && !o.replaces(sb) => refuse_differing(o, sb, device),
        Found::Damaged(why) if !(o.create && o.force) => bail!(keyed!(
            "{path}: {why}. Look at it with 'loligo inspect {path}'; {CREATE} {FORCE} replaces it, and loses what it holds"
        )),
        Found::Foreign(what) if !o.force => {
            bail!(keyed!(
                "{path} holds {what}: if it is to be overwritten, add {FORCE}; else give another {CACHE}"
            ))
        }
        Found::Cache(_) | Found::Damaged(_) | Found::Foreign(_) | Found::Blank => {
            let size = o.size.unwrap_or(device) / BLOCK * BLOCK;
            ensure!(
                size <= device,
                keyed!(
                    "{CACHE_SIZE:#} {size} is more than the {device} bytes {path} has: give a smaller one, or a larger device"
                )
            );
            Ok(())
        }
    }
}

/// Refuses a core that is to be its own cache.
pub(crate) fn refuse_same_device(o: &CacheOptions, core: &OpenCore) -> Result<()> {
    let spec = PoolSpec::of(&o.path)?;
    let (Some(core), cache) = (core.spec.path(), spec.as_ref().map_or(&o.path, |s| &s.path)) else {
        return Ok(());
    };
    let is_core = |path: &Path| device_id(path).is_some_and(|id| device_id(core) == Some(id));
    let same = is_core(cache) || o.mirror.as_ref().is_some_and(|m| is_core(&m.path));
    ensure!(!same, keyed!("{CACHE} and {CORE} name the same device: a core cannot be its own cache"));
    Ok(())
}

/// Checks that a cache file that does not exist can be made; its size in bytes.
fn can_make(o: &CacheOptions) -> Result<u64> {
    let path = o.path.display();
    let Some(size) = o.size else {
        bail!(keyed!("{path} does not exist: give {CACHE_SIZE:#} SIZE to make it"));
    };
    if o.path.starts_with("/dev") && !o.path.starts_with("/dev/shm") {
        bail!("{path} does not exist, and a file there would live in memory: check the device's name");
    }
    Layout::new(size, o.shards.unwrap_or(1), 0).map_err(|e| size_refused(&e))?;
    let folder = o.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(fs) = rustix::fs::statvfs(folder) else {
        bail!(keyed!(
            "{path} cannot be made: the folder {} is not there; make it, or check {CACHE}",
            folder.display()
        ));
    };
    let free = fs.f_bavail * fs.f_frsize;
    if !o.sparse && free < size {
        bail!(keyed!(
            "{path} cannot be written whole: {} has {free} bytes free, and {size} are wanted. Make room, give a smaller \
             {CACHE_SIZE}, or {SPARSE}",
            folder.display()
        ));
    }
    Ok(size / BLOCK * BLOCK)
}

/// Makes and locks a cache file that does not exist.
fn make_file(o: &CacheOptions) -> Result<DeviceFile> {
    DeviceFile::create(&o.path, can_make(o)?, &OpenOptions::default()).context("the cache cannot be made")
}

fn size_refused(e: &LayoutError) -> anyhow::Error {
    keyed!("no cache can be made like that: {e}").into()
}

fn look(dev: &mut CacheIo) -> Result<Found> {
    match Superblock::load(dev) {
        Ok(sb) => return Ok(Found::Cache(Box::new(sb))),
        Err(SuperError::Damaged(why)) => {
            let (mut untouched, mut first) = (false, true);
            for at in SUPERBLOCKS {
                let mut raw = vec![0; SUPERBLOCK];
                dev.read_at(at, &mut raw)?;
                untouched |= raw.iter().all(|b| *b == 0);
                first &= Superblock::claimed_generation(&raw) <= 1;
            }
            // The two copies are written one after the other: a torn one beside one never written is a format cut off, but
            // only if it is the first: a cache that was ever opened has a later generation.
            return Ok(if untouched && first {
                Found::Blank
            } else {
                Found::Damaged(keyed!("both superblocks are damaged: {why}"))
            });
        }
        Err(e @ SuperError::TooNew(_)) => return Ok(Found::Damaged(keyed!("{e}"))),
        Err(SuperError::Absent) => {}
        Err(e @ SuperError::Io(_)) => return Err(e).context("the cache cannot be read"),
    }
    if matches!(dev, CacheIo::Share(_)) {
        // Whatever lies in a share is of nobody any more: its start was wiped when it was given away.
        return Ok(Found::Blank);
    }
    let mut head = vec![0; (SIGNATURE_PROBE as u64).min(dev.size()) as usize];
    dev.read_at(0, &mut head)?;
    if let Some(what) = foreign_signature(&head) {
        return Ok(Found::Foreign(what));
    }
    if engine::traces_of_a_format(dev)? || !blank::holds_data(dev)? {
        return Ok(Found::Blank);
    }
    Ok(Found::Foreign("data of somebody else's behind a start of zeros"))
}

fn what_is_lost(path: &Path, sb: &Superblock) -> String {
    let lost = match (sb.clean, sb.dirty_blocks) {
        (true, 0) => "it was stopped cleanly and held nothing that its core does not have".to_owned(),
        (true, n) => format!("{} bytes of dirty data, newer than its core, are lost", n * BLOCK),
        (false, _) => "it was not stopped cleanly: whatever dirty data it held is lost".to_owned(),
    };
    format!(
        "{}: replacing the cache of volume '{}', of core {}: {lost}",
        path.display(),
        sb.name,
        core::describe(&sb.core)
    )
}

/// The geometry of a cache is fixed when it is made.
fn refuse_differing(o: &CacheOptions, sb: &Superblock, device: u64) -> Result<()> {
    let path = o.path.display();
    let check = |what: ConfigKey, given: Option<u64>, have: u64| match given {
        Some(n) if n != have => bail!(keyed!(
            "{path} was made with {what:#} {have}, {n} was given: leave {what} out, or make a new cache \
             (flush and release this one, then {CREATE} {FORCE})"
        )),
        _ => Ok(()),
    };
    check(LINE_SIZE, o.line_size.map(u64::from), sb.line_size.into())?;
    check(SHARDS, o.shards.map(u64::from), sb.layout.shards.into())?;
    check(CORE_RESERVE, o.core_reserve.map(u64::from), sb.core_reserve.into())?;
    check(CACHE_SIZE, o.size.map(|n| n / BLOCK * BLOCK), sb.layout.cache_size)?;
    if device < sb.layout.cache_size {
        bail!(
            "{path} has {device} bytes, its cache was made with {}: part of it is missing",
            sb.layout.cache_size
        );
    }
    Ok(())
}

/// True if this core may get smaller: an image is known for the same whatever its size is.
fn shrinks(core: &OpenCore) -> bool {
    matches!(core.spec, CoreSpec::Image(_))
}

/// Refuses a core that is another one or that shrank and must not; takes the size of one that grew.
fn accept_core(mut sb: Superblock, core: &OpenCore) -> Result<Superblock> {
    let (was, is) = (&sb.core, &core.identity);
    if was.id != is.id {
        bail!(keyed!(
            "this cache belongs to another core ({}); the one given is {}: give the right {CORE} or the right {CACHE}",
            core::describe(was),
            core::describe(is)
        ));
    }
    if is.size < was.size && !shrinks(core) {
        bail!(keyed!(
            "the core has {} bytes, but had {} when it was last served: it shrank, or it is another one. Give the \
             right {CORE}, or grow it back",
            is.size,
            was.size
        ));
    }
    if is.size > was.size && sb.cut.is_none() {
        let (before, now) = (was.size, is.size);
        match sb.grow(now) {
            Ok(()) => say!("the core grew from {before} to {now} bytes: the volume grows with it"),
            // As for one that grows while it is served: what there was is served all the same.
            Err(why) => {
                say!("warning: the core grew from {before} to {now} bytes, and the volume does not: {why}")
            }
        }
    }
    Ok(sb)
}

/// The cache that the options ask for, refused before anything is written where it cannot be.
fn wanted(
    name: &str,
    o: &CacheOptions,
    core: &OpenCore,
    dev: &CacheIo,
    share: Option<&Share>,
) -> Result<FormatOptions> {
    let path = o.path.display();
    let size = o.size.unwrap_or(dev.size()) / BLOCK * BLOCK;
    if size < MIN_CACHE {
        return Err(size_refused(&LayoutError::TooSmall(size)));
    }
    let (own, stripe) = match core.spec.is_one_threads() {
        true => (image_shards(core.identity.size), IMAGE_STRIPE),
        false => (1, 0),
    };
    let shards = share.map_or(o.shards.unwrap_or(own), |s| s.member().shards);
    let wanted = FormatOptions {
        uuid: random_uuid()?,
        name: name.to_owned(),
        cache_size: size,
        core: core.identity.clone(),
        line_size: o.line_size.unwrap_or(4096),
        shards,
        stripe: if shards > 1 { stripe } else { 0 },
        mode: o.mode,
        core_reserve: o.core_reserve.unwrap_or(0),
        journal_len: share.map_or(0, |s| s.member().journal_len),
    };
    let checked = engine::check(&wanted, dev.size());
    if let (Err(OpenError::Layout(LayoutError::CoreTooLarge(n))), true) =
        (&checked, core.spec.is_one_threads())
        && *n > IMAGE_SHARDS
    {
        bail!(
            "an image of {} bytes has no cache: it would need {n} shards, and {IMAGE_SHARDS} are possible. Serve it without one \
             (--bare)",
            core.identity.size
        );
    }
    checked.with_context(|| format!("{path} cannot be made a cache"))?;
    Ok(wanted)
}

/// Shards of a new cache before an image of so many bytes: one where that reaches, else enough for twice as large a one.
fn image_shards(bytes: u64) -> u16 {
    if Striping::by_window(1).can_count(bytes) {
        return 1;
    }
    bytes.div_ceil(IMAGE_SHARD).clamp(1, IMAGE_SHARDS.into()) as u16
}

fn format(
    format: FormatOptions,
    o: &CacheOptions,
    dev: &mut CacheIo,
    watch: Watch<'_>,
) -> Result<Superblock> {
    let path = o.path.display();
    if let CacheIo::Whole(dev) = dev
        && !o.sparse
        && has_holes(&o.path)?
    {
        let mut progress = Progress::new(format!("writing {path} whole"));
        let all = dev.size();
        let filled = dev.fill(|done| {
            progress.show(done, all);
            watch(done, all)
        });
        if let Err(e) = filled {
            if !e.is::<IoError>() {
                // Whoever ended it has nothing to mend.
                return Err(e);
            }
            bail!(keyed!(
                "{path} cannot be written whole: {e}. Make room, give a smaller {CACHE_SIZE}, or {SPARSE}"
            ));
        }
        progress.end("done");
    }
    let sb = engine::format(dev, &format).with_context(|| format!("{path} cannot be made a cache"))?;
    if let CacheIo::Whole(dev) = dev {
        crate::labelled_core::announce(dev.file());
    }
    say!(
        "{path}: made a new cache of {} bytes, lines of {}, {} shard(s)",
        sb.layout.cache_size,
        sb.line_size,
        sb.layout.shards
    );
    Ok(sb)
}

/// True if a file is not written whole yet.
fn has_holes(path: &Path) -> Result<bool> {
    let meta = std::fs::metadata(path)?;
    Ok(meta.is_file() && meta.blocks() * 512 < meta.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_format::mode::Mode;

    fn options(path: &Path, size: Option<u64>) -> CacheOptions {
        CacheOptions {
            path: path.to_owned(),
            size,
            sparse: false,
            mode: Mode::Wb,
            line_size: None,
            shards: None,
            core_reserve: None,
            mirror: None,
            create: false,
            force: false,
            replace: None,
            expected: None,
            disputed: None,
        }
    }

    #[test]
    fn a_refusal_names_options_to_a_command_and_keys_to_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        let said = |size, option: &str, key: &str| {
            let why = peek(&options(&path, size)).unwrap_err();
            assert!(format!("{why:#}").ends_with(option), "{why:#}");
            let told = keyed!("{why:#}").for_file();
            assert!(told.ends_with(key), "{told}");
        };
        said(None, "give --cache-size SIZE to make it", "give cache-size = SIZE to make it");
        // The crate of the format says so.
        said(Some(1 << 20), "give a larger --cache-size", "give a larger cache-size");
        std::fs::write(&path, vec![0xa5; 1 << 20]).unwrap();
        said(
            None,
            "add --force; else give another --cache",
            "add --force; else give another cache (--force: for 'loligo volume start' and 'create')",
        );
    }

    #[test]
    fn an_image_gets_one_shard_as_far_as_one_reaches() {
        let tib = |n: u64| n << 40;
        assert_eq!([1, tib(8), tib(15)].map(image_shards), [1; 3]);
        assert_eq!([tib(16), tib(17), tib(256), tib(500)].map(image_shards), [2, 3, 32, 32]);
    }
}
