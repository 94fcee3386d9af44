//! The write-back route: admission, merge, then data and records together.

use crate::api::{Dev, Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::commit::RoomFor;
use crate::destage::Fill;
use crate::engine::Engine;
use crate::index::Meta;
use crate::io_tag::{Done, IoTag};
use crate::stats::Bypass;
use crate::write_task::{BackStep, Content, CoreStep, Merge, Merging, Route};
use loligo_block::{Buf, Op, OpKind, ReqError, Shared, crc32c};
use loligo_format::record::Record;
use loligo_format::units::{ALL, BLOCK};
use smallvec::SmallVec;

/// Most slots that one write of data takes.
const RUN: usize = 256;

/// The part of a change that may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    /// Its next blocks, so many of them.
    Blocks(u32),
    /// Slots, journal room or credit will come by themselves.
    Later,
    /// Only destaging can make the room it needs.
    Full,
}

impl Engine {
    /// Starts changes in the order they came, while there are slots, journal room and credit.
    pub(crate) fn admit_waiting(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        // A change that fails here wakes those that wait for its blocks, which come back here: they are met by the loop.
        if std::mem::replace(&mut self.intake.admitting, true) {
            return;
        }
        self.intake.starved = false;
        while let Some(key) = self.intake.waiting.front().copied() {
            if self.state.is_fenced() {
                self.intake.waiting.pop_front();
                self.give_up(now, key, fx);
                continue;
            }
            match self.admissible(now, key) {
                Admission::Blocks(blocks) => {
                    self.intake.waiting.pop_front();
                    self.begin_back(now, key, blocks, fx);
                }
                Admission::Full if self.gives_up(now) => {
                    self.intake.waiting.pop_front();
                    self.pass_by(now, key, fx);
                }
                Admission::Full => {
                    self.intake.starved = true;
                    break;
                }
                Admission::Later => break,
            }
        }
        self.intake.admitting = false;
    }

    /// True if nobody waits any more for room that only the core could make: it takes nothing that is dirty. One that is frozen
    /// takes nothing for now.
    pub fn gives_up(&self, now: Nanos) -> bool {
        (self.destage.is_jammed() && !self.state.has_freeze()) || self.destage.health.has_failed_long(now)
    }

    /// Has the core take a change for which nothing makes room, or say why not. A change fails that has dirty blocks beneath it,
    /// has come into the cache in part, was refused by the core just now, or meets a frozen core.
    fn pass_by(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let m = self.intake.write(key);
        let (first, last, asked) = (m.head.first, m.head.last, m.is_halfway() || m.head.in_doubt);
        if asked
            || self.is_frozen()
            || self.map.any_dirty(first, last)
            || self.destage.any_doubted(first, last)
        {
            return self.finish(now, key, Err(ReqError::Io), fx);
        }
        self.stats.bypassed(Bypass::NoSlot, 1);
        if planted(self.cfg.bug, Bug::PassedByUnwritten) {
            return self.finish(now, key, Ok(()), fx);
        }
        self.intake.write(key).route = Route::Invalidate(CoreStep::Intent);
        self.through(now, key, fx);
    }

