//! The connections of one volume, with their sockets, for a loop that somebody else runs.
//!
//! The loop waits until a socket is ready (poll, epoll or io_uring), calls [`Server::on_readable`] or
//! [`Server::on_writable`], carries the requests to the volume, brings its replies to [`Server::answer`], which sends a
//! few at a time, and then calls [`Server::flush`] once, which sends the rest.
//!
//! Readiness must be level-triggered (or asked for anew each time, as one-shot polls are): a turn may end before a socket
//! is empty. After a flush the loop looks at [`Server::connections`] for what each socket is to be watched for.

use crate::complaints::Complaints;
use crate::handshakes::Handshakes;
use crate::listen::ListenAddr;
use crate::nbd::{Budget, Closed, Conn, Export, Limits, MAX_SLICES, PeerUse};
use crate::peer::{self, Peer};
use crate::source::Source;
use crate::tls::{TlsContext, TlsSession};
use loligo_block::{Reply, Request};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::IoSlice;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Bytes taken from one connection before the others get their turn.
const TURN: usize = 4 << 20;
/// So many answers leave without waiting for the end of the turn. A client whose requests all came in one batch would
/// otherwise do nothing while the batch is worked on, and the server nothing while the client makes its next.
const EARLY: u32 = 4;

/// A connection; never given twice, so that late events of a closed one find nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    index: u16,
    /// Not 0: that would make ids of another source.
    generation: NonZeroU32,
}

impl ConnId {
    /// As a number, for the user data of an event loop: 48 bits.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation.get()) << 16 | u64::from(self.index)
    }

    /// From [`ConnId::to_u64`]; nothing where no connection has this number.
    pub fn from_u64(n: u64) -> Option<ConnId> {
        Some(ConnId { index: n as u16, generation: NonZeroU32::new((n >> 16) as u32)? })
    }
}

/// The events that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Its socket to become readable.
    pub read: bool,
    /// Its socket to become writable.
    pub write: bool,
}

#[derive(Debug)]
struct Entry {
    generation: NonZeroU32,
    peer: Peer,
    since: Instant,
    conn: Conn,
    /// Nothing once the client is gone; the entry stays until the volume has answered what was accepted.
    socket: Option<OwnedFd>,
    tls: Option<Box<TlsSession>>,
    /// In the list of connections to flush.
    dirty: bool,
    /// The kernel took less than there was.
    blocked: bool,
    /// Answers since something was sent.
    unsent: u32,
    /// The log says that its client has come.
    logged_in: bool,
}

/// The connections of one volume.
#[derive(Debug)]
pub struct Server {
    export: Arc<Export>,
    /// The same for clients that may not change it.
    read_only: Arc<Export>,
    limits: Arc<Limits>,
    budget: Budget,
    peers: HashMap<Peer, PeerUse>,
    tls: Option<TlsContext>,
    entries: Slab<Entry>,
    /// Of the next connection.
    generation: NonZeroU32,
    dirty: Vec<usize>,
    spare: Vec<usize>,
    /// No deadline lies before this.
    soonest: Option<Instant>,
    handshakes: Handshakes,
    stopping: bool,
    turned_away: Complaints,
    crowded: Complaints,
    failed_logins: Complaints,
}

impl Server {
    /// Serves `export`; with `tls` nothing but TLS is served.
    pub fn new(export: Export, limits: Limits, tls: Option<TlsContext>) -> Server {
        Server {
            budget: Budget::new(&limits),
            peers: HashMap::new(),
            read_only: Arc::new(for_reading(&export)),
            export: Arc::new(export),
            limits: Arc::new(limits),
            tls,
            entries: Slab::new(),
            generation: NonZeroU32::MIN,
            dirty: Vec::new(),
            spare: Vec::new(),
            soonest: None,
            handshakes: Handshakes::default(),
            stopping: false,
            turned_away: Complaints::default(),
            crowded: Complaints::default(),
            failed_logins: Complaints::default(),
        }
    }

    /// Clients that come from now on are told this size, in bytes; those that are there know another.
    pub fn resize(&mut self, size: u64) {
        let export = Export { size, ..(*self.export).clone() };
        let min_block = export.min_block;
        let export = export.with_min_block(min_block);
        self.read_only = Arc::new(for_reading(&export));
        self.export = Arc::new(export);
    }

