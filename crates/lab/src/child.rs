//! Child processes that cannot outlive the run: each has its own process group, is killed with its whole group when its
//! guard is dropped, and is killed by the kernel when the thread that started it dies (so even SIGKILL of this program
//! leaves nothing running).

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};

use crate::interrupt::{Interrupt, Interrupted};

/// The number of times that a waiting loop looks at the child and at the interrupt flag.
const POLL: Duration = Duration::from_millis(20);

/// A running child process; dropping it kills its process group and reaps it.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    exited: Option<ExitStatus>,
}

impl Child {
    /// Starts `command` in a process group of its own with SIGKILL as parent-death signal. The signal follows the
    /// *thread* that calls this, so call it from one that lives as long as the child is wanted.
    pub fn spawn(command: &mut Command) -> io::Result<Child> {
        let parent = rustix::process::getpid();
        command.process_group(0);
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                // The parent may have died before the signal was armed.
                if getppid() != Some(parent) {
                    return Err(io::Error::from_raw_os_error(3));
                }
                Ok(())
            });
        }
        Ok(Child { inner: command.spawn()?, exited: None })
    }

    /// The same for a deed that is not to be cut in the middle: it goes on if this program is killed.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_apart(command: &mut Command) -> io::Result<Child> {
        Ok(Child { inner: command.process_group(0).spawn()?, exited: None })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// The child's standard input, once, where it is piped.
    pub fn take_stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.inner.stdin.take()
    }

    /// The child's standard output, once, where it was piped.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.inner.stdout.take()
    }

    /// The child's standard error, once, where it was piped.
    pub fn take_stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.inner.stderr.take()
    }

    /// The exit status if the child has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.exited.is_none() {
            self.exited = self.inner.try_wait()?;
        }
        Ok(self.exited)
    }

    /// Sends SIGTERM and waits up to `limit`; `None` means that it did not end in time (and is still running).
    pub fn terminate(
        &mut self,
        stop: &Interrupt,
        limit: Duration,
    ) -> Result<Option<ExitStatus>, Interrupted> {
        let begun = Instant::now();
        if matches!(self.try_wait(), Ok(None)) {
            let _ = kill_process(self.pid(), Signal::TERM);
        }
        loop {
            if let Ok(Some(status)) = self.try_wait() {
                return Ok(Some(status));
            }
            stop.check()?;
            if begun.elapsed() > limit {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.inner)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !matches!(self.try_wait(), Ok(Some(_))) {
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.inner.kill();
            let _ = self.inner.wait();
        }
    }
}

/// Says how a process ended in words: `exit code 1`, `signal 9`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown end".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::processes::has_ended;

    fn alive(pid: u32) -> bool {
        !has_ended(pid)
    }

    #[test]
    fn a_dropped_child_dies_with_the_processes_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let note = dir.path().join("pid");
        let script = format!("sleep 100 & echo $! > {0}.tmp; mv {0}.tmp {0}; wait", note.display());
        let child = Child::spawn(Command::new("sh").args(["-c", &script])).unwrap();
        let grandchild = loop {
            match std::fs::read_to_string(&note) {
                Ok(text) => break text.trim().parse::<u32>().unwrap(),
                Err(_) => std::thread::sleep(POLL),
            }
        };
        assert!(alive(grandchild));
        drop(child);
        let begun = Instant::now();
        while alive(grandchild) {
            assert!(begun.elapsed() < Duration::from_secs(10), "the grandchild outlived its group");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn a_child_dies_when_the_thread_that_started_it_dies() {
        let child =
            std::thread::spawn(|| Child::spawn(Command::new("sleep").arg("100")).unwrap()).join().unwrap();
        let mut child = child;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(POLL),
            }
        };
        assert_eq!(describe(status), "signal 9");
    }
}
