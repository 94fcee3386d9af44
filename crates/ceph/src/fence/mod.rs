//! Nothing of a client is sent once nobody has said for a while that its image is still ours.
//!
//! Librados sends operations in flight again when the network is back, and a process that stood still goes on where it stopped,
//! before any of our threads looks at a clock. By then another client may have the image, and the cluster may have forgotten
//! that this one was fenced. So the [`Fence`] acts on the threads that send: each messenger thread of the client has a timer of
//! its own, whose signal is handled by that very thread, before it runs one more instruction. The handler has the kernel ask
//! about each further send of the thread (a seccomp filter, [`filter`]), and the answer is a look at the clock. A later word
//! that the image is ours opens the fence again; [`Fence::shut`] closes it for good.
//!
//! Bytes that the kernel holds for a dead or cut off client are bounded by [`sockets`].

mod filter;
pub(crate) mod sockets;

use loligo_block::lease::boottime;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A client connects while none that is fenced does: its messenger threads are those that are new.
static CONNECTING: RwLock<()> = RwLock::new(());
/// librados' name for its threads that send.
const MESSENGER: &str = "msgr-worker";
/// Between two looks at the clock of a thread that may not send and cannot go back.
static NAP: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Until when a client may send.
#[derive(Debug)]
struct Limit {
    /// Nanoseconds since boot, sleep included.
    until: AtomicU64,
    /// Somebody has said that what the client owns is its.
    heard: AtomicBool,
    /// Never again.
    shut: AtomicBool,
}

impl Limit {
    fn new(until: u64) -> Limit {
        let [heard, shut] = [false, false].map(AtomicBool::new);
        Limit { until: AtomicU64::new(until), heard, shut }
    }

    fn is_open(&self) -> bool {
        !self.shut.load(Ordering::SeqCst) && boottime() < self.until.load(Ordering::SeqCst)
    }
}

/// A thread that sends, as its signal handlers see it.
#[derive(Debug)]
struct Messenger {
    limit: &'static Limit,
    /// The thread's own timer, a `timer_t`.
    timer: AtomicU64,
    /// The time of the timer; if that is later than now, it has not been handled yet.
    armed: AtomicU64,
    /// The kernel asks about each send of this thread.
    filtered: AtomicBool,
    /// The thread has been allowed to send and is about to.
    sending: AtomicBool,
}

impl Messenger {
    fn new(limit: &'static Limit) -> Messenger {
        Messenger {
            limit,
            timer: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            filtered: AtomicBool::new(false),
            sending: AtomicBool::new(false),
        }
    }

    /// True if the thread may send now. Its timer is set before the clock is read: one that stands still in between, or right
    /// after, handles the timer first when it goes on.
    fn may_send(&self) -> bool {
        if !self.limit.is_open() {
            return false;
        }
        let until = self.limit.until.load(Ordering::SeqCst);
        if self.armed.swap(until, Ordering::SeqCst) != until {
            self.set_timer(until, libc::TIMER_ABSTIME);
        }
        self.limit.is_open()
    }

    /// Async-signal-safe.
    fn set_timer(&self, nanoseconds: u64, flags: c_int) {
        let value = libc::timespec {
            tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanoseconds % 1_000_000_000) as libc::c_long,
        };
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = libc::itimerspec { it_interval: zero, it_value: value };
        let timer = self.timer.load(Ordering::SeqCst) as libc::timer_t;
        // SAFETY: the timer is live as long as its client, and the value is read during the call.
        unsafe { libc::timer_settime(timer, flags, &raw const spec, null_mut()) };
    }

    /// The timer has fired, on this thread.
    fn look(&self) {
        self.armed.store(0, Ordering::SeqCst);
        if self.may_send() {
            return;
        }
        if self.sending.load(Ordering::SeqCst) {
            // It was allowed to send, stood still, and would send now.
            return self.wait();
        }
        if !self.filtered.load(Ordering::SeqCst) {
            match filter::install(self) {
                Ok(()) => self.filtered.store(true, Ordering::SeqCst),
                // It was tried before the client connected; what cannot be kept from sending must not go on.
                Err(_) => self.wait(),
            }
        }
    }

    /// Waits until the thread may send: for ever, where the fence is shut.
    fn wait(&self) {
        while !self.may_send() {
            // SAFETY: a nap that reads a constant.
            unsafe { libc::nanosleep(&raw const NAP, null_mut()) };
        }
    }
}

/// Keeps one client from sending late.
#[derive(Debug)]
pub(crate) struct Fence {
    limit: &'static Limit,
    messengers: Vec<&'static Messenger>,
}

