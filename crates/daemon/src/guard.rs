//! Measures by which a process that block devices hang on never waits for memory that only its own writes could free.

use loligo_log::say;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::configure_io_flusher_behavior;

/// As the kernel writes it: never chosen when memory is short.
const NEVER: &str = "-1000";

/// Keeps its pages in memory, keeps it from being killed when there is little, and has the kernel not start
/// write-back of other files on its account. Measures that this user may not take are reported, and the
/// daemon goes on: volumes that no program of this host writes to are none the worse.
pub(crate) fn prepare() {
    // Pages that are not touched yet are locked when they are: the tables of a cache are reserved whole and used by and by.
    if let Err(e) = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT) {
        say!(
            "warning: memory cannot be locked ({e}): give LimitMEMLOCK=infinity, or the capability CAP_IPC_LOCK"
        );
    }
    if let Err(e) = std::fs::write("/proc/self/oom_score_adj", NEVER) {
        say!("warning: the score for running out of memory cannot be set ({e}): give OOMScoreAdjust=-1000");
    }
    // Allocations of this thread, and of those that it starts, never wait for the I/O of file systems.
    if let Err(e) = configure_io_flusher_behavior(true) {
        say!(
            "warning: this process cannot be marked as one that writes for others ({e}): give the capability CAP_SYS_RESOURCE"
        );
    }
}

/// Takes the mark of [`prepare`] from this thread, and so from the programs that it starts: it is a service's, and not a script's.
pub(crate) fn unmark() {
    // Where it could not be set it is not there.
    let _ = configure_io_flusher_behavior(false);
}
