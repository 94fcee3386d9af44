//! Asynchronous I/O on a mirror: what the machine wants sent goes to a leg's file on the thread's ring.

use super::access::{Access, OpId};
use super::live::{Bell, Live, op_id};
use super::machine::Action;
use super::mark::Leg;
use crate::file::DeviceFile;
use crate::op::{refuse_group, refuse_invalid};
use crate::uring::{DevId, Ring, UringFile};
use crate::{Buf, Completion, Device, Geometry, IoError, IoKind, Op, OpKind, Shared, Submit, Tag};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;

/// The deed of an operation, for each leg anew.
#[derive(Debug)]
enum Deed {
    Read(usize),
    Write(Shared, bool),
    Flush,
    Discard(u64),
    Zero(u64, bool),
}

/// An operation, until both legs have answered what they were sent.
#[derive(Debug)]
struct Flight {
    tag: Tag,
    offset: u64,
    deed: Deed,
    /// A read's own buffer, until it is sent.
    buf: Option<Buf>,
    /// A read's buffers as the legs gave them back.
    read: [Option<Buf>; 2],
    /// Legs that have still to answer.
    legs: usize,
    answered: bool,
}

/// The mirror as the device of one thread.
#[derive(Debug)]
pub struct MirroredDevice {
    geometry: Geometry,
    live: Arc<Live>,
    port: u32,
    bell: Arc<Bell>,
    legs: [Option<UringFile>; 2],
    flights: Slab<Flight>,
    /// Operations that a leg had no room for.
    waiting: [VecDeque<Op>; 2],
    over: Vec<Completion>,
    /// What the bell brings: nothing.
    rung: VecDeque<()>,
    done: Vec<Completion>,
    /// Operations whose client waits.
    in_flight: usize,
    /// The ring wakes for the bell.
    wakes: bool,
}

impl MirroredDevice {
    pub(super) fn new(
        live: Arc<Live>,
        geometry: Geometry,
        contents: [Option<DeviceFile>; 2],
        ids: [DevId; 2],
    ) -> Result<MirroredDevice, IoError> {
        let (port, bell) = live.port()?;
        let mut legs = [None, None];
        for (n, file) in contents.into_iter().enumerate() {
            legs[n] = file.map(|file| file.separate()).transpose()?.map(|file| UringFile::new(file, ids[n]));
        }
        Ok(MirroredDevice {
            geometry,
            live,
            port,
            bell,
            legs,
            flights: Slab::new(),
            waiting: Default::default(),
            over: Vec::new(),
            rung: VecDeque::new(),
            done: Vec::new(),
            in_flight: 0,
            wakes: false,
        })
    }

