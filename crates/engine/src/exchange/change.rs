//! The deeds done while clients wait for a cache to come or go, one after the other, and those taken back if one fails.
//!
//! A crash at any moment leaves what the next start takes for one of two things: the volume as it was before, or as it is after.

use super::Pause;
use crate::bug::{Bug, planted};
use Deed::{
    Exchange, FlushCore, FlushDirty, LabelCached, LabelClean, LabelDirty, LabelGone, NoteVoid, Restore,
    StateBare, StateCached, StateClean, StateDirty, Stop, Wipe,
};

/// One deed. The *state* is what is remembered of the volume outside its devices, the *label* what its core says of its cache, if it
/// has one; both are durable once the deed is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// The last dirty blocks go to the core, and none is left.
    FlushDirty,
    /// The core is flushed, by engines that know whether a flush before it has failed.
    FlushCore,
    /// The label says that nothing in the cache is dirty.
    LabelClean,
    /// The state says so.
    StateClean,
    /// The cache's superblocks are wiped.
    Wipe,
    /// It is noted that nobody may believe what the cache holds, whose superblocks take no write.
    NoteVoid,
    /// The state says that the volume is bare.
    StateBare,
    /// The engines stop.
    Stop,
    /// The engines are exchanged.
    Exchange,
    /// The state names the cache, as one that may be dirty.
    StateCached,
    /// The label does.
    LabelCached,
    /// The cache's superblocks are written again.
    Restore,
    /// The state says again that it may be dirty.
    StateDirty,
    /// The label does.
    LabelDirty,
    /// The label names no cache that may be dirty.
    LabelGone,
}

/// The end of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is done.
    Done,
    /// Everything is as it was.
    Kept,
    /// The same, but for the state, which may name the cache that was to come.
    Named,
    /// It could not be taken back: every request fails, and the next start finds what is right.
    Broken,
}

