//! State that all paths of an array share, and the words by which it is shown and changed.

use loligo_pair::lun::{Counters, Defects, Lun};
use loligo_pair::reservation::{Port, Reservations};
use loligo_pair::writes::AbortId;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;

/// The name of the file on each mount.
pub const LUN: &str = "lun";
/// The attribute with the counters, as JSON.
pub const COUNTERS: &str = "user.loligo.counters";
/// The attribute by which a path's fault is set.
pub const FAULT: &str = "user.loligo.fault";
/// The attribute by which the array loses its power.
pub const POWER_CYCLE: &str = "user.loligo.power-cycle";

/// The fault of a path. Fields that are left out are no fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Every read, write and flush fails with EIO.
    pub eio: bool,
    /// The path is lost: calls that change the reservation fail too.
    pub lost: bool,
    /// Reservation calls are not answered while this stands.
    pub silent: bool,
    /// Milliseconds that a write takes in the array after it has begun.
    pub delay_ms: u64,
}

/// State that all paths share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) file: File,
    pub(super) bytes: u64,
    names: Vec<String>,
    pub(super) lun: Mutex<Lun>,
    /// Aborts that are over (true) or went with the power, and whose callers have not heard it yet.
    over: Mutex<BTreeMap<AbortId, bool>>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(file: File, bytes: u64, names: Vec<String>, defects: Defects) -> Shared {
        Shared {
            file,
            bytes,
            names,
            lun: Mutex::new(Lun::new(Reservations::default(), defects)),
            over: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// These aborts are over, or `done` is false: they went with the power.
    pub(super) fn tell(&self, over: Vec<AbortId>, done: bool) {
        if !over.is_empty() {
            self.over.lock().extend(over.into_iter().map(|abort| (abort, done)));
            self.changed.notify_all();
        }
    }

    /// Waits for an abort. False: it went with the power.
    pub(super) fn wait_for(&self, abort: AbortId) -> bool {
        let mut over = self.over.lock();
        loop {
            match over.remove(&abort) {
                Some(done) => return done,
                None => self.changed.wait(&mut over),
            }
        }
    }

    pub(super) fn counters(&self) -> BTreeMap<&str, Counters> {
        let lun = self.lun.lock();
        let of = |port: usize| lun.counters(Port(port as u32));
        self.names.iter().enumerate().map(|(port, name)| (name.as_str(), of(port))).collect()
    }
}
