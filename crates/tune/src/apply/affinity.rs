//! Processors of threads and of interrupts on a host: looked at and set one by one, and kept in a file for daemons that start anew.

use super::masks::Masks;
use crate::cpus::Cpus;
use crate::gather::{daemon, processes, threads};
use crate::partition::Group;
use loligo_block::host_files::HostFiles;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::CpuSet;
use std::io::Write as _;
use std::path::PathBuf;

/// The file that keeps them: `FSID osd.3/msgr-worker = 0-3`.
pub(super) const KEEPER: &str = "/etc/loligo/tune-threads.conf";
/// Rounds in which threads that began meanwhile are set as well.
const ROUNDS: usize = 4;
/// The scope of what is no cluster's.
const OF_HOST: &str = "-";

/// A place of processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bound {
    /// A group of an OSD's threads; without one all.
    Osd { id: i64, fsid: Option<String>, group: Option<Group> },
    /// loligod's shards.
    Shards,
    /// Interrupts of an interface.
    Irqs { device: String },
}

/// A thread or an interrupt.
#[derive(Debug)]
struct Item {
    name: String,
    cpus: Cpus,
    at: At,
}

#[derive(Debug)]
enum At {
    Thread { pid: String, tid: String, name: String },
    Irq(PathBuf),
}

impl Bound {
    /// Of its key; `fsid` is the cluster that OSDs are of.
    ///
    /// # Errors
    /// If there is no such place.
    pub(super) fn new(key: &str, fsid: Option<String>) -> Result<Bound, String> {
        let none = || format!("{key} is no place of processors");
        let (of, what) = key.split_once('/').ok_or_else(none)?;
        match (of.strip_prefix("osd.").and_then(|id| id.parse().ok()), what) {
            (Some(id), "all") => Ok(Bound::Osd { id, fsid, group: None }),
            (Some(id), word) => {
                let group = Group::ALL.into_iter().find(|group| group.word() == word).ok_or_else(none)?;
                Ok(Bound::Osd { id, fsid, group: Some(group) })
            }
            (None, "shards") if of == "loligod" => Ok(Bound::Shards),
            (None, "irq") if !of.is_empty() && !of.contains("..") => {
                Ok(Bound::Irqs { device: of.to_owned() })
            }
            _ => Err(none()),
        }
    }

    /// The beginning of its line in [`KEEPER`].
    ///
    /// # Errors
    /// If the cluster of an OSD is not known.
    pub(super) fn line(&self, host: &HostFiles, key: &str) -> Result<String, String> {
        let scope = match self {
            Bound::Osd { id, .. } => self
                .osd(host)?
                .map(|(_, fsid)| fsid)
                .or_else(|| self.fsid())
                .ok_or_else(|| format!("osd.{id} does not run here, and Ceph's file names no cluster"))?,
            _ => OF_HOST.to_owned(),
        };
        Ok(format!("{scope} {key} = "))
    }

    fn fsid(&self) -> Option<String> {
        match self {
            Bound::Osd { fsid, .. } => fsid.clone(),
            _ => None,
        }
    }

    /// The process of its OSD, with its cluster; nothing: it does not run.
    fn osd(&self, host: &HostFiles) -> Result<Option<(String, String)>, String> {
        let Bound::Osd { id, fsid, .. } = self else { return Ok(None) };
        let mut all = processes::of_osd(host, *id);
        if let Some(fsid) = fsid {
            all.retain(|(_, of)| of == fsid);
        }
        match all.len() {
            0 | 1 => Ok(all.pop()),
            _ => Err(format!(
                "several clusters have an osd.{id} here: Ceph's file must name one, by 'fsid = ID'"
            )),
        }
    }

