//! A device that nobody uses, and that nobody can claim as long as that is relied on.
//!
//! To know it the node must be opened, and what a user left in the page cache written: the kernel takes a
//! closed file from its process before it has done so. Both wait for answers of the very service that asks. A
//! process that waits so in the kernel cannot be killed, and a service that cannot end could never be
//! followed by another; so a process of its own does it, which holds nothing that would be missed.

use super::users;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fsync, open};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::fs::read_to_string;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The program's own command that does it: `hold-device NODE`.
pub const COMMAND: &str = "hold-device";
/// Its word once the device is held.
const HELD: u8 = b'+';

/// Nobody but us has the device open while this lasts, but for programs that come by its node and claim nothing.
#[derive(Debug)]
pub(super) struct Idle(Child);

impl Idle {
    /// Holds the device `node` of `/dev`. Nothing where somebody uses it, or `limit` is over before that is known.
    pub(super) fn hold(node: &str, limit: Duration) -> Option<Idle> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("loligo").args([COMMAND, node]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut idle = match command.spawn() {
            Ok(child) => Idle(child),
            Err(e) => {
                tracing::warn!(error = %e, "whether a ublk device is in use cannot be found out: no process can be started");
                return None;
            }
        };
        let said = idle.0.stdout.as_mut()?;
        let deadline = Instant::now() + limit;
        let comes = loop {
            let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
            match poll(&mut [PollFd::new(said, PollFlags::IN)], left.as_ref()) {
                Err(Errno::INTR) => {}
                ended => break ended.is_ok_and(|n| n > 0),
            }
        };
        let mut word = [0];
        (comes && said.read(&mut word).is_ok_and(|n| n == 1) && word[0] == HELD).then_some(idle)
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // It lets go at this. One that still waits in the kernel does so when that lets it, and is not waited for.
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let pid = Pid::from_child(&self.0);
            let reaps = std::thread::Builder::new().name("reaper".into());
            // Without it the process stays in the table until the service ends.
            let _ = reaps.spawn(move || waitpid(Some(pid), WaitOptions::empty()));
        }
    }
}

/// The body of that process: holds the device until its input ends, and says when it does; ends at once where somebody uses it.
pub fn hold(node: &str) -> ExitCode {
    // Claimed, so that nobody mounts it or puts LVM on it from now on.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |node: &str, flags| open(Path::new("/dev").join(node), flags, Mode::empty());
    let Ok(claim) = open(node, flags | OFlags::EXCL) else { return ExitCode::FAILURE };
    // A partition has pages of its own.
    let parts = users::partitions(node);
    let Ok(parts) = parts.iter().map(|part| open(part, flags)).collect::<Result<Vec<_>, _>>() else {
        return ExitCode::FAILURE;
    };
    let written = || parts.iter().chain([&claim]).all(|file| fsync(file).is_ok());
    // Twice: while we have it open nobody who closes it is the last who does, so that the kernel leaves his pages to us.
    let unused = (0..2).all(|_| written() && !users::opened_by_others(node)) && is_quiet(node);
    let mut out = std::io::stdout();
    if !unused || out.write_all(&[HELD]).and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    ExitCode::SUCCESS
}

/// Nothing is under way to it.
fn is_quiet(node: &str) -> bool {
    let under_way = read_to_string(Path::new("/sys/class/block").join(node).join("inflight"));
    under_way.is_ok_and(|text| text.split_whitespace().all(|n| n == "0"))
}
