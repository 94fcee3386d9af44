//! Operations on a pool as a whole: it is made, and members are added, taken away and resized.

use super::{CoreName, InUse, Pool, Share, State};
use crate::blank;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::keys::{FLUSH_ON_STOP, FORCE, SPARSE};
use loligo_block::{
    DeviceFile, IoError, OpenOptions, SIGNATURE_PROBE, SyncFile, SyncIo, foreign_signature, keyed,
};
use loligo_client::outcome::{Ended, Outcome};
use loligo_client::progress::Progress;
use loligo_engine::open;
use loligo_engine::pool::{self, store};
use loligo_format::pool::format::{Found, MAX_MEMBERS, MIN_POOL};
use loligo_format::pool::{Member, PoolError, PoolSuper};
use loligo_format::superblock::{SuperError, Superblock};
use loligo_format::units::BLOCK;
use loligo_log::say;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time that another user of the device is waited for.
const WAIT: Duration = Duration::from_millis(500);
/// A share may become so many times what it is promised, unless something else is said: each byte that it may have costs
/// memory for its index whether it is there or not.
const MAY_GROW: u64 = 8;

/// 16 random bytes.
pub(crate) fn random_uuid() -> Result<[u8; 16]> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).context("random bytes")?;
    Ok(uuid)
}

/// Makes an empty pool. A file that does not exist is made with `size` bytes, and written whole unless it is to be `sparse`.
///
/// # Errors
/// If something is there already and `force` is not given, or the pool cannot be made.
pub fn create(path: &Path, size: Option<u64>, sparse: bool, force: bool) -> Result<Pool> {
    let at = path.display();
    let made = !path.exists();
    let options = OpenOptions { exclusive: Some(WAIT), ..OpenOptions::default() };
    let file = if made {
        let Some(size) = size else {
            bail!(Ended::refused(format!("{at} does not exist: give --size SIZE to make it")))
        };
        if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            bail!(Ended::refused(format!(
                "{at} does not exist, and a file there would live in memory: check the device's name"
            )));
        }
        ensure!(size >= MIN_POOL, PoolError::TooSmall(size));
        DeviceFile::create(path, size / BLOCK * BLOCK, &options).context("the pool cannot be made")?
    } else {
        DeviceFile::open(path, &options).context("the pool cannot be made")?
    };
    let pool = fill(&file, size, sparse || !made, force);
    if pool.is_err() && made {
        let _ = std::fs::remove_file(path);
    }
    pool
}

fn fill(file: &DeviceFile, size: Option<u64>, sparse: bool, force: bool) -> Result<Pool> {
    let at = file.path().display();
    for warning in file.warnings() {
        say!("warning: {warning}");
    }
    let mut dev = SyncFile::new(file.clone());
    if let Some(what) = in_the_way(&mut dev)? {
        let told =
            keyed!("{at} holds {what}: if it is to be overwritten, add {FORCE}; else give another path");
        ensure!(force, Ended::refused(told));
        say!("{at} held {what}: overwritten, as {FORCE} ordered");
    }
    let size = size.unwrap_or(dev.size());
    let told = || format!("--size {size} is more than the {} bytes {at} has", dev.size());
    ensure!(size <= dev.size(), Ended::refused(told()));
    if !sparse {
        let (all, mut progress) = (dev.size(), Progress::new(format!("writing {at} whole")));
        let show = |done| {
            progress.show(done, all);
            Ok::<(), IoError>(())
        };
        dev.fill(show).with_context(|| {
            keyed!("{at} cannot be written whole: make room, give a smaller --size, or {SPARSE}")
        })?;
        progress.end("done");
    }
    // A cache of a single volume would be found again behind a pool that is dissolved.
    open::wipe(&mut dev)?;
    let table = pool::Pool::format(&mut dev, random_uuid()?, size)?;
    Ok(Pool::of(file.clone(), table))
}

