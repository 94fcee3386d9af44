//! Claims about a volume whose service and whose users share very little memory: neither waits for the other for ever. Needs
//! root, loop devices, FUSE and a memory cgroup; says SKIP with the reason where there are none.

#![allow(clippy::print_stdout)]

use loligo_tests::blockdev::{Device, impossible};
use loligo_tests::cgroup::Tight;
use loligo_tests::server::{Server, program};
use loligo_tests::skip::{installed, skip};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Bytes that the writing programs may have, page cache included.
const LIMIT: u64 = 96 * MIB;
/// Bytes that the service may have, and both together where they are in one group: its requests, and
/// too little for what the writers would keep.
const SERVICE: u64 = 512 * MIB;
/// Bytes that each of two programs writes: much more than that, and than the cache.
const FILE: u64 = 192 * MIB;
/// A write that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(180);
/// Most that a service may grow by under load: 33 MiB of requests, and as much again of what the engine moves meanwhile, its tables and
/// buffers kept for the next.
const GROWTH: u64 = 128 * MIB;

/// Bits of a task's flags in the kernel (include/linux/sched.h): its allocations start no I/O, and it is not held back with
/// those whose pages it writes.
const NOIO: u64 = 0x0008_0000;
const LOCAL_THROTTLE: u64 = 0x0010_0000;

fn run(program: &str, args: &[&str]) {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().expect("it runs");
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A command that is in the group from its first instruction on.
fn inside(group: &Tight, program: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(group.procs()).arg(program);
    command
}

/// A file of bytes that repeat nowhere within it.
fn pattern(path: &Path) {
    let mut file = std::io::BufWriter::new(fs::File::create(path).expect("a file"));
    for word in 0..FILE / 8 {
        file.write_all(&(word ^ 0x5bd1_e995_u64.rotate_left((word % 64) as u32)).to_le_bytes())
            .expect("written");
    }
    file.flush().expect("written");
}

/// A number of /proc/PID/status, bytes.
fn status(pid: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_else(|| panic!("no {name} in {text}")) << 10
}

/// The flags of every thread, with its name.
fn flags(pid: u32) -> Vec<(String, u64)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let of = |stat: String| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        Some((name.to_owned(), rest.split(' ').nth(6)?.parse().ok()?))
    };
    tasks.filter_map(|t| of(fs::read_to_string(t.path().join("stat")).ok()?)).collect()
}

/// A file system on a volume. A stuck one is given up when it is dropped by a failed test: the volume's own mount is cut off from
/// its service, so that everybody who waits for it gets an error.
struct Mounted<'a>(&'a Path, &'a Device);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let umount = |how: &str, path: &Path| {
            let _ = Command::new("umount").arg(how).arg(path).stderr(Stdio::null()).status();
        };
        if std::thread::panicking() {
            umount("--force", &self.1.volume.dir.join("block").join(&self.1.name));
        }
        umount("--lazy", self.0);
    }
}

fn wait(mut children: Vec<Child>, groups: [&Tight; 2]) {
    let until = Instant::now() + STUCK;
    for child in &mut children {
        let status = loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                break status;
            }
            if Instant::now() > until {
                let at = fs::read_to_string(format!("/proc/{}/stack", child.id())).unwrap_or_default();
                let _ = child.kill();
                panic!("a writer is stuck after {STUCK:?} in {at}");
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let killed = groups.map(Tight::killed);
        assert!(
            status.success(),
            "a writer ended with {status}; killed for memory, with it and with the service: {killed:?}"
        );
    }
}

/// The file of a daemon with one volume, a block device.
fn configure(rig: &Device) {
    let dir = rig.volume.dir.display();
    let config = format!(
        "[daemon]\nstate-dir = \"{dir}/state\"\n[volume.{0}]\ncore = \"{dir}/core\"\ncache = \"{dir}/cache\"\ncache-size = \"64m\"\n\
         mode = \"wb\"\nlisten = [\"block:{0}\"]\n",
        rig.name
    );
    fs::write(rig.volume.dir.join("loligod.toml"), config).expect("written");
}

#[test]
fn a_daemon_is_locked_in_memory_and_never_chosen_to_be_killed() {
    let what = "the standing of a daemon when memory is short";
    if impossible(what) {
        return;
    }
    let rig = Device::new(64 * MIB, 64 * MIB);
    configure(&rig);
    let mut server = Server::daemon(&rig.volume.dir, &rig.volume.dir.join("loligod.toml")).expect("it runs");
    server.ready().unwrap_or_else(|e| panic!("{e:?}"));
    let words = server.words();
    let pid = server.id();
    let refused =
        |what: &str| words.lines().find(|l| l.contains("warning:") && l.contains(what)).map(str::to_owned);
    let mut skipped = Vec::new();
    match refused("memory cannot be locked") {
        Some(why) => skipped.push(why),
        None => assert!(status(pid, "VmLck") > MIB, "its memory is locked"),
    }
    match refused("score for running out of memory") {
        Some(why) => skipped.push(why),
        None => {
            let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it runs");
            assert_eq!(score.trim(), "-1000");
        }
    }
    match refused("cannot be marked") {
        Some(why) => skipped.push(why),
        None => {
            for (name, flags) in flags(pid) {
                let both = NOIO | LOCAL_THROTTLE;
                assert_eq!(flags & both, both, "thread {name} has {flags:#x}");
            }
        }
    }
    server.stop().unwrap_or_else(|e| panic!("{e:?}"));
    if !skipped.is_empty() {
        skip(what, &format!("in part: {}", skipped.join("; ")));
    }
}

