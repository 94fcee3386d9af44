//! A device on two legs as a state machine: events in, actions out. It does no I/O and reads no clock.
//!
//! | state | writes and flushes go to | and are answered |
//! |---|---|---|
//! | in step | both legs | when both have them |
//! | leaving a leg | the other | once the other's note says that it goes on alone |
//! | alone | one leg | when it has them |
//! | joining | both, once the copy has begun | when both have them |
//! | stopped (`required`) | none | with an error |
//! | failed | none | with the error that ended it |
//!
//! A leg is left if the other one has carried an operation out, and this one fails it or has not answered for
//! [`Settings::limit`]. Where neither answers, neither is left.

mod join;
mod ops;

use super::access::{Access, OpId, Time};
use super::flaw::{Flaw, Flaws};
use super::mark::{Leg, Mark, MarkState, Opening, new_line};
use crate::{IoError, IoKind};
use ops::{Op, Ops};
use std::ops::Range;

/// What becomes of a volume that loses a leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// It goes on alone, durably noted.
    Preferred,
    /// It takes no more writes.
    Required,
}

/// The constants of a machine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What becomes of a lost leg.
    pub policy: Policy,
    /// So long an acknowledgement waits for a leg that does not answer.
    pub limit: Time,
    /// Between two tries to have a leg back.
    pub retry: Time,
    /// Bytes that are copied at a time.
    pub region: u64,
    /// Lines are drawn from it: no other machine may have the same.
    pub seed: u64,
    /// Rules that are broken.
    pub flaws: Flaws,
}

/// A thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Carry the operation out on this leg, and tell [`Machine::answered`].
    Send(OpId, Leg),
    /// It is over; a read has the data of this leg.
    Answer(OpId, Result<Leg, IoError>),
    /// Flush the leg, write its note, flush again, and tell [`Machine::noted`].
    Note(Leg, Mark),
    /// Copy the bytes from one leg to its other, and tell [`Machine::copied`].
    Copy(Leg, Range<u64>),
    /// Read something from a leg that was left, and tell [`Machine::tried`].
    Try(Leg),
    /// Tell the operator.
    Say(Change),
}

/// A change that an operator wants to know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// This leg is left, for this reason.
    Left(Leg, String),
    /// The volume goes on with this leg alone, and that is noted.
    Alone(Leg),
    /// This leg is being copied to.
    Joining(Leg),
    /// A copy to this leg has ended early, for this reason.
    JoinFailed(Leg, String),
    /// This leg is in step again.
    InStep(Leg),
    /// No more writes are taken, since this leg is gone and it is required.
    Stopped(Leg, String),
    /// Nothing is taken any more.
    Failed(String),
}

/// The state of a mirror as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorState {
    /// Both legs have everything.
    InStep,
    /// The note that this leg is left is being written.
    Leaving(Leg),
    /// This leg alone is written to.
    Alone(Leg),
    /// This leg is being copied to.
    Joining(Leg),
    /// No writes are taken, since this leg is gone.
    Stopped(Leg),
    /// Nothing is taken any more.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    InStep,
    Leaving { lost: Leg, why: String },
    Alone { on: Leg },
    Joining { to: Leg, phase: Phase },
    Stopped { lost: Leg },
    Failed(IoError),
}

/// How far a leg has come that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Its note that it is stale is being written.
    Stale,
    /// Everything before `at` is copied. Writes to the region there are held from now on, and are carried out after it.
    Copying { at: u64, under_way: bool },
    /// The sound leg is being noted as in step with it.
    SoundNoted,
    /// It is being noted as in step.
    JoinedNoted,
}

/// A device on two legs.
#[derive(Debug, Clone)]
pub struct Machine {
    settings: Settings,
    size: u64,
    state: State,
    /// The note of the leg that is believed.
    mark: Mark,
    /// The highest generation of any note so far.
    top: u64,
    ops: Ops,
    /// Notes, copies and tries under way on each leg.
    jobs: [usize; 2],
    /// Legs that can be reached at all.
    there: [bool; 2],
    /// When the lost leg is tried again.
    retry_at: Time,
}

