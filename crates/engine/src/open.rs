//! The life of a cache on its device: format, open (recover every shard, then say so in the superblocks),
//! compare with the core, close, release, inspect. Matters that span the shards are decided here, over
//! [`SyncIo`], so that the simulator crashes it at every step.

mod compare;

use crate::bug::{Bug, planted};
use crate::engine::{Config, Engine};
use crate::params::Params;
use crate::recover::{Plan, RecoverError, Recovered, Report, commit, format_shard, load_root, recover};
use crate::tables::Tables;
use loligo_block::keys::{CORE_RESERVE, FLUSH_ON_STOP};
use loligo_block::{IoError, SyncIo, crc32c};
use loligo_format::in_place_label;
use loligo_format::layout::{FIRST_MARKS, Layout, LayoutError, SUPERBLOCKS};
use loligo_format::mode::Mode;
use loligo_format::page::{DIR_MAGIC, Directory, ROOT_MAGIC, Root, decode_page};
use loligo_format::record::JournalId;
use loligo_format::size::exported;
use loligo_format::superblock::{
    CoreIdentity, SUPERBLOCK, SuperError, Superblock, region_size, valid_line_size,
};
use loligo_format::units::{BLOCK, Striping};
use thiserror::Error;

pub use crate::devices::{Devices, Large, PAGE_WRITES, SLOT_RUN};

/// The reason why a cache cannot be made, opened or closed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The superblock.
    #[error(transparent)]
    Super(#[from] SuperError),
    /// A geometry that cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A shard.
    #[error("shard {0}: {1}")]
    Shard(u16, RecoverError),
    /// A device failed.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A size of cache lines that there is not.
    #[error("line size {0} is not 4k, 8k, 16k, 32k or 64k")]
    LineSize(u32),
    /// A core of such a size, or with such a reserve.
    #[error("the core's size must be a multiple of 512, its reserve at most 50 %")]
    Core,
    /// Stripes of so many windows, as an exponent.
    #[error("stripes of 2^{0} MiB")]
    Stripe(u8),
    /// Nothing of the core would be exported.
    #[error(
        "a reserve of {reserve} % leaves nothing of a core of {core} bytes: give a smaller {core_reserve}", core_reserve = CORE_RESERVE
    )]
    NothingLeft {
        /// Percent.
        reserve: u8,
        /// Bytes.
        core: u64,
    },
    /// Only a cache that is stopped can give slots away.
    #[error("its cache was not stopped cleanly: serve it once and stop it, then try again")]
    InUse,
    /// Dirty data would not fit into fewer slots.
    #[error(
        "it holds {dirty} dirty bytes, too many for {room} bytes of slots: serve it with {flush_on_stop} first", flush_on_stop = FLUSH_ON_STOP
    )]
    TooDirty {
        /// Bytes.
        dirty: u64,
        /// Bytes.
        room: u64,
    },
    /// Dirty data would have to be moved, and is not what was written.
    #[error("dirty data at byte {0} of the volume does not match its checksum, and is not moved")]
    Damaged(u64),
}

/// The options of a new cache.
#[derive(Debug, Clone)]
pub struct FormatOptions {
    /// Names the cache; 16 random bytes.
    pub uuid: [u8; 16],
    /// The volume's name.
    pub name: String,
    /// Bytes of the device to use.
    pub cache_size: u64,
    /// The core.
    pub core: CoreIdentity,
    /// Cache line, bytes: 4, 8, 16, 32 or 64 KiB.
    pub line_size: u32,
    /// Shards.
    pub shards: u16,
    /// Exponent of the windows in a stripe: how many in a row belong to one shard.
    pub stripe: u8,
    /// First mode.
    pub mode: Mode,
    /// Percent of the core left unexported, 0 to 50.
    pub core_reserve: u8,
    /// Bytes of each journal ring; 0: chosen by size.
    pub journal_len: u64,
}

/// Checks that a cache like that can be made on a device of `device` bytes.
///
/// # Errors
/// [`OpenError`] for values that cannot be.
pub fn check(o: &FormatOptions, device: u64) -> Result<(), OpenError> {
    divide(o, device).map(|_| ())
}