/// The meaning of a deed's failure.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// This is taken back; where that fails, too, it ends thus.
    Undo(&'static [Deed], Verdict),
    /// These are done instead of what is left.
    Instead(&'static [Step]),
    /// Nothing: the change goes on.
    Ignored,
    /// The end.
    Fatal,
}

type Step = (Deed, Failure);

const NOTHING: Failure = Failure::Undo(&[], Verdict::Kept);
const AS_BEFORE: Failure = Failure::Undo(&[Restore, StateDirty, LabelDirty], Verdict::Broken);

/// The core has everything; both notes say so before the wipe, since afterwards it cannot be looked at; the cache is void before
/// anything is written that it does not see.
const DETACH: &[Step] = &[
    (FlushDirty, NOTHING),
    (FlushCore, NOTHING),
    (LabelClean, AS_BEFORE),
    (StateClean, AS_BEFORE),
    (Wipe, Failure::Instead(DETACH_UNWIPED)),
    (StateBare, Failure::Ignored),
    // One whose core fails a flush is given no other engine. Whatever else fails has nothing that anybody will miss.
    (Stop, Failure::Fatal),
    (Exchange, Failure::Fatal),
];

/// A cache that takes no write can hardly be restored either: clients of a core that is well are not to fail for it.
const DETACH_UNWIPED: &[Step] = &[
    (NoteVoid, AS_BEFORE),
    (StateBare, Failure::Ignored),
    (Stop, Failure::Fatal),
    (Exchange, Failure::Fatal),
];

/// The cache was noted as void when it went. An engine that does not stop says that the core has lost something.
const DETACH_VOID: &[Step] =
    &[(StateBare, Failure::Ignored), (Stop, Failure::Fatal), (Exchange, Failure::Fatal)];

/// The new engines know of no write before them that a flush would have to cover. The label names the cache after the state does,
/// since it refuses a bare start.
const ATTACH: &[Step] = &[
    (FlushCore, NOTHING),
    (StateCached, Failure::Undo(&[StateBare], Verdict::Named)),
    (LabelCached, Failure::Undo(&[LabelGone, StateBare], Verdict::Broken)),
    (Exchange, Failure::Fatal),
];

/// A cache that comes or goes, from the moment at which nothing is under way.
#[derive(Debug)]
pub struct Change {
    steps: &'static [Step],
    /// The deeds still to be taken back, and the verdict if that fails.
    undo: Option<(&'static [Deed], Verdict)>,
    over: Option<Verdict>,
    bug: Option<Bug>,
}

impl Change {
    /// The cache goes.
    pub fn detach(bug: Option<Bug>) -> Change {
        Change { steps: DETACH, undo: None, over: None, bug }
    }

    /// A cache goes that is void already.
    pub fn detach_void() -> Change {
        Change { steps: DETACH_VOID, undo: None, over: None, bug: None }
    }

    /// An empty cache comes.
    pub fn attach(bug: Option<Bug>) -> Change {
        Change { steps: ATTACH, undo: None, over: None, bug }
    }

    /// The next deed, or how it ended.
    pub fn next(&self) -> Result<Deed, Verdict> {
        match (self.over, self.undo, self.steps.first()) {
            (Some(verdict), ..) => Err(verdict),
            (None, Some((deeds, _)), _) => deeds.first().copied().ok_or(Verdict::Kept),
            (None, None, Some((deed, _))) => Ok(*deed),
            (None, None, None) => Err(Verdict::Done),
        }
    }

    /// The deed that [`Change::next`] named is done, or failed. Why, where this is what ends the change.
    pub fn did<E>(&mut self, done: Result<(), E>, pause: &mut Pause) -> Option<E> {
        let mut why = None;
        if let Some((deeds, broken)) = self.undo {
            self.undo = Some((deeds.get(1..).unwrap_or_default(), broken));
            if done.is_err() {
                self.over = Some(broken);
            }
        } else if let Some(((_, failure), rest)) = self.steps.split_first() {
            self.steps = rest;
            match (failure, done) {
                (_, Ok(())) | (Failure::Ignored, Err(_)) => {}
                (Failure::Instead(steps), Err(e)) => {
                    self.steps = steps;
                    why = Some(e);
                }
                (Failure::Undo(deeds, broken), Err(e)) => {
                    self.undo = Some((*deeds, *broken));
                    why = Some(e);
                }
                (Failure::Fatal, Err(e)) => {
                    self.over = Some(Verdict::Broken);
                    why = Some(e);
                }
            }
            if planted(self.bug, Bug::DetachedUnwiped) && self.steps.first().is_some_and(|s| s.0 == Wipe) {
                self.steps = &self.steps[1..];
            }
        }
        if self.over == Some(Verdict::Broken) {
            pause.broke();
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ending;
    use super::*;

    /// Carries `change` out where these deeds fail: what was done and how it ended.
    fn carried_out(mut change: Change, fails: &[Deed]) -> (Vec<Deed>, Verdict, Ending) {
        let (mut pause, mut did) = (Pause::default(), Vec::new());
        loop {
            match change.next() {
                Ok(deed) => {
                    did.push(deed);
                    let done = if fails.contains(&deed) { Err(deed) } else { Ok(()) };
                    let _ = change.did(done, &mut pause);
                }
                Err(verdict) => return (did, verdict, pause.end()),
            }
        }
    }

    fn ended(change: Change, fails: &[Deed]) -> (Verdict, Ending) {
        let (_, verdict, ending) = carried_out(change, fails);
        (verdict, ending)
    }

    #[test]
    fn a_detach_is_taken_back_until_the_cache_is_void() {
        let detach = || Change::detach(None);
        let (did, verdict, ending) = carried_out(detach(), &[]);
        let all = [FlushDirty, FlushCore, LabelClean, StateClean, Wipe, StateBare, Stop, Exchange];
        assert_eq!((&did[..], verdict, ending), (&all[..], Verdict::Done, Ending::Resume));
        assert_eq!(carried_out(detach(), &[FlushCore]).0, [FlushDirty, FlushCore]);
        for fails in [LabelClean, StateClean] {
            let (did, verdict, ending) = carried_out(detach(), &[fails]);
            assert!(did.ends_with(&[fails, Restore, StateDirty, LabelDirty]), "{did:?}");
            assert_eq!((verdict, ending), (Verdict::Kept, Ending::Resume));
            assert_eq!(ended(detach(), &[fails, StateDirty]), (Verdict::Broken, Ending::Fail));
        }
        let (did, verdict, ending) = carried_out(detach(), &[Wipe]);
        assert!(did.ends_with(&[Wipe, NoteVoid, StateBare, Stop, Exchange]), "{did:?}");
        assert_eq!((verdict, ending), (Verdict::Done, Ending::Resume));
        let (did, verdict, _) = carried_out(detach(), &[Wipe, NoteVoid]);
        assert!(did.ends_with(&[NoteVoid, Restore, StateDirty, LabelDirty]), "{did:?}");
        assert_eq!(verdict, Verdict::Kept);
        assert_eq!(ended(detach(), &[Wipe, NoteVoid, Restore]), (Verdict::Broken, Ending::Fail));
        assert_eq!(ended(detach(), &[StateBare]), (Verdict::Done, Ending::Resume));
        for fails in [Stop, Exchange] {
            assert_eq!(ended(detach(), &[fails]), (Verdict::Broken, Ending::Fail));
        }
    }

    #[test]
    fn an_attach_is_taken_back_until_the_engines_are_exchanged() {
        let attach = || Change::attach(None);
        assert_eq!(carried_out(attach(), &[]).0, [FlushCore, StateCached, LabelCached, Exchange]);
        assert_eq!(ended(attach(), &[StateCached]), (Verdict::Kept, Ending::Resume));
        assert_eq!(ended(attach(), &[StateCached, StateBare]), (Verdict::Named, Ending::Resume));
        assert_eq!(ended(attach(), &[LabelCached]), (Verdict::Kept, Ending::Resume));
        assert_eq!(ended(attach(), &[LabelCached, LabelGone]), (Verdict::Broken, Ending::Fail));
        assert_eq!(ended(attach(), &[Exchange]), (Verdict::Broken, Ending::Fail));
    }

    #[test]
    fn why_it_failed_is_the_failure_that_ended_it() {
        let (mut change, mut pause) = (Change::detach_void(), Pause::default());
        assert_eq!(change.did(Err("unnoted"), &mut pause), None, "it goes on");
        assert_eq!(change.did(Ok::<(), &str>(()), &mut pause), None);
        assert_eq!(change.did(Err("late"), &mut pause), Some("late"));
    }
}