impl Machine {
    /// The machine for legs that were `opened` so, and the notes to be written in this order, durably, before anything is started.
    /// `set` and `size` are those of a new mirror; `top` is the highest generation that was found.
    pub fn open(
        settings: Settings,
        opened: Opening,
        (set, size, top): ([u8; 16], u64, u64),
    ) -> (Machine, Vec<(Leg, Mark)>) {
        let line = |top| new_line(settings.seed, top + 1);
        let (state, mark, there, notes) = match opened {
            Opening::New => {
                // As a leg joins, with nothing to copy: a start that is cut off in between is followed by one that goes on.
                let alone = Mark::first(set, line(0), size);
                let mark = alone.in_step(alone.generation, false);
                let stale = Mark { state: MarkState::Stale, ..alone };
                let notes =
                    [(Leg::Local, alone), (Leg::Mirror, stale), (Leg::Local, mark), (Leg::Mirror, mark)];
                (State::InStep, mark, [true; 2], notes.to_vec())
            }
            Opening::InStep(mark) => {
                let mark = mark.in_step(top, false);
                (State::InStep, mark, [true; 2], vec![(Leg::Local, mark), (Leg::Mirror, mark)])
            }
            Opening::On { leg, mark, joins } => {
                let (mark, notes) = match mark.state {
                    MarkState::Alone => (mark, Vec::new()),
                    MarkState::InStep { .. } | MarkState::Stale => {
                        let mark = mark.alone(top, line(top));
                        (mark, vec![(leg, mark)])
                    }
                };
                let mut there = [joins; 2];
                there[leg.index()] = true;
                (State::Alone { on: leg }, mark, there, notes)
            }
        };
        let machine = Machine {
            size: mark.size,
            state,
            mark,
            top: top.max(mark.generation),
            ops: Ops::default(),
            jobs: [0; 2],
            there,
            retry_at: 0,
            settings,
        };
        (machine, notes)
    }

    /// Bytes of content.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The state.
    pub fn state(&self) -> MirrorState {
        match &self.state {
            State::InStep => MirrorState::InStep,
            State::Leaving { lost, .. } => MirrorState::Leaving(*lost),
            State::Alone { on } => MirrorState::Alone(*on),
            State::Joining { to, .. } => MirrorState::Joining(*to),
            State::Stopped { lost } => MirrorState::Stopped(*lost),
            State::Failed(_) => MirrorState::Failed,
        }
    }

    /// Bytes copied so far, of a leg that joins.
    pub fn copied_bytes(&self) -> Option<u64> {
        match &self.state {
            State::Joining { phase: Phase::Stale, .. } => Some(0),
            State::Joining { phase: Phase::Copying { at, .. }, .. } => Some(*at),
            State::Joining { .. } => Some(self.size),
            _ => None,
        }
    }

    /// The leg that reads go to.
    pub fn primary(&self) -> Leg {
        if self.settings.flaws.has(Flaw::ReadStale) {
            return Leg::Local;
        }
        match &self.state {
            State::InStep | State::Failed(_) => Leg::Local,
            State::Leaving { lost, .. } | State::Stopped { lost } => lost.other(),
            State::Alone { on } => *on,
            State::Joining { to, .. } => to.other(),
        }
    }

    /// The notes of a clean stop, local leg first: nothing may be under way, and nothing is started after it.
    pub fn close(&mut self) -> Vec<(Leg, Mark)> {
        if self.state != State::InStep || !self.ops.is_empty() {
            return Vec::new();
        }
        let mark = self.mark.in_step(self.top, true);
        self.state = State::Failed(IoError::new(IoKind::Gone, "the mirrored device is closed"));
        vec![(Leg::Local, mark), (Leg::Mirror, mark)]
    }

