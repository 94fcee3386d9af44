//! Shards that know that their devices are another controller's: they ask neither for anything more.

use loligo_block::{IoKind, Reply};
use loligo_engine::api::{Control, ControlId, Effect, Event};

/// The shards that know of it.
#[derive(Debug, Default)]
pub(crate) struct Expelled {
    shards: Vec<usize>,
    /// The word to all shards.
    pub(crate) told: Option<ControlId>,
}

impl Expelled {
    /// True if `shard` has heard that its devices are another's.
    pub(crate) fn knows(&self, shard: usize) -> bool {
        self.shards.contains(&shard)
    }

    /// Notes that `shard` hears `event`.
    pub(crate) fn hears(&mut self, shard: usize, event: &Event) {
        let expels = match event {
            Event::Done { result: Err(e), .. } => e.kind == IoKind::Fenced,
            Event::Control(_, control) => matches!(control, Control::Expel(_)),
            Event::Submit(..) | Event::Done { .. } | Event::Tick => false,
        };
        if expels && !self.knows(shard) {
            self.shards.push(shard);
        }
    }

    /// True if a shard knows, and the others are still to be told.
    pub(crate) fn is_news(&self) -> bool {
        !self.shards.is_empty() && self.told.is_none()
    }

    /// True if this was the word to all shards.
    pub(crate) fn is_answer(&self, id: ControlId) -> bool {
        self.told == Some(id)
    }
}

/// Refuses what a shard that knows must not do.
pub(crate) fn judge(effect: &Effect) -> Result<(), String> {
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
