//! One connection without its socket: received bytes become requests, answers become bytes to send.
//!
//! Small requests are parsed in batches from a receive buffer; the payload of a large write is received
//! straight into the aligned buffer that the volume gets, and a very large one goes on in parts while the
//! rest of it arrives. At a limit the connection stops taking input (back-pressure) until answers are sent;
//! nothing is allocated for a length that was not checked.

mod pieces;
mod ranges;

use super::export::Export;
use super::in_flight::{InFlight, Pending};
use super::limits::Limits;
use super::negotiate::{Negotiation, Step, Tls};
use super::output::Output;
use super::proto::{REQUEST_LEN, RequestHeader, cmd, cmd_flag, errno};
use super::share::Share;
use super::transmission::{self, Command};
use super::watch::Watch;
use super::wholes::Wholes;
use crate::{ConnId, Source};
use loligo_block::{Answer, Buf, ReqError, ReqId, ReqKind, Request, Segments};
use pieces::{Landing, Streaming};
use ranges::Ranges;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of the receive buffer.
const RECEIVE: usize = 128 << 10;
/// A write that misses at least so many bytes receives them in place rather than through the receive buffer.
const DIRECT: usize = 16 << 10;
/// Behind a write of so many bytes the next header is fetched alone, so that no payload follows it into the buffer.
const LARGE: usize = 64 << 10;

/// The reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The client said goodbye, or closed its side.
    #[error("the client disconnected")]
    ByClient,
    /// The stream is out of step.
    #[error("the client broke the protocol: {0}")]
    Protocol(&'static str),
    /// Not in transmission in time.
    #[error("the client did not finish the handshake in time")]
    Handshake,
    /// A transfer under way made no progress.
    #[error("the client stalled in the middle of a transfer")]
    Stalled,
    /// The server stops.
    #[error("the server is stopping")]
    Stopping,
    /// The socket failed.
    #[error("the socket failed")]
    Socket,
    /// TLS failed.
    #[error("TLS failed")]
    Tls,
    /// Its place was needed.
    #[error("the client had not finished the handshake when others needed its place")]
    Crowded,
    /// A read failed that was answered in pieces.
    #[error("a read failed when a part of it had been sent, and its reply has no place for errors")]
    ReadFailed,
}

#[derive(Debug)]
enum Phase {
    Handshake(Negotiation),
    Transmission,
    /// No further input counts; what is accepted is answered.
    Draining,
    Closed(Closed),
}

/// One connection.
#[derive(Debug)]
pub struct Conn {
    export: Arc<Export>,
    limits: Arc<Limits>,
    share: Share,
    id: ConnId,
    phase: Phase,
    structured: bool,
    allocation: bool,
    rx: Box<[u8]>,
    start: usize,
    end: usize,
    window: usize,
    landing: Option<Landing>,
    streaming: Option<Streaming>,
    ranges: Ranges,
    wholes: Wholes,
    discard: u64,
    paused: bool,
    start_tls: bool,
    stopping: bool,
    table: InFlight,
    out: Output,
    handshake_by: Option<Instant>,
    stop_by: Option<Instant>,
    /// Until then a connection with nothing to do stays open when the server stops, so that requests that were on their
    /// way get an answer.
    linger_until: Option<Instant>,
    receiving: Watch,
    sending: Watch,
}

impl Conn {
    /// Greets a client. The ids of its requests say that it is connection `id`.
    pub fn new(
        export: Arc<Export>,
        limits: Arc<Limits>,
        share: Share,
        tls: bool,
        id: ConnId,
        now: Instant,
    ) -> Conn {
        let mut out = Output::default();
        let option_data = limits.option_data.min(RECEIVE / 2);
        let tls = if tls { Tls::Required } else { Tls::Off };
        Conn {
            phase: Phase::Handshake(Negotiation::new(tls, option_data, &mut out)),
            structured: false,
            allocation: false,
            rx: vec![0; RECEIVE].into_boxed_slice(),
            start: 0,
            end: 0,
            window: RECEIVE,
            landing: None,
            streaming: None,
            ranges: Ranges::default(),
            wholes: Wholes::default(),
            discard: 0,
            paused: false,
            start_tls: false,
            stopping: false,
            table: InFlight::new(limits.in_flight),
            out,
            handshake_by: Some(now + limits.negotiation),
            stop_by: None,
            linger_until: None,
            receiving: Watch::default(),
            sending: Watch::default(),
            export,
            limits,
            share,
            id,
        }
    }

