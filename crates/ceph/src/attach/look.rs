//! The phases that look: who has the image, whether it is fit, and what was left of an earlier attach. A client that disturbs
//! nobody goes through them first, and the own one before it takes anything.

use super::checks;
use super::machine::{Machine, Phase, Progress, Undo};
use super::step::{Client, ImageView, Step};
use crate::error::refuse;
use crate::lock_record::LockRecord;
use crate::status;

impl Machine {
    pub(super) fn look_connected(&mut self) -> Progress {
        self.undo.push(Undo::CloseLooking);
        Ok(self.ask(Phase::Features, Step::ReadFeatures(Client::Looking)))
    }

    pub(super) fn features_read(&mut self, bits: u64, old: bool) -> Progress {
        let spec = &self.wanted.spec;
        let unusable = status::unusable(&spec.to_string(), bits, old);
        if !unusable.is_empty() {
            return refuse(format!("image {spec} cannot be a core: {}", unusable.join("; ")));
        }
        Ok(self.ask(Phase::View, Step::ReadView(self.by)))
    }

    pub(super) fn viewed(&mut self, view: ImageView) -> Progress {
        let spec = &self.wanted.spec;
        if self.view.as_ref().is_some_and(|first| first.identity != view.identity) {
            return refuse(format!("image {spec} was replaced by another meanwhile: try again"));
        }
        // Before anything is changed: neither the image's lock nor what the cache knows of its own image may be lost to a slip.
        checks::check_core(&self.wanted, &view.identity)?;
        self.view = Some(view);
        Ok(self.ask(Phase::Marker, Step::ReadMarker(self.by)))
    }

    pub(super) fn marker_read(&mut self, marker: Option<&str>) -> Progress {
        let identity = self.view().identity.clone();
        if let Some(value) = marker {
            checks::check_marker(&self.wanted, &identity, value, &mut self.warnings)?;
        }
        let Some(cache) = &self.wanted.cache else { return self.record_checked(false) };
        if cache.record.is_some() {
            return Ok(self.ask(Phase::Record, Step::ReadHeader(self.by)));
        }
        let changed = checks::check_unrecorded(&self.wanted.spec, cache)?;
        self.record_checked(changed)
    }

    pub(super) fn record_header_read(&mut self, seq: u64, version: u64) -> Progress {
        self.header = (seq, version);
        let record = self.recorded();
        if !self.wanted.is_dirty() {
            let changed = record.suspect || record.left_at != Some(version);
            return self.record_checked(changed);
        }
        if let Some(loss) = record.lost.clone() {
            let changed = checks::check_loss(&self.wanted, &loss, &mut self.warnings)?;
            return self.record_checked(changed);
        }
        let (free, stamp) = (record.free_at == Some(version), record.broken);
        match (self.view().holder.is_none(), stamp) {
            (true, Some(stamp)) if !free => Ok(self.ask(Phase::RecordStamp, Step::ReadStamp(self.by, stamp))),
            (held_by_nobody, _) => self.record_judged(held_by_nobody && free),
        }
    }

    /// Dirty data of a cache with a record; `left_free`: an earlier start broke the lock, and died before it had one.
    pub(super) fn record_judged(&mut self, left_free: bool) -> Progress {
        let (seq, version) = self.header;
        let record = self.recorded();
        if left_free || self.view().holder.as_ref().is_some_and(|h| record.knows(h)) {
            let rests_at = record.rests_at.filter(|_| !left_free);
            let record = LockRecord { rests_at, ..record.clone() };
            let changed = match record.contradicts(seq, version) {
                None => record.suspect,
                Some(why) => checks::check_contradiction(&self.wanted, &why, &mut self.warnings)?,
            };
            return self.record_checked(changed);
        }
        if seq > record.seq {
            return Ok(self.ask(Phase::Snapshots, Step::ReadSnapshots(self.by)));
        }
        self.was_anothers("")
    }

    pub(super) fn snapshots_read(&mut self, all: &[(u64, String)]) -> Progress {
        let cache = self.wanted.cache.as_ref().expect("its record is older than them");
        let snapshots = checks::taken_meanwhile(all, self.recorded().seq, cache);
        self.was_anothers(&snapshots)
    }

    fn was_anothers(&mut self, snapshots: &str) -> Progress {
        let (record, holder) = (self.recorded().clone(), self.view().holder.clone());
        let (wanted, warnings) = (&self.wanted, &mut self.warnings);
        let changed = checks::check_foreign(wanted, &record, holder.as_ref(), snapshots, warnings)?;
        self.record_checked(changed)
    }

    fn recorded(&self) -> &LockRecord {
        self.wanted.record().expect("the phases of a record come only with one")
    }

    fn record_checked(&mut self, changed: bool) -> Progress {
        self.changed = changed;
        let view = self.view.as_ref().expect("it was read before");
        checks::check_users(&self.wanted, view, self.me, &mut self.warnings)?;
        match self.by {
            Client::Looking => Ok(self.ask(Phase::LookOptions, Step::ReadOptions(Client::Looking))),
            Client::Own => Ok(self.watch_header()),
        }
    }

    pub(super) fn look_options_read(&mut self, overridden: &[String]) -> Progress {
        checks::check_options(&self.wanted.spec, overridden)?;
        Ok(self.ask(Phase::LookWrite, Step::TryWrite))
    }

    pub(super) fn wrote(&mut self) -> Progress {
        if self.wanted.record().is_none() {
            return self.close_looking();
        }
        // The version first: who changes the header between the two takes the stamp away.
        Ok(self.ask(Phase::LookHeader, Step::ReadHeader(Client::Looking)))
    }

    pub(super) fn look_header_read(&mut self, version: u64) -> Progress {
        self.header.1 = version;
        let record = self.recorded();
        match record.broken {
            Some(stamp) if record.free_at != Some(version) => {
                Ok(self.ask(Phase::LookStamp, Step::ReadStamp(Client::Looking, stamp)))
            }
            _ => self.close_looking(),
        }
    }

    pub(super) fn look_stamp_read(&mut self, last: bool) -> Progress {
        let version = self.header.1;
        match self.wanted.cache.as_mut().and_then(|c| c.record.as_mut()).filter(|_| last) {
            Some(record) => {
                // Watching the header, which comes next, takes the stamp away too.
                record.free_at = Some(version);
                let record = Box::new(record.clone());
                Ok(self.ask(Phase::LookNote, Step::Note(record)))
            }
            None => self.close_looking(),
        }
    }

    pub(super) fn close_looking(&mut self) -> Progress {
        self.keeps(Undo::CloseLooking);
        Ok(self.ask(Phase::LookClose, Step::CloseLooking))
    }
}