    /// Takes over the nonblocking socket of a client that comes from `peer`. Nothing (and the socket is closed) when there are too many
    /// connections in all or of this peer, or the server stops. A handshake that does not go on gives way to a newcomer.
    pub fn add(&mut self, socket: OwnedFd, peer: Peer, now: Instant) -> Option<ConnId> {
        self.admit(socket, peer, self.export.clone(), now)
    }

    /// The same for a client that may not change anything.
    pub fn add_reader(&mut self, socket: OwnedFd, peer: Peer, now: Instant) -> Option<ConnId> {
        self.admit(socket, peer, self.read_only.clone(), now)
    }

    fn admit(&mut self, socket: OwnedFd, peer: Peer, export: Arc<Export>, now: Instant) -> Option<ConnId> {
        if self.stopping {
            return None;
        }
        if !self.has_place(peer, now) {
            if let Some(others) = self.turned_away.due(now) {
                let limit = self.limits.connections;
                tracing::warn!(limit, %peer, others, "a client was turned away: too many connections");
            }
            return None;
        }
        let slot = self.entries.vacant_entry();
        let id = ConnId { index: slot.key() as u16, generation: self.generation };
        self.generation = self.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let limits = self.limits.clone();
        self.peers.retain(|_, u| !u.is_last());
        let share = self.budget.share(self.peers.entry(peer).or_default());
        let conn = Conn::new(export, limits, share, self.tls.is_some(), id, now);
        slot.insert(Entry {
            generation: id.generation,
            peer,
            since: now,
            conn,
            socket: Some(socket),
            tls: None,
            dirty: false,
            blocked: false,
            unsent: 0,
            logged_in: false,
        });
        self.mark(usize::from(id.index));
        Some(id)
    }

    /// True if there is a place for a client of `peer`, after the handshakes that are to give way have done so.
    fn has_place(&mut self, peer: Peer, now: Instant) -> bool {
        let most = self.limits.connections.min(1 << 16);
        // Of the last quarter of the places each peer has a few, and all of one site or user half.
        let akin_most = most - most / 8;
        let few = (most / 32).max(1);
        let akin = |server: &Server| server.entries.iter().filter(|(_, e)| e.peer.is_akin(peer)).count();
        let mut open: HashMap<Peer, usize> = HashMap::new();
        self.entries.iter().for_each(|(_, e)| *open.entry(e.peer).or_default() += 1);
        let has_few = |peer: Peer| open.get(&peer).is_none_or(|n| *n < few);
        let places = if has_few(peer) { most } else { (most - most / 4).max(1) };
        let shaking = self.entries.iter().filter(|(_, e)| e.conn.is_in_handshake() && e.peer == peer).count();
        // One peer has at most half of the places for handshakes, so that it drops its own and not those of others.
        let (own, of_akin) = (shaking >= (most / 2).max(1), akin(self) >= akin_most);
        if own || of_akin || self.entries.len() >= places {
            self.drop_handshake(now, few, |other| {
                // A peer with more than a few, which comes again and again, would otherwise end each one of a peer
                // with few.
                let is_fair = has_few(peer) || !has_few(other);
                if own { other == peer } else { is_fair && (!of_akin || other.is_akin(peer)) }
            });
        }
        let of_peer = self.entries.iter().filter(|(_, e)| e.peer == peer).count();
        self.entries.len() < places && akin(self) < akin_most && of_peer < (most - most / 4).max(1)
    }

    /// Ends a handshake of those that `may` give way: the oldest of the network with most, the widest first, so that many
    /// peers of one hand end their own; networks with up to `few` are alike. Those whose TLS has begun have half of the
    /// places to themselves, of which nobody drives them out who only comes: they are as few as the time for handshakes
    /// allows.
    fn drop_handshake(&mut self, now: Instant, few: usize, may: impl Fn(Peer) -> bool) {
        let has_begun = |e: &Entry| e.tls.as_ref().is_some_and(|t| t.steps() > 0);
        let (begun, new): (Vec<_>, Vec<_>) = self
            .entries
            .iter()
            .filter(|(_, e)| e.conn.is_in_handshake() && may(e.peer))
            .partition(|(_, e)| has_begun(e));
        let shaking = if begun.len() > new.len() { begun } else { new };
        let mut counts: [HashMap<Peer, usize>; 3] = Default::default();
        for (_, e) in &shaking {
            for (count, circle) in counts.iter_mut().zip(e.peer.circles()) {
                *count.entry(circle).or_default() += 1;
            }
        }
        let crowd = |peer: Peer| {
            let circles = peer.circles();
            [0, 1, 2].map(|n| counts[n].get(&circles[n]).map_or(few, |count| few.max(*count)))
        };
        let Some((at, e)) = shaking.into_iter().max_by_key(|(_, e)| (crowd(e.peer), Reverse(e.since))) else {
            return;
        };
        let peer = e.peer;
        if let Some(others) = self.crowded.due(now) {
            tracing::warn!(%peer, others, "a handshake was ended for a newcomer: too many are open");
        }
        self.entries[at].conn.close(Closed::Crowded);
        self.sweep(at);
    }