    /// The place of the next input; nothing while the connection takes none.
    pub fn recv_target(&mut self) -> Option<&mut [u8]> {
        if !self.wants_read() {
            return None;
        }
        if let Some(l) = &mut self.landing {
            return Some(l.target());
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.rx.len() - self.end < RECEIVE / 2 {
            self.rx.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = self.rx.len() - self.end;
        let window = self.window.saturating_sub(self.end - self.start).clamp(1, room);
        Some(&mut self.rx[self.end..self.end + window])
    }

    /// Takes `n` bytes that were put into [`Conn::recv_target`]; complete requests go to `requests`.
    pub fn received(&mut self, n: usize, now: Instant, requests: &mut Vec<Request>) {
        match &mut self.landing {
            Some(l) => l.received(n),
            None => self.end += n,
        }
        self.process(n as u64, now, requests);
    }

    /// The client sends no more; what is accepted is still answered.
    pub fn end_of_input(&mut self) {
        self.drop_landing();
        self.refuse_ranges();
        (self.start, self.end) = (0, 0);
        self.receiving.rest();
        match self.phase {
            Phase::Handshake(_) => self.close(Closed::ByClient),
            Phase::Transmission => self.phase = Phase::Draining,
            Phase::Draining | Phase::Closed(_) => {}
        }
    }

    /// Goes on with input that was held back by a limit.
    pub fn resume(&mut self, now: Instant, requests: &mut Vec<Request>) {
        if self.paused {
            self.paused = false;
            self.process(0, now, requests);
        }
    }

    /// The volume's answer to the request with this id.
    pub fn answer(&mut self, id: ReqId, result: Result<Answer, ReqError>) {
        let Source::Connection { place, .. } = Source::of(id) else { return };
        let Some(p) = self.table.remove(place) else { return };
        if ranges::kind_of(p.command).is_some() {
            self.ranges.over(p.len);
            // What waits goes on with the next flush.
            self.paused |= self.ranges.len() > 0;
        }
        if matches!(self.phase, Phase::Closed(_)) {
            return self.give(p.cost);
        }
        if let Some(whole) = p.whole {
            self.give(p.cost);
            return self.part_over(whole, result.err().map(|e| transmission::refusal(p.command, e)));
        }
        if p.piece {
            return self.piece_over(p, result);
        }
        let (out, structured) = (&mut self.out, self.structured);
        let failed = match (p.command, result) {
            (c, Err(e)) => Some(transmission::refusal(c, e)),
            (Command::Read, Ok(Answer::Data(data))) if total(&data) == p.len as usize => {
                transmission::send_data(out, structured, Some((p.cookie, p.offset, p.len)), data);
                return out.release(p.cost);
            }
            (Command::Status { one }, Ok(Answer::Extents(e)))
                if transmission::send_extents(out, p.cookie, p.len, one, &e) =>
            {
                None
            }
            (Command::Read | Command::Status { .. }, Ok(_)) => {
                Some((errno::EIO, "the volume answered something else"))
            }
            (_, Ok(_)) => {
                transmission::send_done(out, p.cookie);
                None
            }
        };
        if let Some(f) = failed {
            transmission::send_error(out, structured, p.cookie, f);
        }
        self.give(p.cost);
    }

    /// Fills `slices` with what is to be sent next and says how many it used.
    pub fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.out.gather(slices)
    }

    /// Notes that `n` bytes of output are sent (0: the client takes none now).
    pub fn sent(&mut self, n: usize, now: Instant) {
        let released = self.out.sent(n);
        self.give(released);
        if self.out.is_empty() {
            self.sending.rest();
        } else {
            self.sending.moved(n as u64, now, self.limits.stall);
        }
    }

    /// Later requests fail with ESHUTDOWN; the connection is finished once the accepted ones are answered and
    /// [`Limits::linger`] is over.
    pub fn shutdown(&mut self, now: Instant) {
        self.stopping = true;
        self.stop_by = Some(now + self.limits.shutdown);
        self.linger_until = Some(now + self.limits.linger);
        self.refuse_ranges();
    }

    /// Ends the connection now: output is dropped, answers that still come are taken and dropped.
    pub fn close(&mut self, why: Closed) {
        if matches!(self.phase, Phase::Closed(_)) {
            return;
        }
        self.phase = Phase::Closed(why);
        self.drop_landing();
        self.streaming = None;
        self.ranges.forget();
        (self.start, self.end) = (0, 0);
        let unsent = self.out.clear();
        self.give(unsent);
        self.handshake_by = None;
        self.stop_by = None;
        self.linger_until = None;
        self.receiving.rest();
        self.sending.rest();
    }

    /// Closes the connection if one of its deadlines has passed.
    pub fn tick(&mut self, now: Instant) {
        let past = |d: Option<Instant>| d.is_some_and(|d| d <= now);
        self.linger_until = self.linger_until.filter(|d| *d > now);
        if past(self.handshake_by) {
            self.close(Closed::Handshake);
        } else if past(self.receiving.deadline()) || past(self.sending.deadline()) {
            self.close(Closed::Stalled);
        } else if past(self.stop_by) {
            if self.table.len() > 0 && self.out.is_empty() {
                // The volume is slow, not the client: what was accepted is answered.
                self.stop_by = Some(now + self.limits.shutdown);
            } else {
                self.close(Closed::Stopping);
            }
        }
    }

    /// The time at which [`Conn::tick`] has something to decide.
    pub fn next_deadline(&self) -> Option<Instant> {
        let watched = [self.receiving.deadline(), self.sending.deadline()];
        [self.handshake_by, self.stop_by, self.linger_until].into_iter().chain(watched).flatten().min()
    }

    /// The reason why the connection is over, if it is: closed, or nothing left to answer and to send.
    pub fn finished(&self) -> Option<Closed> {
        let waits = self.streaming.is_some() || self.ranges.len() > 0;
        let idle = self.table.len() == 0 && self.out.is_empty() && !waits;
        match self.phase {
            Phase::Closed(why) => Some(why),
            Phase::Draining if idle => Some(Closed::ByClient),
            _ if self.stopping && idle && self.linger_until.is_none() => Some(Closed::Stopping),
            _ => None,
        }
    }

    /// True if its client has chosen the export, and nothing has ended it since.
    pub fn is_logged_in(&self) -> bool {
        matches!(self.phase, Phase::Transmission)
    }

    /// True if it was ended before all was answered and sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_))
    }

