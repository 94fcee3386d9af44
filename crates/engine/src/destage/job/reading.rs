//! The slots of a window are read: a few at a time beside clients, each held against its checksum.

use crate::api::{Dev, Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::io_tag::{Done, IoTag};
use loligo_block::{Buf, Op, OpKind, crc32c};
use loligo_format::units::BLOCK;

/// Slot reads in flight for destaging: more would only stand in the way of the clients' own.
pub(super) const READS: u32 = 32;
/// The least of them, while clients are served.
const READS_BESIDE: u32 = 4;
/// Clients are served from one request until so long after its end.
const CLIENTS_GONE: Nanos = 5_000_000;

impl Engine {
    /// Slots read at a time: few beside clients while there is room for what they write, because the cache's device serves
    /// both, and all of them from half way to the dirty limit on, or where somebody waits for what is destaged.
    pub(super) fn slot_reads_allowed(&self, now: Nanos) -> u32 {
        let d = &self.destage;
        let waited =
            !d.flushes.is_empty() || !d.first.is_empty() || d.tasked > 0 || !self.intake.waiting.is_empty();
        let waited = waited || self.state.is_draining();
        if waited || now.saturating_sub(d.last_client) >= CLIENTS_GONE {
            return READS;
        }
        let x = self.fullness();
        READS_BESIDE + ((2.0 * x).min(1.0) * f64::from(READS - READS_BESIDE)) as u32
    }

    /// Reads slots, oldest job first.
    pub(super) fn issue_slot_reads(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        let allowed = self.slot_reads_allowed(now);
        while self.destage.slot_reads < allowed {
            let Some(key) = self.destage.reading.front().copied() else { return };
            let job = &mut self.destage.jobs[key];
            let p = &job.pieces[job.asked];
            let op = Op {
                tag: IoTag::Destage(key, job.asked as u32).tag(),
                offset: self.cfg.layout.slot(p.meta.slot),
                kind: OpKind::Read(Buf::alloc(BLOCK as usize)),
            };
            job.asked += 1;
            if job.asked == job.pieces.len() {
                self.destage.reading.pop_front();
            }
            self.destage.slot_reads += 1;
            self.stats.cache_read_bytes += BLOCK;
            fx.push(Effect::Io(Dev::Cache, op));
        }
    }

    /// A slot of a job has been read.
    pub(super) fn slot_read(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, sub, buf, result } = done;
        let ok = result.is_ok();
        self.destage.slot_reads -= 1;
        // Many at a time, so that the device is called less often.
        if self.destage.slot_reads <= self.slot_reads_allowed(now) / 2 {
            self.issue_slot_reads(now, fx);
        }
        let unchecked = planted(self.cfg.bug, Bug::CrcCheckDropped);
        let mut damaged = None;
        let job = &mut self.destage.jobs[key];
        let p = &mut job.pieces[sub as usize];
        let good = ok && buf.as_ref().is_some_and(|b| unchecked || crc32c(b) == p.meta.crc);
        if !good {
            p.bad = true;
            self.stats.crc_errors += u64::from(ok);
            // Of a version that is not the newest any more it says nothing about the block.
            if !p.filler && !p.superseded {
                self.destage.bad.insert(p.block);
            }
            damaged = (p.pinned && self.state.has_freeze()).then_some(p.block);
        }
        p.buf = buf;
        job.reads -= 1;
        let ticket = p.ticket;
        let last = job.reads == 0;
        self.space.tickets.end(ticket);
        if let Some(block) = damaged {
            // The core cannot be brought to the moment.
            self.end_freeze(now, self.damaged(block), fx);
        }
        if last {
            self.ready_if_all_there(now, key, fx);
        }
    }
}