/// Describes what lies on a device that is to become a pool, if that is worth a word.
fn in_the_way(dev: &mut SyncFile) -> Result<Option<String>> {
    match PoolSuper::look(dev) {
        Ok(Found::Pool(sb)) => return Ok(Some(format!("the pool {}", sb.uuid_text()))),
        Ok(Found::Unfinished) => return Ok(None),
        Ok(Found::Absent) => {}
        Err(PoolError::Io(e)) => return Err(e.into()),
        Err(e) => return Ok(Some(format!("a pool that cannot be used ({e})"))),
    }
    match Superblock::load(dev) {
        Ok(sb) => return Ok(Some(format!("the cache of volume '{}'", sb.name))),
        Err(SuperError::Absent) => {}
        Err(SuperError::Io(e)) => return Err(e.into()),
        Err(e) => return Ok(Some(format!("a cache that cannot be used ({e})"))),
    }
    let mut head = vec![0; (SIGNATURE_PROBE as u64).min(dev.size()) as usize];
    dev.read_at(0, &mut head)?;
    if let Some(what) = foreign_signature(&head) {
        return Ok(Some(what.to_owned()));
    }
    let theirs = !open::traces_of_a_format(dev)? && blank::holds_data(dev)?;
    Ok(theirs.then(|| "data of somebody else's behind a start of zeros".to_owned()))
}

/// Makes the device no pool any more. Refused while it has members.
///
/// # Errors
/// If it is in use, has members, or is none.
pub fn dissolve(path: &Path) -> Result<()> {
    let pool = Pool::open_within(path, WAIT)?;
    let members = pool.state().table.table().members().len();
    let told = || format!("{} has {members} member(s): detach them first", path.display());
    ensure!(members == 0, Ended::refused(told()));
    Ok(store::wipe(&mut pool.dev())?)
}

/// Takes in what the device of a pool has grown by; the bytes added.
///
/// # Errors
/// If it has not grown, or is in use.
pub fn grow(path: &Path) -> Result<u64> {
    let pool = Pool::open_within(path, WAIT)?;
    let mut state = pool.state();
    let before = state.table.table().owners().len();
    state.table.grow(&mut pool.dev())?;
    Ok((state.table.table().owners().len() - before) as u64 * state.table.extent())
}

/// A core that is to have a share. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Attach {
    /// Its number; `None`: the lowest free one.
    pub number: Option<u16>,
    /// Its volume.
    pub name: String,
    /// Bytes that nobody takes from it.
    pub min: u64,
    /// The most bytes that it may have.
    pub max: Option<u64>,
    /// Its weight when what several want is divided.
    pub weight: u32,
    /// Shards of its cache.
    pub shards: u16,
}

/// Changes to a share.
#[derive(Debug, Clone, Default)]
pub struct Resize {
    /// Bytes that it has.
    pub size: Option<u64>,
    /// Bytes that nobody takes from it.
    pub min: Option<u64>,
    /// Its weight when what several want is divided.
    pub weight: Option<u32>,
}

impl Pool {
    /// Opens a pool that nobody serves from.
    ///
    /// # Errors
    /// If somebody serves from it, or it is no pool.
    pub fn open_idle(path: &Path) -> Result<Pool> {
        Pool::open_within(path, WAIT)
    }

    /// Adds a core; its number. Served cores that have more than they are promised give of it where there is too little else.
    ///
    /// # Errors
    /// If there is no room, or it is there already.
    pub fn attach(&self, a: &Attach) -> Result<u16> {
        self.attach_unless(a, &|| false)
    }

    /// The same, unless it `is_off` by then.
    pub fn attach_unless(&self, a: &Attach, is_off: &dyn Fn() -> bool) -> Result<u16> {
        let room = self.make_room(a, is_off)?;
        let mut state = self.state();
        ensure!(!is_off(), Ended::refused("given up: nothing is attached"));
        let member = self.member_of(&state, a)?;
        let number = member.number;
        state.table.attach(&mut self.dev(), member)?;
        drop(state);
        drop(room);
        Ok(number)
    }

