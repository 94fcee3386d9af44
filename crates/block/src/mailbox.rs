//! Messages to a thread that waits on a ring.

use crate::IoError;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

/// The messages that wait.
#[derive(Debug)]
struct Queue<T> {
    messages: VecDeque<T>,
    /// Nobody opens it any more.
    closed: bool,
}

/// A queue with an eventfd: any thread puts messages in, the owner is woken once for all that wait.
#[derive(Debug)]
pub struct Mailbox<T> {
    queue: Mutex<Queue<T>>,
    eventfd: OwnedFd,
    /// The eventfd was signalled and the owner has not looked since.
    signalled: AtomicBool,
}

impl<T> Mailbox<T> {
    /// An empty one.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> Result<Mailbox<T>, IoError> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| IoError::from_errno(e.raw_os_error(), "creating an event descriptor"))?;
        let queue = Mutex::new(Queue { messages: VecDeque::new(), closed: false });
        Ok(Mailbox { queue, eventfd, signalled: AtomicBool::new(false) })
    }

    /// Readable when there are messages.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock()
    }

    /// Throws away what lies in it and whatever will be put: its owner ends.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let left = std::mem::take(&mut queue.messages);
        drop(queue);
        drop(left);
    }

    /// Puts messages in, and signals the eventfd unless that has been done since the owner looked.
    pub fn put(&self, messages: impl IntoIterator<Item = T>) {
        let mut queue = self.lock();
        if queue.closed {
            drop(queue);
            // Dropping a message tells whoever waits for its answer.
            return drop(messages);
        }
        queue.messages.extend(messages);
        drop(queue);
        self.ring();
    }

    /// Wakes the owner although there is no message.
    pub fn ring(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // A counter at its limit is signalled already.
            let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// Takes everything, for an owner whose eventfd is reset by [`crate::Ring::wake_on`]. False: nothing was put since.
    pub fn take_if_rung(&self, into: &mut VecDeque<T>) -> bool {
        let signalled = self.signalled.swap(false, Ordering::AcqRel);
        if signalled {
            into.append(&mut self.lock().messages);
        }
        signalled
    }

    /// Takes everything. The eventfd is silenced first, so that a message put meanwhile signals it again.
    pub fn take(&self, into: &mut VecDeque<T>) {
        let _ = rustix::io::read(&self.eventfd, &mut [0u8; 8]);
        self.signalled.store(false, Ordering::Release);
        into.append(&mut self.lock().messages);
    }
}
