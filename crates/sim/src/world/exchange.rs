//! The threads' gates, and what a daemon and a core's label remember of the volume's cache.

use super::{Mail, Out, World, Wrong};
use crate::rng::Rng;
use crate::subject::{Refusal, Subject};
use crate::sync::{Fuse, SyncDisk};
use loligo_block::{Reply, ReqError, Request, SyncIo};
use loligo_engine::api::{Event, Nanos};
use loligo_engine::exchange::{Ending, Gate};

/// One thread's message about an exchange may take so long, ns.
const LATE: Nanos = 200_000_000;

/// Facts of the cache that the next start knows without looking at it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Noted {
    /// The volume is bare.
    pub bare: bool,
    /// The cache may hold what the core lacks.
    pub dirty: bool,
    /// The core's label says so.
    pub label: bool,
    /// Nobody may believe what it holds.
    pub void: bool,
}

/// The gates of all threads.
#[derive(Debug, Default)]
pub(super) struct Gates {
    gates: Vec<Gate<Request, u64, ()>>,
    /// The question that threads were asked last, and how many have not answered.
    asked: u64,
    left: usize,
    /// The chance that picks the thread a request comes to.
    homes: Option<Rng>,
    /// Engines are being exchanged, or were when that broke off.
    unsettled: bool,
}

impl Gates {
    pub(super) fn new(threads: usize) -> Gates {
        Gates { gates: (0..threads).map(|_| Gate::default()).collect(), ..Gates::default() }
    }
}

impl<E: Subject> World<E> {
    /// The thread that the next request comes to.
    pub(super) fn home(&mut self) -> usize {
        let n = self.gates.gates.len().max(1) as u64;
        if !self.cfg.homes || n == 1 {
            return 0;
        }
        let seed = self.now;
        self.gates.homes.get_or_insert_with(|| Rng::new(seed)).below(n) as usize
    }

    /// Requests come to thread `home`.
    pub(super) fn enter(&mut self, home: usize, mut requests: Vec<Request>) {
        let Some(engine) = &mut self.engine else { return };
        let gate = &mut self.gates.gates[home];
        gate.hold(&mut requests);
        let failed = gate.is_failed();
        for req in requests {
            if failed {
                let refused = Reply { id: req.id, result: Err(ReqError::Io) };
                self.outbox[home].push_back((self.now, Out::Whole(refused)));
                continue;
            }
            let mut parts = Vec::new();
            let reply = engine.route(home, req, &mut parts);
            for (shard, part, hint) in parts {
                let delay = if self.rng.chance(1, 2) { 0 } else { self.rng.below(30_000) };
                let last = self.inbox[shard].back().map_or(0, |(at, _)| *at);
                let due = last.max(self.now + delay);
                self.inbox[shard].push_back((due, Mail::Event(Event::Submit(part, hint))));
            }
            if let Some(reply) = reply {
                self.outbox[home].push_back((self.now, Out::Whole(reply)));
            }
        }
    }

    /// A thread is told of a pause.
    pub(super) fn gate_mail(&mut self, shard: usize, mail: Mail) {
        let gate = &mut self.gates.gates[shard];
        let mut requests = Vec::new();
        match mail {
            Mail::Event(_) => {}
            Mail::Pause(who) => gate.begin(who),
            Mail::Exchange(who) => gate.exchange((), who),
            Mail::End(Ending::Resume) => gate.end(&mut requests),
            Mail::End(Ending::Fail) => gate.fail(&mut requests),
        }
        self.enter(shard, requests);
    }

    /// The end of the turn of `shard`, and so of its thread's: one that has all shards waits for the `last`.
    pub(super) fn gate_turn(&mut self, shard: usize, last: bool) {
        let Some(engine) = &mut self.engine else { return };
        let (thread, shards) = match self.gates.gates.len() {
            1 if !last => return,
            1 => (0, 0..self.inbox.len()),
            _ => (shard, shard..shard + 1),
        };
        let gate = &mut self.gates.gates[thread];
        let rested = gate.rested(engine.in_flight(thread));
        let is_fed = |s: usize| self.inbox[s].iter().any(|(_, mail)| matches!(mail, Mail::Event(_)));
        let is_busy = |s| is_fed(s) || self.cache.is_busy_for(s) || self.core.is_busy_for(s);
        let next = gate.next(|| !shards.clone().any(is_busy)).map(|((), who)| {
            engine.exchange(thread);
            for s in shards.clone() {
                self.deadlines[s] = engine.next_deadline(s, self.now);
            }
            self.marks.hit("an engine exchanged");
            if shards.len() > 1 {
                self.marks.hit("several shards exchanged");
            }
            who
        });
        let heard = [rested, next].into_iter().flatten().filter(|who| *who == self.gates.asked).count();
        self.gates.left -= heard;
    }

