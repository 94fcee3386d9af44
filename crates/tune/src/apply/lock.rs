//! The lock in the cluster that keeps two tuners apart.
//!
//! It lies on an object of its own namespace, ends by itself a minute after its holder fell silent, and names the process that
//! has it, so that the same host sees at once that this one is dead.

use crate::gather::asked::{ask, command};
use loligo_block::host_files::HostFiles;
use loligo_block::processes::Stat;
use loligo_ceph::advisory_lock::AdvisoryLock;
use loligo_ceph::commands::{CommandClient, Recipient};
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The time that the lock lasts unless it is renewed.
const LASTS: Duration = Duration::from_secs(60);
/// The time between two renewals.
const EVERY: Duration = Duration::from_secs(10);
/// The time after a renewal in which the lock counts as held: it ends later than that, whatever an answer took.
const COUNTS: Duration = Duration::from_secs(40);
/// The namespace and object of the lock, and its name.
const NAMESPACE: &str = "loligo-tune";
const OBJECT: &str = "tuner";
const NAME: &str = "tuner";
/// Pools of Ceph's own, which most clusters have.
const OWN_POOLS: [&str; 2] = [".mgr", "device_health_metrics"];

/// The lock, held as long as this is.
#[derive(Debug)]
pub struct Lock {
    lock: Arc<AdvisoryLock>,
    held: Arc<Held>,
    keeper: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Held {
    /// The moment at which the last renewal was asked for; nothing: it ends, or is lost.
    renewed: Mutex<Option<Moment>>,
    ends: Condvar,
}

impl Lock {
    /// Takes it.
    ///
    /// # Errors
    /// If another tuner has it, there is no pool for it, or the cluster does not answer; the words say who has it.
    pub fn take(client: &CommandClient) -> Result<Lock, String> {
        let me = Process::this()?;
        let pool = pool(client)?;
        let lock = client.lock(&pool, NAMESPACE, OBJECT, NAME, &me.words()).map_err(|why| why.to_string())?;
        let asked = Moment::now();
        let take = || lock.take(LASTS).map_err(|why| format!("{why} (in the pool {pool})"));
        if !take()? {
            let holder = lock.holder().map_err(|why| why.to_string())?;
            match holder {
                Some(holder) if me.knows_dead(&holder.cookie) => {
                    // Another may have taken it from the dead meanwhile: the next word decides.
                    let _ = lock.take_from(&holder);
                    if !take()? {
                        return Err(busy(&lock));
                    }
                }
                _ => return Err(busy(&lock)),
            }
        }
        let lock = Arc::new(lock);
        let held = Arc::new(Held { renewed: Mutex::new(Some(asked)), ends: Condvar::new() });
        let (ours, theirs) = (lock.clone(), held.clone());
        let keeper = std::thread::Builder::new()
            .name("tune-lock".to_owned())
            .spawn(move || keep(&|| ours.renew(LASTS).ok(), &theirs, EVERY))
            .map_err(|why| format!("no thread renews the lock: {why}"))?;
        Ok(Lock { lock, held, keeper: Some(keeper) })
    }

    /// It is held still: to be asked before each deed.
    ///
    /// # Errors
    /// If another has it, or nobody renewed it in time. Another tuner may be at work.
    pub fn check(&self) -> Result<(), String> {
        self.held.check()
    }
}

impl Held {
    fn check(&self) -> Result<(), String> {
        match *self.renewed.lock() {
            Some(at) if at.elapsed() < COUNTS => Ok(()),
            Some(_) => {
                Err("the lock in the cluster was not renewed in time, and another tuner may be at work")
            }
            None => Err("the lock in the cluster was lost, and another tuner may be at work"),
        }
        .map_err(str::to_owned)
    }
}

/// A moment by a clock that goes on while the host sleeps, as the cluster's does.
#[derive(Debug, Clone, Copy)]
struct Moment(Duration);

impl Moment {
    fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        Moment(Duration::try_from(now).unwrap_or_default())
    }

    fn elapsed(self) -> Duration {
        Moment::now().0.saturating_sub(self.0)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        *self.held.renewed.lock() = None;
        self.held.ends.notify_all();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
        // It ends by itself otherwise.
        let _ = self.lock.let_go();
    }
}

/// Renews the lock until it ends, or the cluster says that it has ended or another has it: it is never taken anew, since others may
/// have been at work between. `renew` says whether it is held; nothing: no answer.
fn keep(renew: &dyn Fn() -> Option<bool>, held: &Held, every: Duration) {
    let mut renewed = held.renewed.lock();
    while renewed.is_some() {
        held.ends.wait_for(&mut renewed, every);
        if renewed.is_none() {
            return;
        }
        drop(renewed);
        let asked = Moment::now();
        let is_held = renew();
        renewed = held.renewed.lock();
        match (is_held, renewed.as_mut()) {
            (Some(true), Some(at)) => *at = asked,
            (Some(false), _) => *renewed = None,
            _ => {}
        }
    }
}

