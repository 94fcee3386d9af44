//! One io_uring shared by every file device of a thread, and by the thread's own sockets and timers.

mod device;
mod flight;

pub use device::UringFile;

use crate::{Buf, Completion, IoError, IoKind, Shared};
use flight::{Flight, Next};
use io_uring::{IoUring, opcode, squeue, types};
use slab::Slab;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Set in the user data of device I/O; entries of others must leave it clear.
const OURS: u64 = 1 << 63;
/// Beside it: an eventfd was signalled, whose number is the rest.
const EVENTFD: u64 = OURS | 1 << 62;
/// Completion slots per submission slot: completions pile up while the thread is busy stepping.
const CQ_FACTOR: u32 = 8;

/// The name of a thread's device; chosen by the thread, small and unique on its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DevId(pub u16);

/// The completion of an entry that is not device I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// As pushed.
    pub user_data: u64,
    /// The operation's result, negative errno on failure.
    pub res: i32,
    /// The completion's flags (`IORING_CQE_F_*`).
    pub flags: u32,
}

/// An io_uring with the operations in flight on it, which own their buffers.
///
/// It must be made on the thread that uses it (the kernel binds it to that thread), so it cannot be sent. Dropping it
/// waits for the device I/O in flight, because the kernel still writes into those buffers.
pub struct Ring {
    io: IoUring,
    flights: Slab<Flight>,
    done: Vec<Vec<Completion>>,
    backlog: VecDeque<squeue::Entry>,
    /// Further ends of a wait.
    eventfds: Vec<OwnedFd>,
    zeros: Option<Shared>,
    /// Devices that nobody waits for, and why.
    disowned: Vec<(DevId, String)>,
    /// Something failed that the kernel was not asked for: it lies in `done`.
    failed: bool,
    _not_send: PhantomData<*const ()>,
}

impl Ring {
    /// A ring with room for `entries` submissions per system call (rounded up to a power of two).
    pub fn new(entries: u32) -> Result<Ring, IoError> {
        let io = build(entries).map_err(|e| match e.raw_os_error() {
            Some(n @ (libc::EPERM | libc::ENOSYS)) => IoError::from_errno(
                n,
                "io_uring is not allowed here: set sysctl kernel.io_uring_disabled=0, and in a container allow the \
                 io_uring system calls in its seccomp profile",
            ),
            n => IoError::from_errno(n.unwrap_or(0), "creating an io_uring"),
        })?;
        if !io.params().is_feature_ext_arg() || !io.params().is_feature_nodrop() {
            return Err(IoError::new(
                IoKind::Unsupported,
                "the kernel's io_uring is too old: Linux 5.11 is needed",
            ));
        }
        Ok(Ring {
            io,
            flights: Slab::with_capacity(entries as usize),
            done: Vec::new(),
            backlog: VecDeque::new(),
            eventfds: Vec::new(),
            zeros: None,
            disowned: Vec::new(),
            failed: false,
            _not_send: PhantomData,
        })
    }

    /// Waits for `device` no longer, because of `why`: what is under way to it, and whatever else is asked of it, fails. The kernel may
    /// carry out what it was asked all the same, and reach the buffers meanwhile: they stay here until it has answered.
    pub fn disown(&mut self, device: DevId, why: &str) {
        self.disowned.push((device, why.to_owned()));
        let mut failures = Vec::new();
        for (_, flight) in self.flights.iter_mut().filter(|(_, f)| f.device == device && !f.orphan) {
            flight.orphan = true;
            failures.push(flight.failure(why));
        }
        failures.into_iter().for_each(|failure| self.fail(device, failure));
    }

    /// Another device has this number from now on.
    pub fn readmit(&mut self, device: DevId) {
        self.disowned.retain(|(id, _)| *id != device);
    }

    /// True if the kernel has something under way that nobody waits for. Dropping the ring waits for it.
    pub fn has_orphans(&self) -> bool {
        self.flights.iter().any(|(_, flight)| flight.orphan)
    }

    fn fail(&mut self, device: DevId, failure: Completion) {
        self.failed = true;
        hand_over(&mut self.done, device, failure);
    }

