//! The records of a frame take effect once the completed prefix reaches it.

use super::Engine;
use crate::api::{Effect, Nanos};
use crate::bug::{Bug, planted};
use crate::index::Meta;
use crate::journal::Action;
use loligo_format::record::Record;
use loligo_format::units::WINDOW_BLOCKS;

impl Engine {
    /// Frame `seq` takes effect: its records in their order, and those hear of it who wait for them.
    pub(super) fn take_effect(&mut self, now: Nanos, seq: u64, actions: &[Action], fx: &mut Vec<Effect>) {
        for action in actions {
            match *action {
                Action::Apply(record, fresh) => self.apply(now, seq, record, fresh),
                Action::Notify(key) => self.published(now, key, seq, fx),
                Action::NotifyJob(key) => self.job_over(now, key, fx),
            }
        }
    }

    /// One record takes effect.
    fn apply(&mut self, now: Nanos, seq: u64, record: Record, fresh: bool) {
        match record {
            Record::Put { block, slot, crc, valid, dirty } => {
                // One that came fresh and clean would be counted as on its way for ever.
                debug_assert!(dirty != 0 || !fresh, "block {block} comes fresh and clean");
                if dirty != 0 {
                    self.space.landed(fresh);
                }
                self.apply_put(seq, block, Meta { slot, crc, valid, dirty });
            }
            Record::Clean { block, slot } => self.apply_clean(block, slot),
            Record::Drop { block, slot } => {
                self.space.dropping -= u32::from(fresh);
                self.apply_drop(seq, block, slot);
            }
            Record::IntentOpen { .. } => {}
            Record::IntentClose { region } => self.commit.intent_closed(now, region),
        }
    }

    /// `meta` is the newest version of `block` from now on, or a version that was newest already is dirty.
    fn apply_put(&mut self, seq: u64, block: u64, meta: Meta) {
        let Meta { slot, dirty, .. } = meta;
        let local = self.cfg.stripe.local(block);
        if self.map.index.block_in(slot) == Some(local) {
            return self.doubt_noted(seq, local, meta);
        }
        let filled = self.map.takes_effect(local, slot, dirty != 0);
        let salvaged = filled && dirty != 0;
        self.destage.superseded(local);
        if dirty != 0 {
            self.map.recent.note(local, seq);
        }
        let pinned = if salvaged { None } else { self.pinned_or_held(local, dirty) };
        if dirty != 0 && !salvaged {
            self.watch_moment(local, pinned);
        }
        let before = self.map.index.get(local).filter(|_| salvaged);
        let old = self.map.index.put(local, meta);
        if salvaged {
            self.salvaged(local, slot, before);
        } else if let Some(freeze) = self.state.freeze_mut().filter(|_| dirty != 0) {
            freeze.note_fresh(slot);
        }
        match old {
            Some(old) => {
                self.commit.checkpoint.touch(old);
                if self.space.policy.state(old) != 0 {
                    self.space.policy.moved(old, slot);
                    self.space.policy.hit(slot, block);
                } else {
                    self.space.policy.insert(slot, block);
                }
                if let (Some(meta), Some(freeze)) = (pinned, self.state.freeze_mut()) {
                    freeze.keep(local, meta, seq);
                    self.stats.pinned_blocks += 1;
                }
                if pinned.is_none() || planted(self.cfg.bug, Bug::PinnedSlotReused) {
                    self.space.leave(old, seq);
                }
            }
            None => {
                if dirty != 0 {
                    self.space.policy.missed(block);
                }
                self.space.policy.insert(slot, block);
            }
        }
        self.commit.checkpoint.touch(slot);
    }

    /// The core has the version of `block` in `slot`.
    fn apply_clean(&mut self, block: u64, slot: u32) {
        let local = self.cfg.stripe.local(block);
        let pinned = self.pinned_newest(local).is_some();
        if self.map.index.clean(local, slot) {
            self.space.policy.cleaned(slot);
            self.destage.stuck.changed(local);
            self.commit.checkpoint.touch(slot);
            if let Some(freeze) = self.state.freeze_mut().filter(|_| pinned) {
                freeze.one_less();
            }
        } else if self.state.freeze().and_then(|f| f.kept_of(local)).is_some_and(|m| m.slot == slot) {
            self.release_pin(local);
        }
    }

    /// The version of `block` in `slot` ends.
    fn apply_drop(&mut self, seq: u64, block: u64, slot: u32) {
        let local = self.cfg.stripe.local(block);
        let pinned = self.pinned_newest(local).is_some();
        if self.map.index.drop_version(local, slot) {
            self.map.hidden.remove(&local);
            self.destage.superseded(local);
            if let Some(freeze) = self.state.freeze_mut().filter(|_| pinned) {
                // Zeros that were on their way to the core at the moment are there: they are the moment's content.
                freeze.one_less();
                self.destage.unpin(local);
            }
            self.space.policy.remove(slot);
            self.commit.checkpoint.touch(slot);
            self.space.leave(slot, seq);
        }
    }

    /// The newest version of `block`, if a freeze has it pinned, or has to from now on: a dirty one takes its place, and the core
    /// may have nothing good of it, or is being written there.
    fn pinned_or_held(&mut self, block: u32, dirty: u8) -> Option<Meta> {
        let pinned = self.pinned_newest(block);
        let doubted = self.destage.doubted(block);
        let freeze = self.state.freeze_mut().filter(|f| dirty != 0 && !f.is_answered())?;
        if let Some(meta) = pinned {
            return Some(Meta { dirty: meta.dirty | meta.valid & doubted, ..meta });
        }
        let meta = self.map.index.get(block).filter(|m| m.dirty == 0 && self.destage.holds(block))?;
        freeze.one_more(block / WINDOW_BLOCKS as u32, meta.slot);
        Some(Meta { dirty: meta.valid, ..meta })
    }

    /// A change takes the place of what only memory had of `block`: no freeze brings that to the core any more, but for what is kept
    /// in the version that is `pinned`.
    fn watch_moment(&mut self, block: u32, pinned: Option<Meta>) {
        let doubted = self.destage.doubted(block);
        if let Some(freeze) = self.state.freeze_mut().filter(|f| !f.is_answered()) {
            let kept = pinned.or_else(|| freeze.kept_of(block)).map_or(0, |m| m.valid);
            freeze.lost |= doubted & !kept != 0;
        }
    }

    /// The newest version of `block`, if a freeze has it pinned.
    fn pinned_newest(&self, block: u32) -> Option<Meta> {
        let freeze = self.state.freeze()?;
        self.map.index.get(block).filter(|m| freeze.is_pinned(m))
    }
}
