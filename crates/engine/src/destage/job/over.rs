//! A job's end: what the core has taken becomes clean, and those who wait for its window hear of it.

use super::reading::READS;
use super::{Piece, State};
use crate::api::{Effect, Nanos};
use crate::destage::JOBS;
use crate::engine::Engine;
use crate::refusal::ControlError;
use loligo_format::record::Record;
use loligo_format::units::WINDOW_BLOCKS;

impl Engine {
    /// Marks the blocks clean that the core has taken.
    pub(super) fn record_clean(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        self.destage.jobs[key].state = State::Recording;
        self.destage.recording += 1;
        if !self.destage.doubts.is_empty() {
            let job = &self.destage.jobs[key];
            let taken: Vec<(u32, u8)> = job
                .pieces
                .iter()
                .filter(|p| !p.superseded && p.is_taken())
                .map(|p| (p.block, job.written_of(p)))
                .collect();
            self.destage.lift_doubts(taken.into_iter());
        }
        let clean: Vec<(u32, u32)> = self.destage.jobs[key]
            .pieces
            .iter()
            .filter(|p| !p.superseded && p.is_taken() && !self.destage.any_doubted(p.block, p.block))
            .map(|p| (p.block, p.meta.slot))
            .collect();
        let kept: Vec<u32> = self.destage.jobs[key]
            .pieces
            .iter()
            .filter(|p| p.superseded && p.is_taken())
            .map(|p| p.block)
            .collect();
        self.stats.destaged_blocks += kept.len() as u64;
        for block in kept {
            self.release_pin(block);
        }
        if clean.is_empty() {
            return self.job_over(now, key, fx);
        }
        self.stats.destaged_blocks += clean.len() as u64;
        // Otherwise they go with the next frame that somebody waits for, or when they are due; but jobs that wait for that
        // must not be what keeps others from beginning.
        let wanted = self.destage_is_wanted() || self.destage.recording as usize > JOBS / 2;
        for (block, slot) in clean {
            let block = self.cfg.stripe.global(block);
            self.commit.append(now, Record::Clean { block, slot }, false, wanted);
        }
        self.commit.journal.notify_job(key);
    }

    /// The job's clean records have taken effect, or it ended without any.
    pub(crate) fn job_over(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let job = self.destage.jobs.remove(key);
        debug_assert!(!self.destage.reading.contains(&key), "it ended with slots still to be read");
        self.destage.tasked -= u32::from(!job.tasks.is_empty());
        self.destage.recording -= u32::from(job.state == State::Recording);
        self.destage.by_window.remove(&job.window);
        if job.probe {
            // It says nothing of what is dirty in its window.
            return self.destage.probed(now, &job);
        }
        // What is held back for the clients' sake does not show what the core can do.
        let busy = self.map.index.dirty_blocks() > 256
            && self.slot_reads_allowed(now) == READS
            && !self.holds_back(now);
        let destaged = job.pieces.iter().filter(|p| !p.filler && !p.refused).count() as u64;
        if let Some(rate) = self.destage.pacer.destaged(now, destaged, self.destage.others.destaged, busy) {
            self.destage.depth.measured(rate);
        }
        // Those found bad earlier were left out of the job, and are still dirty.
        let first = job.window * WINDOW_BLOCKS as u32;
        let bad = self.destage.bad.range(first..first + WINDOW_BLOCKS as u32).next().copied();
        let down = job.failed.clone().filter(|_| job.down).map(ControlError::Core);
        let why = down.or_else(|| bad.map(|b| self.damaged(b)));
        let (again, outgrown) = (job.again, job.outgrown);
        self.forget_clean();
        // What was there when a flush was asked for may be a part of what replaced it.
        let replaced = |p: &Piece| p.superseded && !p.made_ready && !p.filler;
        let still = |p: &Piece| replaced(p) && self.map.index.get(p.block).is_some_and(|m| m.dirty != 0);
        let left = job.pieces.iter().any(still);
        let refused = !again && self.destage.stuck.is_apart(job.window);
        if let Some(freeze) = self.state.freeze_mut().filter(|_| job.failed.is_some()) {
            freeze.later(job.window);
        }
        // One made for a freeze may have left newer versions behind.
        let counts = |from: u64| from < job.number && !job.drains && !again && !outgrown;
        for f in self.destage.flushes.iter_mut().filter(|f| counts(f.from)) {
            if left {
                f.left_in(job.window, self.cfg.stripe);
            } else {
                f.remaining.remove(&job.window);
            }
            if refused {
                f.refused.insert(job.window);
            }
            if f.failed.is_none() {
                f.failed.clone_from(&why);
            }
        }
        let given_away = |p: &Piece| p.refused && p.meta.slot >= self.space.slots.count();
        if let Some(why) = job.failed.as_ref().filter(|_| !again && job.pieces.iter().any(given_away)) {
            self.end_shrink(why.clone().into(), fx);
        }
        for task in job.tasks {
            self.pass_over(now, task, job.failed.is_some() && !again, fx);
        }
        // The core cannot be brought to the moment: whoever asked is told. One that takes nothing at all is waited for, and a
        // minute tells it from one that has nothing else to take.
        let d = &self.destage;
        let sectors = d.stuck.is_sectors(job.window, d.health.successes()) || d.health.has_failed_long(now);
        let works = sectors && self.core_failing().is_none();
        let hopeless = works && job.drains && refused && job.failed.is_some() && self.state.is_draining();
        if let Some(why) = self.refused().filter(|_| hopeless) {
            self.end_freeze(now, why, fx);
        }
        debug_assert!(u64::from(job.window) * WINDOW_BLOCKS <= u64::from(u32::MAX));
    }
}
