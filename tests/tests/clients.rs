//! Claims about real clients of a cached volume: qemu, libnbd, fio, and ext4 through the kernel. A client
//! that is not installed is skipped with a message.

#![allow(clippy::print_stderr)]

use loligo_tests::nbd::{self, Client, Command as Nbd};
use loligo_tests::server::{Server, Volume};
use loligo_tests::skip::{self, installed, skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const CORE: u64 = 256 << 20;

/// A served write-back volume whose cache is far smaller than its core.
struct Served {
    volume: Volume,
    server: Option<Server>,
    dir: tempfile::TempDir,
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let core = dir.path().join("core");
        std::fs::File::create(&core).and_then(|f| f.set_len(CORE)).expect("a core");
        let volume = Volume {
            dir: dir.path().to_owned(),
            cache: dir.path().join("cache"),
            cache_size: 32 << 20,
            core,
            mode: "wb",
            more: Vec::new(),
        };
        let server = volume.serve().expect("a start");
        Served { volume, server: Some(server), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Ends the service as its users do and checks every checksum it leaves.
    fn end(mut self) {
        self.server.take().expect("it runs").stop().expect("a clean stop");
        let found =
            self.volume.loligo(&["inspect", &self.volume.cache.to_string_lossy()]).expect("loligo inspect");
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
    }
}

fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let out = command.output().unwrap_or_else(|e| panic!("{program} does not run: {e}"));
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

fn missing(test: &str, programs: &[&str], package: &str) -> bool {
    let absent = programs.iter().find(|p| !installed(p));
    if let Some(p) = absent {
        skip(test, &format!("{p} is not installed (apt-get install {package})"));
    }
    absent.is_some()
}

/// A file of `size` bytes with data and holes.
fn sample(path: &Path, size: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).expect("a file");
    file.set_len(size).expect("its size");
    let mut rng = loligo_sim::rng::Rng::new(size);
    for at in (0..size).step_by(1 << 20) {
        if rng.chance(2, 3) {
            let len = rng.skewed(512..1 << 20) as usize;
            let data: Vec<u8> = (0..len).map(|_| rng.draw() as u8).collect();
            file.write_all_at(&data, at).expect("its data");
        }
    }
}

#[test]
fn qemu_img_converts_onto_the_volume_and_finds_it_sound() {
    if missing("qemu-img", &["qemu-img"], "qemu-utils") {
        return;
    }
    let served = Served::new();
    let (uri, raw, back) = (served.volume.uri(), served.path("raw"), served.path("back"));
    sample(&raw, CORE);
    let raw = raw.to_string_lossy();
    run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &raw, &uri]);
    run("qemu-img", ["compare", "-f", "raw", "-F", "raw", &raw, &uri]);
    run("qemu-img", ["convert", "-f", "raw", "-O", "raw", &uri, &back.to_string_lossy()]);
    run("cmp", [raw.as_ref(), &back.to_string_lossy()]);
    run("qemu-img", ["resize", "-f", "raw", "--shrink", &raw, "100M"]);
    run("qemu-img", ["create", "-q", "-f", "qcow2", &uri, "100M"]);
    run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "qcow2", &raw, &uri]);
    run("qemu-img", ["check", "-q", "-f", "qcow2", &uri]);
    run("qemu-img", ["compare", "-f", "raw", "-F", "qcow2", &raw, &uri]);
    served.end();
}

#[test]
fn qemu_io_reads_the_patterns_it_wrote() {
    if missing("qemu-io", &["qemu-io"], "qemu-utils") {
        return;
    }
    let served = Served::new();
    let commands = [
        "write -P 0xa5 0 1M",
        "write -P 0x5a 4608 512",
        "write -f -P 0x11 1M 96k",
        "write -z 64k 64k",
        "write -z -u 1M 4k",
        "aio_write -P 0x22 2M 64k",
        "aio_write -P 0x33 3M 64k",
        "aio_flush",
        "flush",
        "discard 3M 64k",
        "read -P 0xa5 0 4608",
        "read -P 0x5a 4608 512",
        "read -P 0xa5 5120 60416",
        "read -P 0 64k 64k",
        "read -P 0xa5 128k 896k",
        "read -P 0 1M 4k",
        "read -P 0x11 1052672 94208",
        "read -P 0x22 2M 64k",
        "read -P 0 100M 1M",
    ];
    let uri = served.volume.uri();
    let mut args = vec!["-f", "raw"];
    commands.iter().for_each(|c| args.extend(["-c", c]));
    args.push(&uri);
    let out = run("qemu-io", args);
    let words = String::from_utf8_lossy(&out.stdout);
    assert!(!words.contains("verification failed") && !words.contains("error"), "{words}");
    served.end();
}

