//! Waits for a cluster that can be given up. A client that owns an image waits for OSDs as long as it takes, in calls
//! of Ceph's libraries that nobody can end; who is not to wait for them leaves a thread behind, and keeps its client
//! from sending.

use crate::CephError;
use crate::attach::{AttachRequest, Attachment, attach_unless, refuse};
use crate::cluster::Cluster;
use crate::lock_record::LockRecord;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Between two looks at whether it is still waited for.
const LOOK: Duration = Duration::from_millis(50);

/// Clients of this process that were given up, by their cluster's id: they say nothing any more, and may be known to
/// OSDs for a while.
static GIVEN_UP: Mutex<BTreeSet<(String, i64)>> = Mutex::new(BTreeSet::new());

/// Whether `client` of the cluster `fsid` is one of these.
pub(crate) fn is_given_up(fsid: &str, client: i64) -> bool {
    lock(&GIVEN_UP).contains(&(fsid.to_owned(), client))
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Clients are left in this process that nobody ends.
static LEFT: AtomicBool = AtomicBool::new(false);

/// A client is left to end with the process.
pub(crate) fn leaves_client() {
    LEFT.store(true, Ordering::Relaxed);
}

/// Whether threads of clients go on until the process is gone. An orderly exit takes the data of their libraries away before.
pub fn has_left_clients() -> bool {
    LEFT.load(Ordering::Relaxed)
}

/// `cluster` is left in this process, says nothing any more, and is known for that where OSDs still know it.
pub(crate) fn give_up(cluster: &Cluster) {
    leaves_client();
    cluster.silence();
    // It is asked for without a question to the cluster.
    let fsid = cluster.fsid().unwrap_or_default();
    lock(&GIVEN_UP).insert((fsid, cluster.instance()));
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
    /// Where the attach has been given up: nothing is to be changed any more.
    pub(crate) fn own(&self, cluster: &Arc<Cluster>) -> Result<(), CephError> {
        let mut state = lock(&self.0);
        if state.is_cut {
            return refuse("the attach was given up");
        }
        state.own = Arc::downgrade(cluster);
        Ok(())
    }

    /// Sends `what` to whoever waits for it; it comes back where nobody does. Nothing is sent once the attach is given up:
    /// what was sent before that is heard, and what came later would be dropped unheard with the channel.
    fn send<T>(&self, says: &Sender<T>, what: T) -> Result<(), T> {
        let state = lock(&self.0);
        if state.is_cut { Err(what) } else { says.send(what).map_err(|unheard| unheard.0) }
    }

    /// The attach is given up. Whatever of it is carried out later would be so behind the back of whoever comes next.
    fn cut(&self) {
        let mut state = lock(&self.0);
        state.is_cut = true;
        leaves_client();
        if let Some(own) = state.own.upgrade() {
            give_up(&own);
        }
    }
}

/// What the thread of an attach says.
enum Said {
    /// This is to be written down, and how that went is waited for.
    Remember(Box<LockRecord>, Sender<Result<(), String>>),
    Attachment(Box<Result<Attachment, CephError>>),
}

impl Said {
    /// Nobody hears it any more: an image that was taken keeps its lock, as that of a client which has died.
    fn unheard(self) {
        if let Said::Attachment(taken) = self
            && let Ok(taken) = *taken
        {
            taken.image.abandon();
        }
    }
}

/// Takes an image, as long as `goes_on` says so, which is asked some times a second; nothing: it was given up.
/// Nothing more is changed by it then, and what was noted by `remember` knows its client.
///
/// # Errors
/// As [`crate::attach::attach`].
pub fn attach_while(
    request: AttachRequest<'_>,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Option<Attachment>, CephError> {
    let AttachRequest { spec, cache, steal, without_cache, destage, quiesce_attempts, lease, remember } =
        request;
    let (says, said) = channel();
    let cut = Arc::new(CancelFlag::default());
    let (spec, given_up) = (spec.clone(), cut.clone());
    let work = move || {
        let unheard = || "the attach was given up".to_owned();
        let mut ask = |record: &LockRecord| {
            let (answers, answer) = channel();
            let asked = says.send(Said::Remember(Box::new(record.clone()), answers));
            asked.map_err(|_| unheard())?;
            answer.recv().map_err(|_| unheard())?
        };
        let remember = &mut ask;
        let spec = &spec;
        let request =
            AttachRequest { spec, cache, steal, without_cache, destage, quiesce_attempts, lease, remember };
        let taken = attach_unless(request, &given_up);
        if let Err(unheard) = given_up.send(&says, Said::Attachment(Box::new(taken))) {
            unheard.unheard();
        }
    };
    let thread = std::thread::Builder::new().name("rbd-take".to_owned());
    thread.spawn(work).map_err(|e| CephError::Named(format!("no thread can be had: {e}")))?;
    loop {
        match said.recv_timeout(LOOK) {
            // Whoever asked may be waiting for nothing else.
            Ok(Said::Remember(record, answers)) => drop(answers.send(remember(&record))),
            Ok(Said::Attachment(taken)) => return taken.map(Some),
            Err(RecvTimeoutError::Timeout) if goes_on() => {}
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return refuse("the thread that took the image has ended"),
        }
    }
    cut.cut();
    said.try_iter().for_each(Said::unheard);
    Ok(None)
}

/// Work for the cluster by a thread of its own, which is left behind where nobody waits for it any more.
#[derive(Debug)]
pub struct Cancellable<T>(Receiver<T>);

impl<T: Send + 'static> Cancellable<T> {
    /// Begins `work`.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn begin(work: impl FnOnce() -> T + Send + 'static) -> Result<Cancellable<T>, CephError> {
        let (says, said) = channel();
        let thread = std::thread::Builder::new().name("rbd-wait".to_owned());
        // Nobody may be waiting any more.
        let work = move || drop(says.send(work()));
        thread.spawn(work).map_err(|e| CephError::Named(format!("no thread can be had: {e}")))?;
        Ok(Cancellable(said))
    }

    /// What it gives, if it does within `limit`.
    ///
    /// # Errors
    /// Where its thread has ended without a word.
    pub fn within(&self, limit: Duration) -> Result<Option<T>, CephError> {
        match self.0.recv_timeout(limit) {
            Ok(result) => Ok(Some(result)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => refuse("a thread that waited for the cluster has ended"),
        }
    }

    /// The same, as long as `goes_on` says so, which is asked some times a second; nothing: it was given up.
    ///
    /// # Errors
    /// As above.
    pub fn while_waited_for(self, mut goes_on: impl FnMut() -> bool) -> Result<Option<T>, CephError> {
        loop {
            match self.within(LOOK)? {
                None if goes_on() => {}
                result => return Ok(result),
            }
        }
    }
}

/// What `work` gives, as long as `goes_on` says so; nothing: it was given up, and its thread is left behind.
///
/// # Errors
/// If no thread can be had.
pub fn while_waited_for<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    goes_on: impl FnMut() -> bool,
) -> Result<Option<T>, CephError> {
    Cancellable::begin(work)?.while_waited_for(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_hangs_is_waited_for_as_long_as_somebody_wants() {
        let (ends, end) = channel::<u32>();
        let work = Cancellable::begin(move || end.recv()).unwrap();
        assert!(work.within(Duration::from_millis(10)).unwrap().is_none());
        ends.send(7).unwrap();
        assert_eq!(work.within(Duration::from_secs(60)).unwrap(), Some(Ok(7)), "it went on meanwhile");
        assert!(work.within(Duration::from_millis(10)).is_err(), "it has said everything");
        let (_ends, end) = channel::<u32>();
        assert_eq!(while_waited_for(move || end.recv(), || false).unwrap(), None);
    }

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