    /// The socket can be read, or has hung up: takes what is there. Requests go to `requests`.
    pub fn on_readable(&mut self, id: ConnId, now: Instant, requests: &mut Vec<Request>) {
        let Some(e) = find(&mut self.entries, id) else { return };
        e.receive(self.tls.as_ref(), now, requests);
        e.note_log_in();
        if let Some(tls) = e.tls.as_ref().filter(|t| t.wants_step()) {
            self.handshakes.ask(id, e.peer, tls.steps());
        }
        self.mark(usize::from(id.index));
    }

    /// Takes at most one step of a handshake; its answer is sent by the flush that follows.
    fn handshake(&mut self, now: Instant, requests: &mut Vec<Request>) {
        while let Some((id, peer)) = self.handshakes.next(now) {
            let Some(e) = find(&mut self.entries, id) else { continue };
            let (Some(tls), None) = (&mut e.tls, e.conn.finished()) else { continue };
            let began = Instant::now();
            tls.step(&mut e.conn);
            tls.pump(&mut e.conn, now, requests);
            e.note_log_in();
            self.handshakes.took(peer, began.elapsed(), now);
            self.mark(usize::from(id.index));
            return;
        }
    }

    /// The socket can be written again; the next [`Server::flush`] goes on.
    pub fn on_writable(&mut self, id: ConnId) {
        if let Some(e) = find(&mut self.entries, id) {
            e.blocked = false;
            self.mark(usize::from(id.index));
        }
    }

    /// The volume's answer to a request. It is sent by the next [`Server::flush`] at the latest.
    pub fn answer(&mut self, reply: Reply) {
        let Source::Connection { conn: id, .. } = Source::of(reply.id) else { return };
        if let Some(e) = find(&mut self.entries, id) {
            e.unsent += 1;
            let leaves_early = e.unsent >= EARLY && e.tls.is_none();
            e.conn.answer(reply.id, reply.result);
            if leaves_early {
                e.send(&self.limits, Instant::now(), &mut Vec::new());
            }
            self.mark(usize::from(id.index));
        }
    }

