//! A cache that is gone while the core has everything: the shard goes on with the core alone.
//!
//! The cache's remaining content must never be believed again, so changes wait until that is noted somewhere durable:
//! [`Control::FallBack`](crate::api::Control::FallBack) (or the failure itself) holds them,
//! [`Control::Confirm`](crate::api::Control::Confirm) lets them go, [`Control::GiveUp`](crate::api::Control::GiveUp) fails them.
//! Reads do not wait: the core has what was acknowledged, and the open intents say to a recovery which clean blocks it may lack. Nor
//! do flushes, unless records went with the cache: a recovery that does not know what has become clean since would hold an older
//! version, dirty, for the newest.

pub(crate) mod state;

use crate::api::{ControlId, Dev, Effect, Nanos, answer};
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::intake::Task;
use crate::io_tag::{Done, IoTag};
use crate::refusal::{ControlError, Failure, NeedsCache, Step};
use crate::stats::Bypass;
use crate::write_task::{Back, BackStep, CoreStep, Header, Route, WriteTask};
use loligo_block::{Answer, Buf, Extent, IoError, Op, OpKind, ReqError, ReqKind, Request};
use loligo_format::units::BLOCK;
pub use state::FallbackState;
use state::{Direct, Doing, Fallback, For};

impl Engine {
    /// The way it serves without its cache; nothing while it has one.
    pub fn alone(&self) -> Option<FallbackState> {
        self.state.fallback().map(|f| f.state)
    }

    /// Requests that wait here.
    pub(crate) fn held_back(&self) -> usize {
        self.state.fallback().map_or(0, |f| f.waiting.len() + f.flushes.len())
    }

    /// The reason why the core alone could not go on from here; nothing: it has everything that was
    /// acknowledged.
    pub fn needs_cache(&self) -> Option<NeedsCache> {
        if self.cfg.mode.is_ahead_of_core() {
            return Some(NeedsCache::Mode(self.cfg.mode));
        }
        // Also one whose newest version is clean by now has something dirty on its way.
        if self.dirty_blocks() + self.space.landing > 0 || self.destage.has_dirty() {
            return Some(NeedsCache::Dirty);
        }
        if self.state.is_stopping() {
            return Some(NeedsCache::Stopping);
        }
        self.state.fence().map(|why| NeedsCache::Fenced(why.to_owned()))
    }

    /// The cache is not to be used any more.
    pub(crate) fn fall_back(&mut self, now: Nanos, id: ControlId, why: String, fx: &mut Vec<Effect>) {
        let refusal = match (self.state.fallback(), self.state.why()) {
            (Some(f), _) if f.is_in_service() => None,
            (_, Some(why)) => Some(ControlError::Failed(why.clone())),
            (_, None) => self.needs_cache().map(ControlError::NeedsCache),
        };
        if !self.state.is_alone() && refusal.is_none() {
            self.leave_cache(now, Failure::GivenUp(why), fx);
        }
        fx.push(Effect::Controlled(id, refusal.map_or(Ok(()), Err)));
    }

