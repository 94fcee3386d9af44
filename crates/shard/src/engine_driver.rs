//! The shards of one thread at work: events to their engines, the engines' effects to devices, clients and other threads.
//!
//! A thread has one shard, or all of a volume whose core belongs to one thread. What management asks of the thread each engine
//! is told in the same turn, with no event between, so that a freeze is one moment of all.

use crate::command_error::CommandError;
use crate::devices::{Devices, EventFor};
use crate::message::{Command, Message, Response, Snapshot, ThreadMailbox};
use crate::status;
use loligo_block::{Answer, IoKind, Reply, ReqId, ReqKind, Request, Ring};
use loligo_engine::api::{Control, Effect, Event, Hint, Joint};
use loligo_engine::refusal::ControlError;
use loligo_engine::relay::{Relay, ShardMessage};
use loligo_engine::{Engine, Router, share};
use slab::Slab;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The ways that answers go.
pub(crate) trait Answers {
    fn answer(&mut self, reply: Reply);

    /// All that there are, also none.
    fn answer_all(&mut self, replies: impl IntoIterator<Item = Reply>) {
        replies.into_iter().for_each(|reply| self.answer(reply));
    }

    /// An array has given a device to another host.
    fn expel(&mut self) {}
}

impl Answers for Vec<Reply> {
    fn answer(&mut self, reply: Reply) {
        self.push(reply);
    }
}

/// The cause of an operation, which decides when it is gone on with where the device does it at once (memory).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A request: at once, so that its answer does not wait for the requests behind it.
    Client,
    /// Anything else: in the next turn. A window that is destaged to memory, one write after the other, would otherwise
    /// keep the thread from its clients until the last.
    Engine,
}

/// The waiters for the answers of this thread's engines.
#[derive(Debug)]
struct Asked {
    said: Sender<Response>,
    joint: Joint,
}

/// The engines of one thread with everything they work on.
#[derive(Debug)]
pub(crate) struct EngineDriver {
    me: u16,
    engines: Vec<Engine>,
    /// Theirs.
    shards: Range<u16>,
    relay: Relay,
    devices: Devices,
    /// First byte of the core that is exported.
    data_start: u64,
    boxes: Arc<[ThreadMailbox]>,
    /// Messages of this turn, by receiver.
    outgoing: Vec<Vec<Message>>,
    events: VecDeque<EventFor>,
    /// For the next turn.
    later: Vec<EventFor>,
    effects: Vec<Effect>,
    /// Status parts under way: id and offset on the volume.
    status: Vec<(ReqId, u64)>,
    asked: Slab<Asked>,
    seq_promotion: u32,
}

/// The parts of an [`EngineDriver`].
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) me: u16,
    /// At least one, at most [`MOST`]: that of the thread's number, or all.
    pub(crate) engines: Vec<Engine>,
    pub(crate) router: Router,
    pub(crate) devices: Devices,
    pub(crate) data_start: u64,
    pub(crate) boxes: Arc<[ThreadMailbox]>,
}

impl EngineDriver {
    pub(crate) fn new(p: Parts) -> EngineDriver {
        let first = if p.engines.len() > 1 { 0 } else { p.me };
        EngineDriver {
            me: p.me,
            seq_promotion: p.engines[0].params().seq_promotion,
            shards: first..first + p.engines.len() as u16,
            engines: p.engines,
            relay: Relay::new(p.me, p.router),
            devices: p.devices,
            data_start: p.data_start,
            outgoing: p.boxes.iter().map(|_| Vec::new()).collect(),
            boxes: p.boxes,
            events: VecDeque::new(),
            later: Vec::new(),
            effects: Vec::new(),
            status: Vec::new(),
            asked: Slab::new(),
        }
    }

    /// A client's request: its parts go to the shards that own their windows.
    pub(crate) fn request(&mut self, req: Request, to: &mut impl Answers) {
        let (events, status, outgoing) = (&mut self.events, &mut self.status, &mut self.outgoing);
        to.answer_all(self.relay.request(req, |shard, part, hint| match self.shards.contains(&shard) {
            true => submit(events, status, usize::from(shard - self.shards.start), part, hint),
            false => outgoing[usize::from(shard)].push(Message::Shard(ShardMessage::Part(part, hint))),
        }));
    }

