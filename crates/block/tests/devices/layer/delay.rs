//! A device that takes its time.

use super::Seeded;
use loligo_block::{Completion, Device, Geometry, Op, Ring, Submit};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// How long an operation takes at least, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// Always the same.
    Fixed(u64),
    /// Evenly between the two, the second not included.
    Uniform(u64, u64),
}

/// Completes an operation no earlier than its delay after the submission.
#[derive(Debug)]
pub struct DelayDevice<D> {
    inner: D,
    delay: Delay,
    random: Seeded,
    /// When each operation below may complete.
    due: HashMap<u64, u64>,
    /// Completed below, not due yet: time, order of arrival, index into `held`.
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    held: HashMap<u64, Completion>,
    sequence: u64,
    scratch: Vec<Completion>,
}

impl<D: Device> DelayDevice<D> {
    /// `inner`, slower; `seed` decides the draws of a uniform delay.
    pub fn new(inner: D, delay: Delay, seed: u64) -> DelayDevice<D> {
        DelayDevice {
            inner,
            delay,
            random: Seeded(seed),
            due: HashMap::new(),
            queue: BinaryHeap::new(),
            held: HashMap::new(),
            sequence: 0,
            scratch: Vec::new(),
        }
    }

    fn hold(&mut self, due: u64, completion: Completion) {
        self.queue.push(Reverse((due, self.sequence)));
        self.held.insert(self.sequence, completion);
        self.sequence += 1;
    }
}

impl<D: Device> Device for DelayDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        let tag = op.tag;
        let answer = match self.inner.submit(ring, now, op) {
            Submit::Busy(op) => return Submit::Busy(op),
            Submit::Finished(answer) => Some(answer),
            Submit::Taken => None,
        };
        let due = now
            + match self.delay {
                Delay::Fixed(ns) => ns,
                Delay::Uniform(low, high) => low + self.random.below(high.saturating_sub(low)),
            };
        match answer {
            Some(answer) => self.hold(due, answer),
            None => drop(self.due.insert(tag, due)),
        }
        Submit::Taken
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.inner.poll(ring, now, &mut scratch);
        for completion in scratch.drain(..) {
            let due = self.due.remove(&completion.tag).unwrap_or(now);
            self.hold(due, completion);
        }
        self.scratch = scratch;
        while let Some(Reverse((due, sequence))) = self.queue.peek().copied() {
            if due > now {
                break;
            }
            self.queue.pop();
            out.extend(self.held.remove(&sequence));
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let own = self.queue.peek().map(|Reverse((due, _))| *due);
        [own, self.inner.next_deadline()].into_iter().flatten().min()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }
}
