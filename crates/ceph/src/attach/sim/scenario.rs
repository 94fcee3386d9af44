//! The states of image and cache from which attaches begin, and the orders that come with them.

use super::world::{CACHE, Life, World, address, bare_record, holder, marker};
use crate::lock_record::{LockRecord, Loss};

/// The options of an attach, and the cache that comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) steal: bool,
    pub(super) force: bool,
    pub(super) without_cache: bool,
    pub(super) cache: bool,
    /// The cache was made for this image.
    pub(super) known: bool,
    pub(super) dirty: bool,
}

impl Order {
    /// True if `other` orders the same and more.
    pub(super) fn is_within(self, other: Order) -> bool {
        (self.steal <= other.steal)
            && (self.force <= other.force)
            && (self.without_cache <= other.without_cache)
    }

    /// The same cache, with everything ordered that can be.
    pub(super) fn everything(self) -> Order {
        Order { steal: true, force: true, without_cache: true, ..self }
    }
}

/// The place of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    Nobodys,
    /// The cache's last client's, which is dead.
    Ours,
    /// A stranger's who does not watch the image.
    Dead,
    /// A stranger's who does.
    Living,
    /// Nobody's: a stranger watches the image.
    Watched,
}

/// The cache that comes with the attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    New,
    Clean,
    /// Stopped with dirty data.
    Dirty,
    /// Killed while it was served.
    Killed,
    /// It lost its image.
    Lost,
    /// Dirty, and it does not say as whom it had the image.
    Unrecorded,
}

const LOCKS: [Lock; 5] = [Lock::Nobodys, Lock::Ours, Lock::Dead, Lock::Living, Lock::Watched];
const KINDS: [Kind; 7] =
    [Kind::None, Kind::New, Kind::Clean, Kind::Dirty, Kind::Killed, Kind::Lost, Kind::Unrecorded];

/// A beginning.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    /// Cache, lock and marker.
    pub(super) beginning: String,
    pub(super) world: World,
    pub(super) order: Order,
}

impl Scenario {
    pub(super) fn name(&self) -> String {
        format!("{} {:?}", self.beginning, self.order)
    }
}

/// All beginnings with all orders.
pub(super) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for kind in KINDS {
        for lock in LOCKS {
            for marked in
                [None, Some(marker(CACHE, "a1")), Some(marker("theirs", "a1")), Some(marker("theirs", "b2"))]
            {
                // A marker of others matters little to the rest.
                if marked.is_some() && !matches!(lock, Lock::Nobodys | Lock::Ours) {
                    continue;
                }
                for orders in 0..8u8 {
                    all.push(scenario(kind, lock, marked.clone(), orders));
                }
            }
        }
    }
    all
}

fn scenario(kind: Kind, lock: Lock, marked: Option<String>, orders: u8) -> Scenario {
    let mut world = World::new();
    let last = world.connect();
    world.own.insert(last);
    world.clients.insert(last, Life::Gone);
    let was_served = !matches!(kind, Kind::None | Kind::New);
    match lock {
        Lock::Nobodys | Lock::Watched => {}
        Lock::Ours => {
            world.lock = Some(holder(last));
            if !was_served {
                world.own.remove(&last);
            }
        }
        Lock::Dead | Lock::Living => {
            let stranger = world.connect();
            world.give_lock(stranger);
            world.foreign = true;
            world.acquired = 1;
            match lock {
                Lock::Living => {
                    world.watchers.insert(stranger);
                    world.writers.insert(stranger);
                }
                _ => drop(world.clients.insert(stranger, Life::Gone)),
            }
        }
    }
    if lock == Lock::Watched {
        let stranger = world.connect();
        world.watchers.insert(stranger);
    }
    let record = record(kind, lock, last, &world);
    if kind == Kind::Dirty && lock == Lock::Ours {
        world.blocklist.insert(address(last));
    }
    if kind == Kind::Killed && lock == Lock::Ours {
        world.watchers.insert(last);
    }
    // A lock that a dirty cache does not have was taken away, and it writes where others may have.
    world.foreign |= record.is_some() && lock == Lock::Nobodys && kind != Kind::Clean;
    world.foreign |= kind == Kind::Lost || (kind == Kind::Unrecorded && lock != Lock::Ours);
    world.record = record;
    world.marker = marked;
    let order = Order {
        steal: orders & 1 != 0,
        force: orders & 2 != 0,
        without_cache: orders & 4 != 0,
        cache: kind != Kind::None,
        known: was_served,
        dirty: matches!(kind, Kind::Dirty | Kind::Killed | Kind::Lost | Kind::Unrecorded),
    };
    Scenario { beginning: format!("{kind:?} {lock:?} {:?}", world.marker), world, order }
}

fn record(kind: Kind, lock: Lock, last: i64, world: &World) -> Option<LockRecord> {
    let seen = if lock == Lock::Ours || lock == Lock::Nobodys { world.version } else { 90 };
    let held = LockRecord { version: Some(seen), ..bare_record(last, world.seq) };
    match kind {
        Kind::None | Kind::New | Kind::Unrecorded => None,
        Kind::Clean if lock == Lock::Watched => Some(LockRecord { left_at: Some(world.version), ..held }),
        Kind::Clean => Some(LockRecord { left_at: Some(seen), ..held }),
        Kind::Dirty => Some(LockRecord { rests_at: Some(seen), ..held }),
        Kind::Killed => Some(held),
        Kind::Lost => Some(LockRecord { lost: Some(Loss::now("another came")), ..held }),
    }
}
