//! Attaches that are given up, and clients that are left in this process.
//!
//! A client that owns an image waits for OSDs as long as it takes, in calls of Ceph's libraries that nobody can end. Giving it up
//! leaves its thread behind, and keeps its client from sending.

use crate::CephError;
use crate::cluster::Cluster;
use crate::error::refuse;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};

/// The error of an attach that was given up.
pub(crate) const GIVEN_UP_WORDS: &str = "the attach was given up";

/// Clients of this process that were given up, by their cluster's id: they say nothing any more, and may be known to
/// OSDs for a while.
static GIVEN_UP: Mutex<BTreeSet<(String, i64)>> = Mutex::new(BTreeSet::new());

/// Those of the cluster `fsid`.
pub(crate) fn given_up_in(fsid: &str) -> Vec<i64> {
    GIVEN_UP.lock().iter().filter(|(f, _)| f == fsid).map(|(_, client)| *client).collect()
}

/// Clients are left in this process that nobody ends.
static LEFT: AtomicBool = AtomicBool::new(false);

/// A client is left to end with the process.
pub(crate) fn leaves_client() {
    LEFT.store(true, Ordering::Relaxed);
}

/// True if threads of clients go on until the process is gone. An orderly exit takes the data of their libraries away before.
pub fn has_left_clients() -> bool {
    LEFT.load(Ordering::Relaxed)
}

/// `cluster` is left in this process, says nothing any more, and is known for that where OSDs still know it.
pub(crate) fn give_up(cluster: &Cluster) {
    leaves_client();
    cluster.silence();
    // It is asked for without a question to the cluster.
    let fsid = cluster.fsid().unwrap_or_default();
    GIVEN_UP.lock().insert((fsid, cluster.instance()));
}

/// The client of an attach that may be given up.
#[derive(Debug, Default)]
pub(crate) struct CancelFlag(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    own: Weak<Cluster>,
}

impl CancelFlag {
    /// `cluster` is about to change the image.
    ///
    /// # Errors
    /// If the attach has been given up: nothing is to be changed any more.
    pub(crate) fn own(&self, cluster: &Arc<Cluster>) -> Result<(), CephError> {
        let mut state = self.0.lock();
        if state.is_cut {
            return refuse(GIVEN_UP_WORDS);
        }
        state.own = Arc::downgrade(cluster);
        Ok(())
    }

    /// Sends `what` to the one who waits for it; it comes back where nobody does. Nothing is sent once the attach is given up:
    /// what was sent before that is heard, and what came later would be dropped unheard with the channel.
    pub(crate) fn send<T>(&self, says: &Sender<T>, what: T) -> Result<(), T> {
        let state = self.0.lock();
        if state.is_cut { Err(what) } else { says.send(what).map_err(|unheard| unheard.0) }
    }

    /// True if the attach has been given up.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.lock().is_cut
    }

    /// The attach is given up. Any part of it carried out later would be so behind the back of the next
    /// client.
    pub(crate) fn cut(&self) {
        let mut state = self.0.lock();
        state.is_cut = true;
        leaves_client();
        if let Some(own) = state.own.upgrade() {
            give_up(&own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_comes_after_an_attach_was_given_up_goes_back() {
        let (says, said) = channel();
        let cut = CancelFlag::default();
        assert_eq!(cut.send(&says, 1), Ok(()));
        cut.cut();
        assert_eq!(cut.send(&says, 2), Err(2), "it would go with the channel");
        assert_eq!(said.try_iter().collect::<Vec<_>>(), [1]);
        drop(said);
        assert_eq!(CancelFlag::default().send(&says, 3), Err(3));
        assert!(has_left_clients());
    }
}
