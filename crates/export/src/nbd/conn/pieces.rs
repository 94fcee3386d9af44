//! Requests that are too long to be held whole: the payload of a long write is received part by part, and a read for
//! which there is no room is answered piece by piece, each as long as the connection's minimum.

use super::{Closed, Command, Conn};
use crate::Source;
use crate::nbd::in_flight::Pending;
use crate::nbd::proto::{RequestHeader, cmd_flag, errno};
use crate::nbd::transmission::{self, Refusal};
use loligo_block::{Answer, Buf, ReqError, ReqKind, Request};

/// A write whose payload is being received, or a part of one.
#[derive(Debug)]
pub(super) struct Landing {
    header: RequestHeader,
    /// Offset of the part in the payload.
    at: usize,
    /// Bytes of this part; nothing while there is no room for them.
    buf: Option<Buf>,
    filled: usize,
    /// The whole that it is a part of.
    whole: Option<usize>,
    /// Bytes of a part; the last may have less.
    part: usize,
    /// Bytes of allowance that no part has used.
    granted: u64,
}

impl Landing {
    /// The place of the next input.
    pub(super) fn target(&mut self) -> &mut [u8] {
        match &mut self.buf {
            Some(buf) => &mut buf[self.filled..],
            None => &mut [],
        }
    }

    /// Takes `n` bytes that were put into [`Landing::target`].
    pub(super) fn received(&mut self, n: usize) {
        self.filled += n;
    }
}

/// A read that is answered in pieces, one after the other.
#[derive(Debug)]
pub(super) struct Streaming {
    header: RequestHeader,
    /// Bytes of it that the volume was asked for.
    asked: u32,
}

impl Streaming {
    /// Nothing of it is asked for.
    pub(super) fn new(header: RequestHeader) -> Streaming {
        Streaming { header, asked: 0 }
    }
}

impl Conn {
    /// The payload of a write follows, in parts of `part` bytes; `granted` bytes of allowance are taken for it.
    pub(super) fn begin_landing(&mut self, header: RequestHeader, part: usize, granted: u64) {
        let len = header.len as usize;
        let whole = (len > part).then(|| self.wholes.begin(header.cookie, len.div_ceil(part)));
        self.landing = Some(Landing { header, at: 0, buf: None, filled: 0, whole, part, granted });
    }

    /// Goes on with the part that is being received; false when more input, allowance or a place is needed.
    pub(super) fn land(&mut self, requests: &mut Vec<Request>) -> bool {
        let Some(l) = &mut self.landing else { return false };
        let len = l.part.min(l.header.len as usize - l.at);
        if l.buf.is_none() {
            let more = (len as u64).saturating_sub(l.granted);
            if !self.share.take(more) {
                self.paused = true;
                return false;
            }
            l.granted += more;
            l.buf = Some(Buf::alloc(len));
        }
        // What came along with the header, or with the part before.
        let n = (len - l.filled).min(self.end - self.start);
        let filled = l.filled;
        l.target()[..n].copy_from_slice(&self.rx[self.start..self.start + n]);
        l.filled = filled + n;
        self.start += n;
        if l.filled < len {
            return false;
        }
        if self.table.is_full() {
            // The parts before it have taken the places.
            self.paused = true;
            return false;
        }
        let Some(mut l) = self.landing.take() else { return false };
        let Some(buf) = l.buf.take() else { return false };
        let (header, whole) = (l.header, l.whole);
        let range = (header.offset + l.at as u64, len as u32);
        (l.at, l.filled) = (l.at + len, 0);
        l.granted -= len as u64;
        if l.at < header.len as usize {
            self.landing = Some(l);
        }
        self.accept(header, Command::Write, ReqKind::Write(buf.freeze()), range, whole, requests);
        true
    }

    /// Forgets a payload that will not arrive.
    pub(super) fn drop_landing(&mut self) {
        if let Some(l) = self.landing.take() {
            // The parts before it give back their own.
            self.give(l.granted);
        }
    }

    /// A part is over; the last one answers the client, with the first refusal if there was one.
    pub(super) fn part_over(&mut self, whole: usize, failed: Option<Refusal>) {
        match self.wholes.part_over(whole, failed) {
            Some((cookie, None)) => transmission::send_done(&mut self.out, cookie),
            Some((cookie, Some(f))) => transmission::send_error(&mut self.out, self.structured, cookie, f),
            None => {}
        }
    }

    /// Asks for the next piece once the one before is sent, so that replies do not mix. False: there is nothing to do
    /// until then.
    pub(super) fn stream(&mut self, requests: &mut Vec<Request>) -> bool {
        self.paused = true;
        let Some(s) = &mut self.streaming else { return false };
        if self.table.len() > 0 || self.share.held() > 0 || s.asked == s.header.len {
            return false;
        }
        let left = s.header.len - s.asked;
        let piece = left.min(self.share.minimum() as u32);
        let len = [left, piece].into_iter().find(|&len| self.share.take(u64::from(len)));
        let Some(len) = len else { return false };
        let offset = s.header.offset + u64::from(s.asked);
        s.asked += len;
        let (cookie, command, cost) = (s.header.cookie, Command::Read, u64::from(len));
        let pending = Pending { cookie, command, offset, len, cost, whole: None, piece: true };
        let place = self.table.insert(pending);
        let id = Source::Connection { conn: self.id, place }.id();
        requests.push(Request { id, kind: ReqKind::Read, offset, len: cost, fua: false });
        false
    }

    /// The volume has answered for a piece.
    pub(super) fn piece_over(&mut self, p: Pending, result: Result<Answer, ReqError>) {
        let Some(s) = &self.streaming else { return self.give(p.cost) };
        let (header, last) = (s.header, s.asked == s.header.len);
        let first = p.offset == header.offset;
        let chunks = self.structured && header.flags & cmd_flag::DF == 0;
        let failed = match result {
            Ok(Answer::Data(data)) if super::total(&data) == p.len as usize => {
                if chunks {
                    transmission::send_chunk(&mut self.out, (p.cookie, p.offset, p.len), last, data);
                } else {
                    let whole = first.then_some((header.cookie, header.offset, header.len));
                    transmission::send_data(&mut self.out, self.structured, whole, data);
                }
                if last {
                    self.streaming = None;
                }
                return self.out.release(p.cost);
            }
            Ok(_) => (errno::EIO, "the volume answered something else"),
            Err(e) => transmission::refusal(p.command, e),
        };
        self.streaming = None;
        self.give(p.cost);
        if first || chunks {
            transmission::send_error(&mut self.out, self.structured, p.cookie, failed);
        } else {
            self.close(Closed::ReadFailed);
        }
    }
}
