//! Processes of OSDs on a host: memory, limits of their control groups, their threads, and the place of their data.

use super::threads::{allowed, devices, look as look_at};
use super::units;
use super::{cgroup, environment, osd_log, pids};
use crate::facts::{Behind, Plugins};
use loligo_block::host_files::HostFiles;
use loligo_block::mounts::{self, Mount};
use loligo_block::processes::Stat;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The program of an OSD.
const PROGRAM: &str = "ceph-osd";
/// The time over which threads are looked at.
const OVER: Duration = Duration::from_secs(1);
/// Ticks of a second in `/proc`: `USER_HZ` is 100 on every architecture of Linux that Ceph runs on.
const HZ: f64 = 100.0;

/// The process of an OSD.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OsdProcess {
    /// The OSD.
    pub id: i64,
    /// Its cluster, by the file in its folder.
    pub fsid: String,
    /// Memory that it has, bytes.
    pub rss: Option<i64>,
    /// The memory limit of its control group; 0: none.
    pub cgroup_limit: Option<i64>,
    /// Processors that its control group may use; 0: all.
    pub cpu_limit: Option<f64>,
    /// Its threads.
    pub threads: Option<i64>,
    /// Threads `tp_osd_tp`.
    pub op_threads: Option<i64>,
    /// Its program maps liburing.
    pub liburing: Option<bool>,
    /// The share of a processor that the thread bstore_kv_sync takes.
    pub kv_sync_busy: Option<f64>,
    /// The same of the busiest msgr-worker.
    pub msgr_busy: Option<f64>,
    /// Disks below the devices that it has open.
    pub disks: Vec<String>,
    /// Its unit of systemd; empty: none.
    pub unit: String,
    /// This program's drop-in of that unit; empty: there is none.
    pub drop_in: String,
    /// Processors that its threads may use, by group.
    pub allowed: BTreeMap<String, String>,
    /// The cache in front of its data; nothing: the layers below its data could not be seen.
    pub cache: Option<Behind>,
    /// The disk that its data are on, as the kernel of the host has it.
    pub device: Option<String>,
    /// Plugins in the folder of libraries that it sees.
    pub plugins: Option<Plugins>,
    /// The variables of its environment that rules set.
    pub environment: Option<BTreeMap<String, String>>,
    /// Lines of its log since its start that tell of a failure.
    pub log_errors: Option<Vec<String>>,
    /// Column families of its RocksDB; empty: one.
    pub sharding: Option<String>,
    /// The place of its data, as the process sees it.
    #[serde(skip)]
    pub(super) store: Option<Store>,
}

/// The place of an OSD's data.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Store {
    /// The device or file.
    pub(super) block: PathBuf,
    /// Mounts that the process sees.
    pub(super) mounts: Vec<Mount>,
}

/// The processes of OSDs on the host whose files lie under `root`. Threads are looked at for a second on this host itself; a recorded
/// tree stands still.
pub(super) fn look(root: &Path) -> Vec<OsdProcess> {
    let files = HostFiles::new(root);
    let mut found: Vec<(String, OsdProcess)> = pids::of(&files, &[PROGRAM])
        .into_iter()
        .filter_map(|pid| one(&files, &pid).map(|it| (pid, it)))
        .collect();
    if root == Path::new("/") && !found.is_empty() {
        busy(&files, &mut found);
    }
    found.into_iter().map(|(_, it)| it).collect()
}

fn one(files: &HostFiles, pid: &str) -> Option<OsdProcess> {
    let at = |name: &str| format!("/proc/{pid}/{name}");
    let words = files.read(at("cmdline"))?;
    let id = number(&words)?;
    let status = files.read(at("status")).unwrap_or_default();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let threads = look_at(files, pid);
    let folder = folder(files, pid)?;
    let fsid = seen(files, pid, &folder.join("ceph_fsid"))?;
    let unit = units::of_osd(files, pid, id, &fsid).unwrap_or_default();
    let maps = files.read(at("maps"));
    let log = osd_log::look(files, pid);
    Some(OsdProcess {
        plugins: plugins(files, pid),
        environment: environment::of(files, pid),
        log_errors: log.as_ref().map(|log| log.errors.clone()),
        sharding: log.and_then(|log| log.sharding),
        id,
        drop_in: if unit.is_empty() { String::new() } else { units::drop_in(files, &unit) },
        unit,
        disks: devices(files, pid).into_iter().collect(),
        allowed: allowed(&threads),
        fsid,
        store: Some(store(files, pid, &folder)),
        rss: rss.and_then(|it| it.split_whitespace().next()?.parse::<i64>().ok()).map(|kib| kib << 10),
        cgroup_limit: cgroup::memory(files, pid),
        cpu_limit: cgroup::cpus(files, pid),
        threads: (!threads.is_empty()).then_some(threads.len() as i64),
        op_threads: (!threads.is_empty())
            .then(|| threads.iter().filter(|it| it.name == "tp_osd_tp").count() as i64),
        liburing: maps.filter(|it| !it.is_empty()).map(|it| it.contains("liburing")),
        ..OsdProcess::default()
    })
}

