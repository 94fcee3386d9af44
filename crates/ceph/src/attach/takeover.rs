//! The phases from the watch of the header to the lock: whoever had the image is cut off, and nobody comes between unseen.

use super::machine::{Machine, Next, Phase, Progress, Undo};
use super::step::{Client, Step};
use crate::CephError;
use crate::error::refuse;
use crate::image::LockHolder;
use crate::lock_record::LockRecord;

impl Machine {
    pub(super) fn watch_header(&mut self) -> Next {
        let mirrors = self.view().mirrors();
        self.ask(Phase::Watch, Step::WatchHeader(mirrors))
    }

    pub(super) fn watched(&mut self) -> Progress {
        self.undo.push(Undo::EndWatch);
        let me = self.me;
        self.blocklist = self.view().to_blocklist(me).into();
        let watches = self.view().watchers.iter().any(|w| w.client == me);
        self.tried = self.wanted.record().filter(|_| watches).cloned().map(|record| {
            // A stranger's lock that is taken by an order is no record of this cache: until it is broken, the order may not reach
            // the next start, and the stranger may write.
            let owner = self.view().owner().filter(|h| record.knows(h));
            let holder = owner.unwrap_or(&record.holder).clone();
            let (tried, broken) = (Some(format!("client.{me}")), Some(self.stamp()));
            LockRecord { holder, tried, broken, rests_at: None, suspect: self.changed, ..record }
        });
        match self.tried.clone() {
            // Ended between here and the lock, this client must be known for one of this cache's at the next start.
            Some(tried) => Ok(self.ask(Phase::Note, Step::Note(Box::new(tried)))),
            None => self.noted(),
        }
    }

    /// The stamp that the lock is broken with: one that was noted before counts on.
    fn stamp(&self) -> i64 {
        self.wanted.record().and_then(|r| r.broken).unwrap_or(self.wanted.stamp)
    }

    pub(super) fn noted(&mut self) -> Progress {
        self.blocklist_next()
    }

    pub(super) fn blocklist_next(&mut self) -> Progress {
        if let Some(address) = self.blocklist.pop_front() {
            return Ok(self.ask(Phase::Blocklist, Step::Blocklist(address)));
        }
        match self.view().owner().cloned() {
            Some(holder) => {
                let stamp = self.stamp();
                self.undo.push(Undo::KeepStamp);
                Ok(self.ask(Phase::Break, Step::BreakLock(holder, stamp)))
            }
            None => self.free(),
        }
    }

    pub(super) fn broken(&mut self, version: u64) -> Progress {
        self.free_at = version;
        match &mut self.tried {
            Some(tried) => {
                tried.free_at = Some(version);
                let tried = Box::new(tried.clone());
                Ok(self.ask(Phase::NoteFree, Step::Note(tried)))
            }
            None => self.free(),
        }
    }

    pub(super) fn was_let_go(&mut self) -> Progress {
        self.free()
    }

    /// Nobody has the lock.
    pub(super) fn free(&mut self) -> Progress {
        self.keeps(Undo::KeepStamp);
        Ok(self.ask(Phase::Moved, Step::ReadHeader(Client::Own)))
    }

    pub(super) fn moved_read(&mut self, version: u64) -> Progress {
        if version != self.free_at {
            self.somebody_came()?;
            return Ok(self.take_lock());
        }
        Ok(self.ask(Phase::Visitors, Step::ReadWatchers))
    }

    pub(super) fn visitors_read(&mut self, now: &[i64]) -> Progress {
        if self.view().is_joined_by(now, self.me) {
            self.somebody_came()?;
        }
        Ok(self.take_lock())
    }

    fn take_lock(&mut self) -> Next {
        self.undo.push(Undo::KeepLock);
        self.ask(Phase::Lock, Step::TakeLock)
    }

    pub(super) fn locked(&mut self, asked: u64) -> Progress {
        self.asked = asked;
        // An open image knows of its lock what it was when it was opened.
        Ok(self.ask(Phase::Holder, Step::ReadHolder))
    }

    pub(super) fn holder_read(&mut self, holder: Option<LockHolder>) -> Progress {
        // Somebody may have stolen it right away: theirs must not be kept for ours.
        let me = format!("client.{}", self.me);
        self.holder = holder.filter(|h| h.client == me);
        if self.holder.is_none() {
            let spec = &self.wanted.spec;
            return refuse(format!("the lock of image {spec} was taken away at once: who else uses it?"));
        }
        Ok(self.ask(Phase::Heard, Step::ReadHeard))
    }

    pub(super) fn heard_read(&mut self, came: bool) -> Progress {
        // One who came after the last look may have had the lock, and be gone again or have handed it over when asked.
        if came {
            return Ok(self.came_beside_lock());
        }
        Ok(self.ask(Phase::LateVisitors, Step::ReadWatchers))
    }

    pub(super) fn late_visitors_read(&mut self, now: &[i64]) -> Progress {
        if self.view().is_joined_by(now, self.me) {
            return Ok(self.came_beside_lock());
        }
        Ok(self.end_watch())
    }

    fn came_beside_lock(&mut self) -> Next {
        match self.somebody_came() {
            Ok(()) => self.end_watch(),
            Err(e) => self.fail_lost(e),
        }
    }

    fn end_watch(&mut self) -> Next {
        self.keeps(Undo::EndWatch);
        self.ask(Phase::EndWatch, Step::EndWatch)
    }

    fn somebody_came(&mut self) -> Result<(), CephError> {
        if self.wanted.is_dirty() {
            let spec = &self.wanted.spec;
            return refuse(format!(
                "somebody came to image {spec} while this cache was about to take it: see who uses it ('rbd status {}'), end that client, and \
                 start again, which says what is to be decided if the image was written to",
                spec.image
            ));
        }
        self.changed = true;
        Ok(())
    }
}
