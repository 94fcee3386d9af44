//! The vocabulary between the engine and the world around it: events in, effects out.

use crate::refusal::ControlError;
use loligo_block::{Answer, Buf, IoError, Op, Reply, ReqError, ReqId, Request, Tag};

/// Nanoseconds on the runtime's monotonic clock; the engine never reads one itself.
pub type Nanos = u64;

/// The device that an effect is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dev {
    /// The flash.
    Cache,
    /// The slow device behind it.
    Core,
}

/// The news that the world tells the engine.
#[derive(Debug)]
pub enum Event {
    /// A request, or the part of one that falls into this shard and one window.
    Submit(Request, Hint),
    /// An operation asked for by [`Effect::Io`] is over. The buffer of a read comes back.
    Done {
        /// The operation's tag.
        tag: Tag,
        /// The buffer of a read.
        buf: Option<Buf>,
        /// Success, or why not.
        result: Result<(), IoError>,
    },
    /// A management request.
    Control(ControlId, Control),
    /// Time has passed (at least the deadline the engine named).
    Tick,
}

/// The facts that the router knows of a request beyond the part a shard sees.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hint {
    /// Bytes of the sequential stream this request continues, itself included; 0: not sequential.
    pub stream_bytes: u64,
    /// Bytes of the run of neighbouring requests that it ends, however few they are.
    pub run_bytes: u64,
    /// The request has other parts: whether it hit is for the router to say, which is told with [`Effect::Missed`].
    pub split: bool,
    /// Bytes of the whole request; 0: those of the part.
    pub whole: u64,
}

/// Names a management request until its answer.
pub type ControlId = u64;

/// Management of one shard.
#[derive(Debug, Clone, PartialEq)]
pub enum Control {
    /// Switch the mode of every request that comes after.
    SetMode(loligo_format::mode::Mode),
    /// Change the tunables.
    SetParams(crate::params::Params),
    /// Destage everything dirty now.
    FlushDirty,
    /// Flush the core, for whoever is about to do without this engine. One that has had a flush fail says so: the
    /// next flush may succeed over what is lost.
    FlushCore,
    /// Somebody else has the core now, for this reason: answer every request with [`loligo_block::ReqError::Shutdown`] from
    /// now on, those under way too; write nothing to it any more; keep what is dirty. Operations at the core must still
    /// complete, with an error where need be. [`Control::Stop`] then makes durable what the cache holds.
    Fence(String),
    /// Cache and core are both somebody else's now, in these words: answer every request with [`loligo_block::ReqError::Io`] from
    /// now on, those under way too, and ask neither device for anything. A shard that hears
    /// [`loligo_block::IoKind::Fenced`] of a device does the same by itself. There is no way back.
    Expel(String),
    /// Bring the core to this very moment, and answer once it holds that; until [`Control::Thaw`] its content does not
    /// change. Clients go on; what they write stays in the cache. A volume with several shards has them all in one thread,
    /// which tells each of them with nothing in between: the moment is one.
    Freeze,
    /// The core may change again. A freeze that is not answered yet fails; without one it does nothing.
    Thaw,
    /// Use so many slots. More than there were: what stands behind them is there already. Fewer: answered once nothing is in those
    /// above, nothing is on its way there or from there, and recovery needs none of them; until then and after a failure they
    /// stay this shard's.
    Limit(u32),
    /// The cache is not to be used any more, for this reason, and the core has everything (else this is refused): reads and
    /// flushes go on with the core alone, changes wait for [`Control::Confirm`]. A shard whose cache fails does the same by itself.
    FallBack(String),
    /// It is noted durably, not on the cache alone, that what the cache that is gone holds is void: the core alone serves.
    Confirm,
    /// The cache failed, for this reason, and the core cannot go on alone, or that cannot be noted: no change is acknowledged any
    /// more, by whichever shard.
    GiveUp(String),
    /// Finish what was accepted, make it durable, checkpoint; refuse what comes after.
    Stop,
}

/// The answer of several shards of one thread to a management request that each of them was told of.
#[derive(Debug)]
pub struct Joint {
    left: usize,
    failed: Option<ControlError>,
    /// The first failure is the answer: nothing is gained by the others' success.
    hasty: bool,
    answered: bool,
}

impl Joint {
    /// For `control`, told to so many shards.
    pub fn new(control: &Control, shards: usize) -> Joint {
        let hasty = matches!(control, Control::Freeze);
        Joint { left: shards, failed: None, hasty, answered: false }
    }

    /// Takes what one of them said. Gives the answer of all, once, as soon as it stands: all have done it, or why one could not.
    pub fn said(&mut self, result: Result<(), ControlError>) -> Option<Result<(), ControlError>> {
        self.left -= 1;
        let failed = result.err();
        let now = self.left == 0 || (self.hasty && failed.is_some());
        self.failed = self.failed.take().or(failed);
        if self.answered || !now {
            return None;
        }
        self.answered = true;
        Some(self.failed.take().map_or(Ok(()), Err))
    }

    /// True if every shard has said something.
    pub fn is_over(&self) -> bool {
        self.left == 0
    }
}

/// The deeds that the engine asks of the world.
#[derive(Debug)]
pub enum Effect {
    /// Do this; answer with [`Event::Done`] and the operation's tag.
    Io(Dev, Op),
    /// Hand this to the client.
    Answer(Reply),
    /// A part of a split request was not wholly in the cache; comes before its answer.
    Missed(ReqId),
    /// A management request is done.
    Controlled(ControlId, Result<(), ControlError>),
}

/// Has the client hear `result` of its request.
pub(crate) fn answer(fx: &mut Vec<Effect>, id: ReqId, result: Result<Answer, ReqError>) {
    fx.push(Effect::Answer(Reply { id, result }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no(why: &str) -> Result<(), ControlError> {
        Err(ControlError::Fenced(why.to_owned()))
    }

    #[test]
    fn all_shards_are_waited_for_and_the_first_failure_told() {
        let mut stop = Joint::new(&Control::Stop, 3);
        assert_eq!((stop.said(Ok(())), stop.said(no("one"))), (None, None));
        assert!(!stop.is_over());
        assert_eq!(stop.said(no("two")), Some(no("one")));
        assert!(stop.is_over());
        let mut one = Joint::new(&Control::Stop, 1);
        assert_eq!(one.said(Ok(())), Some(Ok(())));
    }

    #[test]
    fn a_freeze_that_failed_in_one_shard_waits_for_no_other() {
        let mut freeze = Joint::new(&Control::Freeze, 3);
        assert_eq!(freeze.said(Ok(())), None);
        assert_eq!(freeze.said(no("one")), Some(no("one")));
        assert!(!freeze.is_over());
        assert_eq!(freeze.said(Ok(())), None, "it is said once");
        assert!(freeze.is_over());
    }
}
