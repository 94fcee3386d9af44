//! The runtime's work for a cache that is gone: every shard is to do without it; that it is void is noted, durably; the shards
//! go on. Or it cannot be noted, and they give up.

use super::{Mail, World};
use crate::subject::Subject;
use loligo_engine::FallbackState;
use loligo_engine::api::{Control, ControlId, Event};
use loligo_engine::refusal::ControlError;

/// One shard in so many finds that nothing can be noted.
const GIVEN_UP_ONE_IN: u64 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    FallingBack,
    GoingOn,
    GivingUp,
    /// Nothing is left to do.
    Over,
}

/// The progress of a rescue.
#[derive(Debug)]
pub(super) struct Rescue {
    pub(super) id: ControlId,
    left: usize,
    refused: bool,
    step: Step,
}

impl<E: Subject> World<E> {
    /// True if a shard does without its cache.
    pub fn is_alone(&self) -> bool {
        self.engine.as_ref().is_some_and(|e| (0..e.shards()).any(|s| e.alone(s).is_some()))
    }

    /// True if that is not settled yet.
    pub fn is_rescuing(&self) -> bool {
        self.rescue.as_ref().is_some_and(|r| r.step != Step::Over)
    }

    /// Has every shard do without the cache, if it can.
    pub fn fall_back(&mut self) {
        if self.rescue.is_none() && !self.stopping {
            self.tell_all(Step::FallingBack, &Control::FallBack("the cache is gone".into()));
        }
    }

    /// A shard has found its cache gone.
    pub(super) fn rescue_if_needed(&mut self) {
        let waits = |e: &E| (0..e.shards()).any(|s| e.alone(s) == Some(FallbackState::Waiting));
        if self.rescue.is_none() && self.engine.as_ref().is_some_and(waits) {
            self.marks.hit("a cache found to be gone");
            self.tell_all(Step::FallingBack, &Control::FallBack("the cache is gone".into()));
        }
    }

    fn tell_all(&mut self, step: Step, control: &Control) {
        let Some(engine) = &self.engine else { return };
        let left = engine.shards();
        let id = self.clients.next_id();
        self.rescue = Some(Rescue { id, left, refused: false, step });
        self.trace.note(self.now, "rescue", id, left as u64);
        self.trace.say(|| format!("{control:?}"));
        for shard in 0..left {
            let due = self.hop(shard);
            self.inbox[shard].push_back((due, Mail::Event(Event::Control(id, control.clone()))));
        }
    }

    /// One shard has answered.
    pub(super) fn heard_rescue(&mut self, result: Result<(), ControlError>) {
        let Some(r) = &mut self.rescue else { return };
        r.left -= 1;
        r.refused |= result.is_err();
        if r.left > 0 {
            return;
        }
        let (step, refused) = (r.step, r.refused);
        match step {
            // It was refused before anything had happened.
            Step::FallingBack if refused && !self.engine.as_ref().is_some_and(E::poisoned) => {
                self.rescue = None
            }
            Step::FallingBack if refused || self.luck.chance(1, GIVEN_UP_ONE_IN) => {
                // From now on some changes fail, and nothing says which.
                self.broken = true;
                self.marks.hit("the core could not serve alone");
                self.tell_all(Step::GivingUp, &Control::GiveUp("the cache is gone".into()));
            }
            Step::FallingBack => {
                self.void = true;
                self.tell_all(Step::GoingOn, &Control::Confirm);
            }
            Step::GoingOn => {
                if !refused {
                    self.marks.hit("the core went on alone");
                    self.alone = true;
                    self.broken = self.core_broken;
                }
                self.over();
            }
            Step::GivingUp | Step::Over => self.over(),
        }
    }

    fn over(&mut self) {
        if let Some(r) = &mut self.rescue {
            r.step = Step::Over;
        }
    }

    /// The life is over.
    pub(super) fn end_rescue(&mut self) {
        if self.rescue.take().is_some_and(|r| r.step != Step::Over) {
            self.marks.hit("crash while the core was about to serve alone");
        }
        self.alone = false;
    }
}