    /// The threads or interrupts that are there now.
    ///
    /// # Errors
    /// If there is no such interface, or it is not known which OSD is meant.
    fn items(&self, host: &HostFiles) -> Result<Vec<Item>, String> {
        match self {
            Bound::Osd { group, .. } => {
                let Some((pid, _)) = self.osd(host)? else { return Ok(Vec::new()) };
                let is_meant = |name: &str| group.is_none_or(|group| Group::of(name) == group);
                Ok(of_threads(host, &pid, is_meant))
            }
            Bound::Shards => {
                let pids = daemon::processes(host);
                let all =
                    pids.iter().flat_map(|pid| of_threads(host, pid, |it| it.starts_with(daemon::SHARD)));
                Ok(all.collect())
            }
            Bound::Irqs { device } => {
                let irqs =
                    crate::gather::devices::interrupts(host, &format!("/sys/class/net/{device}/device"));
                let irqs = irqs.ok_or_else(|| format!("{device} has no interrupts of its own"))?;
                let one = |irq: crate::facts::Irq| {
                    let path = host.at(format!("/proc/irq/{}/smp_affinity_list", irq.id));
                    Some(Item { name: irq.id.to_string(), cpus: Cpus::parse(&irq.cpus)?, at: At::Irq(path) })
                };
                Ok(irqs.into_iter().filter_map(one).collect())
            }
        }
    }

    /// The value that is there now; nothing: nothing of it runs.
    ///
    /// # Errors
    /// If there is no such interface, or it is not known which OSD is meant.
    pub(super) fn look(&self, host: &HostFiles) -> Result<Option<String>, String> {
        let all = self.items(host)?.into_iter().map(|item| (item.name, item.cpus)).collect();
        Ok(Masks::of(all).map(|masks| masks.to_string()))
    }

    /// The reason why it cannot be set.
    pub(super) fn fixed(&self, host: &HostFiles) -> Option<String> {
        let items = match self.items(host) {
            Ok(items) if items.is_empty() => return Some("it does not run here".to_owned()),
            Ok(items) => items,
            Err(why) => return Some(why),
        };
        items.iter().find_map(|item| match &item.at {
            At::Irq(path) => {
                let why = std::fs::OpenOptions::new().write(true).open(path).err()?;
                Some(format!(
                    "{} cannot be written: {why}. Run it as root on the host itself",
                    path.display()
                ))
            }
            At::Thread { .. } if !rustix::process::geteuid().is_root() => {
                Some("threads of others are bound by root alone".to_owned())
            }
            At::Thread { pid, tid, .. } => is_of_this_machine(host, pid, tid).err(),
        })
    }

    /// Sets the value on all that is there, and looks at each one afterwards. The number of those.
    ///
    /// # Errors
    /// If one does not take it. Interrupts that were set before are put back then.
    pub(super) fn put(&self, host: &HostFiles, value: &str) -> Result<usize, String> {
        let want = Masks::parse(value).ok_or_else(|| format!("'{value}' is no list of processors"))?;
        let mut wrong = None;
        for _ in 0..ROUNDS {
            let items = self.items(host)?;
            let names: Vec<String> = items.iter().map(|item| item.name.clone()).collect();
            let want = if matches!(self, Bound::Irqs { .. }) { want.renamed(&names) } else { want.clone() };
            let is_other = |item: &&Item| item.cpus != *want.mask(&item.name);
            wrong = items.iter().find(is_other).map(|item| item.words(want.mask(&item.name)));
            if wrong.is_none() {
                return Ok(items.len());
            }
            let mut done: Vec<&Item> = Vec::new();
            for item in items.iter().filter(is_other) {
                if let Err(why) = item.set(host, want.mask(&item.name)) {
                    if matches!(self, Bound::Irqs { .. }) {
                        // Rollback has all of them, for those that refuse this.
                        done.iter().for_each(|it| drop(it.set(host, &it.cpus)));
                    }
                    return Err(why);
                }
                done.push(item);
            }
        }
        Err(wrong.unwrap_or_else(|| "it is set again and again by somebody else".to_owned()))
    }
}

impl Item {
    fn words(&self, want: &Cpus) -> String {
        match &self.at {
            At::Thread { tid, name, .. } => {
                format!(
                    "thread {name} ({tid}) is on {} and not on {want}: its control group may have no more",
                    self.cpus
                )
            }
            At::Irq(_) => format!("interrupt {} goes to {} and not to {want}", self.name, self.cpus),
        }
    }

    fn set(&self, host: &HostFiles, cpus: &Cpus) -> Result<(), String> {
        match &self.at {
            At::Thread { pid, tid, name } => {
                is_of_this_machine(host, pid, tid)?;
                bind(tid, cpus).map_err(|why| format!("thread {name} ({tid}) takes no CPUs {cpus}: {why}"))
            }
            At::Irq(path) => {
                let file = std::fs::OpenOptions::new().write(true).truncate(true).open(path);
                let wrote = file.and_then(|mut it| it.write_all(format!("{cpus}\n").as_bytes()));
                wrote.map_err(|why| {
                    let more = if why.raw_os_error() == Some(libc::EIO) {
                        ". The kernel places it by itself"
                    } else {
                        ""
                    };
                    format!("{} takes no '{cpus}': {why}{more}", path.display())
                })
            }
        }
    }
}

