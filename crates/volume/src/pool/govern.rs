//! The balancer's eyes and hands: looks at every served core of a pool once a second, and has shares grow and shrink while they
//! are served.

use super::{Inner, Pool, Share};
use anyhow::{Context, Result, anyhow};
use loligo_engine::api::Control;
use loligo_engine::pool::balance::{Balancer, Load, Move};
use loligo_shard::{Command, Handle};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The time that a member's threads are waited for.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two looks.
const ROUND: Duration = Duration::from_secs(1);
/// Between two looks whether whoever waits for threads still does.
const LOOK: Duration = Duration::from_millis(100);
/// The time that whoever is to change a size waits for somebody who is at it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The cores of a pool that are served, and who looks after them.
#[derive(Debug, Default)]
pub(super) struct Governed {
    pub(super) seats: BTreeMap<u16, Seat>,
    /// Somebody does.
    running: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Seat {
    pub(super) share: Arc<Share>,
    pub(super) handle: Handle,
    /// Lines evicted, hits and misses when it was last looked at.
    seen: (u64, u64, u64),
    /// It is changing its size.
    pub(super) busy: Arc<AtomicBool>,
}

/// A core that the balancer looks after until this is dropped.
#[derive(Debug)]
pub struct Governing {
    pool: Weak<Inner>,
    number: u16,
}

impl Drop for Governing {
    fn drop(&mut self) {
        if let Some(inner) = self.pool.upgrade() {
            let seat = governed(&inner).seats.remove(&self.number);
            // It may be the last that holds the pool: not under its lock.
            drop(seat);
        }
    }
}

pub(super) fn governed(inner: &Inner) -> MutexGuard<'_, Governed> {
    inner.governed.lock()
}

impl Pool {
    /// Has the balancer look after a served core: its share grows and shrinks from now on.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn govern(&self, share: Arc<Share>, handle: Handle) -> Result<Governing> {
        let number = share.member().number;
        let seat = Seat { share, handle, seen: (0, 0, 0), busy: Arc::default() };
        let mut all = governed(&self.inner);
        all.seats.insert(number, seat);
        if !all.running {
            let pool = Arc::downgrade(&self.inner);
            std::thread::Builder::new().name("pool".to_owned()).spawn(move || watch(&pool))?;
            all.running = true;
        }
        Ok(Governing { pool: Arc::downgrade(&self.inner), number })
    }
}

/// Looks, until nobody is served any more.
fn watch(pool: &Weak<Inner>) {
    let mut balancer = Balancer::default();
    loop {
        std::thread::sleep(ROUND);
        let Some(inner) = pool.upgrade() else { return };
        let pool = Pool { inner };
        let mut all = governed(&pool.inner);
        if all.seats.is_empty() {
            all.running = false;
            return;
        }
        let seats = all.seats.iter().map(|(n, s)| (*n, Looked::at(s))).collect();
        drop(all);
        round(&pool, &mut balancer, seats);
    }
}

/// A seat while its load is asked for. It does not have the share: who stops meanwhile gives that back, and may be started again.
struct Looked {
    handle: Handle,
    seen: (u64, u64, u64),
    busy: bool,
}

impl Looked {
    fn at(seat: &Seat) -> Looked {
        Looked { handle: seat.handle.clone(), seen: seat.seen, busy: seat.busy.load(Ordering::Acquire) }
    }
}

