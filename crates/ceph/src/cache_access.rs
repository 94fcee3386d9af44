//! The quiescer's way to the cache in front of its image, until the quiescer has ended.
//!
//! A thread that asks a silent cluster may outlive its quiescer. It must hold nothing of the cache then, which another service
//! may have opened since, and change nothing there.

use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

/// The cache in front of the image, as its quiescer needs it.
pub trait Clients: Send + Sync {
    /// The moment of a snapshot is now: says when the image holds it. Until [`Clients::thaw`] nothing else reaches the image.
    fn freeze(&self) -> Receiver<Result<(), String>>;
    /// The image may change again.
    fn thaw(&self);
    /// Somebody else has the image: every request fails from now on.
    fn lose(&self, why: &str);
    /// The record of the lock has changed: the snapshot sequence, or the lock's name.
    fn lock_record_changed(&self);
    /// The image ends at `bytes` by now: what is cached behind that is void for good, which must be durable before anything is
    /// answered by that. Errors: where it cannot be written down.
    fn cut(&self, bytes: u64) -> Result<(), String>;
    /// The volume in front of the image has so many bytes from now on. One that got smaller does not get larger again.
    fn resized(&self, bytes: u64);
}

/// The cache, shared until it is taken away.
#[derive(Clone)]
pub(crate) struct CacheAccess(Arc<Shared>);

struct Shared {
    clients: RwLock<Option<Box<dyn Clients>>>,
    /// Nobody asks any more; the last one who still does takes the cache away.
    ended: AtomicBool,
}

impl CacheAccess {
    pub(crate) fn new(clients: Box<dyn Clients>) -> CacheAccess {
        CacheAccess(Arc::new(Shared { clients: RwLock::new(Some(clients)), ended: AtomicBool::new(false) }))
    }

    /// Asks the cache; nothing once it was taken away. Several threads may at a time.
    pub(crate) fn ask<T>(&self, what: impl FnOnce(&dyn Clients) -> T) -> Option<T> {
        let asked = {
            let clients = self.0.clients.read();
            clients.as_deref().filter(|_| !self.is_ended()).map(what)
        };
        if self.is_ended() {
            self.take();
        }
        asked
    }

    fn is_ended(&self) -> bool {
        self.0.ended.load(Ordering::SeqCst)
    }

    /// Takes the cache away for good: nobody asks it from now on. False where somebody asks it right now, who takes it away then.
    pub(crate) fn end(&self) -> bool {
        self.0.ended.store(true, Ordering::SeqCst);
        self.take()
    }

    fn take(&self) -> bool {
        let Some(mut clients) = self.0.clients.try_write() else { return false };
        let taken = clients.take();
        drop(clients);
        drop(taken);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    struct Cache(#[expect(dead_code, reason = "held for its lock")] Arc<()>);

    impl Clients for Cache {
        fn freeze(&self) -> Receiver<Result<(), String>> {
            channel().1
        }
        fn thaw(&self) {}
        fn lose(&self, _why: &str) {}
        fn lock_record_changed(&self) {}
        fn cut(&self, _bytes: u64) -> Result<(), String> {
            Ok(())
        }
        fn resized(&self, _bytes: u64) {}
    }

    #[test]
    fn whoever_outlives_the_keeper_holds_nothing_of_the_cache() {
        let lock = Arc::new(());
        let cache_access = CacheAccess::new(Box::new(Cache(lock.clone())));
        let left_behind = cache_access.clone();
        assert_eq!(left_behind.ask(|c| c.cut(7)), Some(Ok(())));
        assert!(cache_access.end());
        assert_eq!(left_behind.ask(|c| c.cut(7)), None);
        assert_eq!(Arc::strong_count(&lock), 1, "what it held is free");
    }

    #[test]
    fn an_end_beside_a_question_holds_once_that_is_answered() {
        let lock = Arc::new(());
        let cache_access = CacheAccess::new(Box::new(Cache(lock.clone())));
        let ended = cache_access.ask(|_| cache_access.end());
        assert_eq!(ended, Some(false), "it is asked right now");
        assert_eq!(Arc::strong_count(&lock), 1, "who asked last has let go");
        assert_eq!(cache_access.ask(|c| c.cut(7)), None);
    }
}