    /// Lets go of everything that has to do with the cache. Operations under way at the core come back; the
    /// other changes wait.
    pub(crate) fn leave_cache(&mut self, now: Nanos, why: Failure, fx: &mut Vec<Effect>) {
        let left = self.state.fail(why.clone());
        self.stats.poisoned = true;
        // A freeze that was answered holds until the thaw.
        let frozen = left.freeze.as_ref().is_some_and(|f| f.is_answered()).then_some(None);
        self.fail_controls(why.clone(), left, fx);
        self.forget_clean();
        self.intake.waiting.clear();
        self.commit.durable_waiters.clear();
        self.commit.closed.clear();
        self.intake.held.clear();
        self.commit.core_flush.give_up();
        self.destage.let_clients_go();
        self.drop_core_writes(now, fx);
        let mut f = Fallback::new(why, !self.commit.journal.all_durable(), frozen);
        let mut over: Vec<Box<WriteTask>> = Vec::new();
        let mut flushes = Vec::new();
        let keys: Vec<usize> = self.intake.tasks.iter().map(|(key, _)| key).collect();
        for key in keys {
            match &mut self.intake.tasks[key] {
                Task::Read(_) | Task::Direct(_) => {}
                Task::Flush(t) => {
                    flushes.extend(t.id.map(|id| (id, t.since)));
                    self.intake.tasks.remove(key);
                }
                Task::Write(m) => match (&m.route, m.route.core_step()) {
                    (_, Some(CoreStep::Writing)) => f.leaving += 1,
                    (Route::Back(Back { step: BackStep::Merging(_), .. }), _) => {
                        f.waiting.extend(m.head.again(self.cfg.bug));
                    }
                    _ => {
                        if let Task::Write(m) = self.intake.tasks.remove(key) {
                            over.push(m);
                        }
                    }
                },
            }
        }
        // By age, so that whoever waited first goes first.
        over.sort_by_key(|m| m.head.since);
        let mut told = Vec::new();
        for mut m in over {
            // Nothing is dirty: one that has taken effect was destaged.
            let unwritten = planted(self.cfg.bug, Bug::FallbackUnwritten).then_some(Ok(()));
            match m.route.outcome().or(unwritten) {
                Some(outcome) => told.push((m.head, outcome)),
                None => f.waiting.extend(m.head.again(self.cfg.bug)),
            }
        }
        if let Err(refused) = self.state.go_alone(Box::new(f)) {
            return refused.waiting.iter().for_each(|req| answer(fx, req.id, Err(ReqError::Shutdown)));
        }
        for (head, outcome) in told {
            self.over_already(now, head, outcome, fx);
        }
        for (id, since) in flushes {
            self.flush_core(For::Client(id), since, fx);
        }
    }

    /// A change of before has reached the core, or failed there.
    fn over_already(
        &mut self,
        now: Nanos,
        mut head: Header,
        outcome: Result<(), ReqError>,
        fx: &mut Vec<Effect>,
    ) {
        let Some(id) = head.take_id() else { return };
        match outcome {
            Err(e) => answer(fx, id, Err(e)),
            Ok(()) if self.has_failed_alone() => answer(fx, id, Err(ReqError::Io)),
            Ok(()) if head.fua => self.flush_core(For::Client(id), head.since, fx),
            Ok(()) => {
                self.stats.write_ns.saturating_record(now.saturating_sub(head.since));
                answer(fx, id, Ok(Answer::Done));
            }
        }
    }

