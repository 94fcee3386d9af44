//! The end of an attach: the lock goes back, or stays as that of a client which is dead to the cluster.

use super::AttachedImage;
use crate::CephError;
use crate::attach_marker::KEY;
use crate::bug::nobody_has_it;
use crate::foreign_use::left_by;
use crate::lock_record::LockRecord;
use crate::lock_stamp;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that an end waits for operations that OSDs have not answered.
const DETACH: Duration = Duration::from_secs(30);

impl AttachedImage {
    /// Ends the attach: the lock is given back. With `flushed` the image's metadata no longer says that a cache has its data.
    /// Gives the header's version of that moment: while it stays, nobody has written to the image. Nothing: that is not known.
    ///
    /// # Errors
    /// If the image cannot be told; it is closed all the same.
    pub fn detach(self: Arc<AttachedImage>, flushed: bool) -> Result<Option<u64>, CephError> {
        let result = if flushed { self.image.remove_metadata(KEY) } else { Ok(()) };
        self.unwatch();
        let result = result.map(|()| self.let_go());
        self.close();
        result
    }

    /// Ends the attach of a cache that has dirty data: everything is closed, and the lock stays with the name
    /// of a client that the cluster refuses, as a record that nobody else had the image. If the image is
    /// lost, or the cluster cannot be told, nothing of this client is sent any more, and librbd's memory goes
    /// with the process. Gives the hold with the state of the header that it leaves; nothing: that is not
    /// known.
    pub fn retire(self: Arc<AttachedImage>) -> Option<LockRecord> {
        let cluster = self.header.cluster.clone();
        if self.is_lost() || !cluster.may_send() {
            self.abandon();
            return None;
        }
        // The cluster refuses this client from here on, by its own request.
        self.loss.forget();
        if let Err(error) = cluster.fence_itself(&self.holder().address) {
            tracing::warn!(image = self.name, %error, "the image cannot be closed: its watch ends by itself");
            self.abandon();
            return None;
        }
        let rest = left_by(&self);
        self.unwatch();
        self.close();
        match rest {
            Ok(record) => record,
            Err(error) => {
                tracing::warn!(%error, "how the image's header is left is not known");
                None
            }
        }
    }

    fn close(self: Arc<AttachedImage>) {
        let until = Instant::now() + DETACH;
        let mut image = self;
        loop {
            // A callback that still has it would close the image on a thread that closing waits for.
            match Arc::try_unwrap(image) {
                Ok(last) => return drop(last),
                Err(shared) if Instant::now() < until => {
                    image = shared;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(shared) => return shared.abandon(),
            }
        }
    }

    /// Lets the lock go. The version of the header that this made: whoever takes the lock afterwards moves it. The operation that
    /// ends the hold says it, because somebody may come and go before a question of our own.
    fn let_go(&self) -> Option<u64> {
        self.image.flush().ok()?;
        let version =
            lock_stamp::break_lock(&self.header, &self.identity.id, &self.holder(), lock_stamp::draw()).ok();
        nobody_has_it();
        version
    }

    /// Ends without closing the image: nothing of this client is sent any more, and its lock stays until
    /// somebody breaks it. Librbd's memory goes with the process.
    pub fn abandon(self: Arc<AttachedImage>) {
        self.header.cluster.silence();
        crate::given_up::leaves_client();
        std::mem::forget(self);
    }

    /// Nobody waits any longer for the end of this attach: nothing of it is sent any more, its client goes with the process,
    /// and a later attach of this process finds it there.
    pub fn give_up(&self) {
        crate::given_up::give_up(&self.header.cluster);
    }
}
