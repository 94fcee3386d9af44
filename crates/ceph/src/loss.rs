//! The loss of an image, and who waits to hear it.

use parking_lot::{Condvar, Mutex};

/// Said once: what comes first stays.
#[derive(Debug, Default)]
pub(crate) struct Loss {
    said: Mutex<Option<Said>>,
    told: Condvar,
}

/// The end of the waiting.
#[derive(Debug)]
enum Said {
    /// The image is somebody else's, for this reason.
    Found(String),
    /// The attach has ended before.
    Nobodys,
}

impl Loss {
    fn say(&self, what: Said) {
        self.said.lock().get_or_insert(what);
        self.told.notify_all();
    }

    /// The image is somebody else's.
    pub(crate) fn found(&self, why: String) {
        self.say(Said::Found(why));
    }

    /// Nobody is to be told of a loss any more.
    pub(crate) fn forget(&self) {
        self.say(Said::Nobodys);
    }

    /// Waits until the image is lost, and says why; nothing: nobody is to be told any more. A waiter here waits for
    /// nothing of Ceph's: a question to a cluster that refuses this client may have no answer.
    pub(crate) fn wait(&self) -> Option<String> {
        let mut said = self.said.lock();
        self.told.wait_while(&mut said, |s| s.is_none());
        Loss::found_in(said.as_ref())
    }

    /// The reason why the image is lost, if it was by now.
    pub(crate) fn why(&self) -> Option<String> {
        Loss::found_in(self.said.lock().as_ref())
    }

    fn found_in(said: Option<&Said>) -> Option<String> {
        match said {
            Some(Said::Found(why)) => Some(why.clone()),
            Some(Said::Nobodys) | None => None,
        }
    }
}
