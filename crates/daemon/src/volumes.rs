//! The set of the daemon's volumes: one change of it at a time, and nobody leaves it before its thread has ended or is left
//! behind.

use crate::supervisor::Supervisor;
use anyhow::{Result, bail, ensure};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) supervisor: Arc<Supervisor>,
    /// It is in the file, and not made by command.
    pub(super) from_file: bool,
    /// It is stopped for good, and gone once its thread has ended or is left behind.
    pub(super) leaving: bool,
}

#[derive(Debug, Default)]
struct Set {
    known: BTreeMap<String, Member>,
    /// The daemon ends.
    closed: bool,
}

/// There is no such volume.
#[derive(Debug, thiserror::Error)]
#[error("there is no volume '{0}': 'loligo volume list' shows those that there are")]
pub(crate) struct NoVolume(String);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// Held from the first look at what a change depends on to the last of its consequences.
    turn: Mutex<()>,
    /// Held for a look.
    set: Mutex<Set>,
}

/// The right to change the set.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    volumes: &'a Volumes,
    _alone: MutexGuard<'a, ()>,
}

impl Volumes {
    /// Waits until nobody else changes anything.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { _alone: self.turn.lock(), volumes: self }
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        let mut set = self.set.lock();
        set.known.retain(|_, known| !known.leaving || known.supervisor.is_waited_for());
        set
    }

    /// All that are there, those that leave among them.
    pub(super) fn all(&self) -> Vec<Member> {
        self.set().known.values().cloned().collect()
    }

    /// The volume `name`.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn find(&self, name: &str) -> Result<Member> {
        match self.set().known.get(name) {
            Some(known) => Ok(known.clone()),
            None => Err(NoVolume(name.to_owned()).into()),
        }
    }

    /// Has all of them stop for good. Nobody comes after that.
    pub(super) fn close(&self) {
        let mut set = self.set();
        set.closed = true;
        set.known.values().for_each(|known| known.supervisor.quit());
    }
}

impl Turn<'_> {
    /// Adds the volume that `make` makes.
    ///
    /// # Errors
    /// If one of that name is there, the daemon ends, or it cannot be made.
    pub(super) fn add(
        &self,
        name: &str,
        from_file: bool,
        make: impl FnOnce() -> Result<Arc<Supervisor>>,
    ) -> Result<Arc<Supervisor>> {
        let mut set = self.volumes.set();
        ensure!(!set.closed, "the daemon is being stopped");
        match set.known.get(name) {
            Some(known) if known.leaving => bail!(
                "volume '{name}' is still being stopped, and leaves then ('loligo volume show {name}' says how far that is): try again \
                 after that"
            ),
            Some(_) => {
                bail!("there is a volume '{name}' already: choose another name, or delete that one first")
            }
            None => {}
        }
        let supervisor = make()?;
        set.known
            .insert(name.to_owned(), Member { supervisor: supervisor.clone(), from_file, leaving: false });
        Ok(supervisor)
    }

    /// Has a volume stop for good; it stays until its thread has ended or is left behind.
    pub(super) fn leave(&self, name: &str) {
        if let Some(known) = self.volumes.set().known.get_mut(name) {
            known.leaving = true;
            known.supervisor.quit();
        }
    }

    /// Takes back that a volume leaves, which is one of the file from then on, and stopped; false where it is too late for that.
    pub(super) fn stay(&self, name: &str) -> bool {
        let mut set = self.volumes.set();
        let closed = set.closed;
        let Some(known) = set.known.get_mut(name).filter(|known| !closed && known.supervisor.stay()) else {
            return false;
        };
        (known.leaving, known.from_file) = (false, true);
        true
    }
}