fn busy(lock: &AdvisoryLock) -> String {
    let who = match lock.holder() {
        Ok(Some(holder)) => Process::read(&holder.cookie)
            .map_or(holder.cookie.clone(), |it| format!("process {} on {}", it.pid, it.host)),
        _ => "somebody".to_owned(),
    };
    format!(
        "another tuner has this cluster: {who}. Wait for its end; the lock of one that died ends by itself within {} s",
        LASTS.as_secs()
    )
}

/// The pool that the lock lies in: the oldest of Ceph's own and of those for images, so that all tuners take the same.
fn pool(client: &CommandClient) -> Result<String, String> {
    let map = ask(client, Recipient::Monitors, &command("osd dump"))?;
    let pools = map["pools"].as_array().into_iter().flatten();
    let fits = pools.filter_map(|pool| {
        let name = pool["pool_name"].as_str()?;
        let for_images = !pool["application_metadata"]["rbd"].is_null();
        (OWN_POOLS.contains(&name) || for_images).then_some((pool["pool"].as_i64()?, name))
    });
    let oldest = fits.min();
    oldest.map(|(_, name)| name.to_owned()).ok_or_else(|| {
        "no pool is there for the tuner's lock: make one for images ('ceph osd pool create rbd; rbd pool init rbd')"
            .to_owned()
    })
}

/// A process, told from a later one of the same number.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    host: String,
    boot: String,
    /// The space that its number is of: containers of one host count for themselves.
    space: String,
    pid: u32,
    /// Clock ticks from boot to its start.
    start: u64,
}

impl Process {
    fn this() -> Result<Process, String> {
        let files = HostFiles::new(Path::new("/"));
        let host = files.read("/proc/sys/kernel/hostname");
        let boot = files.read("/proc/sys/kernel/random/boot_id");
        let space = files.link("/proc/self/ns/pid").map(|it| it.display().to_string());
        let pid = std::process::id();
        match (host, boot, space, start(pid)) {
            (Some(host), Some(boot), Some(space), Some(start)) => {
                Ok(Process { host, boot, space, pid, start })
            }
            _ => Err("/proc says nothing of this process".to_owned()),
        }
    }

    fn words(&self) -> String {
        format!("{} {} {} {} {}", self.host, self.boot, self.space, self.pid, self.start)
    }

    fn read(words: &str) -> Option<Process> {
        let mut parts = words.split(' ');
        let mut next = || parts.next();
        let [host, boot, space] = [next()?, next()?, next()?].map(str::to_owned);
        Some(Process { host, boot, space, pid: next()?.parse().ok()?, start: next()?.parse().ok()? })
    }

    /// True if `cookie` is that of a process of this host that is dead.
    fn knows_dead(&self, cookie: &str) -> bool {
        let Some(other) = Process::read(cookie) else { return false };
        let is_seen = (&other.host, &other.boot, &other.space) == (&self.host, &self.boot, &self.space);
        is_seen && start(other.pid) != Some(other.start)
    }
}

/// The moment at which a process of this host started; nothing: there is none of this number.
fn start(pid: u32) -> Option<u64> {
    Some(Stat::of(pid).ok()?.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_has_is_lost_at_once() {
        let at = Mutex::new(Some(Moment::now()));
        let held = Held { renewed: at, ends: Condvar::new() };
        let answers = Mutex::new(vec![Some(false), None, Some(true)]);
        let take = || {
            assert_eq!(held.check(), Ok(()), "silence for less than the lock lasts is no loss");
            answers.lock().pop().expect("it is lost, and asked again")
        };
        keep(&take, &held, Duration::from_millis(1));
        assert!(answers.lock().is_empty());
        assert!(held.check().is_err_and(|why| why.contains("lost")));
    }

    #[test]
    fn a_lock_ends_by_the_time_that_a_host_slept_too() {
        let boot = Moment(Duration::ZERO).elapsed();
        let uptime = HostFiles::new(Path::new("/")).read("/proc/uptime").expect("/proc");
        let uptime: f64 = uptime.split(' ').next().and_then(|it| it.parse().ok()).expect("seconds");
        assert!((boot.as_secs_f64() - uptime).abs() < 5.0, "{boot:?} is not since boot, which is {uptime} s");
        let held = |at| Held { renewed: Mutex::new(Some(at)), ends: Condvar::new() };
        assert!(held(Moment::now()).check().is_ok());
        assert!(held(Moment(boot.saturating_sub(COUNTS))).check().is_err());
    }

    #[test]
    fn a_dead_process_of_this_boot_is_known_by_number_and_start() {
        let me = Process::this().expect("/proc");
        assert!(!me.knows_dead(&me.words()), "this process lives");
        let of = |boot: &str, space: &str| {
            let (host, boot, space) = (me.host.clone(), boot.to_owned(), space.to_owned());
            Process { host, boot, space, pid: me.pid, start: me.start + 1 }.words()
        };
        assert!(me.knows_dead(&of(&me.boot, &me.space)), "its number was given anew");
        assert!(!me.knows_dead(&of("another", &me.space)), "another boot may be another host");
        assert!(!me.knows_dead(&of(&me.boot, "pid:[1]")), "another container has numbers of its own");
        assert!(!me.knows_dead("x") && !me.knows_dead(""));
    }
}