impl Fence {
    /// Has `connect` make a client, whose threads may send for `first` from now on, longer where [`Fence::extend`] says so.
    ///
    /// # Errors
    /// If this host offers no way to keep a thread from sending, or a thread is found that could not be kept from it.
    pub(crate) fn around<T>(connect: impl FnOnce() -> T, first: Duration) -> Result<(T, Fence), String> {
        filter::usable()?;
        let _alone = CONNECTING.write();
        let before = messengers().map_err(|e| e.to_string())?;
        let connected = {
            let _mask = Mask::ours_alone();
            connect()
        };
        let after = messengers().map_err(|e| e.to_string())?;
        let until = boottime() + first.as_nanos() as u64;
        // Signal handlers look at these; a signal may come late, so that they are never given back: some 100 bytes an attach.
        let mut fence = Fence { limit: Box::leak(Box::new(Limit::new(until))), messengers: Vec::new() };
        for thread in after.difference(&before) {
            fence.arm(*thread)?;
        }
        Ok((connected, fence))
    }

    /// True if a thread was found that sends.
    pub(crate) fn found_any(&self) -> bool {
        !self.messengers.is_empty()
    }

    fn arm(&mut self, thread: i32) -> Result<(), String> {
        let mask = blocked(thread)?;
        if let Some(signal) = ours().into_iter().find(|s| mask & bit(*s) != 0) {
            return Err(format!("thread {thread} of Ceph's does not take signal {signal}"));
        }
        if mask & bit(libc::SIGTERM) == 0 {
            return Err(format!("thread {thread} of Ceph's takes signals of the process"));
        }
        let messenger: &'static Messenger = Box::leak(Box::new(Messenger::new(self.limit)));
        // SAFETY: all zeroes is a valid event.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_notify_thread_id = thread;
        event.sigev_signo = filter::timer_signal();
        event.sigev_value =
            libc::sigval { sival_ptr: std::ptr::from_ref(messenger).cast_mut().cast::<c_void>() };
        let mut timer: libc::timer_t = null_mut();
        // SAFETY: the event is read and the timer written during the call.
        if unsafe { libc::timer_create(libc::CLOCK_BOOTTIME, &raw mut event, &raw mut timer) } != 0 {
            return Err(format!("a timer for thread {thread}: {}", std::io::Error::last_os_error()));
        }
        messenger.timer.store(timer as u64, Ordering::SeqCst);
        self.messengers.push(messenger);
        messenger.may_send();
        Ok(())
    }

    /// Somebody who knows has said that the image is ours: the client may send until `until`, nanoseconds since boot. The first
    /// word ends the time that the client had without any.
    pub(crate) fn extend(&self, until: u64) {
        if self.limit.heard.swap(true, Ordering::SeqCst) {
            // Timers fire at the earlier time, and are set again by their threads.
            self.limit.until.fetch_max(until, Ordering::SeqCst);
        } else {
            self.limit.until.store(until, Ordering::SeqCst);
            self.have_them_look();
        }
    }

    /// Each thread handles its timer now, and sets it again.
    fn have_them_look(&self) {
        self.messengers.iter().for_each(|m| m.set_timer(1, 0));
    }

    /// True if the client may send.
    pub(crate) fn is_open(&self) -> bool {
        self.limit.is_open()
    }

    /// The client never sends again.
    pub(crate) fn shut(&self) {
        if !self.limit.shut.swap(true, Ordering::SeqCst) {
            self.have_them_look();
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        for m in &self.messengers {
            // SAFETY: the client has ended and its threads with it: nobody sets the timer any more.
            unsafe { libc::timer_delete(m.timer.load(Ordering::SeqCst) as libc::timer_t) };
        }
    }
}

/// Has `connect` make a client that changes nothing: no fence.
pub(crate) fn unfenced<T>(connect: impl FnOnce() -> T) -> T {
    let _not_beside_others = CONNECTING.read();
    connect()
}

/// Threads of this process that send for a client of Ceph.
fn messengers() -> std::io::Result<BTreeSet<i32>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        // One that has ended meanwhile is none.
        let Ok(name) = std::fs::read_to_string(entry.path().join("comm")) else { continue };
        if let Some(thread) = entry.file_name().to_str().and_then(|n| n.parse().ok())
            && name.starts_with(MESSENGER)
        {
            found.insert(thread);
        }
    }
    Ok(found)
}

/// Signals that a thread of librados must take: those of the fence.
fn ours() -> [c_int; 2] {
    [filter::timer_signal(), libc::SIGSYS]
}

