//! The simulated runtime: two devices, shards with mailboxes, clients, one virtual clock. It carries out what the
//! engine asks, in seeded order, and shows every answer to the oracle.

mod bad;
mod control;
mod exchange;
mod freeze;
mod judge;
mod rescue;
mod worn;

use crate::clients::Clients;
use crate::config::Config;
use crate::disk::{Crash, Disk, Nanos};
use crate::expelled::{self, Expelled};
use crate::marks::Marks;
use crate::oracle::Oracle;
use crate::rng::Rng;
use crate::subject::{Parts, Refusal, Sent, Subject};
use crate::sync::{Fuse, SyncDisk};
use crate::trace::Trace;
use control::Controlling;
use exchange::Gates;
pub use exchange::Noted;
use freeze::Freezing;
use loligo_block::{Reply, Request};
use loligo_engine::api::{Control, ControlId, Dev, Effect, Event};
use loligo_engine::exchange::Ending;
use loligo_engine::refusal::ControlError;
use loligo_engine::relay::{Relay, ShardMessage};
use std::collections::{BTreeSet, VecDeque};

/// A breach of the rules, in words.
pub type Wrong = String;

/// Events delivered in one life before it counts as a livelock.
const MOST_PUMPS: u64 = 400_000;
/// Batches from one recount of what the engine counts to the next; it is done at every rest too. A count that went wrong
/// stays wrong, so that a later recount sees it.
const RECOUNT_EVERY: u64 = 8;
/// A request older than this is stuck, ns.
const STUCK: Nanos = 900_000_000_000;
/// From then on a silent fault is at or below the watermark on disk: two idle flushes and a margin, ns.
pub const SETTLED: Nanos = 4_000_000_000;

/// The mail of a thread.
#[derive(Debug)]
enum Mail {
    Event(Event),
    Pause(u64),
    Exchange(u64),
    End(Ending),
}

#[derive(Debug)]
enum Out {
    Whole(Reply),
    /// Messages to threads, in order.
    Messages(Vec<(usize, ShardMessage)>),
    Controlled(ControlId, Result<(), ControlError>),
}

/// One engine and everything around it.
#[derive(Debug)]
pub struct World<E> {
    /// The constants of the run (the mode changes with the lives).
    pub cfg: Config,
    /// Chance for the schedule.
    pub rng: Rng,
    /// The virtual clock, ns.
    pub now: Nanos,
    /// The flash.
    pub cache: Disk,
    /// The slow device.
    pub core: Disk,
    /// The oracle, which knows what every sector may be.
    pub oracle: Oracle,
    /// The clients that ask.
    pub clients: Clients,
    /// The marks that were reached.
    pub marks: Marks,
    /// The events, as a number.
    pub trace: Trace,
    /// A fault that the engine was told of has fired in this life: errors are in order.
    pub broken: bool,
    /// The same of the core, which goes on where the cache is done without.
    pub core_broken: bool,
    /// The time at which a silent fault last fired.
    pub silent: Option<Nanos>,
    /// The time at which a loud one first did since the last start: nothing settles from then on.
    pub loud: Option<Nanos>,
    /// Blocks let loose by silent faults since the last start.
    pub loose: Vec<u32>,
    /// Blocks whose clean version on the cache has rotted, if it is still there.
    pub rotten: BTreeSet<u32>,
    /// A silent fault has fired in this run.
    pub lied: bool,
    /// A stop was asked for, or the core was taken: refusals are in order.
    pub stopping: bool,
    /// It is noted that what the cache holds is void.
    pub void: bool,
    /// The core alone serves: nothing that the cache does can be a reason for anything.
    pub alone: bool,
    /// Chance for what becomes of a cache that is gone.
    pub luck: Rng,
    rescue: Option<rescue::Rescue>,
    /// Reads of sectors that were lost when they were asked for.
    doubtful: BTreeSet<u64>,
    /// Sectors of the core that were bad at some time.
    once_bad: BTreeSet<u32>,
    /// Parts of the core that take no writes.
    worn: worn::Worn,
    /// The core was taken.
    pub fenced: bool,
    /// Both devices were.
    expelled: Expelled,
    engine: Option<E>,
    inbox: Vec<VecDeque<(Nanos, Mail)>>,
    outbox: Vec<VecDeque<(Nanos, Out)>>,
    deadlines: Vec<Option<Nanos>>,
    /// Misses that go out with the next answer.
    missed: Vec<Vec<(usize, ShardMessage)>>,
    gates: Gates,
    /// The notes kept outside the devices, and the word of the core's label.
    pub noted: Noted,
    controlling: Option<Controlling>,
    freezing: Option<Freezing>,
    controlled: Option<Result<(), ControlError>>,
    /// The share is to have so few slots.
    shrinking: Option<u32>,
    pumps: u64,
    /// The places of things on the cache.
    pub parts: Parts,
    /// The byte at which each journal was last written.
    heads: Vec<u64>,
    /// Sectors exported, from the core's first on.
    exported: u32,
}

