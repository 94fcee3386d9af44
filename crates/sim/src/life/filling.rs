//! Loads that a life begins with: a cache filled to the brim, be it with what the core refuses, and one that is mostly cold.

use super::Run;
use crate::subject::Subject;
use crate::world::{SETTLED, Wrong};
use loligo_engine::api::Control;
use loligo_engine::params::SeqCutoff;

/// The core refuses what fills the cache for so long, ns, unless it is made to take it: each writer hears of it in less.
const REFUSED: u64 = 400_000_000_000;
/// Writers wait for room so long, ns: the minute after which they are not held any longer, and all that leads to it.
const PATIENT: u64 = 150_000_000_000;
/// Requests that fill it at most: a cache that is gone answers each at once.
const MOST_POURED: u32 = 400;

impl<E: Subject> Run<E> {
    /// Writes `left` sectors in long requests, one behind the other.
    fn pour(&mut self, mut left: u64) -> Result<(), Wrong> {
        while left > 0 {
            if self.w.clients.under_way() < 8 {
                let req = self.w.clients.draw_fill(self.w.now, &mut self.w.oracle);
                left = left.saturating_sub(req.len / 512);
                self.w.ask(req);
            } else if !self.w.pump(None)? {
                return Err(self.stalled());
            }
        }
        Ok(())
    }

    /// Writes somewhat more than the cache holds, in long requests and without a flush.
    pub(super) fn fill(&mut self) -> Result<(), Wrong> {
        let room: u64 = self.w.parts.data.iter().map(|r| r.end - r.start).sum();
        let filled = room / 512 * self.rng.range(self.w.cfg.load.fill_percent.clone()) / 100;
        self.pour(filled)?;
        self.w.marks.hit("cache filled");
        if self.w.cfg.load.burst {
            // What follows overwrites durable dirty data, and hardly anything else.
            self.drain()?;
            self.idle(SETTLED / 4)?;
            self.filled = filled;
        }
        Ok(())
    }

    /// Writes what most of the core refuses until nobody waits for room in the cache any more, and some more.
    pub(super) fn jam(&mut self) -> Result<(), Wrong> {
        self.w.refuse_most(REFUSED);
        let until = self.w.now + PATIENT;
        let (mut left, mut more) = (MOST_POURED, self.worn.range(8..40));
        while self.w.now < until && left > 0 && more > 0 {
            if self.w.clients.under_way() < 8 {
                left -= 1;
                let req = self.w.clients.draw_fill(self.w.now, &mut self.w.oracle);
                self.w.ask(req);
                more -= u64::from(self.w.has_given_up());
            } else if !self.w.pump(Some(until))? {
                return Err(self.stalled());
            }
        }
        Ok(())
    }

    /// Fills most of the cache, brings it to the core, and frees the slots at the beginning: a restart looks for free
    /// slots from there on, so what is hot then moves in front of what it left.
    pub(super) fn chill(&mut self) -> Result<(), Wrong> {
        let all = self.w.clients.sectors();
        let (cold, freed) = (all * 7 / 10, all / 5 / 8 * 8);
        self.pour(cold)?;
        self.command(&Control::FlushDirty)?;
        // What was freed stays free when a check reads it.
        let params = &mut self.w.cfg.params;
        (params.seq_cutoff, params.seq_threshold, params.seq_promotion) = (SeqCutoff::Always, 64 << 10, 1);
        let params = Control::SetParams(*params);
        self.command(&params)?;
        let req = self.w.clients.clear(self.w.now, &mut self.w.oracle, 0, freed);
        self.w.ask(req);
        self.drain()?;
        // Until the intents of freeing are lifted.
        self.idle(3 * SETTLED)?;
        self.w.clients.wander(freed..cold);
        self.w.marks.hit("cold majority");
        Ok(())
    }
}
