//! Messages to a thread that waits on a ring.

use crate::IoError;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What lies in a box.
#[derive(Debug)]
struct Queue<T> {
    letters: VecDeque<T>,
    /// Nobody opens it any more.
    closed: bool,
}

/// A letter box with a bell: any thread puts letters in, the owner is woken once for all that lie there.
#[derive(Debug)]
pub struct Letterbox<T> {
    queue: Mutex<Queue<T>>,
    bell: OwnedFd,
    /// The bell was rung and the owner has not looked since.
    rung: AtomicBool,
}

impl<T> Letterbox<T> {
    /// An empty one.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn new() -> Result<Letterbox<T>, IoError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| IoError::from_errno(e.raw_os_error(), "creating an event descriptor"))?;
        let queue = Mutex::new(Queue { letters: VecDeque::new(), closed: false });
        Ok(Letterbox { queue, bell, rung: AtomicBool::new(false) })
    }

    /// Readable when there are letters.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Throws away what lies in it and whatever will be put: its owner ends.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let left = std::mem::take(&mut queue.letters);
        drop(queue);
        drop(left);
    }

    /// Puts letters in, and rings unless that has been done since the owner looked.
    pub fn put(&self, letters: impl IntoIterator<Item = T>) {
        let mut queue = self.lock();
        if queue.closed {
            drop(queue);
            // Dropping a letter tells whoever waits for its answer.
            return drop(letters);
        }
        queue.letters.extend(letters);
        drop(queue);
        self.ring();
    }

    /// Wakes the owner although there is no letter.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // A counter at its limit is rung already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// Takes everything, for an owner whose bell is reset by [`crate::Ring::wake_on`]. False: nothing was put since.
    pub fn take_if_rung(&self, into: &mut VecDeque<T>) -> bool {
        let rung = self.rung.swap(false, Ordering::AcqRel);
        if rung {
            into.append(&mut self.lock().letters);
        }
        rung
    }

    /// Takes everything. The bell is silenced first, so that a letter put meanwhile rings it again.
    pub fn take(&self, into: &mut VecDeque<T>) {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        self.rung.store(false, Ordering::Release);
        into.append(&mut self.lock().letters);
    }
}
