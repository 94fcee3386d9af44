//! A freeze of the core: asked for, held, compared with the moment that it is of, and ended.

use super::{World, Wrong};
use crate::oracle::Ticket;
use crate::stamp;
use crate::subject::Subject;
use loligo_engine::api::{Control, ControlId, Event, Joint};
use loligo_engine::refusal::ControlError;

/// A freeze of the core, from the request to the thaw.
#[derive(Debug)]
pub(super) struct Freezing {
    pub(super) id: ControlId,
    /// The shards' answers to it.
    pub(super) joint: Joint,
    /// Under way since before the moment, so that the oracle forgets nothing of then.
    pub(super) since: Ticket,
    /// The oracle's time when the engine heard of it.
    pub(super) moment: Option<u64>,
    /// The engine has said that the core holds the moment.
    pub(super) held: bool,
    /// The request that ends it.
    pub(super) thaw: Option<ControlId>,
    /// The shards' answers to that.
    pub(super) thawed: Joint,
}

impl<E: Subject> World<E> {
    /// Asks for the core to be frozen, if it can be and is not.
    pub fn freeze(&mut self) {
        if self.freezing.is_some() || self.is_plain() || !self.engine.as_ref().is_some_and(Subject::freezes) {
            return;
        }
        let id = self.clients.next_id();
        let since = self.oracle.begin_read(0, self.exported);
        let joint = |control: &Control| Joint::new(control, self.inbox.len());
        self.freezing = Some(Freezing {
            id,
            joint: joint(&Control::Freeze),
            since,
            moment: None,
            held: false,
            thaw: None,
            thawed: joint(&Control::Thaw),
        });
        self.tell(id, Control::Freeze);
    }

    /// True if the core is frozen, or being frozen, and nobody has asked for the thaw.
    pub fn is_frozen(&self) -> bool {
        self.freezing.as_ref().is_some_and(|f| f.thaw.is_none())
    }

    /// Ends a freeze.
    pub fn thaw(&mut self) {
        let id = self.clients.next_id();
        if let Some(f) = self.freezing.as_mut().filter(|f| f.thaw.is_none()) {
            f.thaw = Some(id);
            self.tell(id, Control::Thaw);
        }
    }

    /// Has every shard carry out a freeze or a thaw, with nothing in between: a volume that can be frozen is one thread's.
    pub(super) fn turn(&mut self, shard: usize, event: Option<Event>) -> Result<(), Wrong> {
        let Some(Event::Control(id, control)) = event else { return Ok(()) };
        let all = self.inbox.len();
        (0..all)
            .map(|n| (shard + n) % all)
            .try_for_each(|s| self.run(s, vec![Event::Control(id, control.clone())]))
    }

    /// A shard says what came of a management request. In whose turn that is told: of a freeze or its end in the first's, once it
    /// is the answer of all of them.
    pub(super) fn said(
        &mut self,
        shard: usize,
        id: ControlId,
        result: &Result<(), ControlError>,
    ) -> Result<Option<usize>, Wrong> {
        let Some(f) = &mut self.freezing else { return Ok(Some(shard)) };
        if f.thaw == Some(id) {
            return Ok(f.thawed.said(result.clone()).map(|_| 0));
        }
        if f.id != id {
            return Ok(Some(shard));
        }
        match f.joint.said(result.clone()) {
            Some(all) => self.frozen(all).map(|()| Some(0)),
            None => Ok(None),
        }
    }

    /// The engine says of a freeze what came of it.
    fn frozen(&mut self, result: Result<(), ControlError>) -> Result<(), Wrong> {
        let (alone, renewed) = (self.is_alone(), self.is_renewed());
        let Some(f) = &mut self.freezing else { return Ok(()) };
        if let Err(why) = result {
            self.marks.hit("freeze given up");
            let refused = !renewed;
            let expected = f.thaw.is_some() || self.broken || self.lied || self.stopping || alone || refused;
            return if expected {
                Ok(())
            } else {
                Err(format!("a freeze failed and nothing is wrong: {why}"))
            };
        }
        f.held = true;
        self.marks.hit("frozen");
        if self.inbox.len() > 1 {
            self.marks.hit("several shards frozen");
        }
        if self.core.is_changing() {
            return Err("the core is said to be frozen, and is being changed".into());
        }
        let moment = f.moment.ok_or("frozen before it was heard")?;
        let mut raw = [0; 512];
        let core = &self.core;
        let seen = |sector: u32| {
            core.peek(u64::from(sector) * 512, &mut raw);
            stamp::read(&raw)
        };
        match self.oracle.check_moment(&f.since, moment, seen) {
            Some(v) => Err(format!(
                "the core was frozen at {moment} and holds {} in sector {}: {}",
                v.got, v.sector, v.history
            )),
            None => Ok(()),
        }
    }
}