/// The layout on a device of `device` bytes, and the bytes exported.
fn divide(o: &FormatOptions, device: u64) -> Result<(Layout, u64), OpenError> {
    if !valid_line_size(o.line_size) {
        return Err(OpenError::LineSize(o.line_size));
    }
    if o.core_reserve > 50 || o.core.size == 0 || !o.core.size.is_multiple_of(512) {
        return Err(OpenError::Core);
    }
    let layout = Layout::new(o.cache_size.min(device), o.shards, o.journal_len)?;
    let data_length = exported(o.core.size, o.core_reserve);
    if o.stripe > Striping::MOST {
        return Err(OpenError::Stripe(o.stripe));
    }
    if !(Striping { shards: o.shards, exponent: o.stripe }).can_count(data_length) {
        return Err(LayoutError::CoreTooLarge((data_length >> 44) as u16 + 1).into());
    }
    if data_length == 0 {
        return Err(OpenError::NothingLeft { reserve: o.core_reserve, core: o.core.size });
    }
    Ok((layout, data_length))
}

/// Makes a new, empty cache. The superblocks are wiped first and written last.
///
/// # Errors
/// [`OpenError`] for values that cannot be, or those of the device.
pub fn format(dev: &mut dyn SyncIo, o: &FormatOptions) -> Result<Superblock, OpenError> {
    let (layout, data_length) = divide(o, dev.size())?;
    wipe(dev)?;
    let mut sb = Superblock {
        generation: 0,
        uuid: o.uuid,
        name: o.name.clone(),
        core: o.core.clone(),
        data_start: 0,
        data_length,
        line_size: o.line_size,
        mode: o.mode,
        core_reserve: o.core_reserve,
        stripe: o.stripe,
        clean: true,
        finals: vec![0; usize::from(o.shards)],
        dirty_blocks: 0,
        core_record: String::new(),
        cut: None,
        region: region_size(data_length),
        layout,
    };
    for shard in 0..o.shards {
        format_shard(dev, &sb.layout.shard(shard), JournalId { cache: sb.cache_id(), shard })?;
    }
    sb.store(dev)?;
    Ok(sb)
}

