//! The sockets that the ring watches: one poll per socket and direction, armed again whenever it has fired and the
//! connection still waits. A poll looks at the socket when it is armed, so that nothing that is already there is missed.

use io_uring::{opcode, types};
use loligo_block::{Foreign, Ring, io_uring};
use loligo_export::{ConnId, Server};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};

const KIND_SHIFT: u32 = 56;
const READ: u64 = 1;
const WRITE: u64 = 2;
const LISTENER: u64 = 3;
const EVENTFD: u64 = 4;
const QUEUE: u64 = 5;
const MOUNT: u64 = 6;
/// In the user data of the entries of a block device's queue.
pub(crate) const QUEUE_MARK: u64 = QUEUE << KIND_SHIFT;

/// A socket that became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    Read(ConnId),
    Write(ConnId),
    Listener(usize),
    Mail,
    /// A slot of a block device's queue.
    Queue(Foreign),
    /// Requests of a mount.
    Mount(usize),
}

#[derive(Debug, Default, Clone, Copy)]
struct Armed {
    conn: u64,
    read: bool,
    write: bool,
}

/// The polls under way.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// By the low 16 bits of the connection's number.
    armed: Vec<Armed>,
}

fn push(ring: &mut Ring, fd: BorrowedFd<'_>, events: PollFlags, user_data: u64) {
    let poll = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), u32::from(events.bits()));
    // SAFETY: the entry points to no memory; the kernel takes its own reference to the descriptor when it is submitted,
    // which is before the owner can close it: closing happens in a later turn of the same thread.
    unsafe { ring.push_foreign(poll.build().user_data(user_data)) }
}

impl Sockets {
    /// The socket that `event` names. Its poll is noted to be over.
    pub(crate) fn fired(&mut self, event: Foreign) -> Option<Ready> {
        let low = event.user_data & ((1 << KIND_SHIFT) - 1);
        let id = ConnId::from_u64(low);
        let slot = self.armed.get_mut(low as usize & 0xffff).filter(|a| a.conn == low);
        match event.user_data >> KIND_SHIFT {
            READ => {
                slot?.read = false;
                Some(Ready::Read(id?))
            }
            WRITE => {
                slot?.write = false;
                Some(Ready::Write(id?))
            }
            LISTENER => Some(Ready::Listener(low as usize)),
            EVENTFD => Some(Ready::Mail),
            QUEUE => Some(Ready::Queue(event)),
            MOUNT => Some(Ready::Mount(low as usize)),
            _ => None,
        }
    }

    /// Watches what the connections of `server` wait for.
    pub(crate) fn arm(&mut self, ring: &mut Ring, server: &Server) {
        for (id, fd, interest) in server.connections() {
            let number = id.to_u64();
            let at = number as usize & 0xffff;
            if self.armed.len() <= at {
                self.armed.resize(at + 1, Armed::default());
            }
            let slot = &mut self.armed[at];
            if slot.conn != number {
                *slot = Armed { conn: number, read: false, write: false };
            }
            if interest.read && !slot.read {
                slot.read = true;
                push(ring, fd, PollFlags::IN, number | READ << KIND_SHIFT);
            }
            if interest.write && !slot.write {
                slot.write = true;
                push(ring, fd, PollFlags::OUT, number | WRITE << KIND_SHIFT);
            }
        }
    }

    /// Watches a listening socket once.
    pub(crate) fn arm_listener(ring: &mut Ring, fd: impl AsFd, index: usize) {
        push(ring, fd.as_fd(), PollFlags::IN, index as u64 | LISTENER << KIND_SHIFT);
    }

    /// Watches the requests of a mount once.
    pub(crate) fn arm_mount(ring: &mut Ring, fd: BorrowedFd<'_>, index: usize) {
        push(ring, fd, PollFlags::IN, index as u64 | MOUNT << KIND_SHIFT);
    }

    /// Watches the mailbox once.
    pub(crate) fn arm_eventfd(ring: &mut Ring, fd: BorrowedFd<'_>) {
        push(ring, fd, PollFlags::IN, EVENTFD << KIND_SHIFT);
    }
}
