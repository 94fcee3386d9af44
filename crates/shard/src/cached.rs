//! One shard of a cache at work: events to the engine, its effects to devices, clients and other threads.

use crate::mail::{Ask, Mail, Mailbox, Said, Snapshot};
use crate::port::Port;
use crate::status;
use loligo_block::{Answer, Completion, Reply, ReqId, ReqKind, Request, Ring};
use loligo_cache::api::{Control, Dev, Effect, Event, Hint};
use loligo_cache::desk::{Desk, Letter};
use loligo_cache::{Core, Router};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;

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

/// The engine of one thread with everything it works on.
#[derive(Debug)]
pub(crate) struct Cached {
    me: u16,
    core: Core,
    desk: Desk,
    cache: Port,
    disk: Port,
    /// First byte of the core that is exported.
    home_start: u64,
    boxes: Arc<[Mailbox]>,
    /// Letters of this turn, by receiver.
    outgoing: Vec<Vec<Mail>>,
    events: VecDeque<Event>,
    effects: Vec<Effect>,
    done: Vec<Completion>,
    /// Status parts under way: id and offset on the volume.
    status: Vec<(ReqId, u64)>,
    asked: Slab<Sender<Said>>,
    seq_promotion: u32,
}

/// What [`Cached`] is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) me: u16,
    pub(crate) core: Core,
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
            seq_promotion: p.core.params().seq_promotion,
            core: p.core,
            desk: Desk::new(p.me, p.router),
            cache: p.cache,
            disk: p.disk,
            home_start: p.home_start,
            outgoing: p.boxes.iter().map(|_| Vec::new()).collect(),
            boxes: p.boxes,
            events: VecDeque::new(),
            effects: Vec::new(),
            done: Vec::new(),
            status: Vec::new(),
            asked: Slab::new(),
        }
    }

    /// A client's request: its parts go to the shards that own their windows.
    pub(crate) fn request(&mut self, req: Request, to: &mut impl Answers) {
        let (me, events, status, outgoing) =
            (self.me, &mut self.events, &mut self.status, &mut self.outgoing);
        let refused = self.desk.request(req, |shard, part, hint| match shard == me {
            true => submit(events, status, part, hint),
            false => outgoing[usize::from(shard)].push(Mail::Letter(Letter::Part(part, hint))),
        });
        if let Some(refused) = refused {
            to.answer(refused);
        }
    }

    /// What another thread wrote, or this one to itself.
    pub(crate) fn letter(&mut self, letter: Letter, to: &mut impl Answers) {
        match letter {
            Letter::Part(req, hint) => submit(&mut self.events, &mut self.status, req, hint),
            Letter::Answered(reply) => {
                if let Some(whole) = self.desk.answered(reply) {
                    to.answer(whole);
                }
            }
            Letter::Missed(id) => self.desk.missed(id),
        }
    }

    /// Thread `shard` has ended: what waits for its answer, or will ask it, fails.
    pub(crate) fn lose(&mut self, shard: u16, to: &mut impl Answers) {
        self.desk.lose(shard).into_iter().for_each(|reply| to.answer(reply));
    }

    fn send(&mut self, (origin, letter): (u16, Letter), to: &mut impl Answers) {
        match origin == self.me {
            true => self.letter(letter, to),
            false => self.outgoing[usize::from(origin)].push(Mail::Letter(letter)),
        }
    }

    /// Takes completions, feeds the engine everything there is and carries out what it wants, until it is quiet.
    pub(crate) fn run(&mut self, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        let mut done = std::mem::take(&mut self.done);
        self.cache.poll(ring, now, &mut done);
        self.disk.poll(ring, now, &mut done);
        self.events.extend(done.drain(..).map(event));
        self.done = done;
        let offsets = self.events.iter().filter_map(|e| match e {
            Event::Submit(request, _) if request.len > 0 => Some(request.offset),
            _ => None,
        });
        self.core.prefetch(offsets);
        loop {
            while let Some(event) = self.events.pop_front() {
                let cause = if matches!(event, Event::Submit(..)) { Cause::Client } else { Cause::Engine };
                self.core.step(now, event, &mut self.effects);
                self.carry_out(cause, ring, now, to);
            }
            self.core.settle(now, &mut self.effects);
            self.carry_out(Cause::Engine, ring, now, to);
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

    fn carry_out(&mut self, cause: Cause, ring: &mut Ring, now: u64, to: &mut impl Answers) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Io(dev, op) => {
                    let port = if dev == Dev::Cache { &mut self.cache } else { &mut self.disk };
                    match (port.submit(ring, now, op), cause) {
                        (None, _) => {}
                        (Some(c), Cause::Client) => self.events.push_front(event(c)),
                        (Some(c), Cause::Engine) => self.done.push(c),
                    }
                }
                Effect::Answer(reply) => self.answer(reply, to),
                Effect::Missed(id) => self.send(Desk::miss(id), to),
                Effect::Controlled(id, result) => {
                    if let Some(said) = self.asked.try_remove(id as usize) {
                        // Nobody may be waiting any more.
                        let _ = said.send(Said::Done(result));
                    }
                }
            }
        }
        self.effects = effects;
    }

    fn answer(&mut self, mut reply: Reply, to: &mut impl Answers) {
        if let Ok(Answer::Extents(runs)) = &mut reply.result
            && let Some(at) = self.status.iter().position(|(id, _)| *id == reply.id)
        {
            let (_, offset) = self.status.swap_remove(at);
            *runs = status::refine(&self.disk, self.home_start + offset, std::mem::take(runs));
        }
        self.send(Desk::reply(reply), to);
    }

    pub(crate) fn ask(&mut self, ask: Ask, said: Sender<Said>, connections: usize) {
        match ask {
            Ask::Control(control) => {
                if let Control::SetParams(p) = &control
                    && p.seq_promotion != self.seq_promotion
                {
                    self.seq_promotion = p.seq_promotion;
                    self.desk.router_mut().set_promotion(p.seq_promotion);
                }
                let id = self.asked.insert(said) as u64;
                self.events.push_back(Event::Control(id, control));
            }
            Ask::Snapshot => {
                let mut stats = self.core.stats();
                self.desk.router().add_to(&mut stats);
                let snapshot = Snapshot {
                    stats,
                    mode: Some(self.core.mode()),
                    params: self.core.params(),
                    poisoned: self.core.poisoned().map(str::to_owned),
                    core_flush_failed: self.core.has_failed_core_flush(),
                    core_failing: self.core.core_failing().map(str::to_owned),
                    core_refuses: self.core.core_refuses(),
                    alone: self.core.alone(),
                    needs_cache: self.core.needs_cache(),
                    flush_remaining: self.core.flush_remaining(),
                    connections,
                    core_queue_max: self.disk.most,
                    ram: self.core.ram(),
                };
                // Nobody may be waiting any more.
                let _ = said.send(Said::Snapshot(Box::new(snapshot)));
            }
            Ask::Reach(bytes) => {
                let _ = said.send(Said::Done(self.core.reach(bytes).map_err(|e| e.to_string())));
            }
            Ask::Resize(bytes) => {
                let result = self.core.reach(bytes).map_err(|e| e.to_string());
                if result.is_ok() {
                    // What was let in before keeps the old end.
                    self.desk.router_mut().resize(bytes);
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

    pub(crate) fn next_deadline(&self, now: u64) -> Option<u64> {
        [self.core.next_deadline(now), self.cache.next_deadline(), self.disk.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether there is work that waits for nothing but the next turn.
    pub(crate) fn has_work(&self) -> bool {
        !self.done.is_empty()
    }

    /// Requests of this thread's clients that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.desk.router().in_flight()
    }

    /// Whether nothing is under way at its devices, and nothing is left to be fed to the engine.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.done.is_empty() && self.cache.is_quiet() && self.disk.is_quiet()
    }

    pub(crate) fn engine(&self) -> &Core {
        &self.core
    }
}

/// A part for this shard.
fn submit(events: &mut VecDeque<Event>, status: &mut Vec<(ReqId, u64)>, req: Request, hint: Hint) {
    if matches!(req.kind, ReqKind::Status) {
        status.push((req.id, req.offset));
    }
    events.push_back(Event::Submit(req, hint));
}

fn event(c: Completion) -> Event {
    Event::Done { tag: c.tag, buf: c.buf, result: c.result }
}