/// A signal as `/proc` shows it in a mask.
fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// The signals that a thread does not take.
fn blocked(thread: i32) -> Result<u64, String> {
    let file = format!("/proc/self/task/{thread}/status");
    let status = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let mask = status.lines().find_map(|l| l.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok());
    mask.ok_or_else(|| format!("{file} says nothing of signals"))
}

/// While it is there this thread, and those that it starts, take no signal but the fence's and those of faults. The handler of a
/// signal to the process may send, to wake a thread, which a filtered thread must not: the signal would be lost.
struct Mask(libc::sigset_t);

impl Mask {
    fn ours_alone() -> Mask {
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];
        // SAFETY: all zeroes is a valid set; the sets are written and read during the calls, which concern this thread alone.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            for signal in faults.into_iter().chain(ours()) {
                libc::sigdelset(&raw mut all, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            Mask(before)
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, null_mut()) };
    }
}

/// The result of the trial whether threads of this process can be kept from sending, once there was one.
static USABLE: OnceLock<Result<(), String>> = OnceLock::new();

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    /// Sends one byte as librados does; the error number where that fails.
    fn send(to: &UnixStream) -> Result<(), i32> {
        let mut byte = 1u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: all zeroes is a valid message; the part lives during the call.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
        };
        if sent == 1 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
    }

    /// A fence around a thread that sends when asked.
    fn sender(first: Duration) -> (Fence, impl Fn() -> Result<(), i32>) {
        let (ask, asked) = channel::<()>();
        let (tell, told) = channel();
        let (ready, is_ready) = channel();
        let connect = || {
            let thread = std::thread::Builder::new().name(format!("{MESSENGER}-0"));
            let run = move || {
                let (to, _from) = UnixStream::pair().expect("sockets");
                ready.send(()).expect("somebody waits");
                while asked.recv().is_ok() {
                    if tell.send(send(&to)).is_err() {
                        return;
                    }
                }
            };
            thread.spawn(run).expect("a thread");
            is_ready.recv().expect("it runs");
        };
        let ((), fence) = Fence::around(connect, first).expect("a fence");
        assert!(fence.found_any());
        (fence, move || {
            ask.send(()).expect("it runs");
            told.recv().expect("an answer")
        })
    }

    fn wait_for(what: impl Fn() -> bool) {
        let begun = Instant::now();
        while !what() {
            assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_thread_sends_nothing_after_its_time_until_it_has_more() {
        let (fence, send) = sender(Duration::from_secs(600));
        assert_eq!(send(), Ok(()));
        // The first word is what counts, not the time that it had before.
        fence.extend(boottime() + 20_000_000);
        wait_for(|| send() == Err(libc::ENETDOWN));
        assert!(!fence.is_open());
        assert_eq!(send(), Err(libc::ENETDOWN));
        for _ in 0..3 {
            fence.extend(boottime() + 600_000_000_000);
            assert_eq!(send(), Ok(()));
            assert_eq!(send(), Ok(()));
            fence.limit.until.store(1, Ordering::SeqCst);
            assert_eq!(send(), Err(libc::ENETDOWN));
        }
    }

    #[test]
    fn a_renewal_moves_the_time_without_a_filter() {
        let (fence, send) = sender(Duration::from_secs(600));
        fence.extend(boottime() + 700_000_000_000);
        let messenger = fence.messengers[0];
        let far = fence.limit.until.load(Ordering::SeqCst);
        wait_for(|| messenger.armed.load(Ordering::SeqCst) == far);
        assert_eq!(send(), Ok(()));
        assert!(!messenger.filtered.load(Ordering::SeqCst));
    }

    #[test]
    fn signals_to_the_process_do_not_reach_a_thread_that_sends() {
        let before = messengers().expect("threads");
        let (_fence, send) = sender(Duration::from_secs(600));
        assert_eq!(send(), Ok(()));
        let mine = |thread: &i32| !before.contains(thread);
        for thread in messengers().expect("threads").iter().filter(|t| mine(t)) {
            // One of another test may have ended.
            let Ok(mask) = blocked(*thread) else { continue };
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD] {
                assert!(mask & bit(signal) != 0, "thread {thread} takes signal {signal}");
            }
            assert!(ours().iter().all(|s| mask & bit(*s) == 0));
        }
        // Who connects takes them again.
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(blocked(me).expect("a mask") & bit(libc::SIGTERM), 0);
    }

    #[test]
    fn a_shut_fence_never_opens_again() {
        let (fence, send) = sender(Duration::from_secs(600));
        assert_eq!(send(), Ok(()));
        fence.shut();
        wait_for(|| send() == Err(libc::ENETDOWN));
        fence.extend(boottime() + 900_000_000_000);
        assert_eq!(send(), Err(libc::ENETDOWN));
        assert!(!fence.is_open());
    }
}
