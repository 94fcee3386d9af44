//! Pools: one cache device that many cores share, opened once by one process.
//!
//! [`Pool::open`] takes the device and its lock; [`Pool::share`] gives out one core's part of it, to one user at a time, as a
//! [`CacheDevice`] like any other. `admin` is what `loligo cache` does to a pool, whether somebody serves from it or not.

mod admin;
mod govern;
mod room;
mod spec;
mod view;

pub(crate) use admin::random_uuid;
pub use admin::{Attach, Resize, create, dissolve, grow};
pub use govern::Governing;
pub use spec::{CoreName, PoolSpec};

use crate::identity::{DeviceId, device_id};
use anyhow::{Context, Result, anyhow, bail};
use loligo_block::{CacheDevice, DeviceFile, ExtentMap, OpenOptions, SyncFile, SyncIo};
use loligo_client::outcome::{Absent, Ended, InUse};
use loligo_engine::pool::Pool as Table;
use loligo_format::pool::PoolError;
use loligo_format::superblock::{SuperError, Superblock};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An open pool; clones are the same one. The device stays locked while any of them, or any share, is there.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: DeviceFile,
    state: Mutex<State>,
    governed: Mutex<govern::Governed>,
}

/// The pools that this process has open, by their devices: whoever opens one of them gets that one. Held for a look.
static OPEN: Mutex<BTreeMap<DeviceId, Arc<Slot>>> = Mutex::new(BTreeMap::new());

/// A device that a pool is opened on, or was.
#[derive(Debug, Default)]
struct Slot {
    /// Held while its device is waited for: one opens it, and whoever wants the same pool comes after.
    opening: Mutex<()>,
    pool: Mutex<Weak<Inner>>,
}

impl Slot {
    fn pool(&self) -> Option<Pool> {
        let inner = self.pool.lock().upgrade()?;
        Some(Pool { inner })
    }

    /// The slot of `device`.
    fn of(device: DeviceId) -> Arc<Slot> {
        let mut open = OPEN.lock();
        // One that somebody else has in hand is about to be opened.
        open.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.pool().is_some());
        open.entry(device).or_default().clone()
    }
}

#[derive(Debug)]
struct State {
    table: Table,
    /// Shares that are in use, by number.
    out: BTreeMap<u16, Weak<ExtentMap>>,
    /// Extents that are kept free for a member that is to come: the balancer gives none of them out.
    kept: u32,
}

impl State {
    /// True if somebody has the share of core `number`.
    fn is_out(&self, number: u16) -> bool {
        self.out.get(&number).is_some_and(|map| map.strong_count() > 0)
    }
}

impl Pool {
    /// Opens the pool at `path`, or gives the one that this process has open already. Waits up to 10 s for another process that is
    /// on its way out.
    ///
    /// # Errors
    /// If it is in use, or no pool.
    pub fn open(path: &Path) -> Result<Pool> {
        Pool::open_within(path, Duration::from_secs(10))
    }

    /// The pool at `path`, where this process has it open.
    pub fn opened(path: &Path) -> Option<Pool> {
        let device = device_id(path)?;
        OPEN.lock().get(&device)?.pool()
    }

    /// Every pool that this process has open.
    pub fn all_opened() -> Vec<Pool> {
        OPEN.lock().values().filter_map(|slot| slot.pool()).collect()
    }

    /// True if both are the same one.
    pub fn is(&self, other: &Pool) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn open_within(path: &Path, wait: Duration) -> Result<Pool> {
        let slot = device_id(path).map(Slot::of);
        let _opening = slot.as_ref().map(|slot| slot.opening.lock());
        if let Some(pool) = slot.as_ref().and_then(|slot| slot.pool()) {
            return Ok(pool);
        }
        let options = OpenOptions { exclusive: Some(wait), ..OpenOptions::default() };
        let file = match DeviceFile::open(path, &options) {
            Ok(file) => file,
            Err(e) if !path.exists() => {
                return Err(
                    Absent(missing(path, "nobody here knows what it held", &e.to_string()).into()).into()
                );
            }
            Err(e) => return Err(e).context("the pool cannot be opened"),
        };
        let mut dev = SyncFile::new(file.clone());
        let table = match Table::open(&mut dev, None) {
            Ok(table) => table,
            Err(PoolError::Absent) => {
                bail!(Ended::refused(format!("{}: {}", path.display(), what_it_is(&mut dev))))
            }
            Err(e) => return Err(e).with_context(|| format!("{}", path.display())),
        };
        let pool = Pool::of(file, table);
        if let Some(slot) = &slot {
            *slot.pool.lock() = Arc::downgrade(&pool.inner);
        }
        Ok(pool)
    }

