//! The loop of one thread. One turn: everything that has happened goes to the engine, everything it wants goes to the
//! ring, answers leave a few at a time, and one system call submits and waits.

use crate::clients::Clients;
use crate::engine_driver::{Answers, EngineDriver};
use crate::engine_setup::EngineSetup;
use crate::message::{Command, Message, Response, ThreadMailbox};
use crate::sockets::{Ready, Sockets};
use crate::start::{CORE_ID, cache_ids};
use crate::uncached::Uncached;
use loligo_block::{Foreign, IoError, Reply, ReqError, Request, Ring};
use loligo_engine::exchange::Gate;
use loligo_export::{Listener, Peer};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The time for which nobody is accepted after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The interval at which a lease that has run out is looked at while answers wait for it.
const HELD: Duration = Duration::from_millis(20);

/// The part that answers requests.
#[derive(Debug)]
pub(crate) enum Driver {
    Cached(Box<EngineDriver>),
    Uncached(Box<Uncached>),
}

/// One thread's state.
#[derive(Debug)]
pub(crate) struct Reactor {
    pub(crate) me: usize,
    pub(crate) ring: Ring,
    pub(crate) clients: Clients,
    pub(crate) engine: Driver,
    pub(crate) boxes: Arc<[ThreadMailbox]>,
    /// Nothing in the place of one that is gone: a poll that is under way speaks of a number.
    pub(crate) listeners: Vec<Option<Listener>>,
    origin: Instant,
    sockets: Sockets,
    fired: Vec<Foreign>,
    requests: Vec<Request>,
    mail: VecDeque<Message>,
    /// Whose turn it is to get the next client.
    next_shard: usize,
    accept_again: Option<Instant>,
    gate: Gate<Request, Sender<Response>, Box<EngineSetup>>,
    draining: Option<Sender<Response>>,
    ending: bool,
    /// Nobody is answered any more.
    aborted: bool,
}

impl Reactor {
    pub(crate) fn new(
        me: usize,
        ring: Ring,
        clients: Clients,
        engine: Driver,
        boxes: Arc<[ThreadMailbox]>,
        listeners: Vec<Listener>,
    ) -> Reactor {
        Reactor {
            me,
            ring,
            clients,
            engine,
            boxes,
            listeners: listeners.into_iter().map(Some).collect(),
            origin: Instant::now(),
            sockets: Sockets::default(),
            fired: Vec::new(),
            requests: Vec::new(),
            mail: VecDeque::new(),
            next_shard: 0,
            accept_again: None,
            gate: Gate::default(),
            draining: None,
            ending: false,
            aborted: false,
        }
    }

    /// Runs until [`Command::End`].
    ///
    /// # Errors
    /// Where the ring fails, which no operation of a client can bring about.
    pub(crate) fn run(&mut self) -> Result<(), IoError> {
        Sockets::arm_eventfd(&mut self.ring, self.boxes[self.me].eventfd());
        for (i, l) in self.listeners.iter().flatten().enumerate() {
            Sockets::arm_listener(&mut self.ring, l, i);
        }
        loop {
            let clock = Instant::now();
            self.turn(clock);
            if self.ending {
                return Ok(());
            }
            let timeout = self.timeout(clock);
            self.ring.submit_and_wait(1, timeout)?;
        }
    }

    fn turn(&mut self, clock: Instant) {
        let now = self.nanos(clock);
        self.clients.look_at_lease();
        let fired = &mut self.fired;
        self.ring.reap(|f| fired.push(f));
        let mut fired = std::mem::take(&mut self.fired);
        for event in fired.drain(..) {
            if let Some(ready) = self.sockets.fired(event) {
                self.ready(clock, ready);
            }
        }
        self.fired = fired;
        if self.aborted {
            return;
        }
        if self.accept_again.is_some_and(|t| t <= clock) {
            self.accept_again = None;
            for i in 0..self.listeners.len() {
                self.accept(clock, i);
            }
        }
        self.clients.server.tick(clock, &mut self.requests);
        loop {
            self.gate.hold(&mut self.requests);
            for req in self.requests.drain(..) {
                match &mut self.engine {
                    _ if self.gate.is_failed() => {
                        self.clients.answer(Reply { id: req.id, result: Err(ReqError::Io) })
                    }
                    Driver::Cached(e) => e.request(req, &mut self.clients),
                    Driver::Uncached(e) => e.request(&mut self.ring, now, req, &mut self.clients),
                }
            }
            match &mut self.engine {
                Driver::Cached(e) => e.run(&mut self.ring, now, &mut self.clients),
                Driver::Uncached(e) => e.run(&mut self.ring, now, &mut self.clients),
            }
            self.clients.server.flush(clock, &mut self.requests);
            self.clients.follow_up(&mut self.requests);
            if self.requests.is_empty() {
                break;
            }
        }
        self.paused();
        self.clients.flush_queues(&mut self.ring);
        self.clients.arm_mounts(&mut self.ring);
        self.sockets.arm(&mut self.ring, &self.clients.server);
        self.drained();
    }

