//! The array's word that this controller holds what a volume lies on, asked for again and again. Answers to clients leave only while
//! that word is young: an array refuses the writes of a controller that it has fenced, and lets it read.

use crate::options::{ReservationKey, ServeOptions};
use crate::reservation::word::{devices, holds, shown_of};
use anyhow::Result;
use loligo_block::lease::{Lease, boottime};
use loligo_block::silence::{Cause, Silence};
use loligo_log::say;
use loligo_pair::lease::{ASKED_EVERY, LEASE};
use loligo_pair::reservation::Key;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};

/// The hold on the arrays of one volume. It is given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    mine: Key,
    lease: Arc<Lease>,
    silence: Silence,
    /// A thread for each device, so that one that hangs holds no other up; each ends with its sender. With no device there is nobody to
    /// ask, and one thread says so.
    watches: Mutex<BTreeMap<Option<PathBuf>, Sender<()>>>,
}

impl Holding {
    /// Asks the arrays of `o` from now on; nothing: they are this host's alone. Devices with `silence` fall silent once another
    /// controller has one. `asked` ([`boottime`]) lies before the first question.
    ///
    /// # Errors
    /// If there can be no thread, or a device cannot be looked at.
    pub(crate) fn begin(o: &ServeOptions, silence: &Silence, asked: u64) -> Result<Option<Holding>> {
        let Some(ReservationKey(mine)) = o.reservation else { return Ok(None) };
        let lease = Lease::since(LEASE, asked);
        let holding = Holding { mine, lease, silence: silence.clone(), watches: Mutex::default() };
        holding.cover(o)?;
        Ok(Some(holding))
    }

    /// The lease, by which answers leave.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        self.lease.clone()
    }

    /// Asks of the devices of `o` from now on, and of no others.
    ///
    /// # Errors
    /// If there can be no thread, or a device cannot be looked at.
    pub(crate) fn cover(&self, o: &ServeOptions) -> Result<()> {
        let devices: Vec<_> = devices(o)?.into_iter().map(Some).collect();
        let wanted = if devices.is_empty() { vec![None] } else { devices };
        let mut watches = self.watches.lock();
        watches.retain(|device, _| wanted.contains(device));
        for device in wanted {
            if watches.contains_key(&device) {
                continue;
            }
            let (watch, over) = channel();
            let watcher = Watcher {
                device: device.clone(),
                mine: self.mine,
                lease: self.lease.clone(),
                silence: self.silence.clone(),
                over,
            };
            std::thread::Builder::new().name("holding".to_owned()).spawn(move || watcher.run())?;
            watches.insert(device, watch);
        }
        Ok(())
    }
}

/// The thread that asks the array of one device.
#[derive(Debug)]
struct Watcher {
    device: Option<PathBuf>,
    mine: Key,
    lease: Arc<Lease>,
    silence: Silence,
    over: Receiver<()>,
}

impl Watcher {
    fn run(self) {
        let mut had_failed = false;
        loop {
            let asked = boottime();
            let said = self.device.as_ref().map(|path| (path.display(), shown_of(path)));
            if self.is_over() {
                return;
            }
            let has_failed = matches!(said, Some((_, Err(_))));
            match said.map(|(path, shown)| (path, shown.map(|shown| holds(self.mine, &shown)))) {
                None | Some((_, Ok(Ok(())))) => self.lease.renew(asked),
                Some((path, Ok(Err(why)))) => {
                    let words = format!("fenced: by its array {path} is another controller's ({why})");
                    // First, so that no client hears the errors of silent devices.
                    self.lease.lose();
                    return self.silence.begin(Cause::Fenced(words));
                }
                // It says nothing: the lease runs out, and requests wait. Told once, as arrays fail for long.
                Some((path, Err(why))) if !had_failed => say!(
                    "warning: {path}: its array does not say who holds it ({why}): requests wait after a second of that"
                ),
                Some((_, Err(_))) => {}
            }
            had_failed = has_failed;
            if self.over.recv_timeout(ASKED_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// True if nobody wants its word any more: the device may be another's with good reason by now.
    fn is_over(&self) -> bool {
        self.over.try_recv() == Err(TryRecvError::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::lease::Hold;
    use std::time::{Duration, Instant};

    fn watched(device: Option<PathBuf>) -> (Arc<Lease>, Silence, Sender<()>) {
        let (watch, over) = channel();
        let (lease, silence) = (Lease::since(LEASE, boottime()), Silence::default());
        let watcher =
            Watcher { device, mine: Key(0xa), lease: lease.clone(), silence: silence.clone(), over };
        std::thread::spawn(move || watcher.run());
        (lease, silence, watch)
    }

    #[test]
    fn an_array_that_says_nothing_lets_the_lease_run_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (lease, silence, _watch) = watched(Some(file.path().to_owned()));
        let end = Instant::now() + Duration::from_secs(10);
        while lease.now() == Hold::Valid {
            assert!(Instant::now() < end, "it is still valid");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!((lease.now(), silence.cause()), (Hold::Expired, None));
    }

    #[test]
    fn a_volume_without_a_device_of_an_array_is_held() {
        let (lease, _, watch) = watched(None);
        std::thread::sleep(LEASE + ASKED_EVERY);
        assert_eq!(lease.now(), Hold::Valid);
        drop(watch);
        std::thread::sleep(LEASE + 2 * ASKED_EVERY);
        assert_eq!(lease.now(), Hold::Expired, "the thread ends with its watch");
    }
}
