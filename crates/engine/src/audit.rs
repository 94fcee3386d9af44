//! Counts kept along the way, counted anew: what must hold between any two batches of events. For tests.

use crate::engine::Engine;
use crate::intake::Task;
use crate::journal::Action;
use crate::write_task::{Back, BackStep, Route};
use loligo_format::record::Record;
use loligo_format::units::BLOCK;
use std::collections::BTreeSet;

impl Engine {
    /// Compares what the shard counts with what is there. It walks over all that is under way.
    ///
    /// # Errors
    /// The first thing that does not hold, in words.
    pub fn audit(&self) -> Result<(), String> {
        if !self.state.uses_cache() {
            // It stays as it was when that happened.
            return Ok(());
        }
        let (mut puts, mut landing, mut pending, mut dropping) = (BTreeSet::new(), 0, 0, 0);
        for action in self.commit.journal.actions() {
            match action {
                Action::Apply(Record::Put { block, slot, dirty, .. }, fresh) => {
                    // One that says of a version that it is dirty takes no slot.
                    if self.map.index.block_in(*slot) != Some(self.cfg.stripe.local(*block)) {
                        puts.insert(*slot);
                    }
                    landing += u64::from(*dirty != 0);
                    pending += u64::from(*fresh);
                }
                Action::Apply(Record::Drop { .. }, fresh) => dropping += u32::from(*fresh),
                _ => {}
            }
        }
        let same = |what: &str, kept: u64, there: u64| {
            if kept == there { Ok(()) } else { Err(format!("{what}: {kept} are counted, {there} are there")) }
        };
        same("new dirty blocks on their way", self.space.pending_dirty, pending)?;
        same("dirty versions on their way", self.space.landing, landing)?;
        same("evictions on their way", u64::from(self.space.dropping), u64::from(dropping))?;
        let of_task = |task: &Task| match task {
            Task::Write(m) => match &m.route {
                Route::Back(Back { step: BackStep::Merging(merging), .. }) => merging.slots.len(),
                _ => 0,
            },
            _ => 0,
        };
        let staged: usize = self.intake.tasks.iter().map(|(_, t)| of_task(t)).sum();
        let pinned = self.state.freeze().map_or(0, |f| f.kept());
        let holding = u64::from(self.space.slots.empty_count()) + u64::from(self.space.slots.leaving_count());
        let used = self.map.index.occupied() + puts.len() as u64 + staged as u64 + pinned;
        same("slots", u64::from(self.space.slots.size()), holding + used)?;
        if let Some((block, slot)) = self.map.filling.iter().find(|(_, slot)| !puts.contains(slot)) {
            return Err(format!(
                "block {block} is said to be filled from slot {slot}, which no record speaks of"
            ));
        }
        if let Some(block) = self.map.hidden.iter().find(|b| !self.map.locks.is_locked(**b)) {
            return Err(format!("block {block} is hidden, and nobody changes it"));
        }
        if self.intake.tasks.is_empty() {
            same("operations of clients at the core", u64::from(self.intake.core_busy), 0)?;
            same("changes that wait", self.intake.waiting.len() as u64 + self.intake.held.len() as u64, 0)?;
            if !self.map.locks.is_empty() {
                return Err("a lock is held, and nobody changes anything".into());
            }
            if self.destage.idle() && !self.space.tickets.is_idle() {
                return Err("a slot is said to be read, and nobody reads".into());
            }
        }
        Ok(())
    }

    /// True if the cache by itself has the sector at this byte of the volume for a read.
    pub fn has_sector(&self, offset: u64) -> bool {
        let block = self.cfg.stripe.local(offset / BLOCK);
        let need = 1u8 << (offset % BLOCK / 512);
        self.state.uses_cache() && self.map.index.get(block).is_some_and(|m| self.serves(block, &m, need))
    }
}
