//! State that all paths of an array share, and the words by which it is shown and changed.

use super::keep::{Keep, Memory};
use super::medium::Medium;
use super::spec::LunSpec;
use anyhow::{Context, Result, ensure};
use loligo_pair::lun::{Command, Counters, Defects, Lun, Reply};
use loligo_pair::reservation::Port;
use loligo_pair::writes::AbortId;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The attribute with the counters, as JSON.
pub const COUNTERS: &str = "user.loligo.counters";
/// The attribute by which a path's fault is set.
pub const FAULT: &str = "user.loligo.fault";
/// The attribute by which the array loses its power.
pub const POWER_CYCLE: &str = "user.loligo.power-cycle";

/// The fault of a path to a LUN. Fields that are left out are no fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// Every read, write and flush fails with EIO.
    pub eio: bool,
    /// The path is lost: calls of the reservation fail too.
    pub lost: bool,
    /// Reads, writes and flushes wait in the host while this stands, as by a multipath that queues without a path. Calls of the
    /// reservation fail.
    pub queues: bool,
    /// Reservation calls are not answered while this stands.
    pub silent: bool,
    /// A write reaches the medium in two parts, split at a block of 4 KiB, with the delay between them (20 ms at least). A loss of
    /// power in between tears it.
    pub torn: bool,
    /// Milliseconds that a write takes in the array after it has begun.
    pub delay_ms: u64,
}

/// One LUN, as all paths share it.
#[derive(Debug)]
pub(super) struct Shared {
    /// The name of its file on each mount.
    pub(super) name: String,
    pub(super) medium: Medium,
    paths: Arc<Vec<String>>,
    pub(super) lun: Mutex<Lun>,
    keep: Mutex<Keep>,
    /// Aborts that are over (true) or went with the power, and whose callers have not heard it yet.
    over: Mutex<BTreeMap<AbortId, bool>>,
    changed: Condvar,
}

impl Shared {
    /// The LUN `spec`, with the registrations that it remembers: its power was away.
    ///
    /// # Errors
    /// If its files cannot be used, or it was served by other paths.
    pub(super) fn open(spec: &LunSpec, paths: Arc<Vec<String>>, defects: Defects) -> Result<Shared> {
        let medium = Medium::open(&spec.backing, spec.size)?;
        let (keep, memory) = Keep::open(&Keep::beside(&spec.backing))?;
        let Memory { paths: had, mut reservations, counters } =
            memory.unwrap_or_else(|| Memory { paths: paths.to_vec(), ..Memory::default() });
        ensure!(
            had == *paths,
            "{} was served by the paths {}: give the same, in this order",
            spec.backing.display(),
            had.join(", ")
        );
        reservations.power_cycle(!defects.forgets_at_power_cycle);
        let ports = paths.iter().enumerate();
        let counters = ports.filter_map(|(n, name)| Some((Port(n as u32), *counters.get(name)?))).collect();
        let shared = Shared {
            name: spec.name.clone(),
            medium,
            paths,
            lun: Mutex::new(Lun::new(reservations, defects).with_counters(counters)),
            keep: Mutex::new(keep),
            over: Mutex::default(),
            changed: Condvar::new(),
        };
        let lun = shared.lun.lock();
        shared
            .remember(&lun, true)
            .with_context(|| format!("what {} remembers cannot be written", spec.name))?;
        drop(lun);
        Ok(shared)
    }

    /// Carries `command` of `port` out. What it changes of the registrations is durable before the answer.
    ///
    /// # Errors
    /// If that cannot be written; nothing has changed then.
    pub(super) fn command(&self, port: Port, command: Command) -> io::Result<Reply> {
        let mut lun = self.lun.lock();
        let before = lun.clone();
        let reply = lun.command(port, command);
        if lun.reservations() != before.reservations()
            && let Err(why) = self.remember(&lun, true)
        {
            *lun = before;
            return Err(why);
        }
        Ok(reply)
    }

    /// The array loses its power, and has it again.
    pub(super) fn power_cycle(&self) -> io::Result<()> {
        let mut lun = self.lun.lock();
        let lost = lun.power_cycle();
        let kept = self.remember(&lun, true);
        drop(lun);
        self.tell(lost, false);
        kept
    }

    /// Writes down what the LUN remembers.
    fn remember(&self, lun: &Lun, durably: bool) -> io::Result<()> {
        let counters = self.by_path(lun).into_iter().map(|(name, c)| (name.to_owned(), c)).collect();
        let memory =
            Memory { paths: self.paths.to_vec(), reservations: lun.reservations().clone(), counters };
        self.keep.lock().write(&memory, durably)
    }

    /// Writes down the counters, which change with each write.
    pub(super) fn remember_counters(&self) -> io::Result<()> {
        self.remember(&self.lun.lock(), false)
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

    fn by_path(&self, lun: &Lun) -> BTreeMap<&str, Counters> {
        let of = |port: usize| lun.counters(Port(port as u32));
        self.paths.iter().enumerate().map(|(port, name)| (name.as_str(), of(port))).collect()
    }

    pub(super) fn counters(&self) -> BTreeMap<&str, Counters> {
        self.by_path(&self.lun.lock())
    }
}
