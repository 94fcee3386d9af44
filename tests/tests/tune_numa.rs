//! Processors and nodes: partitions of three machines, and threads of real OSDs that are bound, bound again and put back.

use loligo_tests::lab::{Lab, good, refused, until};
use loligo_tests::machine::{Machine, altra, kunpeng, numbers, xeon};
use loligo_tests::server::program;
use loligo_tests::skip::{cluster, installed, root, skip};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn tune(args: &[&str]) -> Output {
    Command::new(program()).arg("tune").args(args).stdin(Stdio::null()).output().expect("the program runs")
}

fn json(out: Output) -> Value {
    serde_json::from_slice(&good(out).stdout).expect("JSON")
}

/// The facts, the partition and the plan of a machine.
fn seen(machine: &Machine) -> (Value, Value, Value) {
    let dir = tempfile::tempdir().expect("a folder");
    machine.lay(dir.path());
    let root = dir.path().to_str().expect("a path");
    let of = |what: &str| json(tune(&[what, "--root", root, "--no-cluster", "--json"]));
    let facts = of("facts");
    let file = dir.path().join("facts.json");
    std::fs::write(&file, facts.to_string()).expect("a file");
    let again = json(tune(&["partition", "--facts", file.to_str().expect("a path"), "--json"]));
    let partition = of("partition");
    assert_eq!(partition, again, "facts in a file make the same partition");
    (facts, partition[0].clone(), of("plan"))
}

/// The cells of an OSD: node, level, processors of messengers, of operations, of the store.
fn cells(partition: &Value, id: usize) -> [String; 5] {
    let osd = &partition["osds"][id];
    let text = |key: &str| osd[key].as_str().map_or_else(|| osd[key].to_string(), str::to_owned);
    ["node", "level", "msgr_worker", "tp_osd_tp", "bstore"].map(text)
}

/// The rules that a plan proposes.
fn proposed(plan: &Value) -> BTreeSet<String> {
    let all = plan["proposals"].as_array().expect("proposals").iter();
    all.map(|it| it["rule"].as_str().expect("a name").to_owned()).collect()
}

/// OSDs are apart from each other, and on cores of their node alone.
fn is_apart(partition: &Value, machine: &Machine) {
    let mut taken = BTreeSet::new();
    for osd in partition["osds"].as_array().expect("OSDs") {
        let node = osd["node"].as_u64().expect("a node") as usize;
        let cpus = numbers(osd["other"].as_str().expect("a list"));
        let of_node = numbers(machine.nodes[node]);
        for cpu in cpus {
            assert!(of_node.contains(&cpu), "{cpu} is not of node {node}: {osd}");
            assert!(taken.insert(cpu), "{cpu} is given twice: {osd}");
            let other = if machine.sibling > 0 { (cpu + machine.sibling) % machine.cpus } else { cpu };
            assert!(
                numbers(osd["other"].as_str().expect("a list")).contains(&other),
                "{cpu} without {other}"
            );
        }
    }
}

#[test]
fn two_xeons_keep_osds_on_the_node_of_their_disk() {
    let (facts, partition, plan) = seen(&xeon());
    let host = &facts["hosts"][0];
    assert_eq!((&host["cores"], &host["sockets"], &host["smt"]), (&16.into(), &2.into(), &true.into()));
    assert_eq!(
        (facts["osds"][2]["device"].as_str(), facts["osds"][2]["unit"].as_str()),
        (Some("nvme2n1"), Some("ceph-osd@2.service"))
    );
    assert_eq!(cells(&partition, 0), ["0", "apart", "0,16", "2-3,18-19", "1,17"]);
    assert_eq!(cells(&partition, 3), ["1", "apart", "12,28", "14-15,30-31", "13,29"]);
    is_apart(&partition, &xeon());
    let why = partition["osds"][2]["why"].to_string();
    assert!(why.contains("node 1: the node of its disk"), "{why}");
    assert!(why.contains("messengers stay: node 0 of its network has too few cores"), "{why}");
    // Four cores for each OSD are too few for groups of threads; the whole OSD is bound, and its unit keeps it.
    let rules = proposed(&plan);
    assert!(rules.contains("CPU-16") && rules.contains("CPU-17") && !rules.contains("CPU-05"), "{rules:?}");
    assert!(rules.contains("NET-05"), "{rules:?}");
    let nic = &partition["nics"][1];
    let to: Vec<i64> =
        nic["to"].as_array().expect("interrupts").iter().map(|it| it[1].as_i64().expect("a CPU")).collect();
    assert_eq!((nic["node"].as_i64(), to), (Some(0), vec![0, 1, 2, 3, 4, 5, 6, 7]));
    assert!(
        partition["nvmes"][0]["why"].to_string().contains("the kernel places those of NVMe"),
        "{partition}"
    );
}