    /// True if transmission has not begun.
    pub fn is_in_handshake(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// True if input is taken.
    pub fn wants_read(&self) -> bool {
        !self.paused && !self.start_tls && matches!(self.phase, Phase::Handshake(_) | Phase::Transmission)
    }

    /// True if there is something to send.
    pub fn wants_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// True if a limit holds input back.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Requests that the volume has not answered.
    pub fn in_flight(&self) -> usize {
        self.table.len()
    }

    /// Bytes of allowance in use: payloads of writes being received or served, reads being served or sent.
    pub fn held_bytes(&self) -> u64 {
        self.share.held()
    }

    /// Unsent bytes.
    pub fn unsent_bytes(&self) -> u64 {
        self.out.queued()
    }

    /// True if the client was told to start TLS; asking forgets it. The bytes to send up to then are in the clear.
    pub fn take_start_tls(&mut self) -> bool {
        std::mem::take(&mut self.start_tls)
    }

    fn process(&mut self, arrived: u64, now: Instant, requests: &mut Vec<Request>) {
        let mut completed = false;
        self.go_on_with_ranges(requests);
        while self.one(requests) {
            completed = true;
        }
        if !matches!(self.phase, Phase::Handshake(_)) {
            self.handshake_by = None;
        }
        let partial = self.landing.is_some() || self.discard > 0 || self.start < self.end;
        if completed || !partial || self.paused {
            self.receiving.rest();
        }
        if partial && !self.paused {
            self.receiving.moved(arrived, now, self.limits.stall);
        }
    }

    /// Deals with one option or request; false when more input or allowance is needed, or none is taken any more.
    fn one(&mut self, requests: &mut Vec<Request>) -> bool {
        if self.streaming.is_some() {
            return self.stream(requests);
        }
        if matches!(self.phase, Phase::Draining | Phase::Closed(_)) {
            (self.start, self.end) = (0, 0);
            return false;
        }
        if self.landing.is_some() {
            return self.land(requests);
        }
        if self.start_tls {
            return false;
        }
        if self.discard > 0 {
            let n = self.discard.min((self.end - self.start) as u64);
            self.discard -= n;
            self.start += n as usize;
            return self.discard == 0;
        }
        if self.out.queued_heads() > self.limits.output_bytes {
            self.paused = true;
            return false;
        }
        match &self.phase {
            Phase::Handshake(_) => self.negotiate(),
            _ => self.request(requests),
        }
    }

    fn negotiate(&mut self) -> bool {
        let Phase::Handshake(n) = &mut self.phase else { return false };
        let input = &self.rx[self.start..self.end];
        match n.step(&self.export, self.stopping, input, &mut self.out) {
            Step::More => return false,
            Step::Used(used) => self.start += used,
            Step::StartTls(used) if self.start + used < self.end => {
                // Whoever sits in between could otherwise smuggle cleartext into the secured conversation.
                self.close(Closed::Protocol("cleartext behind STARTTLS"));
            }
            Step::StartTls(used) => {
                self.start += used;
                self.start_tls = true;
            }
            Step::Transmit(used) => {
                self.start += used;
                (self.structured, self.allocation) = (n.structured(), n.allocation());
                self.phase = Phase::Transmission;
            }
            Step::Abort(used) => {
                self.start += used;
                self.phase = Phase::Draining;
            }
            Step::Broken(why) => self.close(Closed::Protocol(why)),
        }
        true
    }

    fn request(&mut self, requests: &mut Vec<Request>) -> bool {
        let Some((raw, behind)) = self.rx[self.start..self.end].split_first_chunk::<REQUEST_LEN>() else {
            return false;
        };
        if self.table.is_full() || self.table.len() + self.ranges.len() >= self.limits.in_flight.max(1) {
            self.paused = true;
            return false;
        }
        let Some(header) = RequestHeader::parse(raw) else {
            self.close(Closed::Protocol("a request without its magic number"));
            return true;
        };
        if header.command == cmd::DISC {
            self.phase = Phase::Draining;
            return true;
        }
        let checked = if self.stopping {
            Err((errno::ESHUTDOWN, "this server is stopping"))
        } else {
            transmission::check(&self.export, self.structured, self.allocation, &header)
        };
        let command = match checked {
            Ok(command) => command,
            Err(refusal) => {
                self.start += REQUEST_LEN;
                self.window = RECEIVE;
                if header.command == cmd::WRITE {
                    self.discard = u64::from(header.len);
                }
                transmission::send_error(&mut self.out, self.structured, header.cookie, refusal);
                return true;
            }
        };
        let len = header.len as usize;
        let have = behind.len().min(len);
        if command == Command::Write && have < len && len - have < DIRECT && REQUEST_LEN + len <= RECEIVE / 2
        {
            self.window = RECEIVE;
            return false;
        }
        if ranges::kind_of(command).is_some() {
            self.window = RECEIVE;
            self.start += REQUEST_LEN;
            self.begin_range(header, command);
            self.go_on_with_ranges(requests);
            return true;
        }
        let mut asked = transmission::effective_len(&self.export, command, header.len);
        let (mut part, mut granted) = (self.limits.part, cost(command, asked));
        if !self.share.take(granted) {
            if self.share.held() > 0 || self.table.len() > 0 {
                self.paused = true;
                return false;
            }
            // Others hold so much that what this connection has to itself must do.
            let minimum = self.share.minimum() as usize;
            match command {
                Command::Read => {
                    self.start += REQUEST_LEN;
                    self.window = RECEIVE;
                    self.streaming = Some(Streaming::new(header));
                    return true;
                }
                // A hint: as much of it as there is room for is taken.
                Command::Cache => (granted, asked) = (minimum as u64, minimum as u32),
                _ => {
                    part = part.min(minimum);
                    granted = part as u64;
                }
            }
            let taken = self.share.take(granted);
            debug_assert!(taken, "a connection that holds nothing has its minimum");
        }
        let kind = match command {
            Command::Write => {
                self.window = if len >= LARGE { REQUEST_LEN } else { RECEIVE };
                if have < len || len > part {
                    self.start += REQUEST_LEN;
                    self.begin_landing(header, part, granted);
                    return true;
                }
                let data = Buf::copy_of(&behind[..len]);
                self.start += REQUEST_LEN + len;
                ReqKind::Write(data.freeze())
            }
            Command::Read | Command::Cache => ReqKind::Read,
            Command::Flush => ReqKind::Flush,
            Command::Status { .. } => ReqKind::Status,
            Command::Trim | Command::WriteZeroes { .. } => unreachable!("a range, which waits for its turn"),
        };
        if command != Command::Write {
            self.window = RECEIVE;
            self.start += REQUEST_LEN;
        }
        let range = (header.offset, asked);
        self.accept(header, command, kind, range, None, requests);
        true
    }

    fn accept(
        &mut self,
        header: RequestHeader,
        command: Command,
        kind: ReqKind,
        (offset, len): (u64, u32),
        whole: Option<usize>,
        requests: &mut Vec<Request>,
    ) {
        if self.stopping {
            // A write whose payload was under way when the server was told to stop.
            self.give(cost(command, len));
            let refusal = (errno::ESHUTDOWN, "this server is stopping");
            return match whole {
                Some(whole) => self.part_over(whole, Some(refusal)),
                None => {
                    transmission::send_error(&mut self.out, self.structured, header.cookie, refusal);
                }
            };
        }
        let (cookie, cost) = (header.cookie, cost(command, len));
        let place = self.table.insert(Pending { cookie, command, offset, len, cost, whole, piece: false });
        let fua = header.flags & cmd_flag::FUA != 0
            && matches!(command, Command::Write | Command::Trim | Command::WriteZeroes { .. });
        let id = Source::Connection { conn: self.id, place }.id();
        requests.push(Request { id, kind, offset, len: u64::from(len), fua });
    }

    fn give(&mut self, bytes: u64) {
        self.share.give(bytes);
    }
}

/// Bytes of memory that a request may come to hold.
fn cost(command: Command, len: u32) -> u64 {
    match command {
        Command::Read | Command::Write | Command::Cache => u64::from(len),
        _ => 0,
    }
}

fn total(data: &Segments) -> usize {
    data.iter().map(|s| s.len()).sum()
}
