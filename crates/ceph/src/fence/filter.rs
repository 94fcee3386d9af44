//! A seccomp filter for one thread: each send of it, and each connection that it makes, is asked about before the kernel
//! carries it out. Who asks is [`Messenger::may_send`]; the thread is told ENETDOWN where the answer is no.
//!
//! A filter cannot be taken away again, but what it leads to can change its mind. A send that is allowed carries a number in an
//! argument that the system call does not have, which the filter lets pass.

use super::{Limit, Messenger, USABLE};
use libc::{c_int, c_long, c_void, siginfo_t, sock_filter, ucontext_t};
use std::cell::Cell;
use std::ptr::{null, null_mut};
use std::sync::atomic::{Ordering, compiler_fence};

/// The sixth argument of an allowed call.
const ALLOWED: u64 = 0x7b1d_95e4_6ac3_f208;
/// The mark of the filter's own signals.
const OURS: u32 = 0x4c6f;
/// `SYS_SECCOMP`: the signal is of a filter.
const OF_A_FILTER: c_int = 1;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

thread_local! {
    /// The messenger that this thread is, once it is filtered.
    static ME: Cell<*const Messenger> = const { Cell::new(null()) };
}

/// The signal of the timers.
pub(super) fn timer_signal() -> c_int {
    libc::SIGRTMAX() - 3
}

const fn op(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUALS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENETDOWN as u32;

/// Offsets are those of `struct seccomp_data`: number, architecture, and the halves of the sixth argument.
static PROGRAM: [sock_filter; 15] = [
    op(LOAD, 4, 0, 0),
    op(EQUALS, ARCHITECTURE, 0, 10),
    op(LOAD, 0, 0, 0),
    op(EQUALS, libc::SYS_sendmsg as u32, 4, 0),
    op(EQUALS, libc::SYS_connect as u32, 3, 0),
    op(EQUALS, libc::SYS_sendto as u32, 6, 0),
    op(EQUALS, libc::SYS_sendmmsg as u32, 5, 0),
    op(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    op(LOAD, 56, 0, 0),
    op(EQUALS, ALLOWED as u32, 0, 3),
    op(LOAD, 60, 0, 0),
    op(EQUALS, (ALLOWED >> 32) as u32, 2, 1),
    op(RETURN, REFUSE, 0, 0),
    op(RETURN, libc::SECCOMP_RET_TRAP | OURS, 0, 0),
    op(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
];

/// Has the kernel ask about each send of this thread from now on. Async-signal-safe.
pub(super) fn install(me: &Messenger) -> Result<(), c_int> {
    ME.set(me);
    let program = libc::sock_fprog { len: PROGRAM.len() as u16, filter: PROGRAM.as_ptr().cast_mut() };
    // SAFETY: both calls concern this thread alone; the program is a constant that the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0) == 0
    };
    if done { Ok(()) } else { Err(errno()) }
}

fn errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

/// A handler must leave it as it was.
struct Errno(c_int);

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The handler of the timers' signal.
extern "C" fn on_timer(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    let _errno = Errno(errno());
    // SAFETY: the kernel gives a signal's description; that of a timer has the value that the timer was made with, which is a
    // messenger and never given back.
    unsafe {
        if (*info).si_code == libc::SI_TIMER {
            (*(*info).si_value().sival_ptr.cast::<Messenger>()).look();
        }
    }
}

/// The handler of a send that the filter asks about.
extern "C" fn on_send(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let _errno = Errno(errno());
    // SAFETY: the kernel gives both, and what is written to the context is what the call has returned when the handler has.
    unsafe {
        if (*info).si_code != OF_A_FILTER || (*info).si_errno as u32 != OURS {
            // A filter of somebody else's, who meant the process to end.
            libc::signal(libc::SIGSYS, libc::SIG_DFL);
            libc::raise(libc::SIGSYS);
            return;
        }
        let call = Call::of(&mut *context.cast::<ucontext_t>());
        let result = match ME.get().as_ref() {
            Some(me) => send(me, &call),
            // A thread that a filtered one has started.
            None => -c_long::from(libc::ENETDOWN),
        };
        *call.result = result as _;
    }
}

/// Carries the call out where the thread may send. Gives what the kernel would have.
fn send(me: &Messenger, call: &Call<'_>) -> c_long {
    // Whoever stands still from here on is stopped by the timer, whose handler waits.
    me.sending.store(true, Ordering::SeqCst);
    compiler_fence(Ordering::SeqCst);
    let result = if me.may_send() {
        let [a, b, c] = call.arguments;
        // SAFETY: the call that the thread was about to make, with the arguments that it gave.
        let done = unsafe { libc::syscall(call.number, a, b, c, 0u64, 0u64, ALLOWED) };
        if done < 0 { -c_long::from(errno()) } else { done }
    } else {
        -c_long::from(libc::ENETDOWN)
    };
    compiler_fence(Ordering::SeqCst);
    me.sending.store(false, Ordering::SeqCst);
    result
}

/// A system call that was stopped, in the registers of its thread.
struct Call<'a> {
    number: c_long,
    arguments: [u64; 3],
    #[cfg(target_arch = "x86_64")]
    result: &'a mut libc::greg_t,
    #[cfg(target_arch = "aarch64")]
    result: &'a mut u64,
}

impl Call<'_> {
    #[cfg(target_arch = "x86_64")]
    fn of(context: &mut ucontext_t) -> Call<'_> {
        let r = &mut context.uc_mcontext.gregs;
        let arguments = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(|n| r[n as usize] as u64);
        let result = &mut r[libc::REG_RAX as usize];
        Call { number: *result, arguments, result }
    }

    #[cfg(target_arch = "aarch64")]
    fn of(context: &mut ucontext_t) -> Call<'_> {
        let r = &mut context.uc_mcontext.regs;
        let (number, arguments) = (r[8] as c_long, [r[0], r[1], r[2]]);
        Call { number, arguments, result: &mut r[0] }
    }
}