/// True if something here was written by a format (cut off, or whose superblocks were wiped since): the first shard's root
/// or directory lies where every format puts it.
///
/// # Errors
/// Those of the device.
pub fn traces_of_a_format(dev: &mut dyn SyncIo) -> Result<bool, IoError> {
    let mut raw = vec![0; BLOCK as usize];
    for (at, magic) in FIRST_MARKS.into_iter().zip([ROOT_MAGIC, ROOT_MAGIC, DIR_MAGIC]) {
        if at + BLOCK <= dev.size() {
            dev.read_at(at, &mut raw)?;
            if raw[..4] == magic.to_le_bytes() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Makes the device no cache any more: both superblocks become zeros, durably, and so does what it kept of its core's first block.
///
/// # Errors
/// Those of the device.
pub fn wipe(dev: &mut dyn SyncIo) -> Result<(), IoError> {
    for (at, saved) in SUPERBLOCKS.into_iter().zip(in_place_label::SAVED) {
        // The magic goes first: a write that is torn must not leave it beside half of what it vouches for.
        let mut raw = vec![0; SUPERBLOCK];
        if dev.read_at(at, &mut raw).is_ok() {
            raw[..512].fill(0);
            dev.write_at(at, &raw)?;
            dev.flush()?;
        }
        dev.write_at(at, &vec![0; SUPERBLOCK])?;
        dev.write_at(saved, &[0; in_place_label::BLOCK])?;
        dev.flush()?;
    }
    Ok(())
}

/// The options of an open.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// Give up what is damaged instead of refusing.
    pub force: bool,
    /// Tunables (replacement policy among them).
    pub params: Params,
    /// A planted bug.
    pub bug: Option<Bug>,
}

/// An opened cache: every shard recovered, not yet running.
#[derive(Debug)]
pub struct Opened {
    /// As it is on the device now.
    pub superblock: Superblock,
    /// Each shard.
    pub shards: Vec<Recovered>,
    /// The work of recovery, all shards together.
    pub report: Report,
    /// It had been stopped cleanly.
    pub was_clean: bool,
}

/// Result of [`Opened::compare`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Clean blocks compared.
    pub compared: u64,
    /// Of those, how many the core has other content for.
    pub different: u64,
    /// Clean blocks that the core could not read, beside those compared.
    pub unreadable: u64,
    /// Clean blocks that were not tried because of those.
    pub untried: u64,
    /// The byte of the volume at which the first of them begins.
    pub first_unreadable: Option<u64>,
}

pub(crate) fn plan(sb: &Superblock, shard: u16, o: &OpenOptions) -> Plan {
    Plan {
        stripe: sb.striping().of(shard),
        layout: sb.layout.shard(shard),
        id: JournalId { cache: sb.cache_id(), shard },
        data_length: sb.data_length,
        region: sb.region,
        final_seq: sb.clean.then(|| sb.finals[usize::from(shard)]),
        force: o.force,
        replacement: o.params.replacement,
        bug: o.bug,
    }
}

/// Recovers every shard under a new epoch and marks the cache in use. Idempotent: it may be cut off anywhere and run
/// again. The core must have been flushed: served without a cache until a kill it may still lose what it holds, and nothing read of
/// that may outlive it.
///
/// # Errors
/// [`OpenError`]; nothing that was acknowledged is lost by the attempt.
pub fn open(
    cache: &mut dyn SyncIo,
    core: &mut dyn SyncIo,
    mut sb: Superblock,
    o: &OpenOptions,
) -> Result<Opened, OpenError> {
    let of = |shard| move |e: RecoverError| OpenError::Shard(shard, e);
    let plans: Vec<Plan> = (0..sb.layout.shards).map(|s| plan(&sb, s, o)).collect();
    let mut roots = Vec::new();
    for p in &plans {
        roots.push(load_root(cache, p).map_err(of(p.stripe.shard))?);
    }
    let epoch = roots.iter().map(|r| r.epoch).max().unwrap_or(0) + 1;
    let mut shards = Vec::new();
    let mut report = Report::default();
    for (p, root) in plans.iter().zip(&roots) {
        let rec = recover(cache, core, p, root, epoch).map_err(of(p.stripe.shard))?;
        report.merge(&rec.report);
        shards.push(rec);
    }
    let was_clean = sb.clean;
    sb.clean = false;
    // A core that grew is not written down yet: the caller first makes sure that it is the right one.
    let known = Superblock::load(cache).map(|have| (have.core, have.data_length));
    let (core, data_length) = known.unwrap_or((sb.core.clone(), sb.data_length));
    let mut stored = Superblock { core, data_length, ..sb.clone() };
    stored.store(cache)?;
    sb.generation = stored.generation;
    Ok(Opened { superblock: sb, shards, report, was_clean })
}

impl Opened {
    /// The configuration of shard `shard`; what only the devices know is passed in.
    pub fn config(&self, shard: u16, mode: Mode, o: &OpenOptions, devices: &Devices) -> Config {
        let sb = &self.superblock;
        let p = plan(sb, shard, o);
        Config {
            stripe: p.stripe,
            layout: p.layout,
            id: p.id,
            devices: *devices,
            data_start: sb.data_start,
            data_length: sb.data_length,
            line_blocks: sb.line_size / BLOCK as u32,
            region: sb.region,
            mode,
            params: o.params,
            tables: Tables::default(),
            bug: o.bug,
        }
    }

    /// Shards ready to run.
    pub fn into_engines(
        mut self,
        mode: Mode,
        o: &OpenOptions,
        devices: &Devices,
    ) -> (Superblock, Vec<Engine>) {
        let configs: Vec<Config> =
            (0..self.superblock.layout.shards).map(|s| self.config(s, mode, o, devices)).collect();
        let engines =
            configs.into_iter().zip(self.shards.drain(..)).map(|(c, r)| Engine::new(c, r)).collect();
        (self.superblock, engines)
    }

    /// Dirty blocks in all shards.
    pub fn dirty_blocks(&self) -> u64 {
        self.shards.iter().map(Recovered::dirty_blocks).sum()
    }

    /// Forgets every clean block, durably: the core was changed without its cache.
    ///
    /// # Errors
    /// Those of the device.
    pub fn drop_clean(&mut self, cache: &mut dyn SyncIo, o: &OpenOptions) -> Result<u64, OpenError> {
        let mut dropped = 0;
        for shard in 0..self.superblock.layout.shards {
            let p = plan(&self.superblock, shard, o);
            let rec = &mut self.shards[usize::from(shard)];
            let before = rec.report.clean_dropped;
            rec.drop_clean();
            dropped += rec.report.clean_dropped - before;
            commit(cache, &p, rec).map_err(|e| OpenError::Shard(shard, e))?;
        }
        Ok(dropped)
    }
}

/// Marks the cache cleanly stopped. `finals`: each shard's last frame, as [`Engine::last_seq`] gives it after its stop.
///
/// # Errors
/// Those of the device.
pub fn close(
    dev: &mut dyn SyncIo,
    sb: &mut Superblock,
    finals: &[u64],
    mode: Mode,
    dirty_blocks: u64,
    bug: Option<Bug>,
) -> Result<(), IoError> {
    sb.clean = true;
    sb.finals = finals.to_vec();
    sb.mode = mode;
    sb.dirty_blocks = dirty_blocks;
    if planted(bug, Bug::StaleSuperblock) {
        return dev.write_at(SUPERBLOCKS[1], &sb.encode()).and_then(|()| dev.flush());
    }
    sb.store(dev)
}

/// One thing found by [`inspect`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The repair, in words.
    pub what: String,
    /// Dirty data is hit (it cannot be had from the core).
    pub dirty: bool,
}