impl<E: Subject> World<E> {
    /// Devices and clients of `cfg`, nothing formatted.
    pub fn new(cfg: Config, mut rng: Rng) -> World<E> {
        let mut cache = Disk::new(cfg.cache, rng.fork());
        if cfg.share {
            cache.give_away(E::beyond(&cfg, cfg.limit));
        }
        let core = Disk::new(cfg.core, rng.fork());
        let clients = Clients::new(&cfg, rng.fork());
        let parts = E::parts(&cfg);
        World {
            oracle: Oracle::new((cfg.core.size / 512) as u32),
            cache,
            core,
            clients,
            now: 1_000_000,
            marks: Marks::default(),
            trace: Trace::from_env(),
            broken: false,
            core_broken: false,
            rotten: BTreeSet::new(),
            silent: None,
            loud: None,
            loose: Vec::new(),
            lied: false,
            stopping: false,
            void: false,
            alone: false,
            luck: Rng::new(0),
            rescue: None,
            doubtful: BTreeSet::new(),
            once_bad: BTreeSet::new(),
            worn: worn::Worn::default(),
            fenced: false,
            expelled: Expelled::default(),
            engine: None,
            inbox: Vec::new(),
            outbox: Vec::new(),
            deadlines: Vec::new(),
            missed: Vec::new(),
            gates: Gates::default(),
            noted: Noted::default(),
            controlling: None,
            freezing: None,
            controlled: None,
            shrinking: None,
            pumps: 0,
            heads: vec![0; parts.journals.len()],
            parts,
            exported: 0,
            rng,
            cfg,
        }
    }

    /// The engine, while one runs.
    pub fn engine(&self) -> Option<&E> {
        self.engine.as_ref()
    }

    /// Makes the cache; false where the fuse blew before it was done.
    ///
    /// # Errors
    /// If the engine fails; the error is its own.
    pub fn format(&mut self, fuse: &Fuse) -> Result<bool, Wrong> {
        self.keep_no_more(0..u32::MAX);
        let (mut cache, mut core) =
            (SyncDisk::new(&mut self.cache, fuse), SyncDisk::new(&mut self.core, fuse));
        match E::format(&self.cfg, &mut cache, &mut core) {
            _ if fuse.blown() => Ok(false),
            Ok(()) => Ok(true),
            Err(e) => Err(format!("format: {e}")),
        }
    }

    /// Starts the engine on what the devices hold.
    ///
    /// # Errors
    /// If the engine fails; the error is its own. It is meaningless if the fuse blew.
    pub fn open(&mut self, fuse: &Fuse) -> Result<(), Refusal> {
        let (mut cache, mut core) =
            (SyncDisk::new(&mut self.cache, fuse), SyncDisk::new(&mut self.core, fuse));
        let engine = E::open(&self.cfg, &mut cache, &mut core)?;
        self.run_on(engine);
        Ok(())
    }

    fn run_on(&mut self, engine: E) {
        let n = engine.shards();
        self.missed = (0..n).map(|_| Vec::new()).collect();
        self.gates = Gates::new(engine.threads());
        self.inbox = (0..n).map(|_| VecDeque::new()).collect();
        self.outbox = (0..n).map(|_| VecDeque::new()).collect();
        self.deadlines = (0..n).map(|s| engine.next_deadline(s, self.now)).collect();
        self.clients.resize(engine.size());
        self.exported = (engine.size() / 512) as u32;
        self.engine = Some(engine);
        self.stopping = false;
        self.fenced = false;
        self.expelled = Expelled::default();
        self.pumps = 0;
    }

    /// Marks the stopped engine's cache as clean.
    ///
    /// # Errors
    /// If the engine fails; the error is its own.
    pub fn close(&mut self, fuse: &Fuse) -> Result<(), Wrong> {
        self.note_counters();
        let engine = self.engine.take().ok_or("nothing to close")?;
        let closed = engine.close(&self.cfg, &mut SyncDisk::new(&mut self.cache, fuse));
        self.take_fired();
        closed
    }