/// One look, and the moves that come of it.
fn round(pool: &Pool, balancer: &mut Balancer, mut seats: BTreeMap<u16, Looked>) {
    let (free, members) = loads(pool, &mut seats);
    for (number, seat) in &seats {
        if let Some(kept) = governed(&pool.inner).seats.get_mut(number) {
            kept.seen = seat.seen;
        }
    }
    for step in balancer.round(free, &members) {
        let (number, by, more) = match step {
            Move::Give(number, by) => (number, by, true),
            Move::Take(number, by) => (number, by, false),
        };
        let Some(seat) = governed(&pool.inner).seats.get(&number).cloned() else { continue };
        if seat.busy.swap(true, Ordering::AcqRel) {
            // Somebody else has come first.
            continue;
        }
        let busy = seat.busy.clone();
        // A share that shrinks writes to its core, which takes as long as it takes; others do not wait for that.
        let moving = std::thread::Builder::new().name("resize".to_owned()).spawn(move || {
            let has = members_extents(&seat.share);
            let wanted = if more { has + by } else { has.saturating_sub(by) };
            let bytes = u64::from(wanted) * seat.share.pool().state().table.extent();
            if let Err(why) = seat.share.resize_live(&seat.handle, bytes, || Ok(())) {
                tracing::info!(core = number, bytes, why = %why, "a share keeps its size");
            }
            seat.busy.store(false, Ordering::Release);
        });
        if moving.is_err() {
            busy.store(false, Ordering::Release);
        }
    }
}

fn members_extents(share: &Share) -> u32 {
    share.pool().state().table.table().extents_of(share.member().number).len() as u32
}

/// Every member as the balancer wants to see it; those that are not served keep what they have.
fn loads(pool: &Pool, seats: &mut BTreeMap<u16, Looked>) -> (u32, Vec<Load>) {
    let (free, mut loads) = {
        let state = pool.state();
        let table = state.table.table();
        let load = |m: &loligo_format::pool::Member| Load {
            number: m.number,
            has: table.extents_of(m.number).len() as u32,
            min: table.entitled(m),
            max: table.most(m),
            weight: m.weight,
            evictions: 0,
            misses: 0,
            hits: 0,
            busy: true,
        };
        (table.free().saturating_sub(state.kept), table.members().iter().map(load).collect::<Vec<_>>())
    };
    for load in &mut loads {
        if let Some(seat) = seats.get_mut(&load.number) {
            // One that does not answer is left as it is, and holds the others up no longer.
            let Some(snapshots) = seat.handle.snapshots_within(ANSWER) else { continue };
            let (mut evictions, mut hits, mut misses) = (0, 0, 0);
            for s in snapshots {
                evictions += s.stats.evictions;
                hits += s.stats.read_hits + s.stats.write_hits;
                misses += s.stats.read_misses + s.stats.write_misses;
            }
            load.evictions = evictions.saturating_sub(seat.seen.0);
            load.hits = hits.saturating_sub(seat.seen.1);
            load.misses = misses.saturating_sub(seat.seen.2);
            seat.seen = (evictions, hits, misses);
            load.busy = seat.busy;
        }
    }
    (free, loads)
}

impl Share {
    /// Brings a served share to `bytes`, as near as extents allow; returns when it has them. Clients go on meanwhile; a share
    /// that gets smaller writes to its core what is dirty in the part it loses, for as long as `patient` says so.
    ///
    /// # Errors
    /// If it cannot be; then it is as large as it was.
    pub fn resize_live(
        &self,
        handle: &Handle,
        bytes: u64,
        mut patient: impl FnMut() -> Result<(), String>,
    ) -> Result<()> {
        let _alone = self.alone()?;
        let (has, limit) = (self.limit()?, self.limit_for(bytes)?);
        let mut told = |limit| {
            let asked = handle.send_all(|| Command::Control(Control::Limit(limit)));
            handle.wait_while(asked, LOOK, &mut patient).map_err(|why: String| anyhow!(why))
        };
        if limit > has {
            self.grow(limit)?;
            return told(limit);
        }
        if limit < has {
            if let Err(why) = told(limit) {
                // Some threads may have gone along. Nobody waits for it: what gets larger is so at once.
                drop(handle.send_all(|| Command::Control(Control::Limit(has))));
                return Err(why);
            }
            self.shrunk(limit)?;
        }
        Ok(())
    }
    /// Nobody else brings it to another size until what this gives is dropped: an engine told of more room by one, while another
    /// takes that away, would use what is no longer its own.
    fn alone(&self) -> Result<MutexGuard<'_, ()>> {
        let alone = self.sizing.try_lock_for(PATIENCE);
        alone.context("the share is changing its size just now: try again in a while")
    }
}