    fn tell_gates(&mut self, mail: impl Fn(u64) -> Mail, late: Option<usize>) {
        let id = self.clients.next_id();
        self.gates.asked = id;
        self.gates.left = self.gates.gates.len();
        self.trace.note(self.now, "gates", id, self.gates.left as u64);
        self.trace.say(|| format!("{:?}", mail(id)));
        for shard in 0..self.gates.gates.len() {
            let due = self.hop(shard) + if late == Some(shard) { LATE } else { 0 };
            self.inbox[shard].push_back((due, mail(id)));
        }
    }

    /// Has every thread hold what clients ask.
    pub fn hold_clients(&mut self) {
        self.gates.unsettled = true;
        self.tell_gates(Mail::Pause, None);
    }

    /// Gives every thread the engine that was made ready; one of them may hear of it `late`.
    pub fn exchange_engines(&mut self, late: Option<usize>) {
        self.tell_gates(Mail::Exchange, late);
    }

    /// Tells every thread how the pause ends.
    pub fn end_pause(&mut self, ending: Ending, settled: bool) {
        self.gates.unsettled = !settled;
        self.tell_gates(|_| Mail::End(ending), None);
    }

    /// True if every thread has answered.
    pub fn is_heard(&self) -> bool {
        self.gates.left == 0
    }

    /// True if some thread fails every request.
    pub fn is_failed(&self) -> bool {
        self.gates.gates.iter().any(Gate::is_failed)
    }

    /// True if this is no moment for what only a cache understands.
    pub fn is_plain(&self) -> bool {
        self.gates.unsettled || self.is_bare()
    }

    /// True if the volume is served without a cache.
    pub fn is_bare(&self) -> bool {
        self.engine.as_ref().is_some_and(E::is_bare)
    }

    /// True if the cache can come or go now.
    pub fn can_exchange(&self) -> bool {
        let whole = self.engine.as_ref().is_some_and(|e| e.size() == self.cfg.core.size);
        self.cfg.exchanges && whole && !self.broken && !self.void && !self.is_alone()
    }

    /// Starts without a cache.
    ///
    /// # Errors
    /// If the engine fails; the error is its own. It is meaningless if the fuse blew.
    pub fn open_bare(&mut self, fuse: &Fuse) -> Result<(), Refusal> {
        let engine = E::open_bare(&self.cfg, &mut SyncDisk::new(&mut self.core, fuse))?;
        self.run_on(engine);
        Ok(())
    }

    /// True if the cache device holds no cache.
    pub fn is_blank(&mut self) -> bool {
        E::is_blank(&mut SyncDisk::new(&mut self.cache, &Fuse::never()))
    }

    /// Makes ready what is to take the engines' place: those of the cache on the device, or bare ones.
    ///
    /// # Errors
    /// If the engine fails; the error is its own. It is meaningless if the fuse blew.
    pub fn prepare(&mut self, cached: bool, fuse: &Fuse) -> Result<(), Wrong> {
        let Some(engine) = &mut self.engine else { return Err("there is nothing to exchange".into()) };
        let (mut cache, mut core) =
            (SyncDisk::new(&mut self.cache, fuse), SyncDisk::new(&mut self.core, fuse));
        let devices: Option<(&mut dyn SyncIo, &mut dyn SyncIo)> =
            if cached { Some((&mut cache, &mut core)) } else { None };
        engine.prepare(&self.cfg, devices).map_err(|r| r.text)
    }

    /// Flushes the core.
    ///
    /// # Errors
    /// If it fails; the error is its own. It is meaningless if the fuse blew.
    pub fn flush_core(&mut self, fuse: &Fuse) -> Result<(), Wrong> {
        SyncDisk::new(&mut self.core, fuse).flush().map_err(|e| e.to_string())
    }

    /// Makes the cache void, or takes that back.
    ///
    /// # Errors
    /// If the engine fails; the error is its own. It is meaningless if the fuse blew.
    pub fn wipe(&mut self, back: bool, fuse: &Fuse) -> Result<(), Wrong> {
        let Some(engine) = &mut self.engine else { return Err("there is nothing to wipe".into()) };
        engine.wipe(&mut SyncDisk::new(&mut self.cache, fuse), back)
    }

    /// The threads have other engines and go on: what was told to the old ones is over.
    pub fn is_anew(&mut self) {
        self.stopping = false;
    }
}