    fn note_counters(&mut self) {
        for (name, n) in self.engine.as_ref().map(Subject::counters).unwrap_or_default() {
            self.marks.add(name, n);
        }
    }

    /// The process dies, now.
    pub fn crash(&mut self, mut crash: Crash) {
        if self.cache.has_forgotten() || self.core.has_forgotten() {
            // What only the page cache holds may be gone at any time: as if it had lost power.
            self.marks.hit("crash after a flush that forgot");
            crash = Crash::Power;
        }
        self.note_counters();
        self.engine = None;
        self.trace.note(self.now, "crash", (crash == Crash::Power) as u64, 0);
        self.take_fired();
        let settled = self.loud.unwrap_or(self.now);
        if self.silent.is_some_and(|at| settled < at + SETTLED) {
            for block in std::mem::take(&mut self.loose) {
                (block..block + 8).for_each(|s| self.oracle.forgive(s));
            }
        }
        self.cache.crash(crash);
        self.core.crash(crash);
        self.oracle.crash(crash == Crash::Power);
        self.crash_worn();
        self.clients.forget();
        self.doubtful.clear();
        if let Some(f) = self.freezing.take().filter(|_| !self.stopping) {
            self.marks.hit(if f.held { "crash while frozen" } else { "crash while freezing" });
        }
        self.controlling = None;
        self.controlled = None;
        self.end_rescue();
        self.gates = Gates::default();
        if self.shrinking.take().is_some() {
            self.marks.hit("crash while shrinking");
        }
        self.heal();
    }

    /// Disarms every fault and forgets that one has fired.
    pub fn heal(&mut self) {
        self.cache.heal();
        self.core.heal();
        (self.broken, self.core_broken) = (false, false);
        (self.silent, self.loud) = (None, None);
        self.loose.clear();
    }

    /// Hands a request to the engine.
    pub fn ask(&mut self, req: Request) {
        self.doubt(&req);
        self.trace.note(self.now, "ask", req.id, req.offset ^ (req.len << 40));
        self.trace.say(|| format!("{:?} fua {} at {} +{}", req.kind, req.fua, req.offset, req.len));
        let home = self.home();
        self.enter(home, vec![req]);
    }

    /// Has every shard count anew what it counts along the way.
    ///
    /// # Errors
    /// The first count that is not right.
    pub fn recount(&self) -> Result<(), Wrong> {
        let Some(engine) = &self.engine else { return Ok(()) };
        (0..engine.shards()).try_for_each(|shard| engine.audit(shard))
    }

    /// The time at which a message to `shard` sent now arrives: messages of one queue stay in order.
    fn hop(&mut self, shard: usize) -> Nanos {
        let delay = if self.rng.chance(1, 2) { 0 } else { self.rng.below(30_000) };
        let last = self.inbox[shard].back().map_or(0, |(at, _)| *at);
        last.max(self.now + delay)
    }

    fn next_event(&self, wake: Option<Nanos>) -> Option<Nanos> {
        let queues = self.inbox.iter().filter_map(|q| q.front().map(|f| f.0));
        let backs = self.outbox.iter().filter_map(|q| q.front().map(|f| f.0));
        let deadlines = self.deadlines.iter().copied().flatten();
        queues
            .chain(backs)
            .chain(deadlines)
            .chain(self.cache.next_due())
            .chain(self.core.next_due())
            .chain(wake)
            .min()
    }

    /// Lets time go on to whatever happens next (or to `wake`). False when nothing ever will.
    ///
    /// # Errors
    /// If something went against the rules.
    pub fn pump(&mut self, wake: Option<Nanos>) -> Result<bool, Wrong> {
        let Some(next) = self.next_event(wake) else { return Ok(false) };
        // Several events fall into one batch, as they do when a ring is reaped.
        let slack = if self.rng.chance(1, 3) { self.rng.below(200_000) } else { 0 };
        self.now = self.now.max(next) + slack;
        self.pumps += 1;
        if self.pumps > MOST_PUMPS {
            return Err("livelock: the engine goes on without getting anywhere".into());
        }
        if let Some((id, since)) = self.clients.oldest().filter(|(_, since)| since + STUCK < self.now) {
            return Err(format!(
                "request {id} has been waiting for {} s",
                (self.now - since) / 1_000_000_000
            ));
        }
        self.deliver()?;
        self.hear()?;
        self.tell_expelled();
        self.rescue_if_needed();
        Ok(true)
    }

