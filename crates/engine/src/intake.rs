//! The intake: what clients have asked for and is under way, and the changes that wait for room or for a thaw.

use crate::api::Nanos;
use crate::fallback::state::Direct;
use crate::inflow::Inflow;
use crate::read::task::ReadTask;
use crate::write_task::{BackStep, Route, WriteTask};
use loligo_block::ReqId;
use slab::Slab;
use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Work in progress for a client.
#[derive(Debug)]
pub(crate) enum Task {
    /// Pieces of it are being read.
    Read(Box<ReadTask>),
    /// A write, zeroes or a discard.
    Write(Box<WriteTask>),
    /// It waits for what came before it to be durable.
    Flush(FlushTask),
    /// Without the cache.
    Direct(Box<Direct>),
}

/// A client's flush.
#[derive(Debug)]
pub(crate) struct FlushTask {
    /// Taken by the answer: from then on the client is told nothing more.
    pub(crate) id: Option<ReqId>,
    pub(crate) since: Nanos,
    pub(crate) pending: u32,
}

/// Requests under way.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) tasks: Slab<Task>,
    /// Tasks with a lock that wait for slots, journal room or the pacer, in order.
    pub(crate) waiting: VecDeque<usize>,
    /// The first of them waits for room that only destaging makes.
    pub(crate) starved: bool,
    /// Waiting changes are being admitted.
    pub(crate) admitting: bool,
    /// Changes that wait for the thaw, with their locks.
    pub(crate) held: Vec<usize>,
    /// The rate at which blocks are written into the cache.
    pub(crate) inflow: Inflow,
    /// Foreground operations at the core.
    pub(crate) core_busy: u32,
}

impl Intake {
    /// Nothing is under way.
    pub(crate) fn new() -> Intake {
        Intake {
            tasks: Slab::with_capacity(256),
            waiting: VecDeque::new(),
            starved: false,
            admitting: false,
            held: Vec::new(),
            inflow: Inflow::default(),
            core_busy: 0,
        }
    }

    /// The change `key`.
    #[inline]
    pub(crate) fn write(&mut self, key: usize) -> &mut WriteTask {
        match &mut self.tasks[key] {
            Task::Write(m) => m,
            _ => unreachable!("task {key} is a change"),
        }
    }

    /// The read `key`.
    #[inline]
    pub(crate) fn read(&mut self, key: usize) -> &mut ReadTask {
        match &mut self.tasks[key] {
            Task::Read(r) => r,
            _ => unreachable!("task {key} is a read"),
        }
    }

    /// The change waits (again) for room for its next blocks, before those that came after it.
    pub(crate) fn wait_for_room(&mut self, key: usize) {
        let since = self.write(key).head.since;
        let later = |k: &usize| matches!(&self.tasks[*k], Task::Write(m) if m.head.since >= since);
        let at = self.waiting.iter().position(later).unwrap_or(self.waiting.len());
        self.waiting.insert(at, key);
        self.write(key).back().step = BackStep::Admission;
    }

    /// True if somebody waits for room that only destaging makes.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved && !self.waiting.is_empty()
    }

    /// Blocks that the first in the queue lacks.
    pub(crate) fn first_lacks(&self) -> u32 {
        let Some(Task::Write(m)) = self.waiting.front().map(|key| &self.tasks[*key]) else { return 0 };
        match &m.route {
            Route::Back(back) => m.head.last - back.next + 1,
            _ => 0,
        }
    }

    /// The blocks that these changes wait for.
    pub(crate) fn waited_by(&self, tasks: &[usize]) -> Vec<RangeInclusive<u32>> {
        let blocks = |key: &usize| match &self.tasks[*key] {
            Task::Write(m) => Some(m.head.first..=m.head.last),
            _ => None,
        };
        tasks.iter().filter_map(blocks).collect()
    }

    /// Takes the ids of all requests, of reads too where `reads`: they are answered for. Their tasks end by themselves.
    pub(crate) fn take_ids(&mut self, reads: bool) -> Vec<ReqId> {
        let mut ids = Vec::new();
        for (_, task) in &mut self.tasks {
            match task {
                Task::Write(m) => ids.extend(m.head.take_id()),
                Task::Flush(f) => ids.extend(f.id.take()),
                Task::Read(r) if reads => ids.extend(r.take_id()),
                Task::Read(_) => {}
                Task::Direct(d) => ids.extend(d.take_ids()),
            }
        }
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a change of each of these blocks, which came in that order.
    fn intake(changes: &[RangeInclusive<u32>]) -> Intake {
        let mut intake = Intake::new();
        for (id, blocks) in (1..).zip(changes) {
            let task = WriteTask::of_blocks(id, id * 10, blocks.clone());
            intake.tasks.insert(Task::Write(Box::new(task)));
        }
        intake
    }

    #[test]
    fn a_change_that_waits_again_keeps_its_turn() {
        let mut intake = intake(&[0..=0, 1..=1, 2..=2]);
        intake.waiting.extend([1, 2]);
        intake.wait_for_room(0);
        assert_eq!(intake.waiting, [0, 1, 2]);
        assert!(matches!(intake.write(0).back().step, BackStep::Admission));
    }

    #[test]
    fn the_first_in_the_queue_says_what_it_lacks() {
        let mut intake = intake(&[0..=0, 4..=9]);
        assert_eq!(intake.first_lacks(), 0);
        intake.waiting.extend([1, 0]);
        assert_eq!(intake.first_lacks(), 6);
        intake.write(1).back().next = 8;
        assert_eq!(intake.first_lacks(), 2);
    }

    #[test]
    fn nobody_is_starved_where_nobody_waits() {
        let mut intake = intake(&[0..=0]);
        intake.starved = true;
        assert!(!intake.is_starved());
        intake.waiting.push_back(0);
        assert!(intake.is_starved());
    }

    #[test]
    fn an_id_is_taken_once() {
        let mut intake = intake(&[0..=0, 1..=1]);
        let flush = FlushTask { id: Some(7), since: 0, pending: 1 };
        intake.tasks.insert(Task::Flush(flush));
        assert_eq!(intake.take_ids(true), [1, 2, 7]);
        assert_eq!(intake.take_ids(true), []);
    }

    #[test]
    fn a_flush_waits_for_no_blocks() {
        let mut intake = intake(&[3..=5]);
        intake.tasks.insert(Task::Flush(FlushTask { id: None, since: 0, pending: 1 }));
        assert_eq!(intake.waited_by(&[0, 1]), [3..=5]);
    }
}