    /// The part of the change that may start now; takes its credit from the pacer. One that is larger than the room there is
    /// takes that, and the rest of it goes on as room comes: what would have to come at once may never come.
    fn admissible(&mut self, now: Nanos, key: usize) -> Admission {
        let m = self.intake.write(key);
        let (next, last) = (m.back().next, m.head.last);
        if !self.commit.has_room(RoomFor::Client) {
            return Admission::Later;
        }
        let adds = |m: Meta| m.dirty == 0 || self.state.freeze().is_some_and(|f| f.is_pinned(&m));
        let (dirty, wall) = (self.dirty_and_kept(), self.space.slot_limit());
        let (mut blocks, mut fresh, mut full, mut short) = (0, 0u64, false, false);
        for block in next..=last {
            let grown = fresh + u64::from(self.map.index.get(block).is_none_or(adds));
            // Overwrites may use the reserve: they give a slot back for each they take, but for what is pinned.
            let spare = if grown == 0 { 0 } else { self.space.reserve() };
            full = grown > 0 && dirty + grown > wall;
            short = self.space.slots.free_count() < blocks + 1 + spare;
            if full || short {
                break;
            }
            (blocks, fresh) = (blocks + 1, grown);
        }
        if short && !full && !self.space.no_victims {
            // Evictions bring as many as it takes.
            return Admission::Later;
        }
        if blocks == 0 {
            // Slots on their way come by themselves: the wall alone lasts as long as the core is away.
            self.intake.starved = true;
            return if full { Admission::Full } else { Admission::Later };
        }
        if fresh == 0 {
            self.intake.inflow.admitted(now, u64::from(blocks));
            return Admission::Blocks(blocks);
        }
        let (limit, low) = (self.dirty_limit(), self.cfg.params.destage_low);
        let fill = Fill { dirty, limit, wall, low, least: self.frozen_cost(dirty) };
        let credit = self.destage.credit(now, fresh, fill);
        if !credit {
            let held_before = std::mem::replace(&mut self.intake.write(key).head.paced, true);
            self.stats.paced += u64::from(!held_before);
            return Admission::Later;
        }
        self.intake.inflow.admitted(now, u64::from(blocks));
        Admission::Blocks(blocks)
    }

    /// Takes slots for the next `blocks`, and has old content read that is kept beside the new.
    fn begin_back(&mut self, now: Nanos, key: usize, blocks: u32, fx: &mut Vec<Effect>) {
        let next = self.intake.write(key).back().next;
        let mut slots = SmallVec::new();
        let mut merges = SmallVec::<[Merge; 2]>::new();
        for block in next..next + blocks {
            slots.push(self.space.slots.take().expect("admission counted the free slots"));
            let mask = self.intake.write(key).head.mask(block);
            if mask == ALL {
                continue;
            }
            if let Some(meta) = self.map.index.get(block).filter(|old| !Engine::covers(mask, *old)) {
                let ticket = self.space.tickets.begin();
                let sub = merges.len() as u32;
                merges.push(Merge { block, meta, ticket, buf: None });
                self.stats.cache_read_bytes += BLOCK;
                fx.push(Effect::Io(
                    Dev::Cache,
                    Op {
                        tag: IoTag::Task(key, sub).tag(),
                        offset: self.cfg.layout.slot(meta.slot),
                        kind: OpKind::Read(Buf::alloc(BLOCK as usize)),
                    },
                ));
            }
        }
        if merges.is_empty() {
            return self.emit_back(now, key, &slots, &merges, fx);
        }
        let pending = merges.len() as u32;
        self.intake.write(key).back().step =
            BackStep::Merging(Merging { slots, merges, pending, lost: false });
    }

