//! Changes that go to the core first: write-through and its kin, sequential bypass, large writes, zeroes and discards.
//!
//! Before the core is touched an intent for the region is durable on the cache; clean blocks of a region with an open
//! intent are not trusted after a crash. Dirty mappings end only after the core's flush.

use crate::api::{Dev, Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::flushes::Waiter;
use crate::io_tag::{Done, IoTag};
use crate::refusal::CoreWriteError;
use crate::stats::Bypass;
use crate::write_task::{Content, CoreStep, Route};
use loligo_block::{Buf, Op, ReqError, Shared, crc32c};
use loligo_format::record::Record;
use loligo_format::units::{BLOCK, WINDOW_BLOCKS};

impl Engine {
    /// First an intent. The route says [`CoreStep::Intent`] already.
    pub(crate) fn through(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        let m = self.intake.write(key);
        let (offset, direct) = (m.head.offset, m.route.is_direct());
        let region = self.commit.intents.region_of(offset);
        let left_out = planted(self.cfg.bug, Bug::CoreWriteWithoutIntent);
        let open = self.commit.intents.enter(region, key) || left_out;
        let opening = if left_out {
            Vec::new()
        } else if direct {
            self.commit.intents.must_open_around(region, now)
        } else if !open && self.commit.intents.must_open(region) {
            vec![region]
        } else {
            Vec::new()
        };
        for region in opening {
            let seq = self.commit.append(now, Record::IntentOpen { region }, false, true);
            self.commit.wait_durable(seq, Waiter::Intent(region));
        }
        if open {
            self.claim(now, key, fx);
        }
    }

    /// An intent is durable: those who waited for it go on.
    pub(crate) fn intent_opened(&mut self, now: Nanos, region: u32, fx: &mut Vec<Effect>) {
        for key in self.commit.intents.opened(region) {
            self.claim(now, key, fx);
        }
    }

    /// Then the window, which a destage job may own for the moment.
    pub(crate) fn claim(&mut self, now: Nanos, key: usize, fx: &mut Vec<Effect>) {
        if self.state.is_fenced() {
            self.leave_region(now, key, 0);
            return self.give_up(now, key, fx);
        }
        let m = self.intake.write(key);
        let (first, last, replaces) = (m.head.first, m.head.last, m.route.replaces_dirty());
        // A version that the core may have nothing good of is as good as dirty, and it was not when the way was chosen.
        if self.is_frozen() || (!replaces && self.destage.any_doubted(first, last)) {
            self.leave_region(now, key, 0);
            self.intake.write(key).route = Route::Open { counted: true };
            return self.route(now, key, fx);
        }
        let window = first / WINDOW_BLOCKS as u32;
        let wanted = self.destage_is_wanted();
        if !self.destage.claim(window, key, wanted) {
            self.intake.write(key).route.go_on(CoreStep::Claim);
            return;
        }
        let m = self.intake.write(key);
        m.route.go_on(CoreStep::Writing);
        let (direct, blocks, len) = (m.route.is_direct(), m.head.blocks(), m.head.len);
        let kind = m.head.content().clone().for_core(len);
        let offset = self.cfg.data_start + m.head.offset;
        if direct {
            self.intake.inflow.admitted(now, u64::from(blocks));
            self.destage.direct_write(now, true);
        }
        self.intake.core_busy += 1;
        self.stats.core_write_bytes += len;
        fx.push(Effect::Io(Dev::Core, Op { tag: IoTag::Task(key, 0).tag(), offset, kind }));
    }

    /// The core has it, or has failed.
    pub(crate) fn core_done(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let Done { now, key, result, .. } = done;
        self.intake.core_busy -= 1;
        self.destage.client_done();
        if result.is_ok() {
            self.destage.health.worked();
        }
        let m = self.intake.write(key);
        let (first, last, route) = (m.head.first, m.head.last, &m.route);
        let (direct, replaces) = (route.is_direct(), route.replaces_dirty());
        let mut outcome = Ok(());
        match result {
            Ok(()) => self.stats.bypassed(Bypass::Large, u64::from(direct)),
            Err(e) => {
                outcome = Err(ReqError::from(&e));
                if direct {
                    // Those that come next are better off in the cache.
                    self.destage.health.failed(now, CoreWriteError::from(e));
                }
            }
        }
        if self.state.is_fenced() {
            // Whether it is there is for the other one to say: what is dirty stays so, what is clean may not be right.
            outcome = Err(ReqError::Shutdown);
        }
        if replaces && outcome.is_ok() {
            let doubted = self.destage.any_doubted(first, last);
            self.destage.doubt_no_more(first, last);
            if doubted || self.map.any_dirty(first, last) {
                self.intake.write(key).route.go_on(CoreStep::Flush);
                if self.want_core_flush(Waiter::Task(key), fx) {
                    return;
                }
            }
        }
        self.record_drops(now, key, outcome, fx);
    }

    /// The cache follows: new clean versions where the route says so, no version elsewhere.
    pub(crate) fn record_drops(
        &mut self,
        now: Nanos,
        key: usize,
        result: Result<(), ReqError>,
        fx: &mut Vec<Effect>,
    ) {
        let m = self.intake.write(key);
        let (first, last, direct) = (m.head.first, m.head.last, m.route.is_direct());
        let replaces = result.is_ok() && m.route.replaces_dirty();
        let stays = result.is_ok() && matches!(m.route, Route::Through(_));
        let keep = stays
            && self.space.slots.free_count() > m.head.blocks() + self.space.reserve()
            && self.commit.has_room(crate::commit::RoomFor::Client);
        let mut recorded = false;
        for block in first..=last {
            let global = self.cfg.stripe.global(block);
            let old = self.map.index.get(block);
            if keep {
                let slot = self.space.slots.take().expect("counted above");
                let mask = self.intake.write(key).head.mask(block);
                let data = self.clean_block(key, block);
                let crc = crc32c(&data);
                self.commit.put_data(self.cfg.layout.slot(slot), data, &mut self.stats, fx);
                self.commit.append(
                    now,
                    Record::Put { block: global, slot, crc, valid: mask, dirty: 0 },
                    false,
                    true,
                );
                recorded = true;
                continue;
            }
            let old = old.filter(|o| replaces || (o.dirty == 0 && !self.destage.any_doubted(block, block)));
            let old = old.map(|o| o.slot);
            for slot in old.into_iter().chain(self.map.filling.get(&block).copied()) {
                self.commit.append(now, Record::Drop { block: global, slot }, false, true);
                recorded = true;
            }
        }
        let seq = if recorded { self.commit.journal.notify(key) } else { 0 };
        self.intake.write(key).route.go_on(CoreStep::Recording { result, seq });
        if direct && result.is_err() {
            // Until the cache has it, what is clean here may not be what the core holds.
            self.intake.write(key).head.in_doubt = true;
        } else {
            self.leave_region(now, key, seq);
        }
        if !recorded {
            self.map.changed(first, last);
            self.space.changed(first, last);
            self.finish(now, key, result, fx);
        }
    }

    /// The change `key` needs the intent of its region no longer; what it recorded is in frames up to `seq`.
    pub(crate) fn leave_region(&mut self, now: Nanos, key: usize, seq: u64) {
        let region = self.commit.intents.region_of(self.intake.write(key).head.offset);
        self.commit.intents.leave(region, now, seq);
    }

    /// The payload within `block` as a whole block, zeros around it.
    fn clean_block(&mut self, key: usize, block: u32) -> Shared {
        let head = &self.intake.write(key).head;
        let (from, to, at) = head.piece(block);
        let Content::Data(payload) = head.content() else { unreachable!("zeroes are never put") };
        let payload = payload.slice(from as usize..to as usize);
        if payload.len() == BLOCK as usize {
            return payload;
        }
        let mut whole = Buf::zeroed(BLOCK as usize);
        whole[at..at + payload.len()].copy_from_slice(&payload);
        whole.freeze()
    }
}