    fn deliver(&mut self) -> Result<(), Wrong> {
        let shards = self.inbox.len();
        let mut events: Vec<Vec<Event>> = (0..shards).map(|_| Vec::new()).collect();
        let cache_first = self.rng.chance(1, 2);
        for cache in [cache_first, !cache_first] {
            let disk = if cache { &mut self.cache } else { &mut self.core };
            while let Some((owner, c)) = disk.complete(self.now) {
                self.trace.note(
                    self.now,
                    if cache { "cache" } else { "core" },
                    c.tag,
                    u64::from(c.result.is_ok()) << 8 | owner as u64,
                );
                events[owner].push(Event::Done { tag: c.tag, buf: c.buf, result: c.result });
            }
        }
        self.take_fired();
        self.note_spoiled();
        let first = self.rng.below(shards as u64) as usize;
        for i in 0..shards {
            let shard = (first + i) % shards;
            let mut done: VecDeque<Event> = std::mem::take(&mut events[shard]).into();
            let mut batch = Vec::new();
            // Mail and completions come in any order between them, each in its own.
            loop {
                let mail = self.inbox[shard].front().is_some_and(|(due, _)| *due <= self.now);
                let by_mail = match (mail, done.is_empty()) {
                    (false, true) => break,
                    (true, false) => self.rng.chance(1, 2),
                    (by_mail, _) => by_mail,
                };
                match if by_mail { self.inbox[shard].pop_front() } else { None } {
                    None => batch.extend(done.pop_front()),
                    Some((_, Mail::Event(event))) => batch.push(event),
                    Some((_, mail)) => self.gate_mail(shard, mail),
                }
            }
            if batch.is_empty() {
                match self.deadlines[shard] {
                    Some(due) if due <= self.now => batch.push(Event::Tick),
                    _ => {
                        self.gate_turn(shard, i + 1 == shards);
                        continue;
                    }
                }
            }
            // What comes before a freeze or a thaw is carried out before it.
            let turns = |e: &Event| matches!(e, Event::Control(_, Control::Freeze | Control::Thaw));
            while let Some(at) = batch.iter().position(turns) {
                let rest = batch.split_off(at + 1);
                let turn = batch.pop();
                self.run(shard, std::mem::replace(&mut batch, rest))?;
                self.turn(shard, turn)?;
            }
            self.run(shard, batch)?;
            self.gate_turn(shard, i + 1 == shards);
        }
        Ok(())
    }

    fn run(&mut self, shard: usize, batch: Vec<Event>) -> Result<(), Wrong> {
        if batch.is_empty() {
            return Ok(());
        }
        if let Some(f) = &mut self.freezing {
            match batch[0] {
                Event::Control(_, Control::Freeze) => f.moment = f.moment.or(Some(self.oracle.time())),
                Event::Control(_, Control::Thaw) => f.held = false,
                _ => {}
            }
            if batch.iter().any(|e| matches!(e, Event::Control(_, Control::Stop | Control::Fence(_)))) {
                f.held = false;
            }
        }
        let held = self.freezing.as_ref().is_some_and(|f| f.held);
        let Some(engine) = &mut self.engine else { return Ok(()) };
        let mut fx = Vec::new();
        let fenced = engine.is_fenced(shard);
        let often = self.rng.chance(1, 4);
        // What came out before it knew is in order.
        let mut judged = usize::MAX;
        for event in batch {
            self.expelled.hears(shard, &event);
            if self.expelled.knows(shard) {
                judged = judged.min(fx.len());
            }
            engine.step(shard, self.now, event, &mut fx);
            if often {
                engine.settle(shard, self.now, &mut fx);
            }
        }
        engine.settle(shard, self.now, &mut fx);
        if self.pumps.is_multiple_of(RECOUNT_EVERY) {
            engine.audit(shard)?;
        }
        self.watch_worn();
        let Some(engine) = &mut self.engine else { return Ok(()) };
        self.deadlines[shard] = engine.next_deadline(shard, self.now);
        fx.iter().skip(judged).try_for_each(expelled::judge)?;
        for effect in fx {
            match effect {
                Effect::Io(Dev::Core, op) if held && op.changes_data() => {
                    return Err(format!("{:?} at {} for a frozen core", op.kind, op.offset));
                }
                Effect::Io(Dev::Core, op) if fenced && (op.changes_data() || op.is_empty()) => {
                    return Err(format!("{:?} at {} for a core that is not ours", op.kind, op.offset));
                }
                Effect::Answer(Reply { id, result: Ok(_) }) if fenced => {
                    return Err(format!("request {id} succeeded on a core that is not ours"));
                }
                Effect::Io(Dev::Cache, op) if self.alone && op.changes_data() => {
                    return Err(format!("{:?} at {} for a cache that is void", op.kind, op.offset));
                }
                Effect::Io(dev, op) => {
                    let disk = if dev == Dev::Cache { &mut self.cache } else { &mut self.core };
                    if let Some(why) = disk.refuses(&op) {
                        return Err(format!("the engine asked {dev:?} for what it cannot do: {why}"));
                    }
                    self.trace.io(self.now, shard, dev, &op);
                    if dev == Dev::Cache && op.changes_data() {
                        watch_wrap(&self.parts, &mut self.heads, op.offset, &mut self.marks);
                    }
                    disk.submit(self.now, shard, op);
                }
                Effect::Missed(id) => {
                    let (to, message) = Relay::miss(id);
                    self.missed[shard].push((usize::from(to), message));
                }
                Effect::Answer(reply) => {
                    let Some(engine) = &self.engine else { continue };
                    let out = match engine.reply(shard, reply) {
                        Sent::Client(reply) => Out::Whole(reply),
                        Sent::Thread(to, message) => {
                            let mut messages = std::mem::take(&mut self.missed[shard]);
                            messages.push((to, message));
                            Out::Messages(messages)
                        }
                    };
                    self.send_back(shard, out);
                }
                Effect::Controlled(id, result) => {
                    if let Some(by) = self.said(shard, id, &result)? {
                        self.send_back(by, Out::Controlled(id, result));
                    }
                }
            }
        }
        Ok(())
    }