fn of_threads(host: &HostFiles, pid: &str, is_meant: impl Fn(&str) -> bool) -> Vec<Item> {
    let all = threads::look(host, pid).into_iter().filter(|thread| is_meant(&thread.name));
    let one = |thread: threads::Thread| {
        let start = start(&std::fs::read(host.at(stat(pid, &thread.tid))).ok()?)?;
        let at = At::Thread { pid: pid.to_owned(), tid: thread.tid.clone(), name: thread.name };
        Some(Item { name: format!("{}@{start}", thread.tid), cpus: Cpus::parse(&thread.cpus)?, at })
    };
    all.filter_map(one).collect()
}

fn stat(pid: &str, tid: &str) -> String {
    format!("/proc/{pid}/task/{tid}/stat")
}

/// The tick of a start, by the text of `stat`: the 22nd field. The second is a name, and may hold blanks.
fn start(stat: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stat);
    text.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// A recorded tree names threads that are none here, and others of this machine have their numbers.
fn is_of_this_machine(host: &HostFiles, pid: &str, tid: &str) -> Result<(), String> {
    let of = |path: PathBuf| std::fs::read(path).ok().and_then(|text| start(&text));
    let (there, here) = (of(host.at(stat(pid, tid))), of(PathBuf::from(stat(pid, tid))));
    // One that has ended is in neither.
    if there == here {
        Ok(())
    } else {
        Err(format!("thread {tid} is none of this machine: this is a recorded tree"))
    }
}

