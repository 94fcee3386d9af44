//! The commit: journal, flushes of both devices, checkpoint and intents, and who waits for which of them.

use crate::api::{Dev, Effect, Nanos};
use crate::checkpoint::Checkpoint;
use crate::flushes::{CacheFlush, CoreFlush, Waiter};
use crate::intent::Intents;
use crate::io_tag::IoTag;
use crate::journal::{ClosedFrame, Journal};
use crate::stats::Stats;
use loligo_block::{Op, OpKind, Shared};
use loligo_format::record::Record;
use std::collections::VecDeque;

/// An idle journal writes its watermark this long after the flush.
const WATERMARK_AFTER: Nanos = 200_000_000;

/// Whose records want journal room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomFor {
    /// Changes and fills: they leave some to the others.
    Client,
    /// The work that makes room: evictions, clean records, salvage.
    Housekeeping,
}

/// The work that makes changes durable.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) journal: Journal,
    /// Frames that are yet to be sent to the cache.
    pub(crate) closed: Vec<ClosedFrame>,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) intents: Intents,
    /// The tasks that wait for a frame to be durable, in order of the frames.
    pub(crate) durable_waiters: VecDeque<(u64, Waiter)>,
    /// The flush of the cache device that is under way.
    pub(crate) cache_flush: Option<CacheFlush>,
    /// The end of the last one.
    pub(crate) last_flush: Nanos,
    pub(crate) core_flush: CoreFlush,
    /// Acknowledged changes that reached the core by another route than destaging.
    pub(crate) core_acked: u64,
    /// Of those, how many a core flush has covered.
    pub(crate) core_flushed: u64,
}

impl Commit {
    /// Nothing is under way.
    pub(crate) fn new(journal: Journal, checkpoint: Checkpoint, intents: Intents) -> Commit {
        Commit {
            journal,
            closed: Vec::new(),
            checkpoint,
            intents,
            durable_waiters: VecDeque::new(),
            cache_flush: None,
            last_flush: 0,
            core_flush: CoreFlush::default(),
            core_acked: 0,
            core_flushed: 0,
        }
    }

    /// Writes `data` (whole blocks) to the slot at `offset` of the cache and following, as data of the open frame.
    pub(crate) fn put_data(&mut self, offset: u64, data: Shared, stats: &mut Stats, fx: &mut Vec<Effect>) {
        let tag = IoTag::Data(self.journal.data_issued() as u32).tag();
        stats.cache_write_bytes += data.len() as u64;
        fx.push(Effect::Io(Dev::Cache, Op { tag, offset, kind: OpKind::Write { data, fua: false } }));
    }

    /// Adds a record to the open frame; somebody waits for it if `urgent`.
    #[inline]
    pub(crate) fn append(&mut self, now: Nanos, record: Record, fresh: bool, urgent: bool) -> u64 {
        self.journal.append(now, record, fresh, urgent, &mut self.closed)
    }

    /// Closes the open frame where it is due, and sends what is closed to the cache.
    pub(crate) fn close_if_due(&mut self, now: Nanos, stats: &mut Stats, fx: &mut Vec<Effect>) {
        self.journal.close_if_due(now, &mut self.closed);
        for f in self.closed.drain(..) {
            stats.cache_write_bytes += f.data.len() as u64;
            let kind = OpKind::Write { data: f.data, fua: false };
            let op = Op { tag: IoTag::Frame(f.seq as u32).tag(), offset: f.offset, kind };
            fx.push(Effect::Io(Dev::Cache, op));
        }
    }

    /// Has an idle journal say how far it is durable.
    pub(crate) fn write_watermark(&mut self, now: Nanos) {
        if self.journal.watermark_due() && now.saturating_sub(self.last_flush) >= WATERMARK_AFTER {
            self.journal.close(&mut self.closed);
        }
    }

    /// Waits until frame `need` is durable.
    pub(crate) fn wait_durable(&mut self, need: u64, who: Waiter) {
        let at = self.durable_waiters.iter().rposition(|(n, _)| *n <= need).map_or(0, |i| i + 1);
        self.durable_waiters.insert(at, (need, who));
        self.journal.hurry();
    }

    /// The first of those whose frame is durable; `past_gap`: whether it is or not.
    pub(crate) fn next_durable(&mut self, past_gap: bool) -> Option<Waiter> {
        let durable = self.journal.durable();
        self.durable_waiters.front().filter(|(need, _)| *need <= durable || past_gap)?;
        self.durable_waiters.pop_front().map(|(_, who)| who)
    }

