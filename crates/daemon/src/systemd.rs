//! Words to systemd.

use sd_notify::NotifyState;

/// Tells the service manager how this process is.
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    // Nobody listens where systemd is not.
    let _ = sd_notify::notify(states);
}
