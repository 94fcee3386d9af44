//! Turns to ask a volume's threads something: one that does not answer uses few of the threads that all volumes share.

use loligo_volume::volume_state::VolumeState;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// Requests of the API that ask a volume's threads at a time.
const ASKERS: usize = 4;

/// A volume, and the turns to ask it.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) volume: Arc<VolumeState>,
    pub(crate) turns: Arc<Semaphore>,
}

/// A volume, and its turns.
type Known = (Weak<VolumeState>, Arc<Semaphore>);

/// The turns of every volume that is served, whichever socket it is asked by.
#[derive(Debug, Clone, Default)]
pub(crate) struct Askers(Arc<Mutex<Vec<Known>>>);

impl Askers {
    /// `volume` with its turns.
    pub(crate) fn of(&self, volume: Arc<VolumeState>) -> Asked {
        let mut known = self.0.lock();
        known.retain(|(of, _)| of.strong_count() > 0);
        let found = known.iter().find(|(of, _)| of.as_ptr() == Arc::as_ptr(&volume));
        let turns = found.map(|(_, turns)| turns.clone()).unwrap_or_else(|| {
            let turns = Arc::new(Semaphore::new(ASKERS));
            known.push((Arc::downgrade(&volume), turns.clone()));
            turns
        });
        Asked { volume, turns }
    }
}
