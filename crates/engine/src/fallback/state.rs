//! The state of a shard without its cache, and its operations at the core.

use crate::api::{ControlId, Nanos};
use crate::refusal::Failure;
use loligo_block::{ReqId, Request};
use std::collections::VecDeque;

/// The way a shard without its cache serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallbackState {
    /// Changes wait until it is noted that the cache is void.
    Waiting,
    /// The core alone serves.
    Serving,
    /// It could not be noted, or a flush of the core failed: changes and flushes fail until the next start.
    Failed,
    /// Nothing is served any more.
    Stopped,
}

/// A shard without its cache.
#[derive(Debug)]
pub(crate) struct Fallback {
    pub(crate) state: FallbackState,
    /// The reason why the cache is not used any more, or why the core does not go on alone.
    pub(crate) why: Failure,
    /// The stop that is under way.
    pub(crate) stop: Option<ControlId>,
    /// Changes of before at the core: nothing may overtake them.
    pub(crate) leaving: u32,
    /// Changes under way at the core since.
    pub(crate) changing: u32,
    pub(crate) waiting: VecDeque<Request>,
    /// Records may be gone with the cache, and it is not noted yet that it is void: nobody may hear that anything is durable.
    pub(crate) unsure: bool,
    /// The waiters for a flush of the core that has not begun, and since when they wait.
    pub(crate) flushes: Vec<(For, Nanos)>,
    /// A flush of the core is under way: those who come meanwhile share the next one. Of two at once, one could succeed over what
    /// the other has lost.
    pub(crate) flushing: bool,
    /// The core is to stay as it is; who waits to hear that it does.
    pub(crate) frozen: Option<Option<ControlId>>,
    /// A stop's flush of the core has succeeded.
    pub(crate) flushed: bool,
}

impl Fallback {
    /// It waits until it is noted that the cache is void. `unsure`: records may be gone with it; `frozen`: the core is, and who is
    /// yet to hear of that.
    pub(crate) fn new(why: Failure, unsure: bool, frozen: Option<Option<ControlId>>) -> Fallback {
        Fallback {
            state: FallbackState::Waiting,
            why,
            stop: None,
            leaving: 0,
            changing: 0,
            waiting: VecDeque::new(),
            unsure,
            flushes: Vec::new(),
            flushing: false,
            frozen,
            flushed: false,
        }
    }

    /// The reason why the cache is not used any more, or why the core does not go on alone.
    pub(crate) fn why(&self) -> &Failure {
        &self.why
    }

    /// The request that the stop under way is for.
    pub(crate) fn stop(&self) -> Option<ControlId> {
        self.stop
    }

    /// No request is taken any more.
    pub(crate) fn begin_stop(&mut self, id: ControlId) {
        self.stop = Some(id);
    }

    /// The cache is void, or will be: changes wait, or are served.
    pub(crate) fn is_in_service(&self) -> bool {
        matches!(self.state, FallbackState::Waiting | FallbackState::Serving)
    }
}

/// The waiter for an operation of the core alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Client(ReqId),
    Control(ControlId),
    /// The stop.
    Stop,
    /// The client was answered already.
    Nobody,
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Read,
    Change,
    Flush,
}

/// An operation of the core alone.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) whose: For,
    pub(crate) since: Nanos,
    pub(crate) doing: Doing,
    /// A flush of the core follows.
    pub(crate) fua: bool,
    /// A flush: all who wait for it, and since when.
    pub(crate) flushers: Vec<(For, Nanos)>,
}

impl Direct {
    /// Takes the ids of the requests: they are answered for.
    pub(crate) fn take_ids(&mut self) -> impl Iterator<Item = ReqId> {
        self.flushers.iter_mut().map(|(whose, _)| whose).chain([&mut self.whose]).filter_map(|whose| {
            let For::Client(id) = *whose else { return None };
            *whose = For::Nobody;
            Some(id)
        })
    }
}
