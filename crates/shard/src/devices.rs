//! The devices of one thread, each with what it could not take yet.
//!
//! Engines of one thread share the core: the top bits of an operation's tag name the engine that asked for it. Each has a
//! descriptor of its own for the cache, since the kernel tells a failed write-back once to each.

use loligo_block::{AnyDevice, Completion, Device, Op, Ring, Submit};
use loligo_engine::TAG_BITS;
use loligo_engine::api::{Dev, Event};
use std::collections::VecDeque;

/// Engines that one thread can have: tags have room for so many.
pub(crate) const MOST: usize = 1 << (u64::BITS - TAG_BITS);

/// An event, and which engine of the thread is to hear it.
pub(crate) type EventFor = (usize, Event);

/// The devices that the engines of one thread work on.
#[derive(Debug)]
pub(crate) struct Devices {
    /// One for each engine.
    caches: Vec<DeviceQueue>,
    pub(crate) core: DeviceQueue,
}

impl Devices {
    pub(crate) fn new(caches: impl IntoIterator<Item = AnyDevice>, core: AnyDevice) -> Devices {
        Devices { caches: caches.into_iter().map(DeviceQueue::new).collect(), core: DeviceQueue::new(core) }
    }

    /// Starts `op` for `engine`. Its end, if it is over at once.
    pub(crate) fn submit(
        &mut self,
        ring: &mut Ring,
        now: u64,
        engine: usize,
        (dev, mut op): (Dev, Op),
    ) -> Option<EventFor> {
        op.tag |= (engine as u64) << TAG_BITS;
        let queue = if dev == Dev::Cache { &mut self.caches[engine] } else { &mut self.core };
        queue.submit(ring, now, op).map(event)
    }

    /// Takes what is over, tells `hear`, and starts what had waited.
    pub(crate) fn poll(&mut self, ring: &mut Ring, now: u64, mut hear: impl FnMut(EventFor)) {
        for queue in self.caches.iter_mut().chain([&mut self.core]) {
            queue.poll(ring, now, |c| hear(event(c)));
        }
    }

    /// True if nothing is under way or waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.caches.iter().chain([&self.core]).all(DeviceQueue::is_quiet)
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.caches.iter().chain([&self.core]).filter_map(DeviceQueue::next_deadline).min()
    }
}

/// The engine that asked for an operation which is over, and what it is to hear.
fn event(c: Completion) -> EventFor {
    let tag = c.tag & ((1 << TAG_BITS) - 1);
    ((c.tag >> TAG_BITS) as usize, Event::Done { tag, buf: c.buf, result: c.result })
}

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

    /// True if nothing is under way or waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.backlog.is_empty() && self.device.in_flight() == 0
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.device.next_deadline()
    }
}
