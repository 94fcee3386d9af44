//! What the threads of a keeper know of the cache in front of its image, until the keeper has ended.
//!
//! A thread that asks a silent cluster may outlive its keeper. It must hold nothing of the cache then, which another service
//! may have opened since, and change nothing there.

use crate::keeper::Clients;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

/// The cache, shared until it is taken away.
#[derive(Clone)]
pub(crate) struct Front(Arc<Shared>);

struct Shared {
    clients: RwLock<Option<Box<dyn Clients>>>,
    /// Nobody asks any more, and the last who does takes the cache away.
    ended: AtomicBool,
}

impl Front {
    pub(crate) fn new(clients: Box<dyn Clients>) -> Front {
        Front(Arc::new(Shared { clients: RwLock::new(Some(clients)), ended: AtomicBool::new(false) }))
    }

    /// Asks the cache; nothing once it was taken away. Several threads may at a time.
    pub(crate) fn ask<T>(&self, what: impl FnOnce(&dyn Clients) -> T) -> Option<T> {
        let clients = self.0.clients.read().unwrap_or_else(PoisonError::into_inner);
        let open = clients.as_deref().filter(|_| !self.0.ended.load(Ordering::SeqCst));
        let said = open.map(what);
        drop(clients);
        if self.0.ended.load(Ordering::SeqCst) {
            self.take();
        }
        said
    }

    /// Nobody asks the cache any more. False where somebody does right now, who takes it away when that is
    /// over.
    pub(crate) fn end(&self) -> bool {
        self.0.ended.store(true, Ordering::SeqCst);
        self.take()
    }

    fn take(&self) -> bool {
        let taken = match self.0.clients.try_write() {
            Ok(mut clients) => clients.take(),
            Err(TryLockError::Poisoned(e)) => e.into_inner().take(),
            Err(TryLockError::WouldBlock) => return false,
        };
        drop(taken);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    struct Cache(#[expect(dead_code, reason = "held for its lock")] Arc<()>);

    impl Clients for Cache {
        fn freeze(&self) -> Receiver<Result<(), String>> {
            channel().1
        }
        fn thaw(&self) {}
        fn lose(&self, _why: &str) {}
        fn witness_changed(&self) {}
        fn cut(&self, _bytes: u64) -> Result<(), String> {
            Ok(())
        }
        fn resized(&self, _bytes: u64) {}
    }

    #[test]
    fn whoever_outlives_the_keeper_holds_nothing_of_the_cache() {
        let lock = Arc::new(());
        let front = Front::new(Box::new(Cache(lock.clone())));
        let left_behind = front.clone();
        let ended = front.ask(|_| front.end());
        assert_eq!(ended, Some(false), "it is asked right now");
        assert_eq!(left_behind.ask(|c| c.cut(7)), None, "the last that asked has taken it away");
        assert_eq!(Arc::strong_count(&lock), 1, "what it held is free");
    }
}
