//! The life of an engine: one [`Life`] at a time, and a fence that may accompany any of them.
//!
//! ```text
//! Running ──stop──▶ Stopping ──idle──▶ Stopped
//!    │                 │
//!    ├──a failure──────┴──▶ Failed
//!    └──the cache failed, the core has everything──▶ Alone
//! ```
//!
//! An engine that is expelled is fenced, and has failed: neither device is asked for anything, whatever its life was.
//!
//! Each life owns what only it needs: a freeze exists while the engine runs, a stop knows whom to answer, an engine without
//! its cache has its queue. The fence is orthogonal: the core may be taken from an engine that runs, stops, has failed or is
//! alone, and neither takes the place of the other. Decision 0070 has the cases.

use crate::api::ControlId;
use crate::fallback::state::{Fallback, FallbackState};
use crate::freeze::moment::Freeze;
use crate::refusal::{ControlError, Failure};

/// The reason why an engine that was stopped takes nothing any more.
static STOPPED: Failure = Failure::Stopped;

/// The phase of an engine's life.
#[derive(Debug)]
enum Life {
    /// It serves with its cache. The core may be frozen meanwhile.
    Running(Option<Box<Freeze>>),
    /// It takes no request any more, and brings what it has taken to an end. A stop ends a freeze first.
    Stopping(ControlId),
    /// The stop is over.
    Stopped,
    /// A durability step failed: nothing is acknowledged any more, for this reason.
    Failed(Failure),
    /// The cache is gone, and the core has everything. It knows a freeze and a stop of its own.
    Alone(Box<Fallback>),
}

/// The waiters for a life that has ended.
#[derive(Debug)]
#[must_use = "they wait for an answer"]
pub(crate) struct Orphans {
    /// The freeze, whether it was answered or not.
    pub(crate) freeze: Option<Box<Freeze>>,
    /// The stop.
    pub(crate) stop: Option<ControlId>,
}

/// The life of an engine, and its fence.
#[derive(Debug)]
pub(crate) struct State {
    life: Life,
    /// The reason why the core is not ours any more.
    fence: Option<String>,
    /// Nor is the cache.
    expelled: bool,
}

/// Questions about the present.
impl State {
    /// The cache is in use: the engine runs or stops.
    #[inline]
    pub(crate) fn uses_cache(&self) -> bool {
        matches!(self.life, Life::Running(_) | Life::Stopping(_))
    }

    /// Cache and core are both in use: nothing has failed, and the core is ours.
    #[inline]
    pub(crate) fn has_both(&self) -> bool {
        self.fence.is_none() && self.uses_cache()
    }

    /// Clients are served: no stop has begun, and the core is ours.
    #[inline]
    pub(crate) fn accepts_requests(&self) -> bool {
        self.fence.is_none() && !self.is_stopping()
    }

    /// A stop has begun and is not over.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop().is_some()
    }

    /// The request that the stop under way is for.
    #[inline]
    pub(crate) fn stop(&self) -> Option<ControlId> {
        match &self.life {
            Life::Stopping(id) => Some(*id),
            Life::Alone(f) => f.stop(),
            Life::Running(_) | Life::Stopped | Life::Failed(_) => None,
        }
    }

    /// The core alone serves, or did.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.life, Life::Alone(_))
    }

    /// The phase of an engine without its cache.
    #[inline]
    pub(crate) fn fallback(&self) -> Option<&Fallback> {
        match &self.life {
            Life::Alone(f) => Some(f),
            _ => None,
        }
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn fallback_mut(&mut self) -> Option<&mut Fallback> {
        match &mut self.life {
            Life::Alone(f) => Some(f),
            _ => None,
        }
    }

    /// The core is frozen, or is being brought to the moment.
    #[inline]
    pub(crate) fn has_freeze(&self) -> bool {
        self.freeze().is_some()
    }

    /// A freeze still has versions to bring to the core.
    #[inline]
    pub(crate) fn is_draining(&self) -> bool {
        self.freeze().is_some_and(|f| f.left() > 0)
    }

    /// The freeze, if there is one.
    #[inline]
    pub(crate) fn freeze(&self) -> Option<&Freeze> {
        match &self.life {
            Life::Running(freeze) => freeze.as_deref(),
            _ => None,
        }
    }

    /// The same, to change it.
    #[inline]
    pub(crate) fn freeze_mut(&mut self) -> Option<&mut Freeze> {
        match &mut self.life {
            Life::Running(freeze) => freeze.as_deref_mut(),
            _ => None,
        }
    }

    /// Somebody else has the core: nothing is sent to it.
    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.fence.is_some()
    }

    /// Somebody else has both devices: nothing is asked of either.
    #[inline]
    pub(crate) fn is_expelled(&self) -> bool {
        self.expelled
    }

    /// The reason why the core is not ours any more.
    pub(crate) fn fence(&self) -> Option<&str> {
        self.fence.as_deref()
    }

    /// The reason why the cache is not in use any more.
    pub(crate) fn why(&self) -> Option<&Failure> {
        match &self.life {
            Life::Running(_) | Life::Stopping(_) => None,
            Life::Stopped => Some(&STOPPED),
            Life::Failed(why) => Some(why),
            Life::Alone(f) => Some(f.why()),
        }
    }

    /// The reason why nothing that needs both devices can begin. A stop does not refuse: each says for itself
    /// what it means to it.
    pub(crate) fn refusal(&self) -> Option<ControlError> {
        let fenced = self.fence.clone().map(ControlError::Fenced);
        fenced.or_else(|| self.why().cloned().map(ControlError::Failed))
    }
}

