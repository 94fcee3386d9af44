//! The shards of one thread at work: events to their engines, the engines' effects to devices, clients and other threads.
//!
//! A thread has one shard, or all of a volume whose core belongs to one thread. Those share both devices: the top bits of an
//! operation's tag name the engine that asked for it. What management asks of the thread each of them is told in the same turn,
//! with no event between, so that a freeze is one moment of all.

use crate::mail::{Ask, Mail, Mailbox, Said, Snapshot};
use crate::port::Port;
use crate::status;
use loligo_block::{Answer, Completion, Reply, ReqId, ReqKind, Request, Ring};
use loligo_cache::api::{Control, Dev, Effect, Event, Hint, Joint};
use loligo_cache::{Core, Part, Router, TAG_BITS};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The top byte of a part's id names the thread that asks.
const ORIGIN_SHIFT: u32 = 56;

/// Where answers go.
pub(crate) trait Answers {
    fn answer(&mut self, reply: Reply);
}

impl Answers for Vec<Reply> {
    fn answer(&mut self, reply: Reply) {
        self.push(reply);
    }
}

/// What brought an operation about, which decides when it is gone on with where the device does it at once (memory).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// A request: at once, so that its answer does not wait for the requests behind it.
    Client,
    /// Anything else: in the next turn. A window that is destaged to memory, one write after the other, would otherwise
    /// keep the thread from its clients until the last.
    Engine,
}

/// Shards that one thread can have: tags have room for so many.
pub(crate) const MOST: usize = 1 << (u64::BITS - TAG_BITS);

/// Who waits for what the engines of this thread say.
#[derive(Debug)]
struct Asked {
    said: Sender<Said>,
    joint: Joint,
}

/// The engines of one thread with everything they work on.
#[derive(Debug)]
pub(crate) struct Cached {
    me: u16,
    cores: Vec<Core>,
    /// The shard of the first.
    first: u16,
    router: Router,
    cache: Port,
    disk: Port,
    /// First byte of the core that is exported.
    home_start: u64,
    boxes: Arc<[Mailbox]>,
    /// Letters of this turn, by receiver.
    outgoing: Vec<Vec<Mail>>,
    /// With the engine that each is for.
    events: VecDeque<(usize, Event)>,
    effects: Vec<Effect>,
    parts: Vec<Part>,
    done: Vec<Completion>,
    /// Status parts under way: id and offset on the volume.
    status: Vec<(ReqId, u64)>,
    asked: Slab<Asked>,
    seq_promotion: u32,
}

/// What [`Cached`] is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) me: u16,
    /// At least one, at most [`MOST`]: that of the thread's number, or all.
    pub(crate) cores: Vec<Core>,
    pub(crate) router: Router,
    pub(crate) cache: Port,
    pub(crate) disk: Port,
    pub(crate) home_start: u64,
    pub(crate) boxes: Arc<[Mailbox]>,
}

impl Cached {
    pub(crate) fn new(p: Parts) -> Cached {
        Cached {
            me: p.me,
            seq_promotion: p.cores[0].params().seq_promotion,
            first: if p.cores.len() > 1 { 0 } else { p.me },
            cores: p.cores,
            router: p.router,
            cache: p.cache,
            disk: p.disk,
            home_start: p.home_start,
            outgoing: p.boxes.iter().map(|_| Vec::new()).collect(),
            boxes: p.boxes,
            events: VecDeque::new(),
            effects: Vec::new(),
            parts: Vec::new(),
            done: Vec::new(),
            status: Vec::new(),
            asked: Slab::new(),
        }
    }

    /// A client's request: its parts go to the shards that own their windows.
    pub(crate) fn request(&mut self, req: Request, to: &mut impl Answers) {
        let mut parts = std::mem::take(&mut self.parts);
        if let Some(refused) = self.router.route(req, &mut parts) {
            to.answer(refused);
        }
        for mut part in parts.drain(..) {
            part.request.id |= u64::from(self.me) << ORIGIN_SHIFT;
            if let Some(engine) = self.engine_of(part.shard) {
                self.event_of_part(engine, part.request, part.hint);
            } else {
                self.outgoing[usize::from(part.shard)].push(Mail::Part(part.request, part.hint));
            }
        }
        self.parts = parts;
    }