#[test]
fn a_kunpeng_of_four_nodes_has_messengers_near_its_network() {
    let (facts, partition, plan) = seen(&kunpeng());
    let host = &facts["hosts"][0];
    assert_eq!((&host["cores"], &host["sockets"], &host["smt"]), (&128.into(), &2.into(), &false.into()));
    assert_eq!(host["numa"].as_array().map(Vec::len), Some(4));
    assert_eq!(cells(&partition, 0), ["0", "apart", "0-1", "4-6", "2-3"]);
    assert_eq!(cells(&partition, 4), ["2", "apart", "28", "64-65,68-71", "66-67"]);
    assert_eq!(cells(&partition, 7), ["2", "apart", "31", "88-89,92-95", "90-91"]);
    is_apart(&partition, &kunpeng());
    let why = partition["osds"][4]["why"].to_string();
    assert!(why.contains("messengers on node 0: that of its network"), "{why}");
    let rules = proposed(&plan);
    assert!(rules.contains("CPU-05") && rules.contains("CPU-17") && !rules.contains("CPU-16"), "{rules:?}");
}

#[test]
fn an_altra_of_large_pages_has_one_node_for_all() {
    let (facts, partition, plan) = seen(&altra());
    assert_eq!(facts["hosts"][0]["kernel"]["page_size"], 65536);
    assert_eq!(cells(&partition, 0), ["0", "apart", "0-1", "4-7", "2-3"]);
    assert_eq!(cells(&partition, 9), ["0", "apart", "69-70", "73-75", "71-72"]);
    is_apart(&partition, &altra());
    let shards = &partition["loligod"];
    assert_eq!((shards["own"].as_bool(), shards["cpus"].as_str()), (Some(true), Some("76-79")));
    let rules = proposed(&plan);
    assert!(rules.contains("CPU-18") && rules.contains("CPU-19"), "{rules:?}");
    assert!(rules.contains("CPU-05") && !rules.contains("CPU-16") && !rules.contains("NET-05"), "{rules:?}");
}

#[test]
fn systemd_understands_the_drop_in_and_its_hook() {
    if !installed("systemd-analyze") {
        return skip("the drop-in", "systemd-analyze is not installed (systemd)");
    }
    let (facts, ..) = seen(&xeon());
    let text = facts["osds"][2]["partition"]["drop_in"].as_str().expect("a text");
    let dir = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(path, text).expect("a file");
    };
    let hook = std::fs::read_to_string(
        loligo_tests::tidy::root().join("packaging/systemd/loligo-tune-threads@.service"),
    );
    put("loligo-tune-threads@.service", &hook.expect("a unit").replace("@BINDIR@/loligo ", "/bin/true "));
    put("ceph-osd@.service", "[Service]\nExecStart=/bin/sleep 1\n");
    let verify = |text: &str| {
        put("ceph-osd@2.service.d/50-loligo-tune.conf", text);
        let said = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--generators=no", "--recursive-errors=no"])
            .arg("ceph-osd@2.service")
            .env("SYSTEMD_UNIT_PATH", format!("{}:", dir.path().display()))
            .output()
            .expect("it runs");
        format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr))
    };
    assert!(text.contains("CPUAffinity=8-11,24-27\n") && text.contains("NUMAMask=1\n"), "{text}");
    assert_eq!(verify(text).trim(), "");
    // It would have said so.
    assert!(verify(&text.replace("preferred", "often")).contains("often"));
}