    fn nanos(&self, clock: Instant) -> u64 {
        // The engine takes 0 for "never".
        (clock - self.origin).as_nanos() as u64 + 1
    }

    fn timeout(&self, clock: Instant) -> Option<u64> {
        let now = self.nanos(clock);
        let engine = match &self.engine {
            Driver::Cached(e) if e.has_work() => return Some(0),
            Driver::Cached(e) => e.next_deadline(now),
            Driver::Uncached(e) => e.core.next_deadline(),
        };
        let held = self.clients.holds().then(|| clock + HELD);
        let server = [self.clients.server.next_deadline(clock), self.accept_again, held];
        let server = server.into_iter().flatten().min();
        let server = server.map(|t| self.nanos(t.max(clock)));
        let passed = self.nanos(Instant::now());
        [engine, server].into_iter().flatten().min().map(|t| t.saturating_sub(passed).max(1))
    }

    fn ready(&mut self, clock: Instant, ready: Ready) {
        match ready {
            Ready::Read(id) => self.clients.server.on_readable(id, clock, &mut self.requests),
            Ready::Write(id) => self.clients.server.on_writable(id),
            Ready::Listener(i) => self.accept(clock, i),
            Ready::Queue(event) => self.requests.extend(self.clients.fired(event)),
            Ready::Mount(index) => self.clients.arrived(index, &mut self.requests),
            Ready::Mail => {
                let mut mail = std::mem::take(&mut self.mail);
                self.boxes[self.me].take(&mut mail);
                for message in mail.drain(..) {
                    self.open(clock, message);
                }
                self.mail = mail;
                Sockets::arm_eventfd(&mut self.ring, self.boxes[self.me].eventfd());
            }
        }
    }

    fn open(&mut self, clock: Instant, message: Message) {
        match (message, &mut self.engine) {
            (Message::Shard(message), Driver::Cached(e)) => e.shard_message(message, &mut self.clients),
            (Message::Shard(_), Driver::Uncached(_)) => {
                unreachable!("a bare engine asks no other thread, and comes when nothing is under way to any")
            }
            (Message::Ended(thread), Driver::Cached(e)) => e.lose(thread, &mut self.clients),
            // It asks no other thread.
            (Message::Ended(_), Driver::Uncached(_)) => {}
            (Message::Socket { socket, read_only }, _) => add(&mut self.clients, socket, read_only, clock),
            (Message::Local(req, asker), _) => self.requests.extend(self.clients.locals.accept(req, asker)),
            (Message::Queue(queue), _) => self.clients.add_queue(&mut self.ring, *queue),
            (Message::Mount(relay), _) => self.clients.add_mount(*relay),
            (Message::Command(Command::Pause, said), _) => self.gate.begin(said),
            (Message::Command(Command::Exchange(next), said), _) => self.gate.exchange(next, said),
            (Message::Command(Command::Resume, said), _) => {
                self.gate.end(&mut self.requests);
                let _ = said.send(Response::Done(Ok(())));
            }
            (Message::Command(Command::Fail, said), _) => {
                self.gate.fail(&mut self.requests);
                let _ = said.send(Response::Done(Ok(())));
            }
            (Message::Command(Command::Abandon(why), said), _) => {
                // Its engine hears of it before the end of this turn.
                cache_ids().for_each(|id| self.ring.disown(id, &why));
                let _ = said.send(Response::Done(Ok(())));
            }
            (Message::Command(Command::Abort(why), said), _) => {
                (self.ending, self.aborted) = (true, true);
                self.ring.disown(CORE_ID, &why);
                cache_ids().for_each(|id| self.ring.disown(id, &why));
                self.listeners.drain(..).flatten().for_each(Listener::close);
                self.clients.server.hang_up(None);
                let _ = said.send(Response::Done(Ok(())));
            }
            (Message::Command(Command::Listen(listener), said), _) => {
                // One that comes while clients are turned away goes with its message.
                if self.draining.is_none() && !self.ending {
                    Sockets::arm_listener(&mut self.ring, &listener, self.listeners.len());
                    self.listeners.push(Some(listener));
                    let _ = said.send(Response::Done(Ok(())));
                }
            }
            (Message::Command(Command::Unlisten(addr), said), _) => {
                for place in &mut self.listeners {
                    place.take_if(|l| *l.addr() == addr).into_iter().for_each(Listener::close);
                }
                self.clients.server.hang_up(Some(&addr));
                let _ = said.send(Response::Done(Ok(())));
            }
            (Message::Command(Command::Drain, said), _) => {
                // Whoever was held is answered, by whatever engine is there.
                self.gate.end(&mut self.requests);
                self.listeners.clear();
                self.accept_again = None;
                self.draining = Some(said);
                self.clients.shutdown();
                self.clients.server.shutdown(clock, &mut self.requests);
            }
            (Message::Command(ask, said), engine) => {
                self.ending |= matches!(ask, Command::End);
                if let Command::Resize(bytes) = ask {
                    // Clients that are there keep to what they were told, and are refused what is there no more.
                    self.clients.server.resize(bytes);
                }
                let connections = self.clients.server.len();
                match engine {
                    Driver::Cached(e) => e.ask(ask, said, connections),
                    Driver::Uncached(e) => e.ask(ask, said, connections),
                }
            }
        }
    }