    /// The engine of `shard`, if this thread has it.
    fn engine_of(&self, shard: u16) -> Option<usize> {
        let engine = usize::from(shard.checked_sub(self.first)?);
        (engine < self.cores.len()).then_some(engine)
    }

    /// A part from another thread: then this one has one shard.
    pub(crate) fn part(&mut self, req: Request, hint: Hint) {
        self.event_of_part(0, req, hint);
    }

    fn event_of_part(&mut self, engine: usize, req: Request, hint: Hint) {
        if matches!(req.kind, ReqKind::Status) {
            self.status.push((req.id, req.offset));
        }
        self.events.push_back((engine, Event::Submit(req, hint)));
    }

    /// The answer of another shard to a part that went out from here.
    pub(crate) fn answered(&mut self, reply: Reply, to: &mut impl Answers) {
        if let Some(whole) = self.router.answered(reply) {
            to.answer(whole);
        }
    }

    /// A part of a split request was not wholly in the cache of its shard.
    pub(crate) fn missed(&mut self, id: ReqId) {
        self.router.missed(id);
    }

    /// Takes completions, feeds the engine everything there is and carries out what it wants, until it is quiet.
    pub(crate) fn run(&mut self, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        let mut done = std::mem::take(&mut self.done);
        self.cache.poll(ring, now, &mut done);
        self.disk.poll(ring, now, &mut done);
        self.events.extend(done.drain(..).map(event));
        self.done = done;
        for (engine, core) in self.cores.iter().enumerate() {
            let offsets = self.events.iter().filter_map(|e| match e {
                (of, Event::Submit(request, _)) if *of == engine && request.len > 0 => Some(request.offset),
                _ => None,
            });
            core.prefetch(offsets);
        }
        loop {
            while let Some((engine, event)) = self.events.pop_front() {
                let cause = if matches!(event, Event::Submit(..)) { Cause::Client } else { Cause::Engine };
                self.cores[engine].step(now, event, &mut self.effects);
                self.carry_out(engine, cause, ring, now, to);
            }
            for engine in 0..self.cores.len() {
                self.cores[engine].settle(now, &mut self.effects);
                self.carry_out(engine, Cause::Engine, ring, now, to);
            }
            if self.events.is_empty() {
                break;
            }
        }
        for (to, letters) in self.outgoing.iter_mut().enumerate() {
            if !letters.is_empty() {
                self.boxes[to].put(letters.drain(..));
            }
        }
    }