    fn of(file: DeviceFile, table: Table) -> Pool {
        let state = Mutex::new(State { table, out: BTreeMap::new(), kept: 0 });
        Pool { inner: Arc::new(Inner { file, state, governed: Mutex::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    fn dev(&self) -> SyncFile {
        SyncFile::new(self.inner.file.clone())
    }

    /// Its device's path.
    pub fn path(&self) -> &Path {
        self.inner.file.path()
    }

    /// The share of a core, for one user: it is free again when the last device made of it is dropped.
    ///
    /// # Errors
    /// If it is none, or in use.
    pub fn share_of(&self, core: &CoreName) -> Result<Share> {
        let state = self.state();
        let number = self.number_in(&state, core)?;
        self.take(state, number)
    }

    /// The same, of core `number`.
    ///
    /// # Errors
    /// As there.
    pub fn share(&self, number: u16) -> Result<Share> {
        self.take(self.state(), number)
    }

    /// The number of a core.
    pub fn number_of(&self, core: &CoreName) -> Result<u16> {
        self.number_in(&self.state(), core)
    }

    fn number_in(&self, state: &State, core: &CoreName) -> Result<u16> {
        let table = state.table.table();
        match core {
            CoreName::Number(n) => Ok(table.known(*n)?.number),
            CoreName::Name(name) => {
                let found = table.members().iter().find(|m| m.name == *name);
                found.map(|m| m.number).ok_or_else(|| {
                    anyhow!(
                        "{} has no core named '{name}': 'loligo cache show {0}' lists those it has, 'loligo cache attach' adds \
                         one",
                        self.path().display()
                    )
                })
            }
        }
    }

    fn take(&self, mut state: MutexGuard<'_, State>, number: u16) -> Result<Share> {
        let member = state.table.table().known(number)?.clone();
        if state.is_out(number) {
            let at = self.path().display();
            return Err(InUse(format!("core {number} of {at} ('{}') is in use already", member.name)).into());
        }
        let map = Arc::new(map_of(&state, &member));
        state.out.insert(number, Arc::downgrade(&map));
        drop(state);
        Ok(Share { pool: self.clone(), member, map, sizing: Mutex::default() })
    }
}

/// The device of a pool is not there: `why`, what it `held`, and what that is worth.
pub fn missing(path: &Path, held: &str, why: &str) -> String {
    format!(
        "the device of the pool {} is not there ({why}); {held}. Bring the device back, or give its right path. A pool made anew in its place \
         ('loligo cache create') has none of the caches that lay there, and what these had and their cores lack is given up with it",
        path.display()
    )
}

/// The map of a core's extents.
fn map_of(state: &State, member: &loligo_format::pool::Member) -> ExtentMap {
    let d = state.table.superblock().division;
    let map = ExtentMap::new(d.start, d.extent, member.max);
    for (here, there) in state.table.table().extents_of(member.number) {
        map.set(here, Some(there));
    }
    map
}

/// Says what lies on a device that is no pool.
fn what_it_is(dev: &mut dyn SyncIo) -> String {
    match Superblock::load(dev) {
        Err(SuperError::Absent) => {
            "no Loligo pool lies there: make one with 'loligo cache create', or check the path".to_owned()
        }
        _ => {
            "it holds the cache of a single volume: give its path without 'pool:', or another path".to_owned()
        }
    }
}

/// One core's part of a pool.
#[derive(Debug)]
pub struct Share {
    pool: Pool,
    member: loligo_format::pool::Member,
    map: Arc<ExtentMap>,
    /// Held while it is brought to another size, which is done in steps that nobody else's may fall between.
    sizing: Mutex<()>,
}

impl Share {
    /// The pool it is of.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool's record of the core when the share was taken. Its promised size and its weight may be others by now.
    pub fn member(&self) -> &loligo_format::pool::Member {
        &self.member
    }

    /// The device that the core's cache lies on.
    pub fn device(&self) -> CacheDevice {
        CacheDevice::Share(self.pool.inner.file.clone(), self.map.clone())
    }

    /// Slots that each shard of the cache has now.
    ///
    /// # Errors
    /// If the table is not what it was.
    pub fn limit(&self) -> Result<u32> {
        Ok(self.pool.state().table.table().limit(self.member.number)?)
    }

    /// Bytes that it is promised now, and those that it may have.
    ///
    /// # Errors
    /// If the table is not what it was.
    pub fn bounds(&self) -> Result<(u64, u64)> {
        let state = self.pool.state();
        let member = state.table.table().known(self.member.number)?;
        Ok((member.min, member.max))
    }

    /// Notes what the core is, so that it is not taken for another, nor attached twice.
    ///
    /// # Errors
    /// If another core of the pool is that one, or the device fails.
    pub fn identify(&self, core: &str) -> Result<()> {
        let mut dev = self.pool.dev();
        Ok(self.pool.state().table.identify(&mut dev, self.member.number, core)?)
    }

    /// Slots that each shard would have with `bytes`.
    ///
    /// # Errors
    /// If they are too few.
    pub fn limit_for(&self, bytes: u64) -> Result<u32> {
        Ok(self.pool.state().table.limit_for(self.member.number, bytes)?)
    }

    /// Gives the share what `limit` slots in each shard need. The engine is told afterwards, with
    /// [`loligo_engine::api::Control::Limit`].
    ///
    /// # Errors
    /// If not so many extents are free, or the device fails; then nothing has changed for the engine.
    pub fn grow(&self, limit: u32) -> Result<()> {
        self.resize(limit, true)
    }

    /// Takes from the share what `limit` slots in each shard do not need. The engine was told before, and has answered that it
    /// needs the rest no more.
    ///
    /// # Errors
    /// If the device fails: what was taken is nobody's until the pool is opened again.
    pub fn shrunk(&self, limit: u32) -> Result<()> {
        self.resize(limit, false)
    }

    fn resize(&self, limit: u32, larger: bool) -> Result<()> {
        let number = self.member.number;
        let mut dev = self.pool.dev();
        let mut state = self.pool.state();
        let has = state.table.table().limit(number)?;
        if (larger && limit < has) || (!larger && limit > has) {
            bail!(Ended::refused(format!(
                "core {number} has {has} slots a shard, {limit} are no step in that direction"
            )));
        }
        let before = state.table.table().extents_of(number);
        if !larger {
            // A stray operation is to fail from here on, not to meet somebody else's data.
            let layout = self.member.layout()?;
            let kept = loligo_format::pool::share::needed(&layout, state.table.extent(), limit);
            before.keys().filter(|e| kept.binary_search(e).is_err()).for_each(|e| self.map.set(*e, None));
        }
        if let Err(why) = state.table.resize(&mut dev, number, limit) {
            // The table may be the new one on the device, and nothing of the pool changes any more: nobody else gets what was to go.
            before.iter().for_each(|(here, there)| self.map.set(*here, Some(*there)));
            return Err(why.into());
        }
        for (here, there) in state.table.table().extents_of(number) {
            self.map.set(here, Some(there));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_pool_that_is_waited_for_holds_up_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        for path in [&a, &b] {
            drop(create(path, Some(160 << 20), true, false).unwrap());
        }
        let other = DeviceFile::open(&a, &OpenOptions::default()).unwrap();
        let waited = a.clone();
        let waits = std::thread::spawn(move || Pool::open_within(&waited, Duration::from_secs(60)));
        // It waits by then: nothing else can be in its way.
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        let served = Pool::open(&b).unwrap();
        assert!(Pool::opened(&a).is_none() && Pool::opened(&b).is_some_and(|p| p.is(&served)));
        assert!(Pool::all_opened().iter().any(|p| p.is(&served)));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop(other);
        let pool = waits.join().unwrap().unwrap();
        assert!(Pool::open(&a).unwrap().is(&pool), "whoever comes after it gets that one");
    }
}