    /// The member that `a` would be.
    pub(super) fn member_of(&self, state: &State, a: &Attach) -> Result<Member> {
        let table = state.table.table();
        let number = match a.number {
            Some(n) => n,
            None => (0..MAX_MEMBERS).find(|n| table.member(*n).is_none()).ok_or_else(|| {
                Ended::refused(format!("{} has {MAX_MEMBERS} cores already", self.path().display()))
            })?,
        };
        let whole = table.owners().len() as u64 * state.table.extent();
        let max = a.max.unwrap_or_else(|| whole.min(a.min.saturating_mul(MAY_GROW)));
        let max = max.max(a.min) / BLOCK * BLOCK;
        let shards = u64::from(a.shards.max(1));
        // As for a cache of its own, but that a small share of a large layout is not to be all journal.
        let journal_len =
            (max / shards / 64).min(a.min / shards / 8).clamp(512 << 10, 64 << 20) / BLOCK * BLOCK;
        Ok(Member {
            number,
            shards: a.shards,
            weight: a.weight,
            min: a.min,
            max,
            journal_len,
            name: a.name.clone(),
            core: String::new(),
        })
    }

    /// The share of a core that nobody is to have. One that is just being let go of is waited for.
    fn idle(&self, core: &CoreName) -> Result<Share> {
        let begun = Instant::now();
        loop {
            match self.share_of(core) {
                Err(why) if why.is::<InUse>() && begun.elapsed() < WAIT => std::thread::sleep(WAIT / 20),
                share => return share,
            }
        }
    }

    /// Takes a core out of the pool. If its cache holds data that the core does not have, only with `force`.
    /// The result is the loss then, in words.
    ///
    /// # Errors
    /// If it is in use, holds something, or is none.
    pub fn detach(&self, core: &CoreName, force: bool) -> Result<Option<String>> {
        let share = self.idle(core)?;
        let (number, name) = (share.member().number, &share.member().name);
        let dirty = dirty_in(&share)?;
        if let Some(what) = &dirty {
            let told = keyed!(
                "core {number} ('{name}') holds {what}: serve it with {FLUSH_ON_STOP} (or run 'loligo flush' while it is \
                 served), stop it, and detach it then; {FORCE} loses that"
            );
            ensure!(force, Ended::refused(told));
        }
        self.state().table.detach(&mut self.dev(), number)?;
        Ok(dirty
            .map(|what| keyed!("core {number} ('{name}') held {what}: lost, as {FORCE} ordered").to_string()))
    }

    /// Changes what a core is promised and its weight, whether it is served or not.
    ///
    /// # Errors
    /// If it is none, or that cannot be.
    pub fn promise(&self, core: &CoreName, min: Option<u64>, weight: Option<u32>) -> Result<()> {
        let mut state = self.state();
        let table = state.table.table();
        let number = self.number_in(&state, core)?;
        let m = table.known(number)?;
        let (min, weight) = (min.unwrap_or(m.min), weight.unwrap_or(m.weight));
        Ok(state.table.promise(&mut self.dev(), number, min, weight)?)
    }

    /// Changes a share. Its size only where it is not in use: smaller, what is clean above is dropped and what is dirty moved.
    ///
    /// # Errors
    /// If it cannot be, or is in use.
    pub fn resize(&self, core: &CoreName, r: &Resize) -> Result<()> {
        // Nothing is changed where the size cannot be.
        let share = r.size.map(|bytes| Ok::<_, anyhow::Error>((self.idle(core)?, bytes))).transpose()?;
        if r.min.is_some() || r.weight.is_some() {
            self.promise(core, r.min, r.weight)?;
        }
        let Some((share, bytes)) = share else { return Ok(()) };
        let (number, (min, max)) = (share.member().number, share.bounds()?);
        let told = format!(
            "core {number} has {min} to {max} bytes: give such a size, or change --min with it (what it may have at most is fixed \
             when it is attached)"
        );
        // With --min that was changed by now.
        let outcome = if r.min.is_some() || r.weight.is_some() { Outcome::Failed } else { Outcome::Refused };
        ensure!((min..=max).contains(&bytes), Ended::with(outcome, told));
        let (has, limit) = (share.limit()?, share.limit_for(bytes)?);
        if limit >= has {
            return share.grow(limit);
        }
        let mut dev = share.device().sync_io();
        match Superblock::load(&mut dev) {
            Err(SuperError::Absent) => {}
            Err(e) => return Err(e).with_context(|| format!("the cache of core {number}")),
            Ok(mut sb) => {
                sb.layout.limit = has;
                pool::offline::shrink(&mut dev, sb, limit)
                    .with_context(|| format!("core {number} cannot get smaller while it is stopped"))?;
            }
        }
        share.shrunk(limit)
    }
}