/// From one life to the next.
impl State {
    /// Running, with both devices.
    pub(crate) fn new() -> State {
        State { life: Life::Running(None), fence: None, expelled: false }
    }

    /// Checks that the core can be brought to a moment: not if [`State::refusal`] says why, in a stop or in
    /// another freeze.
    pub(crate) fn can_freeze(&self) -> Result<(), ControlError> {
        match (&self.life, self.refusal()) {
            (_, Some(why)) => Err(why),
            (Life::Stopping(_), None) => Err(ControlError::Stopping),
            (_, None) if self.has_freeze() => Err(ControlError::Frozen),
            (_, None) => Ok(()),
        }
    }

    /// The core is to be brought to a moment, if [`State::can_freeze`].
    pub(crate) fn begin_freeze(&mut self, freeze: Freeze) -> Result<(), ControlError> {
        self.can_freeze()?;
        self.life = Life::Running(Some(Box::new(freeze)));
        Ok(())
    }

    /// The core may change again.
    pub(crate) fn end_freeze(&mut self) -> Option<Box<Freeze>> {
        match &mut self.life {
            Life::Running(freeze) => freeze.take(),
            _ => None,
        }
    }

    /// A stop begins. The newest of several is the one that is answered. It refuses a freeze that has not ended, and a cache
    /// that is not in use.
    pub(crate) fn begin_stop(&mut self, id: ControlId) -> Result<(), ControlError> {
        match &self.life {
            Life::Running(None) | Life::Stopping(_) => {
                self.life = Life::Stopping(id);
                Ok(())
            }
            Life::Running(Some(_)) => Err(ControlError::Frozen),
            Life::Stopped => Err(STOPPED.clone().into()),
            Life::Failed(why) => Err(why.clone().into()),
            Life::Alone(f) => Err(f.why().clone().into()),
        }
    }

    /// The stop is over: who is to hear of it, if there was one.
    pub(crate) fn end_stop(&mut self) -> Option<ControlId> {
        let Life::Stopping(id) = self.life else { return None };
        self.life = Life::Stopped;
        Some(id)
    }

    /// Nothing is acknowledged any more, because of `why`. A life without a cache goes on as it was: nothing of it can fail.
    pub(crate) fn fail(&mut self, why: Failure) -> Orphans {
        let (freeze, stop) = match &mut self.life {
            Life::Running(freeze) => (freeze.take(), None),
            Life::Stopping(id) => (None, Some(*id)),
            Life::Stopped | Life::Failed(_) | Life::Alone(_) => return Orphans { freeze: None, stop: None },
        };
        self.life = Life::Failed(why);
        Orphans { freeze, stop }
    }

    /// The core alone goes on from a cache that has failed. From any other life it does not, and gets `fallback` back with the
    /// requests that wait there.
    pub(crate) fn go_alone(&mut self, fallback: Box<Fallback>) -> Result<(), Box<Fallback>> {
        match self.life {
            Life::Failed(_) => {
                self.life = Life::Alone(fallback);
                Ok(())
            }
            Life::Running(_) | Life::Stopping(_) | Life::Stopped | Life::Alone(_) => Err(fallback),
        }
    }

    /// Somebody else has both devices, for this reason: an engine that used its cache has failed with it. The waiters of that
    /// life, or nothing if this is known already.
    pub(crate) fn expel(&mut self, why: &str) -> Option<Orphans> {
        if std::mem::replace(&mut self.expelled, true) {
            return None;
        }
        self.set_fence(why.to_owned());
        let failure = Failure::Expelled(why.to_owned());
        let left = self.fail(failure.clone());
        match &mut self.life {
            Life::Alone(f) => (f.state, f.why) = (FallbackState::Failed, failure),
            // It is the reason to tell.
            Life::Failed(why) => *why = failure,
            Life::Running(_) | Life::Stopping(_) | Life::Stopped => {}
        }
        Some(left)
    }

