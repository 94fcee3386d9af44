//! Bad sectors of the core, and which of them may fail a read: those that the cache does not have.

use super::World;
use crate::clients::Asked;
use crate::rng::Rng;
use crate::subject::Subject;
use loligo_block::{ReqKind, Request};

/// Blocks looked at for one that the cache has.
const LOOKS: u32 = 20;

impl<E: Subject> World<E> {
    /// Some block of the core goes bad, mostly one beneath what the cache has.
    pub fn spoil_core(&mut self, rng: &mut Rng) {
        let Some(engine) = &self.engine else { return };
        let any = rng.chance(1, 4);
        let wanted = |s: &u32| any || engine.has_sector(*s);
        let found = (0..LOOKS).map(|_| self.clients.some_place(rng)).find(wanted);
        if let Some(sector) = found {
            self.marks.hit(if any {
                "a sector of the core went bad"
            } else {
                "one beneath the cache went bad"
            });
            self.trace.say(|| format!("sector {sector} of the core is bad"));
            self.core.spoil(u64::from(sector) * 512);
            let block = u64::from(sector) / 8 * 8;
            self.once_bad.extend(self.core.bad_in(block, 8).map(|s| s as u32));
            let first = block as u32;
            self.keep_no_more(first..first + 8);
            if self.rotten.contains(&first) {
                self.let_loose(&[first]);
            }
            self.doubt_reads();
        }
    }

    /// Reads under way may meet what has just become bad, even if it is written before they are answered.
    pub(super) fn doubt_reads(&mut self) {
        let met = self.clients.reads().filter(|(_, first, count)| self.is_lost_now(*first, *count));
        self.doubtful.extend(met.map(|(id, _, _)| id).collect::<Vec<_>>());
    }

    /// True if a sector in the range is neither readable at the core nor in the cache.
    fn is_lost_now(&self, first: u32, count: u32) -> bool {
        let has = |s: u64| self.engine.as_ref().is_some_and(|e| e.has_sector(s as u32));
        self.core.bad_in(u64::from(first), u64::from(count)).any(|s| !has(s) && !self.is_kept(s as u32))
    }

    /// Remembers a read of what is lost already.
    pub(super) fn doubt(&mut self, req: &Request) {
        let (first, count) = ((req.offset / 512) as u32, (req.len / 512) as u32);
        if matches!(req.kind, ReqKind::Read) && self.core.has_bad() && self.is_lost_now(first, count) {
            self.doubtful.insert(req.id);
        }
    }

    /// True if a read may fail because of a bad sector: one that was lost when it came or when it went bad, or is now, or may
    /// have been between because it was changed meanwhile.
    pub(super) fn was_lost(&mut self, id: u64, asked: &Asked) -> bool {
        if !asked.is_read() {
            return false;
        }
        let (first, count) = (asked.first, asked.count);
        let lost = self.doubtful.contains(&id)
            || self.is_lost_now(first, count)
            || self
                .once_bad
                .range(first..first + count)
                .copied()
                .chain(self.kept_in(first..first + count))
                .any(|s| self.oracle.changed_since(s, &asked.ticket));
        if lost {
            self.marks.hit("failed over a lost sector");
        }
        lost
    }
}