    /// Sends what is ready, takes up input that limits had held back (its requests go to `requests`, so answer them
    /// and flush again), and closes what is finished. To be called after every batch of events or answers.
    pub fn flush(&mut self, now: Instant, requests: &mut Vec<Request>) {
        self.handshake(now, requests);
        let mut turn = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.spare));
        for &at in &turn {
            if let Some(e) = self.entries.get_mut(at) {
                e.dirty = false;
                e.settle(&self.limits, now, requests);
                if e.conn.finished() == Some(Closed::Stopping) {
                    // Requests that came while the last answers were made still get their ESHUTDOWN.
                    e.receive(self.tls.as_ref(), now, requests);
                    e.settle(&self.limits, now, requests);
                }
            }
        }
        for at in turn.drain(..) {
            self.sweep(at);
        }
        self.spare = turn;
    }

    /// Closes connections that are past a deadline.
    pub fn tick(&mut self, now: Instant, requests: &mut Vec<Request>) {
        if self.soonest.is_none_or(|s| s > now) {
            if self.handshakes.deadline(now).is_some_and(|d| d <= now) {
                self.flush(now, requests);
            }
            return;
        }
        for at in 0..self.entries.capacity() {
            if let Some(e) = self.entries.get_mut(at) {
                e.tick(now);
                self.mark(at);
            }
        }
        self.soonest = None;
        self.flush(now, requests);
        self.soonest = self.entries.iter().filter_map(|(_, e)| e.deadline()).min();
    }

    /// The latest time at which [`Server::tick`] should be called.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        [self.soonest, self.handshakes.deadline(now)].into_iter().flatten().min()
    }

    /// Stops: new clients are turned away, later requests get ESHUTDOWN, connections close once what they had asked
    /// before is answered, at the latest after [`Limits::shutdown`]. Over when [`Server::is_empty`].
    pub fn shutdown(&mut self, now: Instant, requests: &mut Vec<Request>) {
        self.stopping = true;
        for at in 0..self.entries.capacity() {
            if let Some(e) = self.entries.get_mut(at) {
                e.conn.shutdown(now);
                e.receive(self.tls.as_ref(), now, requests);
                self.mark(at);
            }
        }
        self.flush(now, requests);
    }

    /// Hangs up on every client, or on those that came by `listener`, without a further word: what they have asked is carried out
    /// and not answered.
    pub fn hang_up(&self, listener: Option<&ListenAddr>) {
        let sockets = self.entries.iter().filter_map(|(_, e)| e.socket.as_ref());
        for socket in sockets.filter(|s| listener.is_none_or(|l| l.is_of(s))) {
            // A client that is gone already needs none.
            let _ = net::shutdown(socket, Shutdown::Both);
        }
    }

    /// The events that a connection waits for; nothing once it is closed.
    pub fn interest(&self, id: ConnId) -> Option<Interest> {
        let e = self.entries.get(usize::from(id.index)).filter(|e| e.generation == id.generation)?;
        e.socket.as_ref().map(|_| e.interest())
    }

    /// Open connections with their sockets and what they wait for. A socket that waits for nothing should not be
    /// polled: a hang-up would be reported again and again.
    pub fn connections(&self) -> impl Iterator<Item = (ConnId, BorrowedFd<'_>, Interest)> {
        self.entries.iter().filter_map(|(at, e)| {
            let fd = e.socket.as_ref()?.as_fd();
            Some((ConnId { index: at as u16, generation: e.generation }, fd, e.interest()))
        })
    }

    /// True if no connection is left, and no request of one that is gone.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Connections, those included whose client is gone while its requests still run.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of payload that clients hold now, in both directions.
    pub fn held_bytes(&self) -> u64 {
        self.entries.iter().map(|(_, e)| e.conn.held_bytes()).sum()
    }

    fn mark(&mut self, at: usize) {
        let e = &mut self.entries[at];
        if let Some(d) = e.deadline() {
            self.soonest = Some(self.soonest.map_or(d, |s| s.min(d)));
        }
        if !e.dirty {
            e.dirty = true;
            self.dirty.push(at);
        }
    }

    /// Notes deadlines that the flush set, and forgets the entry if it is over.
    fn sweep(&mut self, at: usize) {
        let Some(e) = self.entries.get_mut(at) else { return };
        if let Some(why) = e.tls.as_mut().and_then(|t| t.take_failure())
            && let Some(others) = self.failed_logins.due(Instant::now())
        {
            let from = e.socket.as_ref().and_then(peer::address);
            let from = from.map_or_else(|| e.peer.to_string(), |a| a.to_string());
            tracing::warn!(%from, %why, others, export = self.export.name, "a client failed to log in by TLS");
        }
        e.finish();
        if e.socket.is_none() && e.conn.in_flight() == 0 {
            self.handshakes.forget(ConnId { index: at as u16, generation: e.generation });
            self.entries.remove(at);
        } else if let Some(d) = e.deadline() {
            self.soonest = Some(self.soonest.map_or(d, |s| s.min(d)));
        }
    }
}

fn for_reading(export: &Export) -> Export {
    Export { read_only: true, ..export.clone() }
}

fn find(entries: &mut Slab<Entry>, id: ConnId) -> Option<&mut Entry> {
    entries.get_mut(usize::from(id.index)).filter(|e| e.generation == id.generation)
}