/// A lab of three OSDs, seen through a tree of a host of two nodes with a core each. Processes in it are the real ones.
struct Site {
    lab: Lab,
    dir: tempfile::TempDir,
}

type Masks = BTreeMap<String, String>;

impl Site {
    fn new(name: &str) -> Option<Site> {
        if !cluster(name) {
            return None;
        }
        let has_two = std::thread::available_parallelism().is_ok_and(|it| it.get() >= 2);
        if !root() || !has_two {
            skip(name, "threads are bound by root, on two CPUs at least");
            return None;
        }
        let site = Site { lab: Lab::new(name), dir: tempfile::tempdir().expect("a folder") };
        good(site.lab.up(&["--osds", "3", "--replicas", "3", "--osd-size", "5g"]));
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let conf = std::fs::read_to_string(site.lab.dir.join("ceph.conf")).expect("a file");
        let at_conf = site.lab.dir.strip_prefix("/").expect("an absolute path").join("ceph.conf");
        for (path, text) in [
            ("proc/sys/kernel/hostname", name.as_str()),
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0\n"),
            ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "1\n"),
            ("sys/devices/system/node/online", "0-1\n"),
            // The others of each node are offline.
            ("sys/devices/system/node/node0/cpulist", "0,100-120\n"),
            ("sys/devices/system/node/node1/cpulist", "1,200-220\n"),
            ("sys/devices/pci0000:00/card/numa_node", "1\n"),
            ("sys/devices/pci0000:00/card/msi_irqs/36", "msix\n"),
            ("sys/devices/pci0000:00/card/msi_irqs/37", "msix\n"),
            ("sys/devices/pci0000:00/card/net/eth9/mtu", "1500\n"),
            ("sys/devices/pci0000:00/card/net/eth9/queues/rx-0/rps_cpus", "0\n"),
            ("sys/devices/pci0000:00/card/net/eth9/queues/rx-1/rps_cpus", "0\n"),
            ("proc/irq/36/smp_affinity_list", "0-1\n"),
            ("proc/irq/37/smp_affinity_list", "0\n"),
            (at_conf.to_str().expect("a path"), conf.as_str()),
        ] {
            let path = site.root().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            std::fs::write(path, text).expect("a file");
        }
        let link = |to: &str, at: &str| {
            let at = site.root().join(at);
            std::fs::create_dir_all(at.parent().expect("a folder")).expect("folders");
            std::os::unix::fs::symlink(to, at).expect("a link");
        };
        link("../../devices/pci0000:00/card/net/eth9", "sys/class/net/eth9");
        link("../../../card", "sys/devices/pci0000:00/card/net/eth9/device");
        site.show_processes();
        Some(site)
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// The processes of the lab's OSDs, by number.
    fn osds(&self) -> BTreeMap<String, String> {
        let pid = |entry: std::fs::DirEntry| {
            let at = entry.path();
            let is_osd = std::fs::read_to_string(at.join("comm")).ok()?.trim() == "ceph-osd";
            let words = std::fs::read_to_string(at.join("cmdline")).ok()?;
            let words: Vec<&str> = words.split('\0').collect();
            let environ = std::fs::read(at.join("environ")).ok()?;
            let dir = self.lab.dir.to_string_lossy().into_owned();
            let is_ours = words.iter().any(|word| word.contains(&dir))
                || String::from_utf8_lossy(&environ).contains(&dir);
            let id = words.iter().position(|word| ["-i", "--id"].contains(word))?;
            (is_osd && is_ours)
                .then(|| (words[id + 1].to_owned(), entry.file_name().to_string_lossy().into_owned()))
        };
        std::fs::read_dir("/proc").expect("/proc").flatten().filter_map(pid).collect()
    }