    /// The message that another thread wrote, or this one to itself.
    pub(crate) fn shard_message(&mut self, message: ShardMessage, to: &mut impl Answers) {
        match message {
            // Where there are other threads, each has one shard.
            ShardMessage::Part(req, hint) => submit(&mut self.events, &mut self.status, 0, req, hint),
            ShardMessage::Answered(reply) => to.answer_all(self.relay.answered(reply)),
            ShardMessage::Missed(id) => self.relay.missed(id),
        }
    }

    /// Thread `shard` has ended: what waits for its answer, or will ask it, fails.
    pub(crate) fn lose(&mut self, shard: u16, to: &mut impl Answers) {
        to.answer_all(self.relay.lose(shard));
    }

    fn send(&mut self, (origin, message): (u16, ShardMessage), to: &mut impl Answers) {
        match origin == self.me {
            true => self.shard_message(message, to),
            false => self.outgoing[usize::from(origin)].push(Message::Shard(message)),
        }
    }

    /// Takes completions, feeds the engines everything there is and carries out what they want, until they are quiet.
    pub(crate) fn run(&mut self, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        self.events.extend(self.later.drain(..));
        let mut is_expelled = false;
        self.devices.poll(ring, now, |event| {
            is_expelled |=
                matches!(&event.1, Event::Done { result: Err(why), .. } if why.kind == IoKind::Fenced);
            self.events.push_back(event);
        });
        if is_expelled {
            to.expel();
        }
        if self.engines.len() > 1 {
            share(&mut self.engines.iter_mut().collect::<Vec<_>>());
        }
        for (number, engine) in self.engines.iter().enumerate() {
            let offsets = self.events.iter().filter_map(|e| match e {
                (of, Event::Submit(request, _)) if *of == number && request.len > 0 => Some(request.offset),
                _ => None,
            });
            engine.prefetch(offsets);
        }
        loop {
            while let Some((engine, event)) = self.events.pop_front() {
                let cause = if matches!(event, Event::Submit(..)) { Cause::Client } else { Cause::Engine };
                self.engines[engine].step(now, event, &mut self.effects);
                self.carry_out(engine, cause, ring, now, to);
            }
            for engine in 0..self.engines.len() {
                self.engines[engine].settle(now, &mut self.effects);
                self.carry_out(engine, Cause::Engine, ring, now, to);
            }
            if self.events.is_empty() {
                break;
            }
        }
        for (to, messages) in self.outgoing.iter_mut().enumerate() {
            if !messages.is_empty() {
                self.boxes[to].put(messages.drain(..));
            }
        }
    }