impl Entry {
    fn receive(&mut self, tls: Option<&TlsContext>, now: Instant, requests: &mut Vec<Request>) {
        let Some(socket) = &self.socket else { return };
        let conn = &mut self.conn;
        let mut turn = 0;
        while turn < TURN {
            let target = match &mut self.tls {
                Some(t) if t.wants_read(conn) => t.recv_target(),
                Some(_) => break,
                None => match conn.recv_target() {
                    Some(t) => t,
                    None => break,
                },
            };
            let room = target.len();
            let got = match net::recv(socket, target, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    conn.end_of_input();
                    break;
                }
                Ok((n, _)) => n,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    conn.close(Closed::Socket);
                    break;
                }
            };
            turn += got;
            match &mut self.tls {
                Some(t) => {
                    t.received(got);
                    t.pump(conn, now, requests);
                }
                None => conn.received(got, now, requests),
            }
            if conn.take_start_tls() {
                let Some(context) = tls else { return conn.close(Closed::Tls) };
                match TlsSession::start(context, conn, now) {
                    Ok(t) => self.tls = Some(Box::new(t)),
                    Err(_) => conn.close(Closed::Tls),
                }
            }
            // Less than there was room for: the socket is empty, another call would only say so.
            if got < room && room > crate::nbd::proto::REQUEST_LEN {
                break;
            }
        }
    }

    /// Says once who has come.
    fn note_log_in(&mut self) {
        if !self.logged_in && self.conn.is_logged_in() {
            self.logged_in = true;
            tracing::info!(peer = %self.peer, tls = self.tls.is_some(), "a client has logged in");
        }
    }

    /// Sends and resumes until neither goes on. What holds a connection back then is its own: answers that it waits
    /// for, or that it does not take.
    fn settle(&mut self, limits: &Limits, now: Instant, requests: &mut Vec<Request>) {
        loop {
            self.send(limits, now, requests);
            if !self.conn.is_paused() {
                return;
            }
            let before = requests.len();
            self.conn.resume(now, requests);
            if let Some(t) = &mut self.tls {
                t.pump(&mut self.conn, now, requests);
            }
            if self.conn.is_paused() && requests.len() == before && (self.blocked || !self.conn.wants_write())
            {
                return;
            }
        }
    }

    /// Sends what there is; `requests` gets what TLS had decrypted and held back.
    fn send(&mut self, limits: &Limits, now: Instant, requests: &mut Vec<Request>) {
        self.unsent = 0;
        while !self.blocked {
            let Some(socket) = &self.socket else { return };
            let mut control = SendAncillaryBuffer::default();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let (result, offered) = if let Some(t) = &mut self.tls {
                t.pump(&mut self.conn, now, requests);
                if t.unsent() == 0 {
                    return;
                }
                (net::send(socket, t.output(), flags), t.unsent())
            } else {
                if !self.conn.wants_write() {
                    return;
                }
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let used = self.conn.gather(&mut slices);
                let offered = slices[..used].iter().map(|s| s.len()).sum();
                (net::sendmsg(socket, &slices[..used], &mut control, flags), offered)
            };
            let n = match result {
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => 0,
                Err(_) => return self.conn.close(Closed::Socket),
            };
            match &mut self.tls {
                Some(t) => t.sent(n, now, limits.stall),
                None => self.conn.sent(n, now),
            }
            self.blocked = n < offered;
        }
    }

    /// Closes the socket of a connection that is over.
    fn finish(&mut self) {
        let Some(why) = self.conn.finished() else { return };
        if let (Some(t), Some(socket)) = (&mut self.tls, &self.socket) {
            if t.unsent() > 0 && !self.conn.is_closed() {
                return;
            }
            t.farewell();
            // A client that does not take the farewell, or the alert of a failed handshake, goes without.
            let _ = net::send(socket, t.output(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
        if let Some(socket) = self.socket.take() {
            let peer = self.peer;
            match self.logged_in {
                true => tracing::info!(%peer, %why, "a client has gone"),
                false => tracing::debug!(%peer, %why, "a connection ended before its log-in"),
            }
            // A loop may still hold the descriptor in a pending poll; this wakes it, and tells the client.
            let _ = net::shutdown(&socket, Shutdown::Both);
        }
        self.tls = None;
        self.conn.close(why);
    }

    fn tick(&mut self, now: Instant) {
        self.conn.tick(now);
        if self.tls.as_ref().and_then(|t| t.deadline()).is_some_and(|d| d <= now) {
            self.conn.close(Closed::Stalled);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let tls = self.tls.as_ref().and_then(|t| t.deadline());
        [self.conn.next_deadline(), tls].into_iter().flatten().min()
    }

    fn interest(&self) -> Interest {
        let read = match &self.tls {
            Some(t) => t.wants_read(&self.conn),
            None => self.conn.wants_read(),
        };
        Interest { read, write: self.blocked }
    }
}
