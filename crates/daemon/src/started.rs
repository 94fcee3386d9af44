//! Programs that the daemon starts: they have nothing of its standing.

use crate::descriptors;
use std::process::Command;

/// Has `command` start as if nobody served volumes here: with the limit of open files of before, and without a way to speak to
/// systemd in the daemon's name.
pub(crate) fn apart(command: &mut Command) {
    descriptors::as_before(command);
    for name in ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"] {
        command.env_remove(name);
    }
}
