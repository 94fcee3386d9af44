//! Management of a running shard: mode, tunables, flush, stop.

use crate::api::{Control, ControlId, Effect, Nanos};
use crate::engine::Engine;
use crate::flushes::Waiter;
use crate::params::Params;
use crate::policy::Replacement;
use crate::policy::admit::Admission;
use crate::refusal::ControlError;

impl Engine {
    pub(crate) fn control(&mut self, now: Nanos, id: ControlId, control: Control, fx: &mut Vec<Effect>) {
        match control {
            Control::SetMode(_) if self.state.is_alone() => {
                fx.push(Effect::Controlled(id, Err(ControlError::CacheGone)));
            }
            Control::SetMode(mode) => {
                self.cfg.mode = mode;
                fx.push(Effect::Controlled(id, Ok(())));
            }
            Control::SetParams(params) => {
                self.set_params(params);
                fx.push(Effect::Controlled(id, Ok(())));
            }
            Control::FlushDirty if self.state.is_alone() => self.flush_dirty_alone(now, id, fx),
            Control::FlushDirty => self.flush_dirty(now, id, fx),
            Control::FlushCore if self.state.is_alone() => self.flush_dirty_alone(now, id, fx),
            Control::FlushCore => self.flush_core_for(id, fx),
            Control::Fence(why) => self.fence(now, id, why, fx),
            Control::Expel(why) => {
                self.expel(now, why, fx);
                fx.push(Effect::Controlled(id, Ok(())));
            }
            Control::Freeze if self.state.is_alone() => self.freeze_alone(id, fx),
            Control::Freeze => self.freeze(now, id, fx),
            Control::Thaw if self.state.is_alone() => {
                self.thaw_alone(now, ControlError::Thawed, fx);
                fx.push(Effect::Controlled(id, Ok(())));
            }
            Control::Thaw => self.thaw(now, id, fx),
            Control::FallBack(why) => self.fall_back(now, id, why, fx),
            Control::Confirm => self.go_on(now, id, fx),
            Control::GiveUp(why) => self.give_up_cache(id, why, fx),
            Control::Stop if self.state.is_alone() => self.stop_alone(now, id, fx),
            Control::Limit(slots) => self.set_limit(now, id, slots, fx),
            Control::Stop => {
                self.end_freeze(now, ControlError::EndedByStop, fx);
                if let Err(why) = self.state.begin_stop(id) {
                    fx.push(Effect::Controlled(id, Err(why)));
                }
            }
        }
    }

    pub(crate) fn set_params(&mut self, params: Params) {
        if params.replacement != self.cfg.params.replacement {
            self.space.policy = Replacement::new(params.replacement, self.space.slots.size(), 0);
            self.space.policy.set_limit(self.space.slots.count());
            for slot in 0..self.space.slots.size() {
                if let Some(block) = self.map.index.block_in(slot) {
                    self.space.policy.insert(slot, self.cfg.stripe.global(block));
                }
            }
        }
        if params.admission != self.cfg.params.admission {
            self.space.admission = Admission::new(params.admission.kind(), self.space.slots.size());
            self.space.admission.set_limit(self.space.slots.count());
        }
        self.cfg.params = params;
    }

    /// Once the last task is gone, a stop makes everything durable, checkpoints and reports.
    pub(crate) fn stop_if_idle(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if self.state.is_alone() {
            return self.stop_alone_if_idle(now, fx);
        }
        if !self.state.is_stopping() {
            return;
        }
        if !self.intake.tasks.is_empty()
            || !self.destage.idle()
            || (!self.state.is_fenced() && self.has_doubts())
        {
            return;
        }
        if self.commit.journal.last_seq() > self.commit.journal.durable() {
            self.commit.journal.hurry();
            debug_assert!(self.state.uses_cache(), "a frame for a cache that is not used any more");
            self.commit.close_if_due(now, &mut self.stats, fx);
            return self.flush_if_wanted(now, fx);
        }
        if !self.state.is_fenced() && (self.commit.core_lacks_flush() || self.commit.intents.open() > 0) {
            let asked = self.commit.core_flush.has(Waiter::Stop);
            if asked || self.want_core_flush(Waiter::Stop, fx) {
                return;
            }
            self.commit.lift_for_stop();
        }
        if !self.commit.checkpoint.finished_at(self.commit.journal.last_seq()) {
            return self.start_checkpoint(fx);
        }
        let salvaged = self.cannot_salvage().filter(|_| !self.state.is_fenced());
        if let Some(id) = self.state.end_stop() {
            fx.push(Effect::Controlled(id, salvaged.map_or(Ok(()), Err)));
        }
    }
}