    /// True if somebody waits for what is durable already.
    pub(crate) fn has_durable_waiter(&self) -> bool {
        self.durable_waiters.front().is_some_and(|(need, _)| *need <= self.journal.durable())
    }

    /// True if the core has acknowledged changes that no flush of it covers.
    pub(crate) fn core_lacks_flush(&self) -> bool {
        self.core_acked > self.core_flushed
    }

    /// The core is flushed: regions still quiet are closed.
    pub(crate) fn lift(&mut self, now: Nanos) {
        for region in self.intents.lift(now) {
            self.append(now, Record::IntentClose { region }, false, false);
        }
    }

    /// The core is flushed for a stop, and everything recorded is durable: the next start may trust every clean block.
    pub(crate) fn lift_for_stop(&mut self) {
        if self.intents.close_all() {
            self.checkpoint.renew();
        }
    }

    /// The intent of `region` is closed; those who came meanwhile open it again.
    pub(crate) fn intent_closed(&mut self, now: Nanos, region: u32) {
        self.intents.closed(region);
        if self.intents.must_reopen(region) {
            let seq = self.append(now, Record::IntentOpen { region }, false, true);
            self.wait_durable(seq, Waiter::Intent(region));
        }
    }

    /// True if the journal has room for `who`'s records before a checkpoint must have freed some.
    pub(crate) fn has_room(&self, who: RoomFor) -> bool {
        let used = self.journal.used() * 16;
        let len = self.journal.len();
        match who {
            RoomFor::Client => used < len * 11,
            RoomFor::Housekeeping => used < len * 14,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Ring;
    use loligo_format::layout::ShardLayout;
    use loligo_format::page::Directory;
    use loligo_format::record::JournalId;
    use std::collections::BTreeSet;

    const LEN: u64 = 64 << 10;

    fn commit() -> Commit {
        let ring = Ring { base: 0, len: LEN, unit: 512 };
        let journal = Journal::new(JournalId { cache: 1, shard: 0 }, ring, 1, 0, (0, 0), true);
        let layout = ShardLayout {
            roots: [0; 2],
            dirs: [0; 2],
            dir_len: 0,
            pages: [0; 2],
            page_count: 0,
            journal: 0,
            journal_len: LEN,
            data: LEN,
            slots: 0,
            limit: 0,
        };
        let checkpoint = Checkpoint::new(&layout, Directory::new(0), 0, &BTreeSet::new());
        Commit::new(journal, checkpoint, Intents::new(1 << 20, 1 << 20))
    }

    #[test]
    fn who_waits_is_woken_in_the_order_of_frames() {
        let mut commit = commit();
        commit.wait_durable(3, Waiter::Task(1));
        commit.wait_durable(1, Waiter::Task(2));
        commit.wait_durable(3, Waiter::Task(3));
        assert_eq!(commit.next_durable(false), None, "nothing is durable");
        let mut woken = Vec::new();
        woken.extend(std::iter::from_fn(|| commit.next_durable(true)));
        assert_eq!(woken, [Waiter::Task(2), Waiter::Task(1), Waiter::Task(3)]);
    }

    #[test]
    fn what_is_durable_already_wakes_at_once() {
        let mut commit = commit();
        commit.wait_durable(0, Waiter::Lift);
        assert!(commit.has_durable_waiter());
        assert_eq!(commit.next_durable(false), Some(Waiter::Lift));
        assert!(!commit.has_durable_waiter());
    }

    #[test]
    fn clients_leave_journal_room_to_housekeeping() {
        let mut commit = commit();
        let has = |c: &Commit| (c.has_room(RoomFor::Client), c.has_room(RoomFor::Housekeeping));
        assert_eq!(has(&commit), (true, true));
        let mut seen = Vec::new();
        for slot in 0..LEN as u32 {
            commit.append(0, Record::Drop { block: 0, slot }, false, true);
            commit.close_if_due(0, &mut Stats::default(), &mut Vec::new());
            commit.journal.close(&mut commit.closed);
            seen.push(has(&commit));
            if !commit.has_room(RoomFor::Housekeeping) {
                break;
            }
        }
        seen.dedup();
        assert_eq!(seen, [(true, true), (false, true), (false, false)]);
    }

    #[test]
    fn a_change_at_the_core_waits_for_a_flush_of_it() {
        let mut commit = commit();
        assert!(!commit.core_lacks_flush());
        commit.core_acked += 1;
        assert!(commit.core_lacks_flush());
        commit.core_flushed = commit.core_acked;
        assert!(!commit.core_lacks_flush());
    }
}