    fn send_back(&mut self, shard: usize, out: Out) {
        let delay = if self.rng.chance(1, 2) { 0 } else { self.rng.below(20_000) };
        let last = self.outbox[shard].back().map_or(0, |(at, _)| *at);
        self.outbox[shard].push_back((last.max(self.now + delay), out));
    }

    /// Hands to the clients what has come back by now.
    fn hear(&mut self) -> Result<(), Wrong> {
        for shard in 0..self.outbox.len() {
            while self.outbox[shard].front().is_some_and(|(due, _)| *due <= self.now) {
                match self.outbox[shard].pop_front() {
                    Some((_, Out::Whole(reply))) => self.answered(reply)?,
                    Some((_, Out::Messages(messages))) => {
                        for (to, message) in messages {
                            let whole = self.engine.as_mut().and_then(|e| e.shard_message(to, message));
                            whole.map_or(Ok(()), |reply| self.answered(reply))?;
                        }
                    }
                    Some((_, Out::Controlled(id, result))) => self.heard_control(id, result)?,
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn answered(&mut self, reply: Reply) -> Result<(), Wrong> {
        self.trace.note(self.now, "answer", reply.id, u64::from(reply.result.is_ok()));
        let Some(asked) = self.clients.take(reply.id) else {
            return Err(format!("request {} was answered and is not under way", reply.id));
        };
        let (first, count) = (asked.first, asked.count);
        if let Err(e) = &reply.result {
            let refused = self.stopping && *e == loligo_block::ReqError::Shutdown;
            // A block is checked as a whole.
            let (lo, hi) = (first / 8 * 8, (first + count).next_multiple_of(8).min(self.oracle.sectors()));
            let allowed = self.broken
                || refused
                || self.is_failed()
                || self.oracle.may_fail(lo, hi - lo, &asked.ticket)
                || self.was_lost(reply.id, &asked)
                || self.was_refused(&asked);
            if !allowed {
                return Err(format!(
                    "request {} failed with {e:?} and nothing is wrong: {asked:?}",
                    reply.id
                ));
            }
            if !asked.is_read() {
                self.keep_no_more(first..first + count);
            }
            self.marks.hit(if refused { "refused while stopping" } else { "failed by a fault" });
        }
        asked.settle(&mut self.oracle, reply.result, &mut self.marks)
    }
}

fn watch_wrap(parts: &Parts, heads: &mut [u64], offset: u64, marks: &mut Marks) {
    for (ring, head) in parts.journals.iter().zip(heads) {
        if ring.contains(&offset) {
            if offset < *head {
                marks.hit("journal wrapped");
            }
            *head = offset;
        }
    }
}