    fn carry_out(&mut self, engine: usize, cause: Cause, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Io(dev, op) => match (self.devices.submit(ring, now, engine, (dev, op)), cause) {
                    (None, _) => {}
                    (Some(event), Cause::Client) => self.events.push_front(event),
                    (Some(event), Cause::Engine) => self.later.push(event),
                },
                Effect::Answer(reply) => self.answer(reply, to),
                Effect::Missed(id) => self.send(Relay::miss(id), to),
                Effect::Controlled(id, result) => self.controlled(id as usize, result),
            }
        }
        self.effects = effects;
    }

    /// One engine has answered what management asked.
    fn controlled(&mut self, id: usize, result: Result<(), ControlError>) {
        let Some(asked) = self.asked.get_mut(id) else { return };
        if let Some(result) = asked.joint.said(result) {
            // Nobody may be waiting any more.
            let _ = asked.said.send(Response::Done(result.map_err(CommandError::Control)));
        }
        if asked.joint.is_over() {
            self.asked.remove(id);
        }
    }

    fn answer(&mut self, mut reply: Reply, to: &mut impl Answers) {
        if let Ok(Answer::Extents(runs)) = &mut reply.result
            && let Some(at) = self.status.iter().position(|(id, _)| *id == reply.id)
        {
            let (_, offset) = self.status.swap_remove(at);
            *runs = status::refine(&self.devices.core, self.data_start + offset, std::mem::take(runs));
        }
        self.send(Relay::reply(reply), to);
    }

    pub(crate) fn ask(&mut self, ask: Command, said: Sender<Response>, connections: usize) {
        match ask {
            Command::Control(control) => {
                if let Control::SetParams(p) = &control
                    && p.seq_promotion != self.seq_promotion
                {
                    self.seq_promotion = p.seq_promotion;
                    self.relay.router_mut().set_promotion(p.seq_promotion);
                }
                let joint = Joint::new(&control, self.engines.len());
                let id = self.asked.insert(Asked { said, joint }) as u64;
                let engines = 0..self.engines.len();
                self.events.extend(engines.map(|n| (n, Event::Control(id, control.clone()))));
            }
            Command::Snapshot => {
                // Nobody may be waiting any more.
                let _ = said.send(Response::Snapshots(self.snapshots(connections)));
            }
            Command::Reach(bytes) => {
                let _ = said.send(Response::Done(self.reach(bytes)));
            }
            Command::Resize(bytes) => {
                let result = self.reach(bytes);
                if result.is_ok() {
                    // What was let in before keeps the old end.
                    self.relay.router_mut().resize(bytes);
                }
                let _ = said.send(Response::Done(result));
            }
            Command::Pause
            | Command::Exchange(_)
            | Command::Resume
            | Command::Fail
            | Command::Abandon(_)
            | Command::Abort(_)
            | Command::Listen(_)
            | Command::Unlisten(_)
            | Command::Drain
            | Command::End => {
                let _ = said.send(Response::Done(Ok(())));
            }
        }
    }

    /// The numbers of each shard; what the thread has for all of them stands in the first.
    fn snapshots(&self, connections: usize) -> Vec<Snapshot> {
        let of = |(n, engine): (usize, &Engine)| {
            let mut stats = engine.stats();
            if n == 0 {
                self.relay.router().add_to(&mut stats);
            }
            Snapshot {
                stats,
                mode: Some(engine.mode()),
                params: engine.params(),
                poisoned: engine.poisoned().map(ToString::to_string),
                core_flush_failed: engine.has_failed_core_flush(),
                core_failing: engine.core_failing().map(ToString::to_string),
                core_refuses: engine.core_refuses(),
                expelled: engine.expelled().map(str::to_owned),
                fallback: engine.alone(),
                needs_cache: engine.needs_cache(),
                flush_remaining: engine.flush_remaining(),
                connections: if n == 0 { connections } else { 0 },
                core_queue_max: self.devices.core.most,
                ram: engine.ram(),
            }
        };
        self.engines.iter().enumerate().map(of).collect()
    }

    /// All engines reach as far, or none further than before: what refuses one refuses the first.
    fn reach(&mut self, bytes: u64) -> Result<(), CommandError> {
        Ok(self.engines.iter_mut().try_for_each(|engine| engine.reach(bytes))?)
    }

    pub(crate) fn next_deadline(&self, now: u64) -> Option<u64> {
        let engines = self.engines.iter().map(|engine| engine.next_deadline(now));
        engines.chain([self.devices.next_deadline()]).flatten().min()
    }

    /// True if there is work that waits for nothing but the next turn.
    pub(crate) fn has_work(&self) -> bool {
        !self.later.is_empty()
    }

    /// Requests of this thread's clients that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.relay.router().in_flight()
    }

    /// True if nothing is under way at its devices, and nothing is left to be fed to the engine.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.later.is_empty() && self.devices.is_quiet()
    }

    pub(crate) fn engines(&self) -> &[Engine] {
        &self.engines
    }
}

/// A part for one of the engines here.
fn submit(
    events: &mut VecDeque<EventFor>,
    status: &mut Vec<(ReqId, u64)>,
    engine: usize,
    req: Request,
    hint: Hint,
) {
    if matches!(req.kind, ReqKind::Status) {
        status.push((req.id, req.offset));
    }
    events.push_back((engine, Event::Submit(req, hint)));
}