    fn carry_out(&mut self, engine: usize, cause: Cause, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Io(dev, mut op) => {
                    op.tag |= (engine as u64) << TAG_BITS;
                    let port = if dev == Dev::Cache { &mut self.cache } else { &mut self.disk };
                    match (port.submit(ring, now, op), cause) {
                        (None, _) => {}
                        (Some(c), Cause::Client) => self.events.push_front(event(c)),
                        (Some(c), Cause::Engine) => self.done.push(c),
                    }
                }
                Effect::Answer(reply) => self.answer(reply, to),
                Effect::Missed(id) => match own(id) {
                    (origin, id) if origin == self.me => self.missed(id),
                    (origin, id) => self.outgoing[usize::from(origin)].push(Mail::Missed(id)),
                },
                Effect::Controlled(id, result) => self.controlled(id as usize, result),
            }
        }
        self.effects = effects;
    }

    /// One engine has answered what management asked.
    fn controlled(&mut self, id: usize, result: Result<(), String>) {
        let Some(asked) = self.asked.get_mut(id) else { return };
        if let Some(result) = asked.joint.said(result) {
            // Nobody may be waiting any more.
            let _ = asked.said.send(Said::Done(result));
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
            *runs = status::refine(&self.disk, self.home_start + offset, std::mem::take(runs));
        }
        let (origin, id) = own(reply.id);
        reply.id = id;
        if origin == self.me {
            self.answered(reply, to);
        } else {
            self.outgoing[usize::from(origin)].push(Mail::Answered(reply));
        }
    }

    pub(crate) fn ask(&mut self, ask: Ask, said: Sender<Said>, connections: usize) {
        match ask {
            Ask::Control(control) => {
                if let Control::SetParams(p) = &control
                    && p.seq_promotion != self.seq_promotion
                {
                    self.seq_promotion = p.seq_promotion;
                    self.router.set_promotion(p.seq_promotion);
                }
                let joint = Joint::new(&control, self.cores.len());
                let id = self.asked.insert(Asked { said, joint }) as u64;
                let engines = 0..self.cores.len();
                self.events.extend(engines.map(|n| (n, Event::Control(id, control.clone()))));
            }
            Ask::Snapshot => {
                // Nobody may be waiting any more.
                let _ = said.send(Said::Snapshots(self.snapshots(connections)));
            }
            Ask::Reach(bytes) => {
                let _ = said.send(Said::Done(self.reach(bytes)));
            }
            Ask::Resize(bytes) => {
                let result = self.reach(bytes);
                if result.is_ok() {
                    // What was let in before keeps the old end.
                    self.router.resize(bytes);
                }
                let _ = said.send(Said::Done(result));
            }
            Ask::Pause
            | Ask::Exchange(_)
            | Ask::Resume
            | Ask::Fail
            | Ask::Abandon(_)
            | Ask::Drain
            | Ask::End => {
                let _ = said.send(Said::Done(Ok(())));
            }
        }
    }

    /// The numbers of each shard; what the thread has for all of them stands in the first.
    fn snapshots(&self, connections: usize) -> Vec<Snapshot> {
        let of = |(n, core): (usize, &Core)| {
            let mut stats = core.stats();
            if n == 0 {
                self.router.add_to(&mut stats);
            }
            Snapshot {
                stats,
                mode: Some(core.mode()),
                params: core.params(),
                poisoned: core.poisoned().map(str::to_owned),
                core_failing: core.core_failing().map(str::to_owned),
                core_refuses: core.core_refuses(),
                alone: core.alone(),
                needs_cache: core.needs_cache(),
                flush_remaining: core.flush_remaining(),
                connections: if n == 0 { connections } else { 0 },
                core_queue_max: self.disk.most,
                ram: core.ram(),
            }
        };
        self.cores.iter().enumerate().map(of).collect()
    }

    /// All engines reach as far, or none further than before: what refuses one refuses the first.
    fn reach(&mut self, bytes: u64) -> Result<(), String> {
        self.cores.iter_mut().try_for_each(|core| core.reach(bytes)).map_err(|e| e.to_string())
    }

    pub(crate) fn next_deadline(&self, now: u64) -> Option<u64> {
        let engines = self.cores.iter().map(|core| core.next_deadline(now));
        engines.chain([self.cache.next_deadline(), self.disk.next_deadline()]).flatten().min()
    }

    /// Whether there is work that waits for nothing but the next turn.
    pub(crate) fn has_work(&self) -> bool {
        !self.done.is_empty()
    }

    /// Requests of this thread's clients that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.router.in_flight()
    }

    /// Whether nothing is under way at its devices, and nothing is left to be fed to the engine.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.done.is_empty() && self.cache.is_quiet() && self.disk.is_quiet()
    }

    pub(crate) fn engines(&self) -> &[Core] {
        &self.cores
    }
}

/// The thread that asked for a part, and the part's id there.
fn own(id: ReqId) -> (u16, ReqId) {
    ((id >> ORIGIN_SHIFT) as u16, id & ((1 << ORIGIN_SHIFT) - 1))
}

/// The engine that asked for an operation which is over, and what it is to hear.
fn event(c: Completion) -> (usize, Event) {
    let tag = c.tag & ((1 << TAG_BITS) - 1);
    ((c.tag >> TAG_BITS) as usize, Event::Done { tag, buf: c.buf, result: c.result })
}