    /// An operation begins.
    pub fn start(&mut self, now: Time, id: OpId, access: Access, out: &mut Vec<Action>) {
        match (&self.state, &access) {
            (State::Failed(why), _) => out.push(Action::Answer(id, Err(why.clone()))),
            (State::Stopped { lost }, Access::Write(_) | Access::Flush) => {
                out.push(Action::Answer(id, Err(required(*lost))));
            }
            _ => {
                self.ops.begin(id, Op::new(now, access));
                self.send(id, out);
            }
        }
    }

    /// A leg has answered an operation that was sent to it.
    pub fn answered(
        &mut self,
        now: Time,
        id: OpId,
        leg: Leg,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        let fence = result.as_ref().err().filter(|e| e.kind == IoKind::Fenced).cloned();
        self.ops.answered(id, leg, result);
        if let Some(fence) = fence.filter(|_| !self.settings.flaws.has(Flaw::FenceIsLoss)) {
            return self.fail(fence, out);
        }
        self.settle(now, id, out);
        self.copy_next(out);
    }

    /// A note is written, or is not.
    pub fn noted(
        &mut self,
        now: Time,
        leg: Leg,
        mark: Mark,
        result: Result<(), IoError>,
        out: &mut Vec<Action>,
    ) {
        self.jobs[leg.index()] -= 1;
        if let Err(fence) = &result
            && fence.kind == IoKind::Fenced
            && !self.settings.flaws.has(Flaw::FenceIsLoss)
        {
            return self.fail(fence.clone(), out);
        }
        match &self.state {
            State::Leaving { lost, .. } if *lost == leg.other() && mark == self.mark => match result {
                Ok(()) => self.alone(now, leg, out),
                Err(why) => self.fail(why, out),
            },
            State::Joining { .. } => self.join_noted(now, (leg, mark), result, out),
            // A note that a later one has replaced.
            _ => {}
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        for id in self.ops.late(now, self.settings.limit) {
            self.settle(now, id, out);
        }
        self.try_again(now, out);
    }

    /// Sends an operation where it belongs, or holds it.
    fn send(&mut self, id: OpId, out: &mut Vec<Action>) {
        let Some(op) = self.ops.get(id) else { return };
        let legs: &[Leg] = match (&self.state, &op.access) {
            (State::Failed(_), _) => &[],
            (_, Access::Read) => &[self.primary()],
            (State::InStep, Access::Flush) if self.settings.flaws.has(Flaw::FlushOneLeg) => &[Leg::Local],
            (State::InStep, _) => &Leg::BOTH,
            (State::Leaving { lost, .. } | State::Stopped { lost }, _) => &[lost.other()],
            (State::Alone { .. } | State::Joining { phase: Phase::Stale, .. }, _) if self.must_wait() => &[],
            (State::Alone { on }, _) => &[*on],
            (State::Joining { to, phase: Phase::Stale }, _) => &[to.other()],
            (State::Joining { phase: Phase::Copying { at, .. }, .. }, Access::Write(range))
                if self.is_in_copy(*at, range) =>
            {
                &[]
            }
            (State::Joining { to, .. }, _) if self.settings.flaws.has(Flaw::JoinSkipsWrites) => &[to.other()],
            (State::Joining { .. }, _) => &Leg::BOTH,
        };
        let legs = legs.to_vec();
        for leg in legs {
            self.ops.sent(id, leg);
            out.push(Action::Send(id, leg));
        }
    }

    /// True if nothing may be written before a required leg joins.
    fn must_wait(&self) -> bool {
        self.settings.policy == Policy::Required
    }

    /// Answers an operation if it is over, and leaves a leg that it shows to be gone.
    fn settle(&mut self, now: Time, id: OpId, out: &mut Vec<Action>) {
        let Some(op) = self.ops.get(id) else { return };
        if op.is_answered {
            return self.ops.forget(id);
        }
        let silent = now >= op.since + self.settings.limit;
        if op.access == Access::Read {
            return self.settle_read(now, id, silent, out);
        }
        let (of, sent) = (|leg: Leg| op.answers[leg.index()].clone(), op.sent);
        match self.state.clone() {
            State::InStep if sent == [true; 2] => match (of(Leg::Local), of(Leg::Mirror)) {
                (Some(Ok(())), Some(Ok(()))) => self.answer(id, Ok(Leg::Local), out),
                (Some(Err(why)), Some(Err(_))) => self.answer(id, Err(why), out),
                (Some(Ok(())), _) if self.settings.flaws.has(Flaw::AckBeforeMirror) => {
                    self.answer(id, Ok(Leg::Local), out);
                }
                (Some(Ok(())), mirror) => self.judge(now, Leg::Mirror, mirror, silent, out),
                (local, Some(Ok(()))) => self.judge(now, Leg::Local, local, silent, out),
                // One that has failed it waits for the other: what a leg may still carry out is not over.
                _ => {}
            },
            State::InStep => {
                // It was sent before the other leg was in step.
                let leg = if sent[0] { Leg::Local } else { Leg::Mirror };
                if let Some(result) = of(leg) {
                    self.answer(id, result.map(|()| leg), out);
                }
            }
            State::Leaving { lost, .. } => {
                if let Some(Err(why)) = of(lost.other()) {
                    self.answer(id, Err(why), out);
                }
            }
            State::Alone { on } => {
                if let Some(result) = of(on) {
                    self.answer(id, result.map(|()| on), out);
                } else if silent && sent == [false; 2] {
                    // It is held for a leg that is required.
                    self.stop(on.other(), "it does not come back into step", out);
                }
            }
            State::Joining { to, .. } => match (of(to.other()), of(to)) {
                (Some(Err(_)), None) if sent[to.index()] => self.judge(now, to, None, silent, out),
                (Some(Err(why)), _) => self.answer(id, Err(why), out),
                (Some(Ok(())), Some(Ok(()))) => self.answer(id, Ok(to.other()), out),
                (Some(Ok(())), None) if !sent[to.index()] => self.answer(id, Ok(to.other()), out),
                (Some(Ok(())), joining) => self.judge(now, to, joining, silent, out),
                (None, _) if silent && sent == [false; 2] => {
                    self.leave(now, to, "the copy to it takes too long".to_owned(), out);
                }
                (None, _) => {}
            },
            State::Stopped { lost } => self.answer(id, Err(required(lost)), out),
            State::Failed(why) => self.answer(id, Err(why), out),
        }
    }

    /// The other leg has carried an operation out. This one is left if it failed it, or is silent.
    fn judge(
        &mut self,
        now: Time,
        leg: Leg,
        answer: Option<Result<(), IoError>>,
        silent: bool,
        out: &mut Vec<Action>,
    ) {
        match answer {
            Some(Err(why)) => self.leave(now, leg, why.to_string(), out),
            None if silent => {
                let s = self.settings.limit as f64 / 1e9;
                self.leave(now, leg, format!("it has answered nothing for {s} s"), out);
            }
            _ => {}
        }
    }

    fn settle_read(&mut self, now: Time, id: OpId, silent: bool, out: &mut Vec<Action>) {
        let (primary, both) = (self.primary(), self.state == State::InStep);
        let Some(op) = self.ops.get(id) else { return };
        if let State::Failed(why) = &self.state {
            let why = why.clone();
            return self.answer(id, Err(why), out);
        }
        let of = |leg: Leg| op.answers[leg.index()].clone();
        let other = primary.other();
        match of(primary) {
            Some(Ok(())) => self.answer(id, Ok(primary), out),
            None if !op.sent[primary.index()] => {
                // Its leg was left meanwhile.
                self.ops.sent(id, primary);
                out.push(Action::Send(id, primary));
            }
            failed @ Some(Err(_)) | failed @ None => match of(other) {
                Some(Ok(())) if both => {
                    self.answer(id, Ok(other), out);
                    if failed.is_none() && silent {
                        self.judge(now, primary, None, true, out);
                    }
                }
                None if both && !op.sent[other.index()] && (failed.is_some() || silent) => {
                    self.ops.sent(id, other);
                    out.push(Action::Send(id, other));
                }
                None if both && op.sent[other.index()] => {}
                _ => {
                    if let Some(Err(why)) = failed {
                        self.answer(id, Err(why), out);
                    }
                }
            },
        }
    }

    fn answer(&mut self, id: OpId, result: Result<Leg, IoError>, out: &mut Vec<Action>) {
        self.ops.close(id);
        out.push(Action::Answer(id, result));
    }

    /// Goes on without a leg.
    fn leave(&mut self, now: Time, lost: Leg, why: String, out: &mut Vec<Action>) {
        if self.settings.policy == Policy::Required {
            return self.stop(lost, &why, out);
        }
        let noted = match &self.state {
            State::Joining { phase: Phase::Stale | Phase::Copying { .. }, .. } => true,
            State::Joining { .. } | State::InStep => false,
            State::Leaving { .. } | State::Alone { .. } | State::Stopped { .. } | State::Failed(_) => return,
        };
        if noted {
            // The sound leg's note says that it is alone.
            out.push(Action::Say(Change::JoinFailed(lost, why)));
            self.state = State::Alone { on: lost.other() };
            self.retry_at = now + self.settings.retry;
            return self.settle_all(now, out);
        }
        let flaws = &self.settings.flaws;
        let (at_once, unnoted) = (flaws.has(Flaw::AckBeforeNote), flaws.has(Flaw::NoNote));
        out.push(Action::Say(Change::Left(lost, why.clone())));
        self.mark = self.mark.alone(self.top, new_line(self.settings.seed, self.top + 1));
        self.top = self.mark.generation;
        self.state = State::Leaving { lost, why };
        if !unnoted {
            self.note(lost.other(), self.mark, out);
        }
        if at_once || unnoted {
            return self.alone(now, lost.other(), out);
        }
        self.settle_all(now, out);
    }

    /// The note is written: the volume goes on with this leg.
    fn alone(&mut self, now: Time, on: Leg, out: &mut Vec<Action>) {
        self.state = State::Alone { on };
        self.retry_at = now + self.settings.retry;
        out.push(Action::Say(Change::Alone(on)));
        self.settle_all(now, out);
    }

    /// Takes no writes any more.
    fn stop(&mut self, lost: Leg, why: &str, out: &mut Vec<Action>) {
        if matches!(self.state, State::Stopped { .. } | State::Failed(_)) {
            return;
        }
        out.push(Action::Say(Change::Stopped(lost, why.to_owned())));
        self.state = State::Stopped { lost };
        self.settle_all(0, out);
    }

    /// Takes nothing any more.
    fn fail(&mut self, why: IoError, out: &mut Vec<Action>) {
        if matches!(self.state, State::Failed(_)) {
            return self.settle_all(0, out);
        }
        out.push(Action::Say(Change::Failed(why.to_string())));
        self.state = State::Failed(why);
        self.settle_all(0, out);
    }

    /// Looks at every operation after a change of state; held ones are sent.
    fn settle_all(&mut self, now: Time, out: &mut Vec<Action>) {
        for id in self.ops.held() {
            self.send(id, out);
        }
        for id in self.ops.ids() {
            self.settle(now, id, out);
        }
    }

    fn note(&mut self, leg: Leg, mark: Mark, out: &mut Vec<Action>) {
        self.jobs[leg.index()] += 1;
        out.push(Action::Note(leg, mark));
    }
}

fn required(lost: Leg) -> IoError {
    let leg = if lost == Leg::Mirror { "the journal's mirror" } else { "the local leg of the cache" };
    IoError::new(IoKind::Io, format!("{leg} is gone and is required: no writes are taken"))
}

#[cfg(test)]
mod tests;