    /// Has the tree show the processes that run now.
    fn show_processes(&self) {
        for pid in self.osds().values() {
            let at = self.root().join("proc").join(pid);
            if !at.exists() {
                std::os::unix::fs::symlink(format!("/proc/{pid}"), at).expect("a link");
            }
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("tune").args(args).arg("--conf").arg(self.lab.dir.join("ceph.conf"));
        command.arg("--root").arg(self.root()).stdin(Stdio::null());
        if !["facts", "partition", "plan"].contains(&args[0]) {
            command.arg("--state").arg(self.dir.path().join("state"));
        }
        command
    }

    fn tune(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    fn again(&self, id: &str, more: &[&str]) -> Output {
        let root = self.root().display().to_string();
        tune(&[&["threads", id, "--root", &root], more].concat())
    }

    /// The processors of each thread of an OSD, as the kernel says.
    fn masks(&self, id: &str) -> Masks {
        let pid = &self.osds()[id];
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let one = |entry: std::fs::DirEntry| {
            let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some((entry.file_name().to_string_lossy().into_owned(), cpus.trim().to_owned()))
        };
        tasks.filter_map(one).collect()
    }

    fn all(&self) -> Vec<Masks> {
        ["0", "1", "2"].iter().map(|id| self.masks(id)).collect()
    }

    fn irqs(&self) -> [String; 2] {
        let of = |irq: u32| {
            let text = std::fs::read_to_string(self.root().join(format!("proc/irq/{irq}/smp_affinity_list")));
            text.expect("a mask").trim().to_owned()
        };
        [of(36), of(37)]
    }
}

/// Threads that are there at both times have the same processors.
fn are_same(before: &[Masks], after: &[Masks]) {
    for (before, after) in before.iter().zip(after) {
        let both = before.iter().filter(|(tid, _)| after.contains_key(*tid));
        assert!(both.clone().count() > 20, "{before:?} {after:?}");
        for (tid, cpus) in both {
            assert_eq!(&after[tid], cpus, "thread {tid}");
        }
    }
}

fn are_on(masks: &Masks, cpus: &str) {
    assert!(masks.len() > 20 && masks.values().all(|it| it == cpus), "{masks:?}");
}

#[test]
fn threads_of_real_osds_are_bound_and_put_back() {
    let Some(site) = Site::new("tune-numa") else { return };
    // One thread has a set of its own: it gets it back.
    let odd = site.masks("1").keys().next().expect("a thread").clone();
    assert!(
        Command::new("taskset").args(["-pc", "0", &odd]).output().expect("taskset runs").status.success()
    );
    let (before, irqs) = (site.all(), site.irqs());
    assert_eq!(before[1][&odd], "0");
    let args = ["apply", "--rule", "CPU-16", "--rule", "NET-05"];
    let dry = String::from_utf8_lossy(&good(site.tune(&args)).stdout).into_owned();
    assert!(
        dry.contains("osd.1/all on ") && dry.contains("-> 36=1 37=1") && dry.contains("4 steps"),
        "{dry}"
    );
    are_same(&before, &site.all());

    good(site.tune(&[&args[..], &["--yes"]].concat()));
    // Their stores lie on no disk of the tree: the node is that of the interface.
    site.all().iter().for_each(|masks| are_on(masks, "1"));
    assert_eq!(site.irqs(), ["1", "1"]);
    let run = json(site.tune(&["history", "--json"]))[0]["run"].as_str().expect("a run").to_owned();
    let said = String::from_utf8_lossy(&good(site.tune(&["history", &run])).stdout).into_owned();
    assert!(said.contains("until osd.0 starts anew: no unit of systemd runs it"), "{said}");
    good(site.tune(&["watch", "--once"]));

    // An OSD that starts anew has all processors again, and gets those of the run by the hook's command.
    good(site.lab.run("fail osd 1", &[]));
    good(site.lab.run("mend", &[]));
    until("osd.1 runs", Duration::from_secs(30), || {
        site.osds().contains_key("1") && site.masks("1").len() > 40
    });
    site.show_processes();
    are_on(&site.masks("1"), "0-1");
    let drift = site.tune(&["watch", "--once"]);
    assert!(
        !drift.status.success() && String::from_utf8_lossy(&drift.stdout).contains("osd.1/all"),
        "{drift:?}"
    );
    let set = json(site.again("1", &["--wait", "10", "--settle", "2", "--json"]));
    let places = set["places"].as_array().expect("places");
    let of_osd = places.iter().find(|it| it["place"] == "osd.1/all").expect("the OSD");
    assert!(of_osd["count"].as_i64() > Some(20), "{set}");
    are_on(&site.masks("1"), "1");
    let said = refused(&site.again("7", &[]));
    assert!(said.contains("no processors are kept for osd.7"), "{said}");

    good(site.tune(&["rollback", "--accept", "OSD_DOWN", "--accept", "PG_DEGRADED"]));
    are_same(&before[..1], &[site.masks("0")]);
    are_same(&before[2..], &[site.masks("2")]);
    are_on(&site.masks("1"), "0-1");
    assert_eq!(site.irqs(), irqs);
    assert!(!site.root().join("etc/loligo/tune-threads.conf").exists());
}

#[test]
fn a_killed_run_gives_each_thread_its_processors_back() {
    let Some(site) = Site::new("tune-numa-kill") else { return };
    let odd = site.masks("0").keys().nth(3).expect("a thread").clone();
    assert!(
        Command::new("taskset").args(["-pc", "0", &odd]).output().expect("taskset runs").status.success()
    );
    let (before, irqs) = (site.all(), site.irqs());
    let args = ["apply", "--rule", "CPU-16", "--rule", "NET-05", "--yes"];
    for lines in [0, 2, 5] {
        let mut child =
            site.command(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
        let said = BufReader::new(child.stderr.take().expect("a pipe"));
        assert!(said.lines().map_while(Result::ok).nth(lines).is_some(), "it ended before line {lines}");
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
        good(site.tune(&["rollback"]));
        are_same(&before, &site.all());
        assert_eq!(site.irqs(), irqs, "after {lines} lines");
    }

    // An interrupt that cannot be written is named before anything is done.
    let irq = site.root().join("proc/irq/37/smp_affinity_list");
    std::fs::remove_file(&irq).expect("it goes");
    std::os::unix::fs::symlink("/sys/devices/system/cpu/online", &irq).expect("a link");
    let said = refused(&site.tune(&args));
    assert!(said.contains("proc/irq/37/smp_affinity_list cannot be written"), "{said}");
    are_same(&before, &site.all());
    assert_eq!(site.irqs()[0], irqs[0]);

    // A recorded tree is no machine: threads with its numbers are those of others.
    let pid = site.osds()["2"].clone();
    let recorded = site.root().join("proc").join(&pid);
    std::fs::remove_file(&recorded).expect("the link goes");
    record(Path::new(&format!("/proc/{pid}")), &recorded);
    let said = refused(&site.tune(&["apply", "--rule", "CPU-16", "--yes"]));
    assert!(said.contains("is none of this machine"), "{said}");
    are_same(&before, &site.all());
}

/// Copies what is looked at of a process, with another start of its threads.
fn record(from: &Path, to: &Path) {
    let copy = |name: &str| {
        let text = std::fs::read(from.join(name)).unwrap_or_default();
        std::fs::create_dir_all(to.join(name).parent().expect("a folder")).expect("folders");
        std::fs::write(to.join(name), text).expect("a file");
    };
    ["comm", "cmdline", "status", "cgroup"].into_iter().for_each(copy);
    for entry in std::fs::read_dir(from.join("task")).expect("threads").flatten() {
        let tid = entry.file_name().to_string_lossy().into_owned();
        ["comm", "status", "stat"].iter().for_each(|name| copy(&format!("task/{tid}/{name}")));
        let stat = to.join(format!("task/{tid}/stat"));
        let text = std::fs::read_to_string(&stat).expect("a text");
        let (name, rest) = text.rsplit_once(") ").expect("a name");
        let fields: Vec<&str> =
            rest.split(' ').enumerate().map(|(at, it)| if at == 19 { "1" } else { it }).collect();
        std::fs::write(stat, format!("{name}) {}", fields.join(" "))).expect("a file");
    }
    std::fs::create_dir_all(to.join("fd")).expect("a folder");
    for entry in std::fs::read_dir(from.join("fd")).expect("descriptors").flatten() {
        if let Ok(target) = std::fs::read_link(entry.path()) {
            let _ = std::os::unix::fs::symlink(target, to.join("fd").join(entry.file_name()));
        }
    }
    std::os::unix::fs::symlink(from.join("root"), to.join("root")).expect("a link");
}
