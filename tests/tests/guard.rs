//! Claims about the start of a core's, a cache's and a pool's device: nobody who looks for a free disk takes it for one.

use loligo_tests::loops::Loop;
use loligo_tests::server::{Volume, program};
use loligo_tests::skip::{installed, skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MIB: u64 = 1 << 20;
/// Above what `ceph-volume` takes for too small.
const DISK: u64 = 6 << 30;

fn said(out: &Output) -> String {
    [&out.stdout, &out.stderr].map(|t| String::from_utf8_lossy(t).into_owned()).concat()
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

fn loligo(args: &[&str]) {
    let out = run(Command::new(program()).args(args));
    assert!(out.status.success(), "{args:?}: {}", said(&out));
}

/// Programs that make something of a free disk refuse this one.
fn takers(dir: &Path, disk: &Path) {
    let ceph_volume = |args: &[&str]| {
        let mut command = Command::new("ceph-volume");
        command.arg("--log-path").arg(dir).args(args).arg(disk).env("CEPH_VOLUME_ALLOW_LOOP_DEVICES", "1");
        run(command.env("CEPH_VOLUME_SKIP_RESTORECON", "1"))
    };
    let out = ceph_volume(&["inventory", "--format", "json"]);
    let found: serde_json::Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(&out)));
    assert_eq!(found["available"], false, "{found}");
    let reasons = found["rejected_reasons"].to_string();
    assert!(reasons.contains("FileSystem"), "{reasons}");
    let out = ceph_volume(&["lvm", "batch", "--bluestore", "--report", "--yes"]);
    assert!(!out.status.success(), "it plans an OSD: {}", said(&out));
    let name = disk.file_name().and_then(|n| n.to_str()).expect("a name");
    if Path::new("/sys/class/block").join(format!("{name}p1")).exists() {
        let out = ceph_volume(&["raw", "prepare", "--bluestore", "--data"]);
        assert!(!out.status.success() && said(&out).contains("partition"), "{}", said(&out));
    } else {
        skip("ceph-volume raw prepare", "this kernel reads no partition tables on loop devices");
    }
    let out = ceph_volume(&["raw", "list"]);
    assert!(String::from_utf8_lossy(&out.stdout).trim() == "{}", "{}", said(&out));
    for program in ["pvcreate", "mkfs.xfs"] {
        let more: &[&str] = if program == "pvcreate" { &["-y"] } else { &["-q"] };
        let out = run(Command::new(program).args(more).arg(disk));
        assert!(!out.status.success(), "{program} takes it: {}", said(&out));
    }
}

/// Disks whose partition tables the kernel reads.
fn disks(dir: &Path, n: usize) -> Result<Vec<Loop>, String> {
    let disks = (0..n).map(|i| Loop::with_partitions(&dir.join(format!("disk{i}")), DISK));
    disks.collect()
}

/// As the next boot does it.
fn read_table(disk: &Path) {
    let out = run(Command::new("blockdev").arg("--rereadpt").arg(disk));
    assert!(out.status.success(), "{}", said(&out));
}

fn needed() -> Option<String> {
    let all = ["ceph-volume", "udevadm", "pvcreate", "mkfs.xfs", "blockdev", "losetup"];
    let missing = all.into_iter().find(|p| !installed(p))?;
    Some(format!("{missing} is not installed"))
}

#[test]
fn nobody_takes_a_core_cache_or_pool_for_a_free_disk() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let disks = match needed().map_or_else(|| disks(dir.path(), 4), Err) {
        Ok(disks) => disks,
        Err(why) => return skip("programs that look for free disks", &why),
    };
    let [labelled, in_place, cache, pool] = [0, 1, 2, 3].map(|i: usize| disks[i].path().to_owned());
    let volume = |folder: &str, cache: PathBuf, core: &Path, home: &str| {
        let dir = dir.path().join(folder);
        std::fs::create_dir(&dir).expect("a folder");
        let more = ["--sparse", "--data-offset", home].map(str::to_owned).into();
        Volume { dir, cache, cache_size: 24 * MIB, core: core.to_owned(), mode: "wb", more }
    };
    loligo(&["cache", "create", &pool.display().to_string()]);
    let first = volume("first", cache.clone(), &labelled, "1m");
    let second = volume("second", dir.path().join("cache"), &in_place, "0");
    for (volume, disk) in [(&first, &labelled), (&second, &in_place)] {
        let served = volume.serve().expect("it starts");
        let held = run(Command::new("pvcreate").arg("-y").arg(disk));
        assert!(!held.status.success(), "{}", said(&held));
        served.stop().expect("a clean stop");
    }
    for disk in [&labelled, &in_place, &cache, &pool] {
        read_table(disk);
        takers(dir.path(), disk);
    }
    // None of them left anything.
    for volume in [&first, &second] {
        volume.serve().expect("it starts again").stop().expect("a clean stop");
    }
}