#[test]
fn nbdinfo_sees_size_block_sizes_guarantees_and_both_names() {
    if missing("nbdinfo", &["nbdinfo"], "libnbd-bin") {
        return;
    }
    let served = Served::new();
    let uri = served.volume.uri();
    let json = |args: &[&str]| -> Value {
        let out = run("nbdinfo", args);
        serde_json::from_slice(&out.stdout).expect("JSON")
    };
    let all = json(&["--json", &uri]);
    assert_eq!((&all["protocol"], &all["structured"]), (&"newstyle-fixed".into(), &true.into()), "{all}");
    let export = &all["exports"][0];
    assert_eq!(export["export-size"], CORE, "{export}");
    assert_eq!(export["block_size_minimum"], 512, "{export}");
    for can in [
        "can_multi_conn",
        "can_fua",
        "can_flush",
        "can_trim",
        "can_zero",
        "can_fast_zero",
        "can_df",
        "can_cache",
    ] {
        assert_eq!(export[can], true, "{can}: {export}");
    }
    assert_eq!(export["is_read_only"], false, "{export}");
    let list =
        json(&["--list", "--json", &format!("nbd+unix:///?socket={}", served.volume.socket().display())]);
    let names: Vec<&str> = list["exports"]
        .as_array()
        .expect("exports")
        .iter()
        .filter_map(|e| e["export-name"].as_str())
        .collect();
    assert!(names.contains(&Volume::NAME), "{names:?}");
    let default = json(&["--json", &format!("nbd+unix:///?socket={}", served.volume.socket().display())]);
    assert_eq!(default["exports"][0]["export-size"], CORE, "the default export: {default}");
    let map = json(&["--map", "--json", &uri]);
    let extents = map.as_array().expect("extents");
    let covered: u64 = extents.iter().filter_map(|e| e["length"].as_u64()).sum();
    assert_eq!(covered, CORE, "{map}");
    served.end();
}

#[test]
fn nbdcopy_brings_back_what_it_took() {
    if missing("nbdcopy", &["nbdcopy"], "libnbd-bin") {
        return;
    }
    let served = Served::new();
    let (raw, back, uri) = (served.path("raw"), served.path("back"), served.volume.uri());
    sample(&raw, CORE);
    run("nbdcopy", ["--flush", &raw.to_string_lossy(), &uri]);
    run("nbdcopy", [uri.as_ref(), back.as_os_str()]);
    run("cmp", [&raw, &back]);
    served.end();
}

#[test]
fn fio_verifies_what_it_wrote_over_many_times_the_cache() {
    let has_nbd = || Command::new("fio").arg("--enghelp=nbd").output().is_ok_and(|o| o.status.success());
    if missing("fio", &["fio"], "fio") {
        return;
    }
    if !has_nbd() {
        return skip("fio", "this fio has no nbd engine");
    }
    let served = Served::new();
    let uri = format!("--uri=nbd+unix:///{}?socket={}", Volume::NAME, served.volume.socket().display());
    for (rw, bs) in [("randwrite", "4k"), ("randrw", "512-64k"), ("write", "256k")] {
        let common = [
            "--ioengine=nbd",
            "--iodepth=16",
            "--size=192m",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--randseed=7",
        ];
        let (rw, bs) = (
            format!("--rw={rw}"),
            format!("--bsrange={}", if bs.contains('-') { bs.to_owned() } else { format!("{bs}-{bs}") }),
        );
        let job = [
            "--name=verify",
            "--do_verify=1",
            "--verify_backlog=4096",
            "--io_size=96m",
            "--output-format=terse",
            &uri,
            &rw,
            &bs,
        ];
        run("fio", common.iter().chain(&job));
    }
    served.end();
}