    /// An operation of a change of before has come back.
    pub(crate) fn left(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, sub, result, .. } = done;
        if let Route::Back(Back { step: BackStep::Merging(merging), .. }) = &mut self.intake.write(key).route
        {
            self.space.tickets.end(merging.merges[sub as usize].ticket);
            merging.pending -= 1;
            if merging.pending == 0 {
                self.intake.tasks.remove(key);
            }
            return;
        }
        self.intake.core_busy -= 1;
        let Task::Write(m) = self.intake.tasks.remove(key) else { unreachable!("task {key} is a change") };
        if let Some(f) = self.state.fallback_mut() {
            f.leaving -= 1;
        }
        self.over_already(now, m.head, result.map_err(|e| ReqError::from(&e)), fx);
        self.let_in(now, fx);
    }

    /// A request for the core alone.
    pub(crate) fn serve_alone(&mut self, now: Nanos, req: Request, fx: &mut Vec<Effect>) {
        let Some(f) = self.state.fallback_mut() else { return };
        match req.kind {
            _ if f.state == FallbackState::Stopped => answer(fx, req.id, Err(ReqError::Shutdown)),
            ReqKind::Read => {
                self.stats.read_misses += 1;
                self.stats.read_bytes += req.len;
                self.stats.core_read_bytes += req.len;
                self.stats.bypassed(Bypass::Gone, req.len.div_ceil(BLOCK));
                let kind = OpKind::Read(Buf::alloc(req.len as usize));
                self.direct(now, For::Client(req.id), Doing::Read, false, req.offset, kind, fx);
            }
            ReqKind::Status => {
                let none = Extent { len: req.len, allocated: false, zero: false };
                answer(fx, req.id, Ok(Answer::Extents(vec![none])));
            }
            ReqKind::Flush => self.flush_core(For::Client(req.id), now, fx),
            ReqKind::Write(_) | ReqKind::WriteZeroes { .. } | ReqKind::Discard => {
                if f.state == FallbackState::Failed {
                    return answer(fx, req.id, Err(ReqError::Io));
                }
                f.waiting.push_back(req);
                self.let_in(now, fx);
            }
        }
    }

    /// Changes go to the core as soon as they may.
    pub(crate) fn let_in(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let fenced = self.state.is_fenced();
        while let Some(f) = self.state.fallback_mut() {
            let noted = f.state == FallbackState::Serving
                || (f.state == FallbackState::Waiting && planted(self.cfg.bug, Bug::FallbackUnnoted));
            // What a destage job still writes is older than what comes now.
            let busy = f.leaving > 0 || self.destage.writes_core();
            if !noted || busy || f.frozen.is_some() || fenced {
                break;
            }
            let Some(req) = f.waiting.pop_front() else { break };
            self.change_core(now, req, fx);
        }
        self.say_frozen(fx);
    }

    fn change_core(&mut self, now: Nanos, req: Request, fx: &mut Vec<Effect>) {
        let is_discard = matches!(req.kind, ReqKind::Discard);
        let (id, fua) = (req.id, req.fua);
        let Some((offset, len, content)) = self.extent_of(req) else {
            // A discard that allows nothing.
            return match fua {
                true => self.flush_core(For::Client(id), now, fx),
                false => answer(fx, id, Ok(Answer::Done)),
            };
        };
        self.stats.write_misses += 1;
        self.stats.core_write_bytes += len;
        self.stats.bypassed(Bypass::Gone, len.div_ceil(BLOCK));
        let content = self.as_data_if_small(content, offset, len, is_discard);
        if let Some(f) = self.state.fallback_mut() {
            f.changing += 1;
        }
        self.direct(now, For::Client(id), Doing::Change, fua, offset, content.for_core(len), fx);
    }

    #[expect(clippy::too_many_arguments, reason = "an operation is all of this")]
    fn direct(
        &mut self,
        since: Nanos,
        whose: For,
        doing: Doing,
        fua: bool,
        offset: u64,
        kind: OpKind,
        fx: &mut Vec<Effect>,
    ) {
        let direct = Direct { whose, since, doing, fua, flushers: Vec::new() };
        self.ask_core(direct, self.cfg.data_start + offset, kind, fx);
    }

    fn ask_core(&mut self, direct: Direct, offset: u64, kind: OpKind, fx: &mut Vec<Effect>) {
        let key = self.intake.tasks.insert(Task::Direct(Box::new(direct)));
        self.intake.core_busy += 1;
        fx.push(Effect::Io(Dev::Core, Op { tag: IoTag::Task(key, 0).tag(), offset, kind }));
    }

    fn has_failed_alone(&self) -> bool {
        self.alone() == Some(FallbackState::Failed)
    }

    /// Makes durable the writes that the core has taken.
    fn flush_core(&mut self, whose: For, since: Nanos, fx: &mut Vec<Effect>) {
        let Some(f) = self.state.fallback_mut() else { return };
        if f.state == FallbackState::Failed {
            return self.tell(whose, Err(ReqError::Io), fx);
        }
        f.flushes.push((whose, since));
        self.start_flush(fx);
    }

    /// Starts a flush for those who wait for one, unless one is under way, be it of before.
    fn start_flush(&mut self, fx: &mut Vec<Effect>) {
        let fenced = self.state.is_fenced();
        let Some(f) = self.state.fallback_mut() else { return };
        if f.unsure || f.flushing || self.commit.core_flush.running || f.flushes.is_empty() {
            return;
        }
        let flushers = std::mem::take(&mut f.flushes);
        if !self.cfg.devices.core_volatile || fenced {
            for (whose, _) in flushers {
                self.tell(whose, Ok(Answer::Done), fx);
            }
            return;
        }
        f.flushing = true;
        self.stats.core_flushes += 1;
        let direct = Direct { whose: For::Nobody, since: 0, doing: Doing::Flush, fua: false, flushers };
        self.ask_core(direct, 0, OpKind::Flush, fx);
    }

    /// A flush of the core is over. One that failed is final: the next would succeed over what is lost.
    fn flush_over(
        &mut self,
        now: Nanos,
        flushers: Vec<(For, Nanos)>,
        result: Result<(), IoError>,
        fx: &mut Vec<Effect>,
    ) {
        if let Some(f) = self.state.fallback_mut() {
            f.flushing = false;
        }
        if let Err(e) = result {
            self.fail_alone(e, fx);
        }
        let failed = self.has_failed_alone();
        for (whose, since) in flushers {
            self.stats.flush_ns.saturating_record(now.saturating_sub(since));
            self.tell(whose, if failed { Err(ReqError::Io) } else { Ok(Answer::Done) }, fx);
        }
        self.start_flush(fx);
    }

    fn tell(&mut self, whose: For, result: Result<Answer, ReqError>, fx: &mut Vec<Effect>) {
        match whose {
            For::Client(id) => answer(fx, id, result),
            For::Control(id) => {
                let result = result.map(drop).map_err(|_| ControlError::CoreFlush);
                fx.push(Effect::Controlled(id, result));
            }
            For::Stop => {
                let Some(f) = self.state.fallback_mut() else { return };
                if result.is_ok() {
                    f.flushed = true;
                } else if let Some(id) = f.stop.take() {
                    fx.push(Effect::Controlled(id, Err(ControlError::CoreFlush)));
                }
            }
            For::Nobody => {}
        }
    }

    /// An operation of the core alone is over.
    pub(crate) fn direct_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, buf, result, .. } = done;
        self.intake.core_busy -= 1;
        let Task::Direct(d) = self.intake.tasks.remove(key) else {
            unreachable!("task {key} is for the core alone")
        };
        let histogram = match d.doing {
            Doing::Read => &mut self.stats.read_ns,
            Doing::Change => &mut self.stats.write_ns,
            Doing::Flush => {
                self.flush_over(now, d.flushers, result, fx);
                return self.let_in(now, fx);
            }
        };
        let changed = d.doing == Doing::Change;
        if let Some(f) = self.state.fallback_mut().filter(|_| changed) {
            f.changing -= 1;
        }
        histogram.saturating_record(now.saturating_sub(d.since));
        match (result, buf) {
            (Err(e), _) => self.tell(d.whose, Err(ReqError::from(&e)), fx),
            (Ok(()), Some(buf)) => {
                self.tell(d.whose, Ok(Answer::Data(std::iter::once(buf.freeze()).collect())), fx);
            }
            (Ok(()), None) if self.has_failed_alone() => self.tell(d.whose, Err(ReqError::Io), fx),
            (Ok(()), None) if d.fua => self.flush_core(d.whose, d.since, fx),
            (Ok(()), None) => self.tell(d.whose, Ok(Answer::Done), fx),
        }
        self.let_in(now, fx);
    }

    /// It is noted that what the cache holds is void.
    pub(crate) fn go_on(&mut self, now: Nanos, id: ControlId, fx: &mut Vec<Effect>) {
        let mut result = Err(ControlError::NotWaiting);
        if let Some(f) = self.state.fallback_mut().filter(|f| f.is_in_service()) {
            (f.state, f.unsure, result) = (FallbackState::Serving, false, Ok(()));
        }
        fx.push(Effect::Controlled(id, result));
        self.start_flush(fx);
        self.let_in(now, fx);
    }

    /// A later start would believe the cache, or must; or another shard's flush of the core has failed.
    pub(crate) fn give_up_cache(&mut self, id: ControlId, why: String, fx: &mut Vec<Effect>) {
        let why = Failure::GivenUp(why);
        if self.state.uses_cache() {
            self.fail_all(why.clone(), fx);
        }
        if let Some(f) = self.state.fallback_mut().filter(|f| f.is_in_service()) {
            (f.state, f.why) = (FallbackState::Failed, why);
        }
        if self.alone() == Some(FallbackState::Failed) {
            self.fail_waiting(ReqError::Io, fx);
        }
        fx.push(Effect::Controlled(id, Ok(())));
    }

    /// A flush of the core failed: what was acknowledged before may be lost.
    fn fail_alone(&mut self, e: IoError, fx: &mut Vec<Effect>) {
        if let Some(f) = self.state.fallback_mut() {
            let why = Failure::device(Step::CoreFlush, e);
            (f.state, f.why) = (FallbackState::Failed, why);
        }
        self.fail_waiting(ReqError::Io, fx);
    }

    /// A flush of the core from before is over: those who waited for it have asked anew.
    pub(crate) fn flush_of_before_over(
        &mut self,
        now: Nanos,
        result: Result<(), IoError>,
        fx: &mut Vec<Effect>,
    ) {
        self.flush_over(now, Vec::new(), result, fx);
        self.let_in(now, fx);
    }

    /// Answers those who wait with `error`.
    pub(crate) fn fail_waiting(&mut self, error: ReqError, fx: &mut Vec<Effect>) {
        let Some(f) = self.state.fallback_mut() else { return };
        let flushes = std::mem::take(&mut f.flushes);
        for req in std::mem::take(&mut f.waiting) {
            answer(fx, req.id, Err(error));
        }
        for (whose, _) in flushes {
            self.tell(whose, Err(error), fx);
        }
    }

    /// The core is to keep this moment. Every change of before is at it soon, and those that come wait.
    pub(crate) fn freeze_alone(&mut self, id: ControlId, fx: &mut Vec<Effect>) {
        let fenced = self.state.is_fenced();
        let Some(f) = self.state.fallback_mut() else { return };
        if f.state != FallbackState::Serving || f.frozen.is_some() || fenced || f.stop.is_some() {
            return fx.push(Effect::Controlled(id, Err(f.why.clone().into())));
        }
        f.frozen = Some(Some(id));
        self.say_frozen(fx);
    }

    fn say_frozen(&mut self, fx: &mut Vec<Effect>) {
        let busy = self.destage.writes_core();
        let Some(f) = self.state.fallback_mut().filter(|f| !busy && f.leaving + f.changing == 0) else {
            return;
        };
        if let Some(id) = f.frozen.as_mut().and_then(Option::take) {
            fx.push(Effect::Controlled(id, Ok(())));
        }
    }

    /// The core may change again.
    pub(crate) fn thaw_alone(&mut self, now: Nanos, why: ControlError, fx: &mut Vec<Effect>) {
        let frozen = self.state.fallback_mut().and_then(|f| f.frozen.take());
        if let Some(id) = frozen.flatten() {
            fx.push(Effect::Controlled(id, Err(why)));
        }
        self.let_in(now, fx);
    }

    /// Everything is to be in the core, which is so but for its flush.
    pub(crate) fn flush_dirty_alone(&mut self, now: Nanos, id: ControlId, fx: &mut Vec<Effect>) {
        let Some(f) = self.state.fallback() else { return };
        if f.state == FallbackState::Serving && !self.state.is_fenced() {
            return self.flush_core(For::Control(id), now, fx);
        }
        fx.push(Effect::Controlled(id, Err(f.why.clone().into())));
    }

    /// No request is taken any more.
    pub(crate) fn stop_alone(&mut self, now: Nanos, id: ControlId, fx: &mut Vec<Effect>) {
        self.thaw_alone(now, ControlError::EndedByVolumeStop, fx);
        match self.state.fallback_mut() {
            Some(f) if f.state == FallbackState::Serving => f.begin_stop(id),
            Some(f) => {
                // The cache may be believed again, and was not brought to an end.
                f.state = FallbackState::Failed;
                let why = f.why.clone();
                self.fail_waiting(ReqError::Shutdown, fx);
                fx.push(Effect::Controlled(id, Err(why.into())));
            }
            None => {}
        }
    }

    /// Answers a stop that comes to nothing.
    pub(crate) fn fail_stop_alone(&mut self, fx: &mut Vec<Effect>) {
        let Some(f) = self.state.fallback_mut() else { return };
        if let Some(id) = f.stop.take() {
            fx.push(Effect::Controlled(id, Err(f.why.clone().into())));
        }
    }

    /// Once the last request is answered, the core is flushed, and that is it.
    pub(crate) fn stop_alone_if_idle(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let (Some(id), true) = (self.state.stop(), self.intake.tasks.is_empty()) else { return };
        let idle = |f: &&mut Fallback| f.waiting.is_empty() && f.flushes.is_empty();
        let busy = self.commit.core_flush.running || self.destage.writes_core();
        let Some(f) = self.state.fallback_mut().filter(idle).filter(|_| !busy) else {
            return;
        };
        if !f.flushed {
            self.flush_core(For::Stop, now, fx);
        }
        let Some(f) = self.state.fallback_mut().filter(|f| f.flushed) else { return };
        f.state = FallbackState::Stopped;
        if f.stop.take().is_some() {
            fx.push(Effect::Controlled(id, Ok(())));
        }
    }
}
