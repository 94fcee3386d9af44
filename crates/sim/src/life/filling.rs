//! Loads that a life begins with: a cache filled to the brim, and one that is mostly cold.

use super::Run;
use crate::engine::Engine;
use crate::world::{SETTLED, Wrong};
use loligo_cache::api::Control;
use loligo_cache::params::SeqCutoff;

impl<E: Engine> Run<E> {
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
