//! Durability: who waits for which frame, the flushes of both devices, and what happens when one fails.

use crate::api::{ControlId, Dev, Effect, Nanos, answer};
use crate::bug::{Bug, planted};
use crate::commit::Commit;
use crate::engine::Engine;
use crate::flushes::{CacheFlush, FLUSH_EVERY, MANY, Waiter};
use crate::intake::{FlushTask, Task};
use crate::io_tag::IoTag;
use crate::refusal::{ControlError, Failure, Step};
use loligo_block::{Answer, IoError, Op, OpKind, ReqError, ReqId};

impl Commit {
    /// Answers such a request, unless it has been.
    pub(crate) fn tell_flushed(
        &mut self,
        id: ControlId,
        result: Result<(), ControlError>,
        fx: &mut Vec<Effect>,
    ) {
        let asked = &mut self.core_flush.asked;
        if let Some(at) = asked.iter().position(|other| *other == id) {
            asked.remove(at);
            fx.push(Effect::Controlled(id, result));
        }
    }

    /// Answers all of them: no flush that is over from now on says anything.
    pub(crate) fn fail_core_flushes(&mut self, why: &ControlError, fx: &mut Vec<Effect>) {
        for id in std::mem::take(&mut self.core_flush.asked) {
            fx.push(Effect::Controlled(id, Err(why.clone())));
        }
    }
}

impl Engine {
    pub(crate) fn wake_durable(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let past_gap = planted(self.cfg.bug, Bug::FuaPastGap);
        while let Some(who) = self.commit.next_durable(past_gap) {
            self.wake(now, who, fx);
        }
    }

    pub(crate) fn wake(&mut self, now: Nanos, who: Waiter, fx: &mut Vec<Effect>) {
        match who {
            Waiter::Task(key) => self.durability_step(now, key, fx),
            Waiter::Job(key) => self.job_step(now, key, fx),
            Waiter::Intent(region) => self.intent_opened(now, region, fx),
            Waiter::Lift => self.commit.lift(now),
            Waiter::Stop => self.commit.lift_for_stop(),
            Waiter::Checkpoint => self.checkpoint_step(fx),
            Waiter::Control(id) => self.commit.tell_flushed(id, Ok(()), fx),
        }
    }

    /// Flushes the core for a management request.
    pub(crate) fn flush_core_for(&mut self, id: ControlId, fx: &mut Vec<Effect>) {
        if let Some(why) = self.state.refusal() {
            return fx.push(Effect::Controlled(id, Err(why)));
        }
        self.commit.core_flush.asked.push(id);
        if !self.want_core_flush(Waiter::Control(id), fx) {
            self.commit.tell_flushed(id, Ok(()), fx);
        }
    }

    /// True if a flush of the core has failed: what was written before it may be lost, and no later flush tells.
    pub fn has_failed_core_flush(&self) -> bool {
        self.commit.core_flush.failed
    }

    /// Asks for a flush of the core that begins from now on. False when none is needed: the core has no volatile cache.
    pub(crate) fn want_core_flush(&mut self, who: Waiter, fx: &mut Vec<Effect>) -> bool {
        if self.state.is_fenced() {
            // Whoever asks finishes for nobody.
            return false;
        }
        if !self.state.uses_cache() {
            // Whoever asks has been failed, and waits for good: after a flush that failed none says anything.
            return true;
        }
        if !self.cfg.devices.core_volatile {
            self.commit.core_flushed = self.commit.core_acked;
            return false;
        }
        self.commit.core_flush.next.push(who);
        self.commit.core_flush.urgent = true;
        self.start_core_flush(fx);
        true
    }

    /// The same for who can wait for others to join: the flush begins in [`Engine::core_flush_if_due`].
    pub(crate) fn share_core_flush(&mut self, now: Nanos, who: Waiter) -> bool {
        if self.cfg.devices.core_volatile && self.state.uses_cache() {
            self.commit.core_flush.next.push(who);
            self.commit.core_flush.shared_since.get_or_insert(now);
        }
        self.cfg.devices.core_volatile || !self.state.uses_cache()
    }