/// The data in a share's cache that its core does not have, in words.
fn dirty_in(share: &Share) -> Result<Option<String>> {
    let mut dev = share.device().sync_io();
    let sb = match Superblock::load(&mut dev) {
        Ok(sb) => sb,
        Err(SuperError::Absent) => return Ok(None),
        Err(SuperError::Io(e)) => return Err(e.into()),
        Err(e) => return Ok(Some(format!("a cache that cannot be used ({e})"))),
    };
    if sb.clean {
        let bytes = sb.dirty_blocks * BLOCK;
        return Ok((bytes > 0).then(|| format!("{bytes} bytes that its core does not have")));
    }
    let found = open::inspect(&mut dev, |_, _| ())?;
    if let Some(d) = found.damage.iter().find(|d| d.dirty) {
        return Ok(Some(format!("a damaged cache ({}): what its core lacks is not known", d.what)));
    }
    let bytes = found.dirty_blocks * BLOCK;
    Ok((bytes > 0).then(|| format!("{bytes} bytes that its core does not have")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn core(name: &str, min: u64) -> Attach {
        Attach { number: None, name: name.to_owned(), min, max: None, weight: 100, shards: 1 }
    }

    #[test]
    fn a_share_in_use_stays_while_others_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        drop(create(&path, Some(160 * MIB), true, false).unwrap());
        let pool = Pool::open_idle(&path).unwrap();
        let named = |name: &str| CoreName::Name(name.to_owned());
        let state =
            |name: &str| pool.view().unwrap().cores.iter().find(|m| m.name == name).map(|m| m.state.clone());
        assert_eq!(pool.attach(&core("a", 48 * MIB)).unwrap(), 0);
        let served = pool.share_of(&named("a")).unwrap();
        let here = Pool::opened(&path).unwrap();
        assert!(here.is(&pool), "whoever asks gets the one that is open");
        assert_eq!(here.attach(&core("b", 48 * MIB)).unwrap(), 1);
        assert_eq!((state("a").as_deref(), state("b").as_deref()), (Some("in use"), Some("never served")));
        let why = here.attach(&core("c", 96 * MIB)).unwrap_err().to_string();
        assert!(why.contains("promised to nobody"), "{why}");
        assert!(here.attach(&core("b", 32 * MIB)).unwrap_err().to_string().contains("already"));
        assert_eq!(pool.state().kept, 0, "nothing is kept for those who were refused");

        let why = here.detach(&named("a"), true).unwrap_err();
        assert!(why.is::<InUse>(), "{why}");
        here.resize(&named("a"), &Resize { size: None, min: Some(52 * MIB), weight: Some(7) }).unwrap();
        assert_eq!(served.bounds().unwrap().0, 52 * MIB, "who serves it sees that");
        let sized = Resize { size: Some(64 * MIB), min: Some(56 * MIB), weight: None };
        assert!(here.resize(&named("a"), &sized).unwrap_err().is::<InUse>());
        assert_eq!(served.bounds().unwrap().0, 52 * MIB, "all of it or nothing");
        assert_eq!(here.detach(&CoreName::Number(1), false).unwrap(), None);
        assert!(here.share(1).is_err() && state("b").is_none());
        drop(served);
        here.resize(&named("a"), &sized).unwrap();
        assert!(pool.share(0).is_ok());
    }
}