/// Mounted things and the process behind them, undone in reverse order.
struct Mounts {
    points: Vec<(&'static str, PathBuf)>,
    nbdfuse: Option<Child>,
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for (program, point) in self.points.drain(..).rev() {
            let mut command = Command::new(program);
            if program == "fusermount3" {
                command.arg("-u");
            }
            if !command.arg(&point).status().is_ok_and(|s| s.success()) {
                eprintln!("{program} {} failed", point.display());
            }
        }
        if let Some(mut child) = self.nbdfuse.take() {
            let deadline = Instant::now() + Duration::from_secs(5);
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Copies of this crate's own sources and a few larger files, `round` making them differ.
fn populate(at: &Path, round: u64) {
    let mut rng = loligo_sim::rng::Rng::new(round);
    for i in 0..40 {
        let dir = at.join(format!("d{round}-{}", i % 5));
        std::fs::create_dir_all(&dir).expect("a directory");
        let len = rng.skewed(1..2 << 20) as usize;
        let data: Vec<u8> = (0..len).map(|j| (j as u64 ^ rng.draw() >> 60) as u8).collect();
        std::fs::write(dir.join(format!("f{i}")), data).expect("a file");
    }
}

#[test]
fn ext4_on_the_volume_keeps_its_files_and_passes_fsck() {
    if missing(
        "ext4",
        &["nbdfuse", "fusermount3", "mkfs.ext4", "e2fsck", "mount", "diff"],
        "libnbd-bin fuse3 e2fsprogs mount",
    ) {
        return;
    }
    if !skip::root() || !Path::new("/dev/loop-control").exists() {
        return skip("ext4", "mounting a file needs root and loop devices");
    }
    if let Err(why) = skip::fuse() {
        return skip("ext4", &why);
    }
    let served = Served::new();
    let (fuse, point, twin) = (served.path("fuse"), served.path("mnt"), served.path("twin"));
    for dir in [&fuse, &point, &twin] {
        std::fs::create_dir(dir).expect("a folder");
    }
    let mut mounts = Mounts { points: Vec::new(), nbdfuse: None };
    let disk = fuse.join("disk");
    let nbdfuse = Command::new("nbdfuse").arg(&disk).arg(served.volume.uri()).stdin(Stdio::null()).spawn();
    mounts.nbdfuse = Some(nbdfuse.expect("nbdfuse runs"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while !disk.exists() {
        assert!(Instant::now() < deadline, "nbdfuse shows no file");
        std::thread::sleep(Duration::from_millis(20));
    }
    mounts.points.push(("fusermount3", fuse));
    run("mkfs.ext4", [OsStr::new("-qF"), disk.as_os_str()]);
    for round in 1..=2 {
        let mount =
            Command::new("mount").arg("-o").arg("loop").args([&disk, &point]).output().expect("mount runs");
        if !mount.status.success() {
            let why = String::from_utf8_lossy(&mount.stderr).into_owned();
            return skip("ext4", &format!("this kernel does not mount it: {}", why.trim()));
        }
        mounts.points.push(("umount", point.clone()));
        if round > 1 {
            run(
                "diff",
                [
                    OsStr::new("-r"),
                    OsStr::new("-x"),
                    OsStr::new("lost+found"),
                    twin.as_os_str(),
                    point.as_os_str(),
                ],
            );
        }
        populate(&point, round);
        populate(&twin, round);
        run("umount", [&point]);
        mounts.points.pop();
        run("e2fsck", [OsStr::new("-fn"), disk.as_os_str()]);
    }
    drop(mounts);
    served.end();
}

/// Less than the minute after which a client that takes nothing is cut off, which gives its share back.
const SERVED_WITHIN: Duration = Duration::from_secs(45);

/// A new client reads and writes, short and long.
fn is_served(volume: &Volume) {
    let (tx, answers) = channel();
    let mut client = Client::connect(&volume.socket(), Volume::NAME, tx).expect("a place for it");
    let long = vec![5; 32 << 20];
    let asked = [
        Nbd::Write { data: long.clone(), fua: false },
        Nbd::Read(32 << 20),
        Nbd::Read(4096),
        Nbd::Write { data: vec![6; 4096], fua: true },
        Nbd::Flush,
    ];
    for (n, command) in (1..).zip(&asked) {
        client.send(n, 0, command).expect("it is taken");
        let answer = answers.recv_timeout(SERVED_WITHIN).expect("an answer in time");
        assert_eq!(answer.handle, n);
        let data = answer.result.expect("a success");
        assert!(data.is_empty() || data[..] == long[..data.len()]);
    }
}

#[test]
fn clients_that_read_nothing_do_not_stop_others() {
    let served = Served::new();
    for (clients, each, len) in [(32, 100, 1 << 20), (9, 2, 32 << 20)] {
        let mut greedy = Vec::new();
        for _ in 0..clients {
            let (mut s, _) = nbd::enter(&served.volume.socket(), Volume::NAME).expect("a connection");
            let flood: Vec<u8> =
                (0..each).flat_map(|n| nbd::read_request(n + 1, (n << 20) % CORE, len)).collect();
            s.write_all(&flood).expect("it is taken");
            greedy.push(s);
        }
        // The flood has been read when a connection that came later is answered.
        for _ in 0..2 {
            is_served(&served.volume);
        }
    }
    served.end();
}

#[test]
fn handshakes_that_stay_silent_lock_nobody_out() {
    let served = Served::new();
    let mut silent: Vec<UnixStream> = Vec::new();
    for _ in 0..300 {
        silent.push(UnixStream::connect(served.volume.socket()).expect("a connection"));
    }
    is_served(&served.volume);
    served.end();
}
