//! A core that somebody else has taken. Nothing is answered any more but that it is so, nothing goes to the core, and the
//! cache keeps what is dirty: journal, checkpoints and stop go on as ever.

use crate::api::{ControlId, Effect, Nanos, answer};
use crate::engine::Engine;
use crate::flushes::Waiter;
use crate::intake::Task;
use crate::refusal::ControlError;
use crate::write_task::CoreStep;
use loligo_block::ReqError;

impl Engine {
    /// The reason why the core is not ours any more, if it is not.
    pub fn fenced(&self) -> Option<&str> {
        self.state.fence()
    }

    /// Somebody else has the core.
    pub(crate) fn fence(&mut self, now: Nanos, id: ControlId, why: String, fx: &mut Vec<Effect>) {
        fx.push(Effect::Controlled(id, Ok(())));
        if self.state.is_fenced() {
            return;
        }
        self.state.set_fence(why.clone());
        let why = ControlError::Fenced(why);
        self.fail_clients(ReqError::Shutdown, true, fx);
        self.destage.fail_flushes(&why, fx);
        self.end_shrink(why.clone(), fx);
        if self.state.is_alone() {
            self.fail_waiting(ReqError::Shutdown, fx);
            return self.thaw_alone(now, why, fx);
        }
        if !self.state.uses_cache() {
            return;
        }
        self.end_freeze(now, why, fx);
        // What waits for the cache alone goes on to its end; what only the core could have brought on ends here.
        for task in self.destage.forget_wanted() {
            self.give_up(now, task, fx);
        }
        for who in self.commit.core_flush.give_up() {
            self.core_flush_given_up(now, who, fx);
        }
        self.drop_core_writes(now, fx);
        self.admit_waiting(now, fx);
    }

    /// Answers every client with `error`; with `reads` also those that read. Their tasks end by themselves.
    pub(crate) fn fail_clients(&mut self, error: ReqError, reads: bool, fx: &mut Vec<Effect>) {
        for id in self.intake.take_ids(reads) {
            answer(fx, id, Err(error));
        }
    }

    /// The change `key` will not be carried out.
    pub(crate) fn give_up(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        self.finish(now, key, Err(ReqError::Shutdown), fx);
    }

    /// The flush of the core that `who` waits for is not coming.
    pub(crate) fn core_flush_given_up(&mut self, now: Nanos, who: Waiter, fx: &mut Vec<Effect>) {
        match who {
            Waiter::Task(key) => {
                if let Task::Write(m) = &self.intake.tasks[key]
                    && let Some(CoreStep::Flush) = m.route.core_step()
                {
                    return self.record_drops(now, key, Err(ReqError::Shutdown), fx);
                }
                self.durability_step(now, key, fx);
            }
            Waiter::Job(key) => self.job_over(now, key, fx),
            Waiter::Lift => self.commit.intents.give_up_lifting(),
            Waiter::Stop => {}
            Waiter::Control(id) => {
                let why = self.state.fence().unwrap_or_default().to_owned();
                self.commit.tell_flushed(id, Err(ControlError::Fenced(why)), fx);
            }
            Waiter::Intent(_) | Waiter::Checkpoint => unreachable!("{who:?} needs nothing of the core"),
        }
    }
}