/// The needs of a run under pressure, or nothing: then it is said why.
fn tight(what: &str, names: &[(&str, u64)]) -> Option<Vec<Tight>> {
    if impossible(what) {
        return None;
    }
    if !installed("mkfs.ext4") {
        skip(what, "mkfs.ext4 is not installed (e2fsprogs)");
        return None;
    }
    let groups: Result<Vec<Tight>, String> =
        names.iter().map(|(name, bytes)| Tight::new(name, *bytes)).collect();
    groups.inspect_err(|why| skip(what, why)).ok()
}

#[test]
fn writers_and_service_in_tight_cgroups_end_with_right_bytes() {
    let what = "a volume under memory pressure";
    let Some(groups) = tight(what, &[("loligo-writers", LIMIT), ("loligo-service", SERVICE)]) else { return };
    under_pressure(&groups[0], &groups[1]);
}

/// Old control groups make whoever wants memory wait for the write-back of pages of its group. A service that is in the group of
/// those whose pages it writes must be marked (PR_SET_IO_FLUSHER) to be spared that.
#[test]
fn a_service_and_writers_in_one_tight_cgroup_end_right() {
    let what = "a volume and its writers in one memory cgroup";
    let Some(groups) = tight(what, &[("loligo-both", SERVICE)]) else { return };
    if !groups[0].is_v2() && !may_be_marked() {
        return skip(
            what,
            "cgroup v1 without CAP_SYS_RESOURCE: the kernel lets such a service wait for its own writes, and it would hang",
        );
    }
    under_pressure(&groups[0], &groups[0]);
}

/// True if this process has CAP_SYS_RESOURCE (number 24).
fn may_be_marked() -> bool {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).is_some_and(|caps| caps & (1 << 24) != 0)
}

fn under_pressure(group: &Tight, service: &Tight) {
    let rig = Device::new(1024 * MIB, 64 * MIB);
    let dir = rig.volume.dir.clone();
    configure(&rig);
    let mut server =
        Server::daemon_by(inside(service, program()), &dir, &dir.join("loligod.toml")).expect("it runs");
    server.ready().unwrap_or_else(|e| panic!("{e:?}"));
    let pid = server.id();
    let device = rig.path().display().to_string();
    let at = dir.join("fs");
    fs::create_dir(&at).expect("a folder");
    let place = at.display().to_string();
    run("mkfs.ext4", &["-q", "-F", &device]);
    run("mount", &[&device, &place]);
    let mounted = Mounted(&at, &rig);
    pattern(&dir.join("pattern"));
    let before = status(pid, "VmRSS");
    let begun = Instant::now();
    let writers = ["one", "two"].map(|name| {
        let mut dd = inside(group, Path::new("dd"));
        dd.args(["bs=256k", "conv=fsync", "status=none"]);
        dd.arg(format!("if={}/pattern", dir.display())).arg(format!("of={place}/{name}"));
        dd.stdin(Stdio::null()).spawn().expect("it runs")
    });
    // Another who wants each of its writes on the device while those fill everything.
    let mut small = inside(group, Path::new("dd"));
    small
        .args(["if=/dev/zero", "bs=4k", "count=500", "oflag=dsync", "status=none"])
        .arg(format!("of={place}/small"));
    let small = small.stdin(Stdio::null()).spawn().expect("it runs");
    wait(writers.into_iter().chain([small]).collect(), [group, service]);
    let took = begun.elapsed();
    let grown = status(pid, "VmHWM").saturating_sub(before);
    let out = rig.volume.loligo(&["stats", &rig.name, "--json"]).expect("statistics").stdout;
    let stats: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    let held = stats["fuse_held_bytes_max"].as_u64().expect("a counter");
    println!(
        "{} MiB through {} MiB of memory in {took:?}; the limit was hit {} times, {} MiB at most; the service grew by {} MiB, its mount held {} MiB at most",
        2 * FILE / MIB,
        group.limit() / MIB,
        group.hits(),
        group.peak() / MIB,
        grown / MIB,
        held / MIB
    );
    assert!(group.hits() > 0, "there was no pressure at all");
    assert_eq!((group.killed(), service.killed()), (0, 0), "somebody was killed for memory");
    assert!(grown < GROWTH, "it grew by {} MiB", grown / MIB);

    // What is read now comes from the volume and not from memory.
    run("umount", &[&place]);
    run("mount", &[&device, &place]);
    let wanted = dir.join("pattern").display().to_string();
    for name in ["one", "two"] {
        run("cmp", &[&wanted, &format!("{place}/{name}")]);
    }
    run("umount", &[&place]);
    drop(mounted);
    run("fsck.ext4", &["-f", "-n", &device]);
    server.stop().unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(rig.left(), [""; 0]);
}
