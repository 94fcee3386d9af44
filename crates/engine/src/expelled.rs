//! Devices that are somebody else's, both of them: a partner has fenced this controller at the array. Whatever is written from
//! here on would be written over what the partner serves, so nothing is: no journal, no checkpoint, no destage, no note.

use crate::api::{Effect, Nanos, answer};
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::io_tag::{Done, IoTag};
use crate::refusal::{ControlError, Failure};
use loligo_block::{IoError, IoKind, ReqError};

impl Engine {
    /// The reason why neither device is ours any more, if that is so.
    pub fn expelled(&self) -> Option<&str> {
        self.state.fence().filter(|_| self.state.is_expelled())
    }

    /// Looks whether `error` of a device says that it is not ours any more.
    pub(crate) fn look_for_fence(&mut self, now: Nanos, error: &IoError, fx: &mut Vec<Effect>) {
        if error.kind == IoKind::Fenced && !planted(self.cfg.bug, Bug::FencedTakenForFailed) {
            self.expel(now, error.words_of_fence(), fx);
        }
    }

    /// Both devices are somebody else's.
    pub(crate) fn expel(&mut self, now: Nanos, why: String, fx: &mut Vec<Effect>) {
        let Some(left) = self.state.expel(&why) else { return };
        let failure = Failure::Expelled(why.clone());
        self.stats.poisoned = true;
        self.intake.waiting.clear();
        self.commit.durable_waiters.clear();
        self.commit.closed.clear();
        self.commit.core_flush.end();
        self.fail_clients(ReqError::Io, true, fx);
        self.fail_controls(failure, left, fx);
        if self.state.is_alone() {
            self.fail_waiting(ReqError::Io, fx);
            self.fail_stop_alone(fx);
            self.thaw_alone(now, ControlError::Fenced(why), fx);
        }
    }

    /// Answers what an expelled engine has asked of its devices from effect `from` on: nothing of it reaches them.
    pub(crate) fn ask_nothing(&mut self, now: Nanos, from: usize, fx: &mut Vec<Effect>) {
        if !self.state.is_expelled() {
            return;
        }
        while let Some(at) = (from..fx.len()).find(|n| matches!(fx[*n], Effect::Io(..))) {
            let Effect::Io(_, op) = fx.remove(at) else { unreachable!("just found") };
            let why = self.state.fence().unwrap_or_default().to_owned();
            let over = op.complete(Err(IoError::new(IoKind::Fenced, why)));
            let tag = IoTag::of(over.tag);
            self.done(tag, Done::new(now, tag, over.buf, over.result), fx);
        }
    }

    /// Refuses a request of a client.
    pub(crate) fn refuse_request(&self, id: loligo_block::ReqId, fx: &mut Vec<Effect>) {
        let why = if self.state.is_expelled() { ReqError::Io } else { ReqError::Shutdown };
        answer(fx, id, Err(why));
    }
}