/// The process of an OSD that this unit of systemd runs.
pub(crate) fn of_unit(files: &HostFiles, unit: &str) -> Option<String> {
    pids::of(files, &[PROGRAM]).into_iter().find(|pid| units::runs(files, unit, pid))
}

/// True if a process of an OSD of this number runs that is not known to be of another cluster than `fsid`.
pub(crate) fn has_osd(files: &HostFiles, id: i64, fsid: Option<&str>) -> bool {
    let is_of = |pid: &String| match (cluster_of(files, pid), fsid) {
        (Some(its), Some(own)) => its == own,
        _ => true,
    };
    numbered(files, id).iter().any(is_of)
}

/// The cluster of an OSD's process, by the file in its folder.
fn cluster_of(files: &HostFiles, pid: &str) -> Option<String> {
    seen(files, pid, &folder(files, pid)?.join("ceph_fsid"))
}

fn numbered(files: &HostFiles, id: i64) -> Vec<String> {
    let is_it = |pid: &String| {
        files.read(format!("/proc/{pid}/cmdline")).and_then(|words| number(&words)) == Some(id)
    };
    pids::of(files, &[PROGRAM]).into_iter().filter(is_it).collect()
}

/// The processes of an OSD of this number, each with its cluster.
pub(crate) fn of_osd(files: &HostFiles, id: i64) -> Vec<(String, String)> {
    let pids = numbered(files, id).into_iter();
    pids.filter_map(|pid| Some((cluster_of(files, &pid)?, pid))).map(|(fsid, pid)| (pid, fsid)).collect()
}

/// The number in the words of a command: `-i 3`, `--id 3`, `-n osd.3`.
fn number(words: &str) -> Option<i64> {
    let words: Vec<&str> = words.split('\0').collect();
    let after = |flags: [&str; 2]| {
        let at = words.iter().position(|word| flags.contains(word))?;
        words.get(at + 1).copied()
    };
    let id = after(["-i", "--id"]).or_else(|| after(["-n", "--name"])?.strip_prefix("osd."))?;
    id.parse().ok()
}

/// The folder whose lock the process holds open.
fn folder(files: &HostFiles, pid: &str) -> Option<PathBuf> {
    let fds = format!("/proc/{pid}/fd");
    let mut lock = files.names(&fds).into_iter().filter_map(|fd| files.link(format!("{fds}/{fd}")));
    lock.find(|path| path.ends_with("fsid")).and_then(|path| path.parent().map(Path::to_owned))
}

/// A file as the process sees it: its container may have another root.
fn seen(files: &HostFiles, pid: &str, path: &Path) -> Option<String> {
    files.read(format!("/proc/{pid}/root{}", path.display())).or_else(|| files.read(path))
}

/// The place of an OSD's data, by the entry `block` of its folder.
fn store(files: &HostFiles, pid: &str, folder: &Path) -> Store {
    let block = folder.join("block");
    let inside = format!("/proc/{pid}/root{}", block.display());
    let to = files.link(inside).or_else(|| files.link(&block));
    let list = files.read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    Store { block: to.unwrap_or(block), mounts: mounts::parse(list.as_bytes()) }
}

/// Folders that Ceph's plugins are installed in.
pub(super) const LIBRARIES: [&str; 4] =
    ["/usr/lib64/ceph", "/usr/lib/ceph", "/usr/lib/x86_64-linux-gnu/ceph", "/usr/lib/aarch64-linux-gnu/ceph"];

