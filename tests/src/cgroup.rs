//! A group of processes with little memory, of either version of control groups.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time that killed processes may take to be gone from a group.
const PATIENCE: Duration = Duration::from_secs(5);

/// The group; dropping it takes it away. Processes that still run in it then are killed.
#[derive(Debug)]
pub struct Tight {
    dir: PathBuf,
    is_v2: bool,
    limit: u64,
}

impl Tight {
    /// A group named `name` that may have `bytes` of memory, page cache included, and no swap.
    ///
    /// # Errors
    /// If there is none; the error says why, for a person to read.
    pub fn new(name: &str, bytes: u64) -> Result<Tight, String> {
        let v2 = PathBuf::from("/sys/fs/cgroup");
        let is_v2 = v2.join("cgroup.controllers").exists();
        let parent = if is_v2 { v2 } else { v2.join("memory") };
        let dir = parent.join(format!("{name}-{}", std::process::id()));
        let failed = |what: &str, e: std::io::Error| format!("no memory cgroup: {what}: {e}");
        if is_v2 {
            // Where it is on already, or may not be touched, the file below says so.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        fs::create_dir(&dir).map_err(|e| failed(&dir.display().to_string(), e))?;
        let tight = Tight { dir, is_v2, limit: bytes };
        let limit = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(tight.dir.join(limit), bytes.to_string()).map_err(|e| failed(limit, e))?;
        if is_v2 {
            let _ = fs::write(tight.dir.join("memory.swap.max"), "0");
        }
        Ok(tight)
    }

    /// True if it is of the second version of control groups.
    pub fn is_v2(&self) -> bool {
        self.is_v2
    }

    /// Its limit, bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Its list of processes: whoever writes a number there puts that process into it.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The number of times that the limit was hit.
    pub fn hits(&self) -> u64 {
        let read = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        if !self.is_v2 {
            return read("memory.failcnt").trim().parse().unwrap_or(0);
        }
        let events = read("memory.events");
        let max = events.lines().find_map(|l| l.strip_prefix("max "));
        max.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    }

    /// The most that was in use at once, bytes; 0 where the kernel does not say.
    pub fn peak(&self) -> u64 {
        let name = if self.is_v2 { "memory.peak" } else { "memory.max_usage_in_bytes" };
        let text = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Processes that the kernel killed for lack of memory; 0 where it does not say.
    pub fn killed(&self) -> u64 {
        let name = if self.is_v2 { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        let members = fs::read_to_string(self.procs()).unwrap_or_default();
        for pid in members.lines().filter_map(|l| l.parse().ok()) {
            // SAFETY: takes two numbers; the process is in a group that was made here.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let until = Instant::now() + PATIENCE;
        while fs::remove_dir(&self.dir).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