    /// Queues an entry that is not device I/O; its completion is handed to the closure of [`Ring::reap`].
    ///
    /// # Safety
    /// Memory that the entry points to must stay valid until its (last) completion, or until the ring is
    /// dropped and the kernel has cancelled it.
    ///
    /// # Panics
    /// When bit 63 of the entry's user data is set: it marks device I/O.
    pub unsafe fn push_foreign(&mut self, entry: squeue::Entry) {
        assert_eq!(entry.get_user_data() & OURS, 0, "bit 63 of user data marks device I/O");
        self.push(entry);
    }

    /// Has every ring of `eventfd`, an event descriptor that does not block, end a wait of [`Ring::submit_and_wait`] from now on.
    /// The ring resets it: whoever is meant looks at what lies there in every turn.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn wake_on(&mut self, eventfd: BorrowedFd<'_>) -> Result<(), IoError> {
        self.eventfds.push(eventfd.try_clone_to_owned()?);
        self.arm(self.eventfds.len() - 1);
        Ok(())
    }

    fn arm(&mut self, eventfd: usize) {
        let poll = opcode::PollAdd::new(types::Fd(self.eventfds[eventfd].as_raw_fd()), libc::POLLIN as u32);
        self.push(poll.build().user_data(EVENTFD | eventfd as u64));
    }

    /// Device operations in flight, of all devices.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Hands everything queued to the kernel, then waits for `want` completions or `timeout_ns` nanoseconds, whichever
    /// is first (`None`: no limit). Makes no system call when there is nothing to hand over or to wait for.
    pub fn submit_and_wait(&mut self, want: usize, timeout_ns: Option<u64>) -> Result<(), IoError> {
        self.drain_backlog();
        let waits = timeout_ns != Some(0) && self.io.completion().is_empty() && !self.failed;
        let want = if waits { want } else { 0 };
        let sq = self.io.submission();
        if want == 0 && sq.is_empty() && !sq.taskrun() && !sq.cq_overflow() {
            return Ok(());
        }
        drop(sq);
        let entered = match timeout_ns {
            Some(ns) if want > 0 => {
                let ts = types::Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32);
                self.io.submitter().submit_with_args(want, &types::SubmitArgs::new().timespec(&ts))
            }
            _ => self.io.submit_and_wait(want),
        };
        match entered.map_err(|e| e.raw_os_error().unwrap_or(0)) {
            Ok(_) | Err(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            Err(n) => Err(IoError::from_errno(n, "io_uring_enter")),
        }
    }

    /// Takes all completions: those of device I/O are sorted to their devices (see [`crate::Device::poll`]), all
    /// others go to `foreign`. Returns how many there were.
    pub fn reap(&mut self, mut foreign: impl FnMut(Foreign)) -> usize {
        let mut again: Vec<squeue::Entry> = Vec::new();
        let mut signalled: Vec<usize> = Vec::new();
        let mut count = 0;
        self.failed = false;
        for cqe in self.io.completion() {
            count += 1;
            let data = cqe.user_data();
            if data & OURS == 0 {
                foreign(Foreign { user_data: data, res: cqe.result(), flags: cqe.flags() });
                continue;
            }
            if data & EVENTFD == EVENTFD {
                signalled.push((data & !EVENTFD) as usize);
                continue;
            }
            let key = (data & !OURS) as usize;
            let flight = &mut self.flights[key];
            match flight.advance(cqe.result()) {
                _ if flight.orphan => drop(self.flights.remove(key)),
                Next::Again => again.push(flight.entry(&mut self.zeros).user_data(data)),
                Next::Done(result) => {
                    let flight = self.flights.remove(key);
                    hand_over(&mut self.done, flight.device, flight.complete(result));
                }
            }
        }
        for entry in again {
            self.push(entry);
        }
        for eventfd in signalled {
            // Whatever it counts has ended the wait.
            let _ = rustix::io::read(&self.eventfds[eventfd], &mut [0u8; 8]);
            self.arm(eventfd);
        }
        count
    }

    fn start(&mut self, mut flight: Flight) {
        if let Some((_, why)) = self.disowned.iter().find(|(id, _)| *id == flight.device) {
            let failure = flight.failure(why);
            return self.fail(flight.device, failure);
        }
        let slot = self.flights.vacant_entry();
        let entry = flight.entry(&mut self.zeros).user_data(slot.key() as u64 | OURS);
        slot.insert(flight);
        self.push(entry);
    }

    fn take(&mut self, device: DevId, out: &mut Vec<Completion>) -> usize {
        let Some(list) = self.done.get_mut(device.0 as usize) else { return 0 };
        let n = list.len();
        out.append(list);
        n
    }

    fn push(&mut self, entry: squeue::Entry) {
        self.backlog.push_back(entry);
        self.drain_backlog();
    }

    /// Moves the backlog into the submission queue, handing that to the kernel when it is full. Entries that
    /// the kernel does not take either stay, in order, for the next call.
    fn drain_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: what a device entry points to is owned by its flight, which lives in the slab until the
            // completion; for others the caller of `push_foreign` answers.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                self.backlog.pop_front();
            } else if self.io.submit().is_err() || self.io.submission().is_full() {
                return;
            }
        }
    }

    /// The descriptor that keeps the ring with the kernel when this is dropped. A device of ublk is served by the thread that fetches from it, and the kernel
    /// ends that cleanly where the thread itself ends; where its ring is closed before that, a request that comes in that
    /// moment can be lost between the two (Linux 6.12), and whoever asked waits for ever. So this is dropped after the thread.
    ///
    /// # Errors
    /// If there are too many descriptors.
    pub fn outlive(&self) -> std::io::Result<OwnedFd> {
        // SAFETY: the descriptor is the ring's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.io.as_raw_fd()) }.try_clone_to_owned()
    }
}

