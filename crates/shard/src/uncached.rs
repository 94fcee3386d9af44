//! A core served as it is: the engine for that, on a ring.

use crate::command_error::CommandError;
use crate::devices::DeviceQueue;
use crate::engine_driver::Answers;
use crate::message::{Command, Response, Snapshot};
use crate::status;
use loligo_block::{Answer, Completion, Device, Reply, ReqKind, Request, Ring};
use loligo_engine::api::{Control, Effect};
use loligo_engine::params::Params;
use loligo_engine::refusal::{ControlError, Failure};
use loligo_engine::uncached::UncachedEngine as Plain;
use std::sync::mpsc::Sender;

/// The trivial engine with the device that it works on.
#[derive(Debug)]
pub(crate) struct Uncached {
    pub(crate) core: DeviceQueue,
    engine: Plain,
    done: Vec<Completion>,
    effects: Vec<Effect>,
}

impl Uncached {
    pub(crate) fn new(core: DeviceQueue, size: u64) -> Uncached {
        let engine = Plain::new(size, core.device.geometry().volatile_cache);
        Uncached { core, engine, done: Vec::new(), effects: Vec::new() }
    }

    pub(crate) fn request(&mut self, ring: &mut Ring, now: u64, req: Request, to: &mut impl Answers) {
        let status = matches!(req.kind, ReqKind::Status).then_some(req.offset);
        self.engine.request(now, req, &mut self.effects);
        if let (Some(offset), Some(Effect::Answer(Reply { result: Ok(Answer::Extents(runs)), .. }))) =
            (status, self.effects.last_mut())
        {
            let len = runs.iter().map(|run| run.len).sum();
            *runs = status::of_core(&self.core, offset, len);
        }
        self.carry_out(ring, now, to);
    }

    /// Takes completions and answers them.
    pub(crate) fn run(&mut self, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        self.core.poll(ring, now, |c| self.done.push(c));
        while let Some(c) = self.done.pop() {
            if let Err(e) = &c.result {
                tracing::warn!(error = %e, "an operation on the core failed");
            }
            self.engine.done(now, c.tag, c.buf, c.result, &mut self.effects);
            self.carry_out(ring, now, to);
        }
        self.carry_out(ring, now, to);
    }

    fn carry_out(&mut self, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Io(_, op) => self.done.extend(self.core.submit(ring, now, op)),
                Effect::Answer(reply) => to.answer(reply),
                Effect::Missed(_) | Effect::Controlled(..) => {}
            }
        }
    }

    pub(crate) fn ask(&mut self, ask: Command, said: Sender<Response>, connections: usize) {
        let answer = match ask {
            Command::Snapshot => Response::Snapshots(vec![Snapshot {
                stats: self.engine.stats.clone(),
                mode: None,
                params: Params::default(),
                poisoned: self.engine.failed().map(ToString::to_string),
                core_flush_failed: self.engine.failed().is_some(),
                core_failing: None,
                core_refuses: None,
                expelled: self.engine.expelled().map(str::to_owned),
                fallback: None,
                needs_cache: None,
                flush_remaining: None,
                connections,
                core_queue_max: self.core.most,
                ram: Vec::new(),
            }]),
            Command::Control(Control::SetMode(_) | Control::SetParams(_)) => {
                Response::Done(Err(CommandError::Uncached))
            }
            Command::Control(Control::Expel(why)) => {
                // They go out before the end of this turn.
                self.engine.expel(why, &mut self.effects);
                Response::Done(Ok(()))
            }
            Command::Control(Control::GiveUp(why)) => {
                self.engine.fail(Failure::GivenUp(why));
                Response::Done(Ok(()))
            }
            // It has nothing of its own to flush; whoever asks does that, and is to know whether it would say anything.
            Command::Resize(bytes) => {
                self.engine.resize(bytes);
                Response::Done(Ok(()))
            }
            // The core would say that it is flushed: it has told of the failure already.
            Command::Control(Control::Stop | Control::FlushCore) => {
                let failed = self.engine.failed().cloned().map(ControlError::Failed);
                Response::Done(failed.map_or(Ok(()), |why| Err(why.into())))
            }
            Command::Control(_)
            | Command::Reach(_)
            | Command::Pause
            | Command::Exchange(_)
            | Command::Resume
            | Command::Fail
            | Command::Abandon(_)
            | Command::Abort(_)
            | Command::Listen(_)
            | Command::Unlisten(_)
            | Command::Drain
            | Command::End => Response::Done(Ok(())),
        };
        // Nobody may be waiting any more.
        let _ = said.send(answer);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    /// True if nothing is under way at the core either: it may do more than was asked of it.
    pub(crate) fn is_quiet(&self) -> bool {
        self.engine.in_flight() == 0 && self.core.is_quiet()
    }
}
