//! A device of this thread, with what it could not take yet.

use loligo_block::{AnyDevice, Completion, Device, Op, Ring, Submit};
use std::collections::VecDeque;

/// A device and the operations that wait for room in its queue, oldest first.
#[derive(Debug)]
pub(crate) struct DeviceQueue {
    pub(crate) device: AnyDevice,
    backlog: VecDeque<Op>,
    /// The most operations the device had at once.
    pub(crate) most: usize,
    done: Vec<Completion>,
}

impl DeviceQueue {
    pub(crate) fn new(device: AnyDevice) -> DeviceQueue {
        DeviceQueue { device, backlog: VecDeque::new(), most: 0, done: Vec::new() }
    }

    /// Starts `op`, behind those that wait. Its completion, if it is over at once.
    pub(crate) fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Option<Completion> {
        if !self.backlog.is_empty() {
            self.backlog.push_back(op);
            return None;
        }
        match self.device.submit(ring, now, op) {
            Submit::Taken => {
                self.most = self.most.max(self.device.in_flight());
                None
            }
            Submit::Finished(c) => Some(c),
            Submit::Busy(op) => {
                self.backlog.push_back(op);
                None
            }
        }
    }

    /// Takes completions, gives each to `over`, and starts what had waited.
    pub(crate) fn poll(&mut self, ring: &mut Ring, now: u64, mut over: impl FnMut(Completion)) {
        self.device.poll(ring, now, &mut self.done);
        self.done.drain(..).for_each(&mut over);
        while let Some(op) = self.backlog.pop_front() {
            match self.device.submit(ring, now, op) {
                Submit::Taken => self.most = self.most.max(self.device.in_flight()),
                Submit::Finished(c) => over(c),
                Submit::Busy(op) => {
                    self.backlog.push_front(op);
                    return;
                }
            }
        }
    }

    /// Whether nothing is under way or waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.backlog.is_empty() && self.device.in_flight() == 0
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.device.next_deadline()
    }
}