    /// Carries out what the machine wants, and what comes of that.
    fn run(&mut self, ring: &mut Ring, now: u64, mut actions: VecDeque<Action>) {
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Send(id, leg) => {
                    if let Some(done) = self.send(ring, now, id, leg) {
                        self.answered(leg, done, &mut actions);
                    }
                }
                Action::Answer(id, result) => self.answer(id, result),
                Action::Note(..) | Action::Copy(..) | Action::Try(_) | Action::Say(_) => {}
            }
        }
    }

    /// Sends an operation to a leg. Its completion, if it is over at once.
    fn send(&mut self, ring: &mut Ring, now: u64, id: OpId, leg: Leg) -> Option<Completion> {
        let key = id as u32 as usize;
        let flight = self.flights.get_mut(key)?;
        flight.legs += 1;
        let kind = match &flight.deed {
            Deed::Read(len) => OpKind::Read(flight.buf.take().unwrap_or_else(|| Buf::alloc(*len))),
            Deed::Write(data, fua) => OpKind::Write { data: data.clone(), fua: *fua },
            Deed::Flush => OpKind::Flush,
            Deed::Discard(len) => OpKind::Discard { len: *len },
            Deed::Zero(len, unmap) => OpKind::WriteZeroes { len: *len, unmap: *unmap },
        };
        let op = Op { tag: key as Tag, offset: flight.offset, kind };
        let waiting = &mut self.waiting[leg.index()];
        let Some(device) = &mut self.legs[leg.index()] else {
            let why = IoError::new(IoKind::Gone, format!("the {leg} leg is not there"));
            return Some(op.complete(Err(why)));
        };
        if !waiting.is_empty() {
            waiting.push_back(op);
            return None;
        }
        match device.submit(ring, now, op) {
            Submit::Taken => None,
            Submit::Finished(done) => Some(done),
            Submit::Busy(op) => {
                waiting.push_back(op);
                None
            }
        }
    }

    /// A leg has answered.
    fn answered(&mut self, leg: Leg, done: Completion, out: &mut VecDeque<Action>) {
        let key = done.tag as usize;
        let Some(flight) = self.flights.get_mut(key) else { return };
        flight.legs -= 1;
        flight.read[leg.index()] = done.buf;
        let (id, result) = (op_id(self.port, key), done.result);
        // The machine lets go of it with this, if it was answered before.
        if flight.legs == 0 && flight.answered {
            self.flights.remove(key);
        }
        self.live.ask(self.port, out, |machine, at, out| machine.answered(at, id, leg, result, out));
    }

    fn answer(&mut self, id: OpId, result: Result<Leg, IoError>) {
        let key = id as u32 as usize;
        let Some(flight) = self.flights.get_mut(key) else { return };
        let buf = match (&flight.deed, &result) {
            (Deed::Read(_), Ok(leg)) => flight.read[leg.index()].take(),
            _ => None,
        };
        let buf = match flight.deed {
            Deed::Read(len) => {
                let [a, b] = &mut flight.read;
                let any = buf.or_else(|| a.take()).or_else(|| b.take()).or_else(|| flight.buf.take());
                Some(any.unwrap_or_else(|| Buf::alloc(len)))
            }
            _ => None,
        };
        self.over.push(Completion { tag: flight.tag, buf, result: result.map(drop) });
        flight.answered = true;
        self.in_flight -= 1;
        if flight.legs == 0 {
            self.flights.remove(key);
        }
    }

    /// Hands what waited to a leg that has room again.
    fn push_waiting(&mut self, ring: &mut Ring, now: u64, leg: Leg) -> Vec<Completion> {
        let mut over = Vec::new();
        let Some(device) = &mut self.legs[leg.index()] else { return over };
        while let Some(op) = self.waiting[leg.index()].pop_front() {
            match device.submit(ring, now, op) {
                Submit::Taken => {}
                Submit::Finished(done) => over.push(done),
                Submit::Busy(op) => {
                    self.waiting[leg.index()].push_front(op);
                    break;
                }
            }
        }
        over
    }
}

impl Device for MirroredDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        let op = match refuse_invalid(op, self.geometry.size) {
            Ok(op) => op,
            Err(refused) => return Submit::Finished(refused),
        };
        if !self.wakes {
            if let Err(why) = ring.wake_on(self.bell.eventfd()) {
                return Submit::Finished(op.complete(Err(why)));
            }
            self.wakes = true;
        }
        let range = op.offset..op.offset + op.len();
        let (tag, offset) = (op.tag, op.offset);
        let (deed, buf, access) = match op.kind {
            OpKind::Read(buf) => (Deed::Read(buf.len()), Some(buf), Access::Read),
            OpKind::Write { data, fua } => (Deed::Write(data, fua), None, Access::Write(range)),
            OpKind::Flush => (Deed::Flush, None, Access::Flush),
            OpKind::Discard { len } => (Deed::Discard(len), None, Access::Write(range)),
            OpKind::WriteZeroes { len, unmap } => (Deed::Zero(len, unmap), None, Access::Write(range)),
            OpKind::WriteMany(_) => return Submit::Finished(refuse_group(op)),
        };
        let flight = Flight { tag, offset, deed, buf, read: [None, None], legs: 0, answered: false };
        let id = op_id(self.port, self.flights.insert(flight));
        self.in_flight += 1;
        let mut actions = VecDeque::new();
        self.live.ask(self.port, &mut actions, |machine, at, out| machine.start(at, id, access, out));
        self.run(ring, now, actions);
        match self.over.iter().position(|done| done.tag == tag) {
            Some(n) => Submit::Finished(self.over.swap_remove(n)),
            None => Submit::Taken,
        }
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        let mut actions = VecDeque::new();
        for leg in Leg::BOTH {
            let mut done = std::mem::take(&mut self.done);
            if let Some(device) = &mut self.legs[leg.index()] {
                device.poll(ring, now, &mut done);
            }
            for done in done.drain(..) {
                self.answered(leg, done, &mut actions);
            }
            self.done = done;
            for done in self.push_waiting(ring, now, leg) {
                self.answered(leg, done, &mut actions);
            }
        }
        if self.bell.take_if_rung(&mut self.rung) {
            self.live.take(self.port, &mut actions);
        }
        if !actions.is_empty() {
            self.run(ring, now, actions);
        }
        out.append(&mut self.over);
    }

    fn next_deadline(&self) -> Option<u64> {
        // What one operation's end has ended beside it is handed out by the next poll.
        (!self.over.is_empty()).then_some(0)
    }

    fn in_flight(&self) -> usize {
        self.in_flight + self.over.len()
    }
}
