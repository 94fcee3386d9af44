//! A cache that is there already: recovered, and held against its core.

use super::{OpenCache, number};
use crate::core::{Backing, CoreSpec, OpenCore};
use crate::options::CacheOptions;
use crate::rbd::start_io::{StartIo, while_ours};
use crate::signals::{CutOff, StopSignals};
use anyhow::{Context, Result, bail};
use loligo_block::keys::{CORE, FORCE};
use loligo_block::{CacheDevice, SyncIo, keyed};
use loligo_ceph::AttachedImage;
use loligo_engine::open::{self as engine, Devices, Large, Opened};
use loligo_format::superblock::Superblock;
use loligo_format::units::BLOCK;
use loligo_log::say;
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clean blocks compared with the core at start, beside those of its first and last MiB.
const COMPARED: usize = 256;
/// Once a block could not be read so long after the first was tried, no more are: each may cost half a minute.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sizes that are large for an RBD image. An operation of OSDs takes as long with 64 KiB as with 4. From 512 KiB on so many 4 KiB
/// slots cost more than the operation (docs/decisions/0019).
const LARGE: Large = Large { least: 64 << 10, always: 512 << 10 };

/// Recovers, compares with the core, and makes the engines.
pub(super) fn recover(
    name: &str,
    o: &CacheOptions,
    core: &OpenCore,
    file: CacheDevice,
    sb: Superblock,
    (drop_clean, signals): (bool, &StopSignals),
) -> Result<OpenCache> {
    let stopped = Cell::new(false);
    let mut disk: Box<dyn SyncIo + '_> = match (&core.spec, &core.backing) {
        (CoreSpec::Image(spec), Backing::Image(image)) => {
            Box::new(StartIo::new(image.clone(), spec, signals, &stopped))
        }
        (_, backing) => backing.sync_io(),
    };
    let opened = recover_from((&mut *disk, &stopped), name, o, core, (file, sb), (drop_clean, signals));
    opened.map_err(|why| if stopped.get() { CutOff.into() } else { why })
}

/// The same with the core as `disk`, which fails once the start is `stopped`.
fn recover_from(
    (disk, stopped): (&mut dyn SyncIo, &Cell<bool>),
    name: &str,
    o: &CacheOptions,
    core: &OpenCore,
    (file, sb): (CacheDevice, Superblock),
    (drop_clean, signals): (bool, &StopSignals),
) -> Result<OpenCache> {
    let mut dev = file.sync_io();
    let path = o.path.display();
    if let Some(why) = core.spec.single_shard().filter(|_| sb.layout.shards > 1) {
        bail!("{why}, but {path} was made with {} shards", sb.layout.shards);
    }
    // Whoever served it without a cache may have been killed: what is read of it now is to be durable.
    disk.flush().context("the core cannot be flushed")?;
    let options = engine::OpenOptions { force: o.force, params: core.params, bug: None };
    let begun = Instant::now();
    let mut opened = engine::open(&mut dev, disk, sb, &options).with_context(|| {
        keyed!("{path} cannot be recovered. 'loligo inspect {path}' shows what is damaged; {FORCE} gives up what is")
    })?;
    say_recovered(&opened, begun);
    if let Err(refused) = follow_shrinking(&mut opened, &mut dev, disk, core, (&options, signals)) {
        if opened.was_clean {
            close_again(&opened, &mut dev)?;
        }
        return Err(refused);
    }
    let dirty = opened.dirty_blocks() * BLOCK;
    let ahead = core.home.as_ref().map_or(Ok(false), |home| home.is_ahead_of(&opened.superblock, dirty));
    let compared = ahead.and_then(|ahead| {
        compare(name, &mut opened, (&mut dev, disk, stopped), core, o, &options)?;
        number::note(&mut opened, &mut dev, core)?;
        Ok(ahead)
    });
    let ahead = match compared {
        Ok(ahead) => ahead,
        Err(refused) => {
            if opened.was_clean {
                close_again(&opened, &mut dev)?;
            }
            return Err(refused);
        }
    };
    if core.changed || ahead {
        let dropped = opened.drop_clean(&mut dev, &options).context("clean blocks cannot be dropped")?;
        if dropped > 0 {
            say!(
                "{}: others had the core since this cache was: {dropped} clean blocks were dropped",
                core.spec
            );
        }
    }
    if drop_clean {
        opened.drop_clean(&mut dev, &options).context("clean lines cannot be dropped")?;
    }
    let devices = Devices {
        core_groups: core.takes_groups(),
        core_large: if core.takes_groups() { LARGE } else { Large::NEVER },
        core_snapshots: core.has_snapshots(),
        ..Devices::of(file.geometry(), core.backing.geometry())
    };
    let was_clean = opened.was_clean;
    let (superblock, engines) = opened.into_engines(o.mode, &options, &devices);
    Ok(OpenCache { file, share: None, superblock, engines, was_clean, made: None })
}