/// The findings of [`inspect`].
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The superblock.
    pub superblock: Superblock,
    /// Blocks mapped and dirty, from a replay that writes nothing.
    pub occupied_blocks: u64,
    /// Blocks with a dirty sector.
    pub dirty_blocks: u64,
    /// Journal frames behind the checkpoints.
    pub frames: u64,
    /// Blocks whose data was checked.
    pub checked_blocks: u64,
    /// Everything that does not match.
    pub damage: Vec<Damage>,
}

/// A device that is read through but never written: writes stay in memory.
struct Shadow<'a> {
    under: &'a mut dyn SyncIo,
    over: std::collections::BTreeMap<u64, Vec<u8>>,
}

impl SyncIo for Shadow<'_> {
    fn size(&self) -> u64 {
        self.under.size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        self.under.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        for (at, data) in self.over.range(..end).filter(|(at, d)| **at + d.len() as u64 > offset) {
            let (from, to) = ((*at).max(offset), (at + data.len() as u64).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        self.over.insert(offset, data.to_vec());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

struct NoCore(u64);

impl SyncIo for NoCore {
    fn size(&self) -> u64 {
        self.0
    }
    fn read_at(&mut self, _: u64, _: &mut [u8]) -> Result<(), IoError> {
        Err(IoError::new(loligo_block::IoKind::Gone, "no core is open"))
    }
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), IoError> {
        Err(IoError::new(loligo_block::IoKind::Gone, "no core is open"))
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// Checks every checksum of a stopped cache without changing a byte. `progress` gets blocks done and in all.
///
/// # Errors
/// If there is no superblock to start from, or the device fails.
pub fn inspect(dev: &mut dyn SyncIo, mut progress: impl FnMut(u64, u64)) -> Result<Inspection, OpenError> {
    let superblock = Superblock::load(dev)?;
    let mut damage = Vec::new();
    for at in SUPERBLOCKS {
        let mut raw = vec![0; SUPERBLOCK];
        match dev.read_at(at, &mut raw).map_err(SuperError::Io).and_then(|()| Superblock::decode(&raw)) {
            Ok(sb) if sb == superblock => {}
            // A crash between the two copies leaves the older one behind by one.
            Ok(sb) if sb.generation + 1 == superblock.generation && !superblock.clean => {}
            Ok(sb) => damage.push(Damage {
                what: format!(
                    "superblock at byte {at} is of generation {}, the other of {}",
                    sb.generation, superblock.generation
                ),
                dirty: false,
            }),
            Err(e) => damage.push(Damage { what: format!("superblock at byte {at}: {e}"), dirty: false }),
        }
    }
    let options = OpenOptions { force: false, params: Params::default(), bug: None };
    let mut out = Inspection {
        occupied_blocks: 0,
        dirty_blocks: 0,
        frames: 0,
        checked_blocks: 0,
        damage,
        superblock: superblock.clone(),
    };
    for shard in 0..superblock.layout.shards {
        inspect_shard(dev, &superblock, shard, &options, &mut out, &mut progress)?;
    }
    Ok(out)
}

fn inspect_shard(
    dev: &mut dyn SyncIo,
    sb: &Superblock,
    shard: u16,
    o: &OpenOptions,
    out: &mut Inspection,
    progress: &mut impl FnMut(u64, u64),
) -> Result<(), OpenError> {
    let mut p = plan(sb, shard, o);
    for at in p.layout.roots {
        let mut raw = vec![0; BLOCK as usize];
        let read = dev.read_at(at, &mut raw).map_err(|e| e.to_string());
        if let Err(e) = read.and_then(|()| Root::decode(&raw, p.id).map_err(|e| e.to_string())) {
            out.damage.push(Damage { what: format!("shard {shard}, root at byte {at}: {e}"), dirty: false });
        }
    }
    let root = match load_root(dev, &p) {
        Ok(root) => root,
        Err(e) => {
            out.damage.push(Damage { what: format!("shard {shard}: {e}"), dirty: true });
            return Ok(());
        }
    };
    inspect_pages(dev, &p, &root, out)?;
    let mut shadow = Shadow { under: dev, over: Default::default() };
    let mut recovered = recover(&mut shadow, &mut NoCore(sb.core.size), &p, &root, root.epoch + 1);
    if let Err(e) = &recovered {
        out.damage.push(Damage { what: format!("shard {shard}: {e}"), dirty: true });
        p.force = true;
        recovered = recover(&mut shadow, &mut NoCore(sb.core.size), &p, &root, root.epoch + 1);
    }
    let Ok(rec) = recovered else { return Ok(()) };
    out.occupied_blocks += rec.occupied();
    out.dirty_blocks += rec.dirty_blocks();
    out.frames += rec.report.frames;
    let mut raw = vec![0u8; BLOCK as usize];
    for (done, (block, meta)) in (0u64..).zip(rec.blocks(p.stripe, 1)) {
        let read = dev.read_at(p.layout.slot(meta.slot), &mut raw);
        out.checked_blocks += 1;
        if read.is_err() || crc32c(&raw) != meta.crc {
            let kind = if meta.dirty != 0 { "dirty" } else { "clean" };
            let what = format!(
                "{kind} data of byte {} of the volume (slot {} of shard {shard})",
                block * BLOCK,
                meta.slot
            );
            out.damage.push(Damage { what, dirty: meta.dirty != 0 });
        }
        if done % 1024 == 0 {
            progress(done, rec.occupied());
        }
    }
    Ok(())
}

fn inspect_pages(dev: &mut dyn SyncIo, p: &Plan, root: &Root, out: &mut Inspection) -> Result<(), OpenError> {
    let mut raw = vec![0; p.layout.dir_len as usize];
    let shard = p.stripe.shard;
    let read = dev.read_at(p.layout.dirs[usize::from(root.dir)], &mut raw).map_err(RecoverError::Io);
    let directory =
        match read.and_then(|()| Ok(Directory::decode(&raw, p.id, p.layout.page_count, root.dir_crc)?)) {
            Ok(d) => d,
            Err(e) => {
                out.damage.push(Damage { what: format!("shard {shard}: {e}"), dirty: true });
                return Ok(());
            }
        };
    let mut raw = vec![0; BLOCK as usize];
    for page in 0..p.layout.page_count {
        let Some(which) = directory.current(page) else { continue };
        if let Err(e) = dev.read_at(p.layout.page(page, which), &mut raw) {
            let what = format!("shard {shard}: index page {page} cannot be read: {e}");
            out.damage.push(Damage { what, dirty: true });
            continue;
        }
        if let Err(e) = decode_page(&raw, p.id, page, p.layout.limit, directory.crc[page as usize], |_| ()) {
            out.damage.push(Damage { what: format!("shard {shard}: {e}"), dirty: true });
        }
    }
    Ok(())
}