    /// Starts a shared flush that is due, or that somebody waits for by now; and has clean records written that were in no
    /// hurry until then.
    pub(crate) fn core_flush_if_due(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let wanted = self.destage_is_wanted() || self.state.is_stopping();
        if wanted && self.destage.recording > 0 {
            self.commit.journal.hurry();
        }
        let f = &mut self.commit.core_flush;
        let due = wanted || f.next.len() >= MANY || f.deadline().is_some_and(|t| t <= now);
        f.urgent |= due && !f.next.is_empty();
        self.start_core_flush(fx);
    }

    /// Lifts the intents of regions that have been quiet, behind a flush of the core.
    pub(crate) fn lift_intents(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let durable = self.commit.journal.durable();
        let quiet = !self.state.is_stopping() && self.commit.intents.begin_lifting(now, durable);
        if quiet && !self.want_core_flush(Waiter::Lift, fx) {
            self.commit.lift(now);
        }
    }

    fn start_core_flush(&mut self, fx: &mut Vec<Effect>) {
        let f = &mut self.commit.core_flush;
        if f.running || f.next.is_empty() || !f.urgent {
            return;
        }
        f.running = true;
        f.urgent = false;
        f.shared_since = None;
        f.captured = self.commit.core_acked;
        std::mem::swap(&mut f.now, &mut f.next);
        self.stats.core_flushes += 1;
        fx.push(Effect::Io(Dev::Core, Op { tag: IoTag::CoreFlush.tag(), offset: 0, kind: OpKind::Flush }));
    }

    pub(crate) fn core_flushed_event(
        &mut self,
        now: Nanos,
        result: Result<(), IoError>,
        fx: &mut Vec<Effect>,
    ) {
        self.commit.core_flush.running = false;
        let waiters = std::mem::take(&mut self.commit.core_flush.now);
        if self.state.is_alone() {
            return self.flush_of_before_over(now, result, fx);
        }
        if self.state.is_fenced() {
            for who in waiters {
                self.core_flush_given_up(now, who, fx);
            }
            return;
        }
        if !self.state.uses_cache() {
            return;
        }
        match result {
            Ok(()) => {
                self.commit.core_flushed = self.commit.core_flushed.max(self.commit.core_flush.captured);
                for who in waiters {
                    self.wake(now, who, fx);
                }
                self.start_core_flush(fx);
            }
            Err(e) => {
                self.commit.core_flush.failed = true;
                self.poison(Failure::device(Step::CoreFlush, e), fx);
            }
        }
    }

    pub(crate) fn flush(&mut self, now: Nanos, id: ReqId, fx: &mut Vec<Effect>) {
        let key = self.intake.tasks.insert(Task::Flush(FlushTask { id: Some(id), since: now, pending: 1 }));
        let need = self.commit.journal.last_seq();
        self.commit.wait_durable(need, Waiter::Task(key));
        if self.commit.core_lacks_flush() && self.want_core_flush(Waiter::Task(key), fx) {
            let Task::Flush(f) = &mut self.intake.tasks[key] else { unreachable!("just inserted") };
            f.pending += 1;
        }
    }

    /// One of the things a task's durability waits for has happened.
    pub(crate) fn durability_step(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        match &mut self.intake.tasks[key] {
            Task::Flush(f) => {
                f.pending -= 1;
                if f.pending == 0 {
                    let (id, since) = (f.id, f.since);
                    self.intake.tasks.remove(key);
                    self.stats.flush_ns.saturating_record(now.saturating_sub(since));
                    if let Some(id) = id {
                        answer(fx, id, Ok(Answer::Done));
                    }
                }
            }
            Task::Write(_) => self.write_durable(now, key, fx),
            Task::Read(_) | Task::Direct(_) => unreachable!("they wait for no durability"),
        }
    }