/// Forgets what is cached behind the end that an image had meanwhile, or has by now, and takes its size.
fn follow_shrinking(
    opened: &mut Opened,
    dev: &mut dyn SyncIo,
    disk: &mut dyn SyncIo,
    core: &OpenCore,
    (options, signals): (&engine::OpenOptions, &StopSignals),
) -> Result<()> {
    let sb = &opened.superblock;
    let (is, was, length) = (core.identity.size, sb.core.size, sb.data_length);
    if is >= was && sb.cut.is_none() {
        return Ok(());
    }
    // What was seen to go while it was served is given up already.
    let given_up = sb.cut.unwrap_or(length);
    let lost = opened.dirty_between(is, given_up) * BLOCK;
    // Where nobody else had it, it shrank under this cache, which ended before it could say so.
    if lost > 0 && !options.force && core.changed {
        bail!(keyed!(
            "{} shrank from {was} to {is} bytes while it was not served, and {lost} dirty bytes of the cache lie behind its end: \
             {FORCE} drops them; or make it as large as it was ('rbd resize')",
            core.spec
        ));
    }
    if let Backing::Image(image) = &core.backing
        && !core.changed
    {
        // What went there after librbd had cut it off must not be found when it grows.
        image_ends(image, given_up.min(is), core, signals)?;
    }
    let cut = opened
        .cut_off(dev, disk, given_up.min(is), options)
        .context("what lies behind the core's end cannot be dropped")?;
    if is != was {
        say!("{}: it had {was} bytes and has {is}: the volume follows", core.spec);
    }
    if cut.clean + cut.dirty > 0 {
        say!(
            "{}: it ended at byte {} meanwhile: {} clean and {} dirty blocks behind that were dropped",
            core.spec,
            given_up.min(is),
            cut.clean,
            cut.dirty
        );
    }
    let sb = &mut opened.superblock;
    sb.shrink(is);
    if is > was
        && let Err(why) = sb.grow(is)
    {
        say!("warning: the volume stays at {} bytes: {why}", sb.data_length);
    }
    sb.store(dev).context("the superblock cannot be written")
}

/// Has what lies behind the end of an image cut off, as long as nobody stops the start.
fn image_ends(image: &Arc<AttachedImage>, end: u64, core: &OpenCore, signals: &StopSignals) -> Result<()> {
    let CoreSpec::Image(spec) = &core.spec else { return Ok(()) };
    let cut = while_ours(image, spec, signals, image.cut_boundary(end)?)?;
    let cut = cut.ok_or(CutOff)?;
    cut.with_context(|| format!("what lies behind byte {end}, where {spec} ends by now, cannot be cut off"))
}

fn say_recovered(opened: &Opened, begun: Instant) {
    let r = &opened.report;
    if !opened.was_clean {
        say!(
            "recovered in {} ms: {} journal frames replayed, {} unfinished writes dropped, {} clean blocks dropped, \
             {} bytes dirty",
            begun.elapsed().as_millis(),
            r.frames,
            r.records_dropped,
            r.clean_dropped,
            opened.dirty_blocks() * BLOCK
        );
    }
    if r.pages_lost > 0 || r.frames_lost > 0 {
        say!("warning: given up by {FORCE}: {} index pages, {} journal frames", r.pages_lost, r.frames_lost);
    }
}

/// Says of a cache that was stopped cleanly, and that nobody was served from since, that this is so: opening it has taken
/// that away.
fn close_again(opened: &Opened, dev: &mut dyn SyncIo) -> Result<()> {
    let finals: Vec<u64> = opened.shards.iter().map(|s| s.last_seq()).collect();
    close_unserved(dev, &finals, opened.dirty_blocks())
}