/// Plugins that the process can load: those in the folder of libraries, in its own root.
fn plugins(files: &HostFiles, pid: &str) -> Option<Plugins> {
    let roots = [format!("/proc/{pid}/root"), String::new()];
    let mut folders = roots.iter().flat_map(|root| LIBRARIES.iter().map(move |it| format!("{root}{it}")));
    let folder = folders.find(|it| files.has(format!("{it}/erasure-code")))?;
    let named = |kind: &str, prefix: &str| {
        let names = files.names(format!("{folder}/{kind}")).into_iter();
        names.filter_map(|name| Some(name.strip_prefix(prefix)?.strip_suffix(".so")?.to_owned())).collect()
    };
    Some(Plugins { compressors: named("compressor", "libceph_"), ec: named("erasure-code", "libec_") })
}

/// Fills in how busy threads are.
fn busy(files: &HostFiles, found: &mut [(String, OsdProcess)]) {
    let ticks = |pid: &str, tid: &str| Stat::of(format!("{pid}/task/{tid}")).ok().map(|it| it.ticks);
    let wanted = |name: &str| name == "bstore_kv_sync" || name.starts_with("msgr-worker");
    let mut before = Vec::new();
    for (at, (pid, _)) in found.iter().enumerate() {
        for it in look_at(files, pid).into_iter().filter(|it| wanted(&it.name)) {
            before.push((at, ticks(pid, &it.tid), it.tid, it.name));
        }
    }
    let begun = Instant::now();
    std::thread::sleep(OVER);
    for (at, before, tid, name) in before {
        let (pid, osd) = &mut found[at];
        let Some((before, after)) = before.zip(ticks(pid, &tid)) else { continue };
        let share = after.saturating_sub(before) as f64 / HZ / begun.elapsed().as_secs_f64();
        let busy = if name == "bstore_kv_sync" { &mut osd.kv_sync_busy } else { &mut osd.msgr_busy };
        *busy = Some(busy.unwrap_or(0.0).max(share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::put;

    #[test]
    fn a_process_is_known_by_its_words_its_group_and_the_folder_that_it_holds() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| put(dir.path(), path, text);
        put("proc/7/comm", "ceph-osd\n");
        put("proc/7/cmdline", "/usr/bin/ceph-osd\0-f\0--cluster\0ceph\0--id\x003\0");
        put("proc/7/status", "Name:\tceph-osd\nVmRSS:\t 1024 kB\n");
        put("proc/7/cgroup", "0::/system.slice/ceph-osd@3.service\n");
        put("sys/fs/cgroup/system.slice/ceph-osd@3.service/memory.max", "max\n");
        put("sys/fs/cgroup/system.slice/ceph-osd@3.service/cpu.max", "250000 100000\n");
        for (tid, name) in
            [("7", "ceph-osd"), ("8", "tp_osd_tp"), ("9", "tp_osd_tp"), ("10", "bstore_kv_sync")]
        {
            put(&format!("proc/7/task/{tid}/comm"), &format!("{name}\n"));
        }
        put("var/lib/ceph/osd/ceph-3/ceph_fsid", "f\n");
        put("usr/lib/ceph/erasure-code/libec_isa.so", "");
        put("usr/lib/ceph/compressor/libceph_snappy.so", "");
        std::fs::create_dir_all(dir.path().join("proc/7/fd")).expect("a folder");
        std::os::unix::fs::symlink("/var/lib/ceph/osd/ceph-3/fsid", dir.path().join("proc/7/fd/11"))
            .expect("a link");
        std::os::unix::fs::symlink("/dev/sdb", dir.path().join("var/lib/ceph/osd/ceph-3/block"))
            .expect("a link");
        put("proc/8/comm", "ceph-mon\n");
        let all = look(dir.path());
        let want = OsdProcess {
            id: 3,
            fsid: "f".into(),
            rss: Some(1 << 20),
            cgroup_limit: Some(0),
            cpu_limit: Some(2.5),
            threads: Some(4),
            op_threads: Some(2),
            unit: "ceph-osd@3.service".into(),
            plugins: Some(Plugins { compressors: vec!["snappy".into()], ec: vec!["isa".into()] }),
            store: Some(Store { block: "/dev/sdb".into(), mounts: Vec::new() }),
            ..OsdProcess::default()
        };
        assert_eq!(all, [want]);
    }

    #[test]
    fn the_number_of_an_osd_is_read_in_each_form() {
        let of = |words: &str| number(&words.replace(' ', "\0"));
        assert_eq!(of("ceph-osd -f -i 3"), Some(3));
        assert_eq!(of("/usr/bin/ceph-osd -n osd.12 -f --setuser ceph"), Some(12));
        assert_eq!(of("ceph-osd --mkfs"), None);
    }
}