/// Checks that threads of this process can be kept from sending. It is tried once, on a thread of its own.
///
/// # Errors
/// If the kernel, or what this process runs in, does not allow it.
pub(super) fn usable() -> Result<(), String> {
    USABLE.get_or_init(try_it).clone()
}

fn try_it() -> Result<(), String> {
    handle(timer_signal(), on_timer, true)?;
    handle(libc::SIGSYS, on_send, false)?;
    let limit: &'static Limit = Box::leak(Box::new(Limit::new(0)));
    let tried = move || -> Result<(), String> {
        let me: &'static Messenger = Box::leak(Box::new(Messenger::new(limit)));
        install(me).map_err(|e| std::io::Error::from_raw_os_error(e).to_string())?;
        // SAFETY: all zeroes is a message, and there is no such descriptor.
        let sent = unsafe {
            let message: libc::msghdr = std::mem::zeroed();
            libc::sendmsg(-1, &raw const message, 0)
        };
        if sent < 0 && errno() == libc::ENETDOWN {
            Ok(())
        } else {
            Err("a filter of system calls does nothing here".to_owned())
        }
    };
    let thread = std::thread::Builder::new().name("rbd-fence-try".to_owned()).spawn(tried);
    let ended = thread.map_err(|e| e.to_string())?.join();
    ended.unwrap_or_else(|_| Err("the trial has panicked".to_owned()))
}

/// Sets a signal's handler. `alone`: no other signal is handled beside it.
fn handle(
    signal: c_int,
    handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void),
    alone: bool,
) -> Result<(), String> {
    // SAFETY: all zeroes is a valid action; the handler does what is safe in one, and sets are filled before use.
    let code = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        if alone {
            libc::sigfillset(&raw mut action.sa_mask);
        }
        libc::sigaction(signal, &raw const action, null_mut())
    };
    if code == 0 { Ok(()) } else { Err(format!("signal {signal}: {}", std::io::Error::last_os_error())) }
}
