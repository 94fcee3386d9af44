//! Management requests: asked of every shard, answered once all of them have.

use super::{Mail, World, Wrong};
use crate::subject::Subject;
use loligo_engine::api::{Control, ControlId, Event};
use loligo_engine::refusal::ControlError;

/// The first shard answer still missing for a management request.
#[derive(Debug)]
pub(super) struct Controlling {
    id: ControlId,
    left: usize,
    errors: Vec<ControlError>,
}

impl<E: Subject> World<E> {
    /// Asks every shard for `control`; the outcome comes out of [`World::controlled`].
    pub fn control(&mut self, control: &Control) {
        let Some(engine) = &mut self.engine else { return };
        let left = engine.shards();
        let id = self.clients.next_id();
        self.trace.note(self.now, "control", id, left as u64);
        self.trace.say(|| format!("{control:?}"));
        self.stopping |= matches!(control, Control::Stop | Control::Fence(_));
        self.fenced |= matches!(control, Control::Fence(_));
        self.controlling = Some(Controlling { id, left, errors: Vec::new() });
        self.controlled = None;
        for shard in 0..left {
            let due = self.hop(shard);
            self.inbox[shard].push_back((due, Mail::Event(Event::Control(id, control.clone()))));
        }
    }

    /// Asks for a share of `limit` slots in each shard. Slots that it gains are there before the engine hears
    /// of them. Slots that it loses are given away once every shard has answered.
    pub fn resize_share(&mut self, limit: u32) {
        if limit >= self.cfg.limit {
            self.marks.hit("share grew");
            self.cfg.limit = limit;
            self.cache.give_away(E::beyond(&self.cfg, limit));
        } else {
            self.shrinking = Some(limit);
        }
        self.control(&Control::Limit(limit));
    }

    pub(super) fn tell(&mut self, id: ControlId, control: Control) {
        self.trace.note(self.now, "control", id, 1);
        self.trace.say(|| format!("{control:?}"));
        let due = self.hop(0);
        self.inbox[0].push_back((due, Mail::Event(Event::Control(id, control))));
    }

    /// A shard knows that the devices are another's: all are to know.
    pub(super) fn tell_expelled(&mut self) {
        if !self.expelled.is_news() {
            return;
        }
        self.marks.hit("fenced by the array");
        let id = self.clients.next_id();
        self.expelled.told = Some(id);
        self.trace.note(self.now, "expelled", id, 0);
        for shard in 0..self.inbox.len() {
            let due = self.hop(shard);
            self.inbox[shard]
                .push_back((due, Mail::Event(Event::Control(id, Control::Expel("taken".into())))));
        }
    }

    /// True if a management request is under way.
    pub fn is_controlling(&self) -> bool {
        self.controlling.is_some()
    }

    /// The outcome of the last management request, once; of several refusals the first.
    pub fn controlled(&mut self) -> Option<Result<(), ControlError>> {
        self.controlled.take()
    }

    pub(super) fn heard_control(
        &mut self,
        id: ControlId,
        result: Result<(), ControlError>,
    ) -> Result<(), Wrong> {
        if let Some(f) = &self.freezing {
            if f.id == id {
                self.trace.note(self.now, "frozen", id, u64::from(result.is_ok()));
                return Ok(());
            }
            if f.thaw == Some(id) {
                self.trace.note(self.now, "thawed", id, u64::from(result.is_ok()));
                let since = self.freezing.take().map(|f| f.since);
                since.into_iter().for_each(|t| self.oracle.end_read_failed(t));
                return result.map_err(|why| why.to_string());
            }
        }
        if self.expelled.is_answer(id) {
            return Ok(());
        }
        if self.rescue.as_ref().is_some_and(|r| r.id == id) {
            self.heard_rescue(result);
            return Ok(());
        }
        let Some(c) = self.controlling.as_mut().filter(|c| c.id == id) else {
            return Err(format!("management request {id} was answered and is not under way"));
        };
        self.trace.note(self.now, "controlled", id, u64::from(result.is_ok()));
        c.left -= 1;
        c.errors.extend(result.err());
        if c.left == 0 {
            let mut errors = std::mem::take(&mut c.errors);
            self.controlling = None;
            if let Some(limit) = self.shrinking.take() {
                self.marks.hit(if errors.is_empty() { "share shrank" } else { "shrink given up" });
                if errors.is_empty() {
                    self.cfg.limit = limit;
                    self.cache.give_away(E::beyond(&self.cfg, limit));
                }
            }
            self.controlled = Some(if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(0)) });
        }
        Ok(())
    }
}