    /// Somebody else has the core, for this reason. The engine stays in its phase.
    pub(crate) fn set_fence(&mut self, why: String) {
        self.fence = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torn() -> Failure {
        Failure::GivenUp("torn".into())
    }

    #[test]
    fn a_new_engine_serves_with_both_devices() {
        let state = State::new();
        assert!(state.uses_cache() && state.has_both() && state.accepts_requests());
        assert!(!state.is_stopping() && !state.is_alone() && !state.has_freeze());
        assert_eq!((state.why(), state.refusal()), (None, None));
    }

    #[test]
    fn a_stop_takes_no_request_and_uses_the_cache_to_its_end() {
        let mut state = State::new();
        state.begin_stop(7).expect("it runs");
        assert!(state.uses_cache() && !state.accepts_requests());
        assert_eq!((state.stop(), state.refusal()), (Some(7), None));
        state.begin_stop(8).expect("it stops");
        assert_eq!(state.stop(), Some(8), "the newest is answered");
        assert_eq!(state.end_stop(), Some(8));
        assert!(!state.uses_cache() && !state.is_stopping());
        assert_eq!(state.why(), Some(&Failure::Stopped));
    }

    #[test]
    fn a_failure_hands_over_who_waits() {
        let mut state = State::new();
        state.begin_freeze(Freeze::empty(3)).expect("it runs");
        assert!(state.has_freeze() && state.accepts_requests());
        let left = state.fail(torn());
        assert!(left.freeze.is_some() && left.stop.is_none());
        assert!(!state.has_freeze() && !state.uses_cache());
        assert_eq!(state.why(), Some(&torn()));

        let mut state = State::new();
        state.begin_stop(5).expect("it runs");
        let left = state.fail(torn());
        assert_eq!((left.stop, left.freeze.is_none()), (Some(5), true));
        assert!(!state.is_stopping());
    }

    #[test]
    fn a_fence_accompanies_any_life_and_is_the_first_reason() {
        let mut state = State::new();
        state.set_fence("another host".into());
        assert!(state.uses_cache() && !state.has_both() && !state.accepts_requests());
        let _ = state.fail(torn());
        assert_eq!(state.why(), Some(&torn()));
        assert_eq!(state.refusal(), Some(ControlError::Fenced("another host".into())));
        state.go_alone(Box::new(Fallback::new(torn(), false, None))).expect("it has failed");
        assert!(state.is_alone() && state.is_fenced() && !state.uses_cache());
        assert_eq!((state.why(), state.fence()), (Some(&torn()), Some("another host")));
    }

    #[test]
    fn without_a_cache_the_stop_is_the_fallbacks_own() {
        let mut state = State::new();
        let _ = state.fail(torn());
        state.go_alone(Box::new(Fallback::new(torn(), false, None))).expect("it has failed");
        assert!(state.accepts_requests() && state.fallback().is_some());
        state.fallback_mut().expect("it is alone").begin_stop(9);
        assert!(!state.accepts_requests() && !state.uses_cache());
        assert_eq!(state.stop(), Some(9));
    }

    #[test]
    fn a_freeze_and_a_stop_refuse_each_other() {
        let mut state = State::new();
        state.begin_freeze(Freeze::empty(3)).expect("it runs");
        assert_eq!(state.begin_freeze(Freeze::empty(4)), Err(ControlError::Frozen));
        assert_eq!(state.begin_stop(5), Err(ControlError::Frozen));
        assert!(state.end_freeze().is_some());
        state.begin_stop(5).expect("nothing is frozen");
        assert_eq!(state.can_freeze(), Err(ControlError::Stopping));
    }

    #[test]
    fn an_expelled_engine_has_no_life_that_uses_a_device() {
        let mut state = State::new();
        state.begin_stop(4).expect("it runs");
        let left = state.expel("taken").expect("it is news");
        assert_eq!((left.stop, state.uses_cache(), state.accepts_requests()), (Some(4), false, false));
        assert!(state.is_expelled() && state.is_fenced());
        assert_eq!(state.why(), Some(&Failure::Expelled("taken".into())));
        assert!(state.expel("again").is_none(), "the first reason stays");

        let mut state = State::new();
        let _ = state.fail(torn());
        state.go_alone(Box::new(Fallback::new(torn(), false, None))).expect("it has failed");
        let _ = state.expel("taken");
        assert_eq!(state.fallback().map(|f| f.state), Some(FallbackState::Failed));
        assert_eq!(state.why(), Some(&Failure::Expelled("taken".into())));
    }

    #[test]
    fn no_life_but_the_right_one_goes_on() {
        let mut state = State::new();
        assert_eq!(state.end_stop(), None);
        assert!(state.go_alone(Box::new(Fallback::new(torn(), false, None))).is_err() && state.uses_cache());
        let _ = state.fail(torn());
        assert_eq!(state.begin_stop(1), Err(ControlError::Failed(torn())));
        assert_eq!(state.begin_freeze(Freeze::empty(2)), Err(ControlError::Failed(torn())));
        let left = state.fail(Failure::Stopped);
        assert!(left.freeze.is_none() && left.stop.is_none());
        assert_eq!(state.why(), Some(&torn()), "the first failure stays");
    }
}