    /// The old content of a partly written block has come.
    pub(crate) fn merge_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, sub, buf, result } = done;
        let dropped = planted(self.cfg.bug, Bug::CrcCheckDropped);
        let back = self.intake.write(key).back();
        let BackStep::Merging(merging) = &mut back.step else {
            unreachable!("{back:?} reads no old content")
        };
        let merge = &mut merging.merges[sub as usize];
        let good = result.is_ok() && buf.as_ref().is_some_and(|b| dropped || crc32c(b) == merge.meta.crc);
        self.space.tickets.end(merge.ticket);
        merge.buf = buf.filter(|_| good);
        merging.lost |= !good && merge.meta.dirty != 0;
        merging.pending -= 1;
        self.stats.crc_errors += u64::from(!good && result.is_ok());
        if merging.pending > 0 {
            return;
        }
        let BackStep::Merging(merging) = std::mem::replace(&mut back.step, BackStep::Recording) else {
            unreachable!("looked at above")
        };
        let error = if self.state.is_fenced() {
            Some(ReqError::Shutdown)
        } else {
            merging.lost.then_some(ReqError::Io)
        };
        if let Some(error) = error {
            // The old dirty sectors are lost; what is not overwritten must not look whole. A full write heals it.
            for slot in merging.slots {
                self.space.slots.free(slot);
            }
            return self.finish(now, key, Err(error), fx);
        }
        self.emit_back(now, key, &merging.slots, &merging.merges, fx);
    }

    /// Data to the slots and records to the journal, submitted together.
    fn emit_back(&mut self, now: Nanos, key: usize, slots: &[u32], merges: &[Merge], fx: &mut Vec<Effect>) {
        let back = self.intake.write(key).back();
        back.step = BackStep::Recording;
        let first = back.next;
        back.next += slots.len() as u32;
        let mut out = 0;
        for (nth, (block, slot)) in (first..).zip(slots.iter()).enumerate() {
            let old = self.map.index.get(block);
            let merged =
                merges.iter().find(|g| g.block == block).and_then(|g| Some((g.meta, g.buf.as_ref()?)));
            let (data, meta) = self.compose(key, block, *slot, merged);
            // A clean part of the old version that could not be read is simply not kept.
            let fresh = old.is_none_or(|o| o.dirty == 0);
            self.space.lands(fresh);
            if nth == out {
                // The data goes before all records that speak of it, in the frame of the first or in none of theirs.
                let (run, data) = self.run(key, block, &slots[nth..]).unwrap_or((1, data));
                self.commit.put_data(self.cfg.layout.slot(*slot), data, &mut self.stats, fx);
                out += run;
            }
            let global = self.cfg.stripe.global(block);
            let record = Record::Put {
                block: global,
                slot: *slot,
                crc: meta.crc,
                valid: meta.valid,
                dirty: meta.dirty,
            };
            self.commit.append(now, record, fresh, true);
        }
        let seq = self.commit.journal.notify(key);
        self.intake.write(key).back().seq = seq;
    }

    /// The payload from `block` on for those of `slots` that follow one another, where it replaces their blocks whole: how many
    /// slots one write takes, and what it writes. Nothing where it is one alone.
    fn run(&mut self, key: usize, block: u32, slots: &[u32]) -> Option<(usize, Shared)> {
        let head = &self.intake.write(key).head;
        let joins = |nth: &usize| {
            let follows = slots[0].checked_add(*nth as u32) == Some(slots[*nth]);
            follows && head.mask(block + *nth as u32) == ALL
        };
        let run = (0..slots.len().min(RUN)).take_while(joins).count();
        let Content::Data(payload) = head.content() else { return None };
        let (from, to) = (head.piece(block).0, head.piece(block + run.max(1) as u32 - 1).1);
        (run > 1).then(|| (run, payload.slice(from as usize..to as usize)))
    }

    /// The new version of `block`: payload over what is kept of the old one.
    fn compose(&mut self, key: usize, block: u32, slot: u32, merged: Option<(Meta, &Buf)>) -> (Shared, Meta) {
        let head = &self.intake.write(key).head;
        let mask = head.mask(block);
        let (from, to, at) = head.piece(block);
        let Content::Data(payload) = head.content() else {
            unreachable!("zeroes go to the core or are data")
        };
        let payload = payload.slice(from as usize..to as usize);
        let (valid, dirty) = merged.map_or((mask, mask), |(old, _)| (mask | old.valid, mask | old.dirty));
        let data = if mask == ALL {
            payload
        } else {
            let mut whole = merged.map_or_else(|| Buf::zeroed(BLOCK as usize), |(_, old)| Buf::copy_of(old));
            whole[at..at + payload.len()].copy_from_slice(&payload);
            whole.freeze()
        };
        let crc = crc32c(&data);
        (data, Meta { slot, crc, valid, dirty })
    }
}