/// Binds a thread; one that has ended is done.
fn bind(tid: &str, cpus: &Cpus) -> Result<(), String> {
    let pid = tid.parse().ok().and_then(Pid::from_raw).ok_or("it is none")?;
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        let at = usize::try_from(cpu).ok().filter(|at| *at < CpuSet::MAX_CPU);
        set.set(at.ok_or_else(|| format!("CPU {cpu} is beyond {}", CpuSet::MAX_CPU))?);
    }
    match rustix::thread::sched_setaffinity(Some(pid), &set) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(Errno::PERM) => Err("threads of others are bound by root alone".to_owned()),
        Err(Errno::INVAL) => Err("the machine or its control group has none of them".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// The lines that a host keeps for one daemon, `osd.3` or `loligod`, and of interrupts: cluster, key and value.
pub(super) fn kept(host: &HostFiles, daemon: &str) -> Vec<(Option<String>, String, String)> {
    let text = std::fs::read_to_string(host.at(KEEPER)).unwrap_or_default();
    let one = |line: &str| {
        let (place, value) = line.split_once(" = ")?;
        let (scope, key) = place.split_once(' ')?;
        let (of, what) = key.split_once('/')?;
        let scope = (scope != OF_HOST).then(|| scope.to_owned());
        (of == daemon || what == "irq").then(|| (scope, key.to_owned(), value.to_owned()))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Order, Value, carry_out};
    use crate::rules::Target;
    use crate::small_tree::{put, tree};
    use std::path::Path;

    /// A host with an interface of three interrupts.
    fn host() -> tempfile::TempDir {
        tree(&[
            ("sys/class/net/e0/device/msi_irqs/9", "msix\n"),
            ("sys/class/net/e0/device/msi_irqs/10", "msix\n"),
            ("sys/class/net/e0/device/msi_irqs/11", "msix\n"),
            ("proc/irq/9/smp_affinity_list", "0-3\n"),
            ("proc/irq/10/smp_affinity_list", "2\n"),
            ("proc/irq/11/smp_affinity_list", "0-3\n"),
        ])
    }

    fn irqs(root: &Path) -> Vec<String> {
        let read = |irq| std::fs::read_to_string(root.join(format!("proc/irq/{irq}/smp_affinity_list")));
        [9, 10, 11].map(|irq| read(irq).expect("a mask").trim().to_owned()).to_vec()
    }

    fn order(root: &Path, key: &str, value: Option<Value>) -> Result<Value, String> {
        let order = Order {
            target: Target::Affinity,
            key: key.into(),
            conf: "/etc/ceph/ceph.conf".into(),
            put: value,
            trial: None,
        };
        carry_out(root, &order).map(|mut found| found.remove(0).value)
    }

    #[test]
    fn interrupts_are_set_kept_and_put_back() {
        let dir = host();
        let root = dir.path();
        let before = order(root, "e0/irq", None).expect("found");
        assert_eq!(before.words(), "9=0-3 10=2 11=0-3");
        let want = Value {
            now: Some("9=0 10=1 11=2".into()),
            kept: Some("9=0 10=1 11=2".into()),
            ..Value::default()
        };
        assert_eq!(order(root, "e0/irq", Some(want.clone())), Ok(want));
        assert_eq!(irqs(root), ["0", "1", "2"]);
        let kept = std::fs::read_to_string(root.join("etc/loligo/tune-threads.conf")).expect("kept");
        assert!(kept.ends_with("\n- e0/irq = 9=0 10=1 11=2\n"), "{kept}");
        assert_eq!(order(root, "e0/irq", Some(before.clone())), Ok(before));
        assert_eq!(irqs(root), ["0-3", "2", "0-3"]);
        assert!(!root.join("etc/loligo/tune-threads.conf").exists());
        for bad in ["e0/nothing", "osd.x/all", "osd.1/nothing", "../e0/irq", "e0"] {
            assert!(order(root, bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_interrupt_that_refuses_leaves_none_half_set() {
        let dir = host();
        // The kernel gives such a file to nobody.
        let last = dir.path().join("proc/irq/11/smp_affinity_list");
        std::fs::remove_file(&last).expect("it goes");
        std::os::unix::fs::symlink("/sys/devices/system/cpu/online", &last).expect("a link");
        let files = HostFiles::new(dir.path());
        let bound = Bound::new("e0/irq", None).expect("a place");
        let why = bound.fixed(&files).expect("it cannot be set");
        assert!(why.contains("irq/11/smp_affinity_list cannot be written"), "{why}");
        assert!(bound.put(&files, "9=3 10=3 11=3").is_err());
        assert_eq!(irqs(dir.path())[..2], ["0-3", "2"]);
    }

    #[test]
    fn an_osd_of_another_cluster_is_another() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        for (pid, fsid) in [("7", "a"), ("8", "b")] {
            put(root, &format!("proc/{pid}/comm"), "ceph-osd\n");
            put(root, &format!("proc/{pid}/cmdline"), "ceph-osd\0-i\x003\0");
            put(root, &format!("proc/{pid}/task/{pid}/comm"), "ceph-osd\n");
            put(root, &format!("proc/{pid}/task/{pid}/status"), "Cpus_allowed_list:\t0-1\n");
            put(
                root,
                &format!("proc/{pid}/task/{pid}/stat"),
                &format!("{pid} (a) b) S {}77 0\n", "0 ".repeat(18)),
            );
            put(root, &format!("osd-{fsid}/ceph_fsid"), &format!("{fsid}\n"));
            std::fs::create_dir_all(root.join(format!("proc/{pid}/fd"))).expect("a folder");
            let to = format!("/osd-{fsid}/fsid");
            std::os::unix::fs::symlink(to, root.join(format!("proc/{pid}/fd/3"))).expect("a link");
        }
        let files = HostFiles::new(root);
        let of = |fsid: Option<&str>| Bound::new("osd.3/all", fsid.map(str::to_owned)).expect("a place");
        assert_eq!(of(Some("b")).items(&files).expect("found")[0].name, "8@77");
        assert_eq!(of(Some("b")).line(&files, "osd.3/all").as_deref(), Ok("b osd.3/all = "));
        let why = of(None).look(&files).expect_err("which one?");
        assert!(why.contains("several clusters"), "{why}");
        // Nothing of it runs: the line is known all the same, so that it can be taken away.
        assert_eq!(of(Some("c")).look(&files), Ok(None));
        assert_eq!(of(Some("c")).line(&files, "osd.3/all").as_deref(), Ok("c osd.3/all = "));
        let why = of(Some("a")).put(&files, "0").expect_err("a recorded tree");
        assert!(why.contains("recorded tree"), "{why}");
    }
}
