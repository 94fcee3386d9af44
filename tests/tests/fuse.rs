//! Claims about a volume that is a file: what the kernel and real programs see of it through a FUSE mount.

#![allow(clippy::print_stdout)]

use loligo_tests::mounted::{Mounted, impossible, listed};
use loligo_tests::nbd::{Answer, Client, Command as Nbd};
use loligo_tests::server::{Server, Volume};
use loligo_tests::skip::{installed, root, skip};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fcntl_lock, flock};
use rustix::io::Errno;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn no_fio(test: &str) -> bool {
    let absent = !installed("fio");
    if absent {
        skip(test, "fio is not installed (apt-get install fio)");
    }
    absent
}

/// fio on the file, direct and asynchronous.
fn fio(path: &Path, rw: &str, depth: u32, seconds: u32) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--name=t", "--ioengine=libaio", "--direct=1", "--bs=4k", "--norandommap=1", "--time_based"])
        .args(["--allow_file_create=0", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--rw={rw}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--runtime={seconds}"))
        .stdin(Stdio::null());
    command
}

fn iops(path: &Path, rw: &str, depth: u32) -> f64 {
    let out = fio(path, rw, depth, 3).output().expect("fio runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all: Value = serde_json::from_slice(&out.stdout).expect("fio speaks JSON");
    let job = &all["jobs"][0];
    job["read"]["iops"].as_f64().unwrap_or(0.0) + job["write"]["iops"].as_f64().unwrap_or(0.0)
}

/// Bytes that differ from block to block.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = loligo_sim::rng::Rng::new(seed);
    (0..len).map(|_| rng.draw() as u8).collect()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().and_then(|e| Errno::from_io_error(&e))
}

#[test]
fn a_queue_of_32_reaches_the_disk_and_pays() {
    let test = "a queue through FUSE";
    if impossible(test) || no_fio(test) {
        return;
    }
    let rig = Mounted::new(1 << 30, 0);
    for rw in ["randread", "randwrite"] {
        let server = rig.serve_disk().expect("a start");
        let one = iops(&rig.path(), rw, 1);
        assert_eq!(rig.number("core_queue_max").unwrap(), 1, "{rw}: depth 1 is a queue of one");
        let deep = iops(&rig.path(), rw, 32);
        let most = rig.number("core_queue_max").unwrap();
        println!("{rw}: {one:.0} IOPS at depth 1, {deep:.0} at depth 32, at most {most} at the disk");
        assert!(most >= 24, "{rw}: the disk saw at most {most} requests at once");
        assert!(deep > 1.4 * one, "{rw}: {deep:.0} IOPS at depth 32, {one:.0} at depth 1");
        server.stop().expect("a clean stop");
    }
}

#[test]
fn every_fsync_and_fdatasync_arrives() {
    if impossible("fsync through FUSE") {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let file = rig.open(0).expect("the file opens");
    let before = rig.number("fuse_fsyncs").unwrap();
    for i in 0..5 {
        file.write_all_at(&[i; 4096], u64::from(i) * 4096).unwrap();
        file.sync_all().unwrap();
    }
    for _ in 0..7 {
        file.sync_data().unwrap();
    }
    drop(file);
    assert_eq!(rig.number("fuse_fsyncs").unwrap() - before, 12, "as many as were called, closing is none");
    assert_eq!(rig.number("fuse_writes").unwrap(), 5);
    server.stop().expect("a clean stop");
}

#[test]
fn each_o_dsync_write_is_durable_before_its_answer() {
    if impossible("O_DSYNC through FUSE") {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let flushes = |flags: i32| {
        let file = rig.open(flags).expect("the file opens");
        let before = rig.number("cache_flushes").unwrap();
        for i in 0..50 {
            file.write_all_at(&[i; 4096], u64::from(i) * 8192).unwrap();
        }
        rig.number("cache_flushes").unwrap() - before
    };
    let (plain, dsync, sync) = (flushes(0), flushes(libc::O_DSYNC), flushes(libc::O_SYNC | libc::O_DIRECT));
    assert!(dsync >= 50 && sync >= 50, "{dsync} and {sync} flushes of the cache for 50 writes each");
    assert!(plain < 25, "{plain} flushes for 50 writes that nobody wanted durable");
    server.stop().expect("a clean stop");
}

#[test]
fn holes_read_as_zeros_and_what_a_volume_cannot_do_is_refused() {
    if impossible("fallocate through FUSE") {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let file = rig.open(0).expect("the file opens");
    let mut expected = pattern(1, 4 * MIB as usize);
    file.write_all_at(&expected, 0).unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (how, from, len) in
        [(hole, 64 << 10, 128 << 10), (FallocateFlags::ZERO_RANGE, MIB, 2 * MIB), (hole, 8192, 4096)]
    {
        fallocate(&file, how, from, len).unwrap();
        expected[from as usize..(from + len) as usize].fill(0);
    }
    let mut back = vec![1; expected.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == expected, "zeros where they were asked for, the rest as it was");
    let none = FallocateFlags::empty();
    assert_eq!(fallocate(&file, none, 0, 64 * MIB), Ok(()), "the space is there");
    assert_eq!(fallocate(&file, none, 0, 65 * MIB), Err(Errno::NOSPC));
    assert_eq!(fallocate(&file, hole, 100, 4096), Err(Errno::INVAL));
    assert_eq!(fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
    assert_eq!(rig.number("fuse_fallocates").unwrap(), 6, "the kernel itself refuses to collapse");
    drop(file);
    server.stop().expect("a clean stop");
}

/// Asks and waits.
fn nbd(client: &mut Client, answers: &Receiver<Answer>, offset: u64, command: &Nbd) -> Vec<u8> {
    client.send(1, offset, command).expect("the connection stands");
    answers.recv().expect("an answer").result.expect("no error")
}

#[test]
fn what_one_client_writes_the_other_reads_at_once() {
    if impossible("FUSE beside NBD") {
        return;
    }
    for shards in ["1", "3"] {
        let mut rig = Mounted::new(64 * MIB, 96 * MIB);
        rig.volume.more.extend(["--shards", shards].map(str::to_owned));
        let server = rig.volume.serve().expect("a start");
        let file = rig.open(0).expect("the file opens");
        let (send, answers) = channel();
        let mut client = Client::connect(&rig.volume.socket(), Volume::NAME, send).expect("a connection");
        assert_eq!(client.size, file.metadata().unwrap().len(), "one size for both");
        let mut rng = loligo_sim::rng::Rng::new(4);
        for turn in 0..200 {
            let len = (rng.draw() % 256 + 1) * 512;
            let at = rng.draw() % ((64 * MIB - len) / 512) * 512;
            let data = pattern(turn, len as usize);
            let mut back = vec![0; len as usize];
            if turn % 2 == 0 {
                file.write_all_at(&data, at).unwrap();
                back = nbd(&mut client, &answers, at, &Nbd::Read(len as u32));
            } else {
                nbd(&mut client, &answers, at, &Nbd::Write { data: data.clone(), fua: false });
                file.read_exact_at(&mut back, at).unwrap();
            }
            assert!(back == data, "{len} bytes at {at}, {shards} shards");
        }
        // Over several windows, so that several threads have a part in it.
        let data = pattern(5, 5 * MIB as usize);
        file.write_all_at(&data, MIB / 2).unwrap();
        file.sync_all().unwrap();
        let mut back = vec![0; data.len()];
        file.read_exact_at(&mut back, MIB / 2).unwrap();
        assert!(back == data && nbd(&mut client, &answers, MIB / 2, &Nbd::Read(5 << 20)) == data);
        drop((client, file));
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_start_after_kill_replaces_the_mount_and_has_synced_data() {
    if impossible("a killed mount") {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let data = pattern(5, 3 * MIB as usize);
    for round in 0..2 {
        let server = rig.volume.serve().expect("a start");
        let file = rig.open(0).expect("the file opens");
        if round > 0 {
            let mut back = vec![0; data.len()];
            file.read_exact_at(&mut back, 0).unwrap();
            assert!(back == data, "what was acknowledged and synced is there");
        }
        file.write_all_at(&data, 0).unwrap();
        file.sync_data().unwrap();
        server.kill().expect("it ran");
        // What comes before the kernel has closed the last door of a killed process is cut off there.
        let cut = errno(file.write_all_at(&[1; 4096], 0));
        assert!(matches!(cut, Some(Errno::NOTCONN | Errno::CONNABORTED)), "{cut:?}");
        assert!(listed(&rig.mountpoint()), "nobody has cleared up");
        drop(file);
    }
    let server = rig.volume.serve().expect("a start");
    let mut whole = vec![0; data.len()];
    rig.open(0).expect("the file opens").read_exact_at(&mut whole, 0).unwrap();
    assert!(whole == data);
    server.stop().expect("a clean stop");
    assert!(!listed(&rig.mountpoint()), "neither this mount nor an older one is left");
}

#[test]
fn of_64_large_requests_a_mount_holds_32_mib_and_one_at_most() {
    let test = "the bytes that a mount holds";
    if impossible(test) || no_fio(test) {
        return;
    }
    let rig = Mounted::new(256 * MIB, 128 * MIB);
    let server = rig.volume.serve().expect("a start");
    let held = || rig.number("fuse_held_bytes_max").expect("a counter");
    for rw in ["write", "read"] {
        let mut fio = fio(&rig.path(), rw, 64, 3);
        let done = fio.arg("--bs=1m").stdout(Stdio::null()).status().expect("fio runs");
        assert!(done.success(), "{rw}");
        assert!((17 * MIB..=33 * MIB).contains(&held()), "{rw}: {} bytes", held());
    }
    server.stop().expect("a clean stop");
}

#[test]
fn a_stop_under_load_ends_well_and_leaves_no_mount() {
    let test = "a stop under load";
    if impossible(test) || no_fio(test) {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let mut load = fio(&rig.path(), "randwrite", 32, 60)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("fio runs");
    let deadline = Instant::now() + Duration::from_secs(30);
    while rig.number("fuse_writes").unwrap() < 1000 {
        assert!(Instant::now() < deadline, "fio does not write");
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    server.stop().expect("exit 0");
    assert!(begun.elapsed() < Duration::from_secs(10), "the stop took {:?}", begun.elapsed());
    assert!(!listed(&rig.mountpoint()), "unmounted");
    let ended = load.wait().expect("fio ends");
    assert!(!ended.success(), "fio was told");
    let found = rig.volume.loligo(&["inspect", &rig.volume.cache.to_string_lossy()]).expect("loligo inspect");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
}

#[test]
fn a_stop_leaves_what_somebody_else_has_mounted_there_meanwhile() {
    if impossible("a mount of somebody else's") || !loligo_tests::skip::root() {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let at = rig.mountpoint();
    let run = |program: &str, args: &[&str]| {
        assert!(Command::new(program).args(args).arg(&at).status().expect("it runs").success(), "{program}");
    };
    run("umount", &[]);
    run("mount", &["-t", "tmpfs", "other"]);
    std::fs::write(at.join("precious"), "data").expect("a file");
    server.stop().expect("exit 0");
    let kept = std::fs::read_to_string(at.join("precious"));
    run("umount", &[]);
    assert_eq!(kept.expect("the file is still there"), "data");
}

#[test]
fn folders_that_cannot_be_mounted_on_are_refused_with_the_mend() {
    if impossible("bad mountpoints") {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let (dir, mnt) = (rig.volume.dir.clone(), rig.mountpoint());
    let refused = |path: &Path, words: &[&str]| {
        let other = dir.join("other");
        std::fs::create_dir_all(&other).unwrap();
        let core = format!("file:{}", dir.join("other-core").display());
        File::create(dir.join("other-core")).and_then(|f| f.set_len(16 * MIB)).unwrap();
        let listen = format!("fuse:{}", path.display());
        let args = ["--bare", "--core", &core, "--listen", &listen].map(str::to_owned);
        let mut server = Server::launch(&other, &args).unwrap();
        let said = server.ready().expect_err("refused").to_string();
        assert!(words.iter().all(|w| said.contains(w)), "{said}");
    };
    refused(&dir.join("missing"), &["does not exist", "mkdir -p"]);
    refused(&rig.volume.core, &["not a folder"]);
    std::fs::write(mnt.join("something"), "x").unwrap();
    refused(&mnt, &["not empty"]);
    std::fs::remove_file(mnt.join("something")).unwrap();
    let server = rig.volume.serve().expect("a start");
    refused(&mnt, &["in use", "loligo:vol", "unmount"]);
    let mut first = [0; 4096];
    rig.open(0).unwrap().read_exact_at(&mut first, 0).expect("the first one serves on");
    server.stop().expect("a clean stop");
    assert_eq!(std::fs::read_dir(&mnt).unwrap().count(), 0, "the folder is as it was");
}

#[test]
fn odd_offsets_lengths_and_memory_work_also_side_by_side() {
    if impossible("unaligned requests through FUSE") {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    // Neighbouring pieces of 777 bytes share blocks; four writers take every fourth.
    const PIECE: usize = 777;
    let whole = pattern(8, 4 * 200 * PIECE);
    std::thread::scope(|s| {
        for writer in 0..4 {
            let (rig, whole) = (&rig, &whole);
            s.spawn(move || {
                let file = rig.open(0).expect("the file opens");
                for i in (writer..4 * 200).step_by(4) {
                    let piece = i * PIECE..(i + 1) * PIECE;
                    file.write_all_at(&whole[piece.clone()], piece.start as u64).unwrap();
                }
            });
        }
    });
    let file = rig.open(0).expect("the file opens");
    let mut back = vec![0; whole.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == whole, "no piece undid its neighbour");
    let mut odd = vec![0; 5000];
    file.read_exact_at(&mut odd, 12345).unwrap();
    assert!(odd == whole[12345..17345]);
    // The kernel cuts this where the pages of the memory end, which is at no block.
    let large = pattern(9, 5 * MIB as usize + 1);
    file.write_all_at(&large[1..], 16 * MIB).unwrap();
    let mut back = vec![0; 5 * MIB as usize + 1];
    file.read_exact_at(&mut back[1..], 16 * MIB).unwrap();
    assert!(back[1..] == large[1..]);
    let end = 64 * MIB;
    assert_eq!(file.read_at(&mut odd, end).unwrap(), 0, "nothing behind the end");
    assert_eq!(file.read_at(&mut odd, end - 10).unwrap(), 10);
    assert_eq!(errno(file.write_all_at(&[1], end)), Some(Errno::NOSPC));
    drop(file);
    server.stop().expect("a clean stop");
}

#[test]
fn the_file_can_be_locked_and_given_away_but_not_resized() {
    if impossible("owner and locks through FUSE") {
        return;
    }
    let rig = Mounted::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let names: Vec<_> =
        std::fs::read_dir(rig.mountpoint()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, [Volume::NAME]);
    assert_eq!(errno(File::create(rig.mountpoint().join("another"))), Some(Errno::PERM));
    assert_eq!(errno(std::fs::remove_file(rig.path())), Some(Errno::PERM));
    let mut file = rig.open(libc::O_DIRECT | libc::O_DSYNC).expect("past the page cache");
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.mode() & 0o777, meta.is_file()), (64 * MIB, 0o600, true));
    assert_eq!(file.seek(std::io::SeekFrom::End(0)).unwrap(), 64 * MIB);

    let other = rig.open(0).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(flock(&other, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    flock(&file, FlockOperation::Unlock).unwrap();
    flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).expect("this process's own lock");

    file.set_len(64 * MIB).expect("its own size");
    assert_eq!(errno(file.set_len(MIB)), Some(Errno::PERM));
    assert_eq!(errno(File::create(rig.path())), Some(Errno::PERM), "nor does opening truncate it");
    assert!(file.sync_all().is_ok() && file.flush().is_ok());
    drop((file, other));

    std::fs::set_permissions(rig.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(std::fs::metadata(rig.path()).unwrap().mode() & 0o777, 0o640);
    if root() {
        given_away(&rig);
    }
    server.stop().expect("a clean stop");
}

/// Another user reads the file once it is that user's, and not before.
fn given_away(rig: &Mounted) {
    const NOBODY: u32 = 65534;
    std::fs::set_permissions(&rig.volume.dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let read = || {
        let mut command = Command::new("dd");
        command.arg(format!("if={}", rig.path().display())).args(["bs=4096", "count=1", "of=/dev/null"]);
        command.uid(NOBODY).gid(NOBODY).stderr(Stdio::null()).status().expect("dd runs").success()
    };
    assert!(!read(), "it is root's");
    std::os::unix::fs::chown(rig.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(std::fs::metadata(rig.path()).unwrap().uid(), NOBODY);
    assert!(read(), "it was given away");
    let mut first = [0; 512];
    rig.open(0).expect("root may always").read_exact(&mut first).unwrap();
}