    /// Requests of this thread's clients that are not answered, but for those that a pause holds.
    fn in_flight(&self) -> usize {
        match &self.engine {
            Driver::Cached(e) => e.in_flight(),
            Driver::Uncached(e) => e.in_flight(),
        }
    }

    /// Says that nothing is under way, and exchanges the engine, where a pause has come so far.
    fn paused(&mut self) {
        if let Some(said) = self.gate.rested(self.in_flight()) {
            // Nobody may be waiting any more.
            let _ = said.send(Response::Done(Ok(())));
        }
        let quiet = || match &self.engine {
            Driver::Cached(e) => e.is_quiet(),
            Driver::Uncached(e) => e.is_quiet(),
        };
        if let Some((setup, said)) = self.gate.next(quiet) {
            cache_ids().for_each(|id| self.ring.readmit(id));
            self.engine = setup.make(&self.boxes);
            // Nobody may be waiting any more.
            let _ = said.send(Response::Done(Ok(())));
        }
    }

    /// Says that nobody is left, once that is so.
    fn drained(&mut self) {
        let left = self.in_flight();
        if self.clients.server.is_empty()
            && left == 0
            && let Some(said) = self.draining.take()
        {
            // Nobody may be waiting any more.
            let _ = said.send(Response::Done(Ok(())));
        }
    }

    /// Before the ring is dropped, which waits for a device that does not answer: nobody else is to wait for this thread by then.
    pub(crate) fn leave(&mut self) {
        // Entries that name descriptors go to the kernel before those are closed.
        let _ = self.ring.submit_and_wait(0, Some(0));
        self.boxes[self.me].close();
        self.listeners.clear();
        self.clients.leave();
    }

    /// Takes in whoever waits at listener `index`, and gives the clients to the threads in turn.
    fn accept(&mut self, clock: Instant, index: usize) {
        let Some(Some(listener)) = self.listeners.get(index) else { return };
        let read_only = listener.spec().read_only;
        loop {
            match listener.accept() {
                Ok(Some(socket)) => {
                    let to = self.next_shard;
                    self.next_shard = (to + 1) % self.boxes.len();
                    if to == self.me {
                        add(&mut self.clients, socket, read_only, clock);
                    } else {
                        self.boxes[to].put([Message::Socket { socket, read_only }]);
                    }
                }
                Ok(None) => break,
                Err(e) => {
                    tracing::warn!(error = %e, "cannot accept clients for a moment");
                    self.accept_again = Some(clock + ACCEPT_PAUSE);
                    return;
                }
            }
        }
        Sockets::arm_listener(&mut self.ring, listener, index);
    }
}

/// A client that has come; the server says where it has no place for it.
fn add(clients: &mut Clients, socket: OwnedFd, read_only: bool, clock: Instant) {
    let peer = Peer::of(&socket);
    let _ = match read_only {
        true => clients.server.add_reader(socket, peer, clock),
        false => clients.server.add(socket, peer, clock),
    };
}

impl Drop for Reactor {
    /// However it ends, also by a panic: nobody is to wait for it. The last message comes after every answer it gave, and when its box
    /// takes nothing any more: the others know what they have asked and not heard.
    fn drop(&mut self) {
        self.boxes[self.me].close();
        for (_, other) in self.boxes.iter().enumerate().filter(|(n, _)| *n != self.me) {
            other.put([Message::Ended(self.me as u16)]);
        }
    }
}