    /// Starts a flush of the cache device if one is due or somebody waits for what it would make durable. One at a time, the
    /// checkpoint's too: of two on one descriptor Linux tells one alone of a failed write-back.
    pub(crate) fn flush_if_wanted(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let checkpoint = self.commit.checkpoint.wants_flush;
        if self.commit.cache_flush.is_some()
            || !(self.commit.journal.undurable() || checkpoint)
            || !self.state.uses_cache()
        {
            return;
        }
        let completed = self.commit.journal.completed();
        let waited = self.commit.durable_waiters.front().is_some_and(|(need, _)| *need <= completed);
        let short = self.space.slots.free_count() < self.room_wanted()
            && self
                .space
                .slots
                .wants_durable()
                .is_some_and(|f| f <= completed && f > self.commit.journal.durable());
        let due = self.state.is_stopping() || now.saturating_sub(self.commit.last_flush) >= FLUSH_EVERY;
        if waited || short || due || checkpoint {
            self.begin_cache_flush(fx);
        }
    }

    /// Has the checkpoint's writes made durable by a flush that begins from now on.
    pub(crate) fn flush_for_checkpoint(&mut self, fx: &mut Vec<Effect>) {
        self.commit.checkpoint.wants_flush = true;
        // One that is under way began before what was written here had ended: it goes with the next one, which begins once that has
        // ended. Without one nothing else may happen to an idle cache.
        if self.commit.cache_flush.is_none() {
            self.begin_cache_flush(fx);
        }
    }

    fn begin_cache_flush(&mut self, fx: &mut Vec<Effect>) {
        let checkpoint = std::mem::take(&mut self.commit.checkpoint.wants_flush);
        self.commit.cache_flush = Some(CacheFlush { journal: self.commit.journal.completed(), checkpoint });
        self.stats.cache_flushes += 1;
        fx.push(Effect::Io(Dev::Cache, Op { tag: IoTag::CacheFlush.tag(), offset: 0, kind: OpKind::Flush }));
    }

    /// The flush of the cache device is over.
    pub(crate) fn cache_flushed(&mut self, now: Nanos, result: Result<(), IoError>, fx: &mut Vec<Effect>) {
        let covered = self.commit.cache_flush.take().expect("one was under way");
        self.commit.last_flush = now;
        match result {
            Ok(()) => {
                self.commit.journal.flushed(covered.journal);
                if covered.checkpoint && self.state.uses_cache() {
                    self.checkpoint_flushed(fx);
                }
            }
            Err(e) => self.cache_failed(now, Step::CacheFlush, e, fx),
        }
    }

    /// The cache device failed. The core goes on alone if it has everything.
    pub(crate) fn cache_failed(&mut self, now: Nanos, step: Step, e: IoError, fx: &mut Vec<Effect>) {
        let why = Failure::device(step, e);
        if !self.state.uses_cache() || self.needs_cache().is_some() {
            return self.poison(why, fx);
        }
        self.leave_cache(now, why, fx);
    }

    /// A durability step failed: nothing is acknowledged any more. The data stays readable if the core has
    /// all of it, too. Otherwise every request fails from now on, so that every user of the volume ends at
    /// once.
    pub(crate) fn poison(&mut self, why: Failure, fx: &mut Vec<Effect>) {
        if self.state.uses_cache() {
            self.fail_all(why, fx);
        }
    }

    /// Nothing is acknowledged any more, because of this.
    pub(crate) fn fail_all(&mut self, why: Failure, fx: &mut Vec<Effect>) {
        let left = self.state.fail(why.clone());
        self.stats.poisoned = true;
        self.intake.waiting.clear();
        self.commit.durable_waiters.clear();
        self.commit.core_flush.end();
        self.fail_clients(ReqError::Io, false, fx);
        self.fail_controls(why, left, fx);
    }
}
