//! The choice of what to keep: replacement of cache lines, admission of read misses, sequential streams.
//!
//! Replacement works on small integer ids (the places of a shard's lines in its arrays). Nothing here allocates per
//! call, asks the time, or depends on anything but what it was told.

pub mod admit;
mod aged;
mod ghost;
mod hash;
mod lru;
pub mod probation;
mod s3;
mod s3cm;
mod shadow;
pub mod streams;
#[cfg(test)]
mod tests;

use lru::Lru;
use s3cm::S3Cm;

/// The replacement policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// S3-FIFO with a correlation window and an adaptive small queue: the default.
    S3Cm,
    /// Exact least recently used.
    Lru,
    /// First in, first out.
    Fifo,
}

impl Kind {
    /// Every policy.
    pub const ALL: [Kind; 3] = [Kind::S3Cm, Kind::Lru, Kind::Fifo];

    /// The name used on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Kind::S3Cm => "s3cm",
            Kind::Lru => "lru",
            Kind::Fifo => "fifo",
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;
    fn from_str(s: &str) -> Result<Kind, String> {
        Kind::ALL
            .into_iter()
            .find(|k| k.name() == s)
            .ok_or_else(|| format!("no replacement policy is called {s:?}; there are s3cm, lru and fifo"))
    }
}

/// The resident lines, and the order in which to lose them.
///
/// The engine calls [`Replacement::missed`] or [`Replacement::hit`] once for every access to a line, read or write,
/// and [`Replacement::insert`] when a line becomes resident, dirty or not.
#[derive(Debug)]
pub struct Replacement {
    policy: Policy,
}

#[derive(Debug)]
enum Policy {
    S3Cm(Box<S3Cm>),
    Lru(Box<Lru>),
}

impl Replacement {
    /// Nothing resident; ids run from 0 to `capacity - 1`. `seed` chooses the keys that are sampled.
    pub fn new(kind: Kind, capacity: u32, seed: u64) -> Replacement {
        let policy = match kind {
            Kind::S3Cm => Policy::S3Cm(Box::new(S3Cm::new(capacity, seed))),
            Kind::Lru => Policy::Lru(Box::new(Lru::new(capacity, true))),
            Kind::Fifo => Policy::Lru(Box::new(Lru::new(capacity, false))),
        };
        Replacement { policy }
    }

    /// Expects so many lines from now on, of the capacity given at the start. Resident lines stay so.
    pub fn set_limit(&mut self, limit: u32) {
        match &mut self.policy {
            Policy::S3Cm(p) => p.set_limit(limit.max(1)),
            Policy::Lru(p) => p.set_limit(limit.max(1)),
        }
    }

    /// `id` became resident with `key`.
    pub fn insert(&mut self, id: u32, key: u64) {
        match &mut self.policy {
            Policy::S3Cm(p) => p.insert(id, key),
            Policy::Lru(p) => p.insert(id, key),
        }
    }

    /// `id`, resident with `key`, was read or written.
    #[inline]
    pub fn hit(&mut self, id: u32, key: u64) {
        match &mut self.policy {
            Policy::S3Cm(p) => p.hit(id, key),
            Policy::Lru(p) => p.hit(id),
        }
    }

    /// Brings what [`Replacement::hit`] on `id` will touch towards the processor.
    #[inline]
    pub fn prefetch(&self, id: u32) {
        if let Policy::S3Cm(p) = &self.policy {
            p.real().prefetch(id);
        }
    }

    /// An access to `key` found no resident line, whether it is inserted now or not.
    pub fn missed(&mut self, key: u64) {
        if let Policy::S3Cm(p) = &mut self.policy {
            p.missed(key);
        }
    }

    /// `id` was invalidated or discarded. Nothing is remembered of it.
    pub fn remove(&mut self, id: u32) {
        match &mut self.policy {
            Policy::S3Cm(p) => p.real_mut().remove(id),
            Policy::Lru(p) => p.remove(id),
        }
    }

    /// The line at `from`, with the same key, is now at `to`; it keeps its age and its hits. `from` is out.
    pub fn moved(&mut self, from: u32, to: u32) {
        match &mut self.policy {
            Policy::S3Cm(p) => p.real_mut().moved(from, to),
            Policy::Lru(p) => p.moved(from, to),
        }
    }

    /// `id` may have become evictable (it was destaged, or unlocked). A hint that saves searching for it.
    pub fn cleaned(&mut self, id: u32) {
        match &mut self.policy {
            Policy::S3Cm(p) => p.real_mut().cleaned(id),
            Policy::Lru(p) => p.cleaned(id),
        }
    }

    /// Takes out the line to lose next. `evictable` gives the key of a line that may be evicted (clean, unlocked) and
    /// `None` for others. The search is bounded: `None` means that none was found this time, and the next call goes
    /// on from there; lines passed over are not met again before those that were not, unless [`Replacement::cleaned`].
    pub fn victim(&mut self, evictable: impl FnMut(u32) -> Option<u64>) -> Option<u32> {
        match &mut self.policy {
            Policy::S3Cm(p) => p.real_mut().victim(evictable),
            Policy::Lru(p) => p.victim(evictable),
        }
    }

    /// True if `key` was evicted not long ago (S3-CM: without having been hit), so that an access is a second touch.
    pub fn remembers(&self, key: u64) -> bool {
        match &self.policy {
            Policy::S3Cm(p) => p.real().remembers(key),
            Policy::Lru(p) => p.remembers(key),
        }
    }

    /// The state of `id` in one byte to be saved; 0 exactly if it is not resident.
    pub fn state(&self, id: u32) -> u8 {
        match &self.policy {
            Policy::S3Cm(p) => p.real().state(id),
            Policy::Lru(p) => p.state(id),
        }
    }

    /// Makes `id` resident as [`Replacement::state`] saved it (0: leaves it out). Call it before anything else.
    pub fn restore(&mut self, id: u32, state: u8) {
        match &mut self.policy {
            Policy::S3Cm(p) => p.real_mut().restore(id, state),
            Policy::Lru(p) => p.restore(id, state),
        }
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        let policy = match &self.policy {
            Policy::S3Cm(p) => p.bytes(),
            Policy::Lru(p) => p.bytes(),
        };
        policy + size_of::<Replacement>()
    }
}
