//! An array that gives a device to another controller: the shard that hears of it asks neither device for anything more, nor do
//! the others once the runtime has told them.

use super::{Mail, World, Wrong};
use crate::subject::Subject;
use loligo_block::{IoKind, Reply};
use loligo_engine::api::{Control, ControlId, Effect, Event};

/// The shards that know of it.
#[derive(Debug, Default)]
pub(super) struct Expelled {
    shards: Vec<usize>,
    /// The word to all shards.
    told: Option<ControlId>,
}

impl Expelled {
    /// True if `shard` has heard that its devices are another's.
    pub(super) fn knows(&self, shard: usize) -> bool {
        self.shards.contains(&shard)
    }

    /// Notes that `shard` hears `event`.
    pub(super) fn hears(&mut self, shard: usize, event: &Event) {
        let expels = match event {
            Event::Done { result: Err(e), .. } => e.kind == IoKind::Fenced,
            Event::Control(_, control) => matches!(control, Control::Expel(_)),
            Event::Submit(..) | Event::Done { .. } | Event::Tick => false,
        };
        if expels && !self.knows(shard) {
            self.shards.push(shard);
        }
    }

    /// True if this was the word to all shards.
    pub(super) fn is_answer(&self, id: ControlId) -> bool {
        self.told == Some(id)
    }
}

/// Refuses what a shard that knows must not do.
pub(super) fn judge(effect: &Effect) -> Result<(), Wrong> {
    match effect {
        Effect::Io(dev, op) if op.changes_data() || op.is_empty() => {
            Err(format!("{:?} at {} of {dev:?}, after this controller was fenced", op.kind, op.offset))
        }
        Effect::Answer(Reply { id, result: Ok(_) }) => {
            Err(format!("request {id} succeeded after this controller was fenced"))
        }
        Effect::Io(..) | Effect::Answer(_) | Effect::Missed(_) | Effect::Controlled(..) => Ok(()),
    }
}

impl<E: Subject> World<E> {
    /// A shard knows that the devices are another's: all are to know.
    pub(super) fn tell_expelled(&mut self) {
        if self.expelled.shards.is_empty() || self.expelled.told.is_some() {
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
}