/// The same of one whose engines are made and have not run.
pub(crate) fn close_unserved(dev: &mut dyn SyncIo, finals: &[u64], dirty_blocks: u64) -> Result<()> {
    // As it is on the device: a core that grew is not written down.
    let mut stored = Superblock::load(dev).context("the superblock cannot be read again")?;
    let mode = stored.mode;
    engine::close(dev, &mut stored, finals, mode, dirty_blocks, None)
        .context("the superblock cannot be written")
}

/// True if the core is still what the clean blocks say.
fn compare(
    name: &str,
    opened: &mut Opened,
    (dev, disk, stopped): (&mut dyn SyncIo, &mut dyn SyncIo, &Cell<bool>),
    core: &OpenCore,
    o: &CacheOptions,
    options: &engine::OpenOptions,
) -> Result<()> {
    let begun = Instant::now();
    let c = opened
        .compare(disk, COMPARED, || begun.elapsed() < PATIENCE)
        .context("the core cannot be read to compare it with the cache")?;
    if stopped.get() {
        // What could not be read says nothing of the disk.
        return Err(CutOff.into());
    }
    let dirty = opened.dirty_blocks() * BLOCK;
    if let Some(at) = c.first_unreadable {
        say!(
            "warning: {} of {} clean blocks cannot be read from the core {}, the first at byte {at} of the volume: the disk \
             has bad sectors. {} more were not compared",
            c.unreadable,
            c.unreadable + c.compared,
            core.spec,
            c.untried
        );
    }
    if let Some(why) = o.disputed.as_ref().filter(|_| c.compared == 0 && dirty > 0 && !o.force) {
        bail!(keyed!(
            "nothing shows that {} is the core that the {dirty} dirty bytes of the cache belong to, and {why}. Give the right \
             {CORE}; {FORCE} takes this one",
            core.spec
        ));
    }
    if c.compared == 0 && c.unreadable > 0 {
        let dropped = opened.drop_clean(dev, options).context("clean lines cannot be dropped")?;
        say!(
            "warning: nothing shows that the core is what the cache knows: {dropped} clean blocks were dropped; {dirty} dirty \
             bytes are kept"
        );
        return Ok(());
    }
    if c.compared == 0 && dirty > 0 && core.identity.id.is_empty() {
        if number::is_another(&opened.superblock, core) && !o.force {
            bail!(keyed!(
                "{} is another file than the core that the cache was last served with: the number of its file is another, all \
                 {dirty} bytes in the cache are dirty, and nothing shows that they belong to it. Give the right core; {FORCE} \
                 takes this one, as for a copy of the right one",
                core.spec
            ));
        }
        let was = &opened.superblock.name;
        let is_known = o.expected.as_ref().is_some_and(|last| last.uuid == opened.superblock.uuid_text());
        if was != name && !is_known && !o.force {
            bail!(keyed!(
                "the cache was made for volume '{was}', all {dirty} bytes in it are dirty, and nothing shows that {} is the core that they \
                 belong to: serve it under that name; {FORCE} takes it for the right one",
                core.spec
            ));
        }
        say!(
            "warning: nothing in the cache can be compared with the core, since all of it is newer; {} was taken for the \
             right one by its size alone",
            core.spec
        );
    }
    if c.different == 0 {
        return Ok(());
    }
    if c.different * 2 > c.compared && dirty > 0 && !o.force {
        bail!(keyed!(
            "{} of {} clean blocks compared differ from the core, and the cache holds {dirty} dirty bytes: this is \
             another core, or its content was replaced. Give the right {CORE}; {FORCE} uses this one all the same, and \
             writes the dirty data to it",
            c.different,
            c.compared
        ));
    }
    let dropped = opened.drop_clean(dev, options).context("clean lines cannot be dropped")?;
    say!(
        "warning: {} of {} clean blocks compared differ from the core: somebody wrote to it without its cache. All {} \
         clean blocks were dropped; {dirty} dirty bytes are kept",
        c.different,
        c.compared,
        dropped
    );
    Ok(())
}