/// Puts `completion` where its device takes it.
fn hand_over(done: &mut Vec<Vec<Completion>>, device: DevId, completion: Completion) {
    let device = usize::from(device.0);
    if done.len() <= device {
        done.resize_with(device + 1, Vec::new);
    }
    done[device].push(completion);
}

impl Drop for Ring {
    fn drop(&mut self) {
        while !self.flights.is_empty() {
            if self.submit_and_wait(1, None).is_err() {
                // The kernel may still write into these buffers, so they can never be freed.
                std::mem::forget(std::mem::take(&mut self.flights));
                return;
            }
            self.reap(|_| ());
        }
        // What others pushed may point into their memory: wait for its cancellation too. Kernels before 6.0 cancel
        // when the descriptor closes, just after this.
        let limit = types::Timespec::new().sec(1);
        let _ = self.io.submitter().register_sync_cancel(Some(limit), types::CancelBuilder::any());
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} in flight)", self.flights.len())
    }
}

/// Tries the set-up flags of newer kernels first; each refusal (`EINVAL`) leads to an older set.
fn build(entries: u32) -> std::io::Result<IoUring> {
    let base = || {
        let mut b = IoUring::builder();
        b.setup_clamp().setup_cqsize(entries.max(1).next_power_of_two() * CQ_FACTOR).dontfork();
        b
    };
    let old_kernel = |e: &std::io::Error| e.raw_os_error() == Some(libc::EINVAL);
    // Linux 6.1: completions run only when this thread asks, and no other thread submits.
    match base()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .build(entries)
    {
        Err(e) if old_kernel(&e) => {}
        made => return made,
    }
    // Linux 5.19: no interrupt to deliver a completion.
    match base().setup_coop_taskrun().setup_taskrun_flag().setup_submit_all().build(entries) {
        Err(e) if old_kernel(&e) => {}
        made => return made,
    }
    base().build(entries)
}

/// Zeros to write where a range cannot be zeroed by the file system: one buffer per ring.
const ZERO_CHUNK: usize = 1 << 20;

fn zero_chunk(cache: &mut Option<Shared>) -> Shared {
    cache.get_or_insert_with(|| Buf::zeroed(ZERO_CHUNK).freeze()).clone()
}
