//! Claims about a volume that is a block device: what the kernel, file systems and real programs see of it, and what becomes of
//! it when its service stops or is killed. Needs root, loop devices and FUSE; says SKIP with the reason where there are none.
//!
//! `LOLIGO_LONG=1` takes 20 kills and 20 power cuts in place of a few; `LOLIGO_SEED=n` repeats the plan of a run.

use anyhow::{Context, Result, ensure};
use loligo_sim::rng::Rng;
use loligo_tests::blockdev::{Device, impossible};
use loligo_tests::direct;
use loligo_tests::history::{Crash, History};
use loligo_tests::loops::Loop;
use loligo_tests::lossy;
use loligo_tests::server::Server;
use loligo_tests::skip::{installed, skip};
use rustix::fs::{FallocateFlags, fallocate};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The limit for a device to be back after its service was killed.
const BACK: Duration = Duration::from_secs(60);

fn seed() -> u64 {
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 % 1_000_000);
    let seed = std::env::var("LOLIGO_SEED").ok().map(|v| v.parse().expect("LOLIGO_SEED is a number"));
    let seed = seed.unwrap_or_else(clock);
    println!("LOLIGO_SEED={seed}");
    seed
}

fn rounds(short: u64) -> u64 {
    if std::env::var_os("LOLIGO_LONG").is_some_and(|v| v == "1") { 20 } else { short }
}

/// Runs a program that must succeed; what it said.
fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().expect("it runs");
    let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(out.status.success(), "{program} {args:?}: {said}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Waits for what must come to pass soon.
fn soon(what: &str, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !there() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A device whose volume has blocks of `block` bytes; the loop device under its core, where that takes one.
fn with_block(block: u32, core: u64) -> (Device, Option<Loop>) {
    let mut rig = Device::new(core, 32 * MIB);
    if block == 512 {
        return (rig, None);
    }
    let below = Loop::new(&rig.volume.dir.join("below"), core, block).expect("a loop device");
    rig.volume.core = below.path().to_owned();
    (rig, Some(below))
}

/// A folder with the device's file system mounted on it, until it is dropped.
struct Mount(PathBuf);

impl Mount {
    fn new(rig: &Device) -> Mount {
        let at = rig.volume.dir.join("fs");
        std::fs::create_dir_all(&at).expect("a folder");
        run("mount", &[text(&rig.path()), text(&at)]);
        Mount(at)
    }

    fn unmount(self) {
        run("umount", &[text(&self.0)]);
        std::mem::forget(self);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).stderr(Stdio::null()).status();
    }
}

#[test]
fn the_kernel_is_told_what_the_volume_is_like() {
    if impossible("a block device's traits") {
        return;
    }
    for block in [512, 4096] {
        let (rig, below) = with_block(block, 64 * MIB);
        let server = rig.volume.serve().expect("a start");
        let queue = |name: &str| rig.queue(name);
        assert_eq!(queue("logical_block_size"), block.to_string());
        assert_eq!(queue("physical_block_size"), block.to_string(), "a loop device takes no other");
        assert_eq!(queue("write_cache"), "write back", "else the kernel would drop flushes");
        assert_eq!(queue("discard_granularity"), block.to_string());
        assert_eq!(queue("discard_max_bytes"), (256 * MIB).to_string());
        assert!(queue("write_zeroes_max_bytes").parse::<u64>().expect("a number") >= 256 * MIB);
        assert_eq!(queue("read_ahead_kb"), "128");
        let core = below.as_ref().map_or("0".to_owned(), |l| {
            let name = l.path().file_name().expect("a node").to_string_lossy().into_owned();
            std::fs::read_to_string(format!("/sys/block/{name}/queue/rotational"))
                .expect("a setting")
                .trim()
                .to_owned()
        });
        assert_eq!(queue("rotational"), core, "as the core, and a file has no heads");
        let kernel = rig.kernel_name();
        let of_loop = |name: &str| {
            std::fs::read_to_string(format!("/sys/block/{kernel}/loop/{name}"))
                .expect("an attribute")
                .trim()
                .to_owned()
        };
        assert_eq!([of_loop("dio"), of_loop("autoclear"), of_loop("partscan")], ["1", "0", "0"]);
        assert_eq!(run("blockdev", &["--getsize64", text(&rig.path())]).trim(), (64 * MIB).to_string());
        server.stop().expect("a clean stop");
        assert_eq!(rig.left(), [""; 0], "nothing is left");
    }
}

#[test]
fn it_is_rotational_as_its_core_is_or_as_it_is_told() {
    if impossible("rotational") {
        return;
    }
    let rig = Device::new(64 * MIB, 0);
    let file = format!("file:{}", rig.volume.core.display());
    let disk = format!("hdd:{}?rpm=7200&track=1MiB", rig.volume.core.display());
    for (core, told, expected) in
        [(&disk, None, "1"), (&disk, Some("no"), "0"), (&file, Some("core"), "0"), (&file, Some("yes"), "1")]
    {
        let mut args: Vec<String> = vec!["--bare".into(), "--core".into(), core.clone()];
        args.extend(rig.volume.more.iter().cloned());
        args.extend(told.iter().flat_map(|t| ["--rotational".to_owned(), (*t).to_owned()]));
        let mut server = Server::launch(&rig.volume.dir, &args).expect("it runs");
        server.ready().expect("a start");
        assert_eq!(rig.queue("rotational"), expected, "{core} {told:?}");
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_file_system_on_it_is_sound_with_either_block_size() {
    if impossible("ext4 on a block device") {
        return;
    }
    if !installed("mkfs.ext4") {
        return skip("ext4 on a block device", "mkfs.ext4 is not installed (apt-get install e2fsprogs)");
    }
    for block in [512, 4096] {
        let (rig, _below) = with_block(block, 96 * MIB);
        let server = rig.volume.serve().expect("a start");
        run("mkfs.ext4", &["-q", "-F", text(&rig.path())]);
        let fs = Mount::new(&rig);
        let mut rng = Rng::new(u64::from(block));
        let content: Vec<Vec<u8>> =
            (0..40).map(|_| (0..rng.range(1..600_000)).map(|_| rng.draw() as u8).collect()).collect();
        for (i, data) in content.iter().enumerate() {
            std::fs::write(fs.0.join(i.to_string()), data).expect("room");
        }
        fs.unmount();
        server.stop().expect("a clean stop");
        let server = rig.volume.serve().expect("a second start");
        run("e2fsck", &["-f", "-n", text(&rig.path())]);
        let fs = Mount::new(&rig);
        for (i, data) in content.iter().enumerate() {
            assert!(std::fs::read(fs.0.join(i.to_string())).expect("the file") == *data, "file {i}");
        }
        run("fstrim", &[text(&fs.0)]);
        fs.unmount();
        run("e2fsck", &["-f", "-n", text(&rig.path())]);
        server.stop().expect("a clean stop");
    }
}

#[test]
fn fio_verifies_what_it_wrote_with_either_block_size() {
    if impossible("fio on a block device") {
        return;
    }
    if !installed("fio") {
        return skip("fio on a block device", "fio is not installed (apt-get install fio)");
    }
    for block in [512u32, 4096] {
        let (rig, _below) = with_block(block, 48 * MIB);
        let server = rig.volume.serve().expect("a start");
        let file = format!("--filename={}", rig.path().display());
        let sizes = format!("--bsrange={block}-128k");
        let align = format!("--blockalign={block}");
        run(
            "fio",
            &[
                "--name=verify",
                &file,
                &sizes,
                &align,
                "--ioengine=libaio",
                "--direct=1",
                "--iodepth=32",
                "--rw=randwrite",
                "--bs_unaligned=0",
                "--size=48m",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
                "--fsync=64",
            ],
        );
        assert!(rig.number("fuse_writes").expect("a counter") > 100);
        server.stop().expect("a clean stop");
    }
}

#[test]
fn an_fsync_of_the_device_arrives_in_the_engine() {
    if impossible("fsync of a block device") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let file = rig.open(0).expect("it opens");
    let counters =
        || (rig.number("fuse_fsyncs").expect("a counter"), rig.number("cache_flushes").expect("a counter"));
    for i in 0..5u8 {
        let before = counters();
        file.write_all_at(&[i + 1; 4096], u64::from(i) * 8192).unwrap();
        file.sync_all().unwrap();
        let after = counters();
        assert!(after.0 > before.0 && after.1 > before.1, "fsync {i}: {before:?} before, {after:?} after");
    }
    let durable = direct::open(&rig.path(), libc::O_DSYNC).expect("it opens");
    let mut data = loligo_block::Buf::alloc(4096);
    data.fill(9);
    let before = counters();
    for i in 0..5 {
        durable.write_all_at(&data, i * 8192).unwrap();
    }
    let after = counters();
    assert!(after.0 >= before.0 + 5, "O_DSYNC: {before:?} before, {after:?} after");
    drop((file, durable));
    server.stop().expect("a clean stop");
}

#[test]
fn discards_and_zeroes_read_as_zeros_and_leave_the_rest() {
    if impossible("discards of a block device") {
        return;
    }
    for block in [512, 4096] {
        let (rig, _below) = with_block(block, 64 * MIB);
        let server = rig.volume.serve().expect("a start");
        let mut rng = Rng::new(3);
        let mut expected: Vec<u8> = (0..8 * MIB).map(|_| rng.draw() as u8 | 1).collect();
        let file = rig.open(0).expect("it opens");
        file.write_all_at(&expected, 0).unwrap();
        file.sync_all().unwrap();
        let zeroed = |from: u64, len: u64, expected: &mut Vec<u8>| {
            expected[from as usize..(from + len) as usize].fill(0);
        };
        let small = u64::from(block);
        for (from, len) in [(small, small), (MIB, MIB), (5 * MIB + small, 3 * small)] {
            let (at, n) = (from.to_string(), len.to_string());
            run("blkdiscard", &["--offset", &at, "--length", &n, text(&rig.path())]);
            zeroed(from, len, &mut expected);
        }
        run("blkdiscard", &["--zeroout", "--offset", "3145728", "--length", "1048576", text(&rig.path())]);
        zeroed(3 * MIB, MIB, &mut expected);
        for (how, from, len) in [
            (FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 6 * MIB, 64 * small),
            (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 7 * MIB, 64 * small),
        ] {
            fallocate(&file, how, from, len).unwrap();
            zeroed(from, len, &mut expected);
        }
        drop(file);
        let back = direct::open(&rig.path(), 0).expect("it opens");
        let mut found = loligo_block::Buf::alloc(expected.len());
        back.read_exact_at(&mut found, 0).unwrap();
        let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "blocks of {block}");
        assert!(rig.number("fuse_fallocates").expect("a counter") >= 6, "they went down as such");
        drop(back);
        run("blkdiscard", &[text(&rig.path())]);
        let back = direct::open(&rig.path(), 0).expect("it opens");
        back.read_exact_at(&mut found, 0).unwrap();
        assert!(found.iter().all(|b| *b == 0), "the whole device was discarded");
        drop(back);
        server.stop().expect("a clean stop");
    }
}

/// The device's service is killed under load and started again; returns how long the device was away, at most.
fn kills(rounds: u64, seed: u64) -> Result<Duration> {
    const CORE: u64 = 48 * MIB;
    let rig = Device::new(CORE, 40 * MIB);
    let mut rng = Rng::new(seed);
    let mut history = History::new(CORE);
    let (mut longest, mut answered) = (Duration::ZERO, 0);
    let mut killed: Option<Instant> = None;
    for round in 0..=rounds {
        let server = rig.volume.serve()?;
        // Whoever opens it first: that it can be read is what counts.
        let first = direct::open(&rig.path(), 0)?;
        first.read_exact_at(&mut loligo_block::Buf::alloc(4096), 0)?;
        drop(first);
        if let Some(at) = killed {
            longest = longest.max(at.elapsed());
        }
        let crash = (round > 0).then_some(Crash::Killed);
        direct::verify(&rig.path(), &mut history, crash).with_context(|| format!("after kill {round}"))?;
        ensure!(rig.loops().len() == 1, "one loop device, not {:?}", rig.loops());
        if round == rounds {
            server.stop()?;
            break;
        }
        let pid = server.id();
        let when = Duration::from_millis(rng.range(100..900));
        let done = std::thread::scope(|s| {
            s.spawn(move || {
                std::thread::sleep(when);
                // SAFETY: the child is not waited for before this thread has ended, so the number is still its own.
                unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
            });
            direct::run(&rig.path(), &mut history, &mut rng, (4, 512), || false)
        })?;
        killed = Some(Instant::now());
        ensure!(done.failed > 0, "every thread's last request fails");
        let words = server.words();
        let mut server = server;
        let ended = server.ended()?;
        ensure!(!ended.success(), "it was killed: {ended}, {words}");
        history.crashed(Crash::Killed);
        answered += done.answered;
    }
    ensure!(rig.left().is_empty(), "left: {:?}", rig.left());
    println!("{rounds} kills, {answered} requests answered before them, back within {longest:?}");
    Ok(longest)
}

#[test]
fn after_a_kill_under_load_the_same_name_has_every_acknowledged_write() {
    if impossible("a killed block device") {
        return;
    }
    let seed = seed();
    let longest = kills(rounds(3), seed).unwrap_or_else(|e| panic!("LOLIGO_SEED={seed}: {e:?}"));
    assert!(longest < BACK, "back after {longest:?}");
}

#[test]
fn a_device_that_is_mounted_when_its_service_is_killed_goes_with_its_last_user_and_not_before() {
    if impossible("a killed block device under a file system") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    run("mkfs.ext4", &["-q", "-F", text(&rig.path())]);
    let fs = Mount::new(&rig);
    std::fs::write(fs.0.join("kept"), "flushed")
        .and_then(|()| std::fs::File::open(fs.0.join("kept"))?.sync_all())
        .expect("synced");
    let old = rig.kernel_name();
    server.kill().expect("it ran");
    assert_eq!(rig.loops(), std::slice::from_ref(&old), "nobody has cleared up");
    let server = rig.volume.serve().expect("a start beside the dead device");
    let new = rig.kernel_name();
    assert_ne!(old, new, "the old one is still mounted");
    let mut both = rig.loops();
    both.sort();
    let mut expected = [old.clone(), new.clone()];
    expected.sort();
    assert_eq!(both, expected);
    assert!(
        server.words().contains("is still open") && server.words().contains(text(&fs.0)),
        "{}",
        server.words()
    );
    // It can write nothing any more, and says so or not.
    let _ = Command::new("umount").arg(&fs.0).stderr(Stdio::null()).status();
    drop(fs);
    soon("the dead device goes with its mount", || rig.loops() == [new.clone()]);
    let fs = Mount::new(&rig);
    assert_eq!(std::fs::read_to_string(fs.0.join("kept")).expect("the file"), "flushed");
    fs.unmount();
    run("e2fsck", &["-f", "-n", text(&rig.path())]);
    server.stop().expect("a clean stop");
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn a_loop_device_of_somebody_else_is_left_alone_though_it_has_the_number_of_ours() {
    if impossible("another's loop device") {
        return;
    }
    let rig = Device::new(16 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    let kernel = rig.kernel_name();
    server.kill().expect("it ran");
    let node = format!("/dev/{kernel}");
    run("losetup", &["--detach", &node]);
    let theirs = rig.volume.dir.join("theirs");
    std::fs::File::create(&theirs).and_then(|f| f.set_len(MIB)).expect("a file");
    // Some other test may take the number meanwhile; then there is nothing to show.
    let taken = Command::new("losetup").args([&node, text(&theirs)]).status().expect("losetup runs");
    let server = rig.volume.serve().expect("a start");
    if taken.success() {
        let file =
            std::fs::read_to_string(format!("/sys/block/{kernel}/loop/backing_file")).expect("still bound");
        assert_eq!(file.trim(), text(&theirs), "it was not ours to detach");
        run("losetup", &["--detach", &node]);
    } else {
        skip("another's loop device of our number", "the number was taken at once");
    }
    server.stop().expect("a clean stop");
}

/// Whose the node is, and the mode of it.
fn access(node: &Path) -> (u32, u32, u32) {
    let meta = node.metadata().expect("a node");
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

#[test]
fn a_device_that_is_given_away_is_its_users_after_every_start_and_its_node_nobody_elses_afterwards() {
    if impossible("the owner of a block device") {
        return;
    }
    let mut rig = Device::new(16 * MIB, 32 * MIB);
    rig.volume.more.extend(["--dev-owner", "nobody:12"].map(str::to_owned));
    let server = rig.volume.serve().expect("a start");
    let node = rig.path().canonicalize().expect("the link leads somewhere");
    assert_eq!(access(&node), (65534, 12, 0o660));
    // Held open, so that the next start has another number.
    let held = direct::open(&rig.path(), 0).expect("it opens");
    server.kill().expect("it ran");
    let server = rig.volume.serve().expect("a start");
    let next = rig.path().canonicalize().expect("the link leads somewhere");
    assert_ne!(node, next);
    assert_eq!(access(&next), (65534, 12, 0o660));
    let (uid, _, _) = access(&node);
    assert_eq!(uid, 0, "the dead one's node is as it was before");
    drop(held);
    server.stop().expect("a clean stop");
    assert_eq!(access(&next).0, 0, "as it was before");
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn a_device_that_was_bound_but_not_written_down_is_found_by_its_file() {
    if impossible("a kill in the middle of a start") {
        return;
    }
    let rig = Device::new(16 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    server.kill().expect("it ran");
    assert_eq!(rig.loops().len(), 1);
    // As it is between the kernel's answer and the line that notes it.
    let record = Path::new("/dev/loligo").join(format!(".{}.lock", rig.name));
    let text = std::fs::read_to_string(&record).expect("a record");
    let kept: Vec<&str> = text.lines().filter(|l| !l.starts_with("sequence")).collect();
    assert!(kept.len() + 1 == text.lines().count(), "{text}");
    std::fs::write(&record, kept.join("\n") + "\n").expect("a record");
    let server = rig.volume.serve().expect("a start");
    assert_eq!(rig.loops().len(), 1, "the old one is gone");
    server.stop().expect("a clean stop");
    assert_eq!(rig.left(), [""; 0]);
}

/// A start with these further options that must be refused; what it said.
fn refused(rig: &Device, options: &[&str]) -> String {
    let other = rig.volume.dir.join("other");
    std::fs::create_dir_all(&other).expect("a folder");
    std::fs::File::create(other.join("core")).and_then(|f| f.set_len(16 * MIB)).expect("a core");
    let core = format!("file:{}", other.join("core").display());
    let mut args = vec!["--bare".to_owned(), "--core".to_owned(), core];
    args.extend(options.iter().map(|o| (*o).to_owned()));
    let mut server = Server::launch(&other, &args).expect("it runs");
    server.ready().expect_err("refused").to_string()
}

#[test]
fn of_two_services_only_one_has_a_name() {
    if impossible("two claimants") {
        return;
    }
    let mut rig = Device::new(64 * MIB, 32 * MIB);
    let further = format!("cas{}", rig.name);
    rig.volume.more.extend(["--dev-name".to_owned(), further.clone()]);
    let listen = format!("block:{}", rig.name);
    let server = rig.volume.serve().expect("a start");
    let link = Path::new("/dev").join(&further);
    assert_eq!(std::fs::read_link(&link).expect("a link"), rig.path());
    let said = refused(&rig, &["--listen", &listen]);
    let holder = format!("process {} (loligo)", server.id());
    assert!(said.contains("is in use") && said.contains(&holder), "{said}");
    let unused = format!("block:{}-b", rig.name);
    let said = refused(&rig, &["--listen", &unused, "--dev-name", &further]);
    assert!(said.contains(&format!("/dev/loligo/{}", rig.name)) && said.contains("--dev-name"), "{said}");
    direct::open(&rig.path(), 0).expect("the first one serves on");
    server.stop().expect("a clean stop");
    assert!(link.symlink_metadata().is_err(), "the further name went with it");
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn what_is_not_loligos_is_never_replaced_and_a_leftover_link_is() {
    if impossible("something at the name") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let listen = format!("block:{}", rig.name);
    std::fs::create_dir_all("/dev/loligo").expect("the folder");
    std::fs::write(rig.path(), "precious").expect("a file");
    let said = refused(&rig, &["--listen", &listen]);
    assert!(said.contains("not a link of Loligo's") && said.contains("a file"), "{said}");
    assert_eq!(std::fs::read_to_string(rig.path()).expect("still there"), "precious");
    std::fs::remove_file(rig.path()).expect("it was a file");
    std::os::unix::fs::symlink("/dev/null", rig.path()).expect("a link");
    let said = refused(&rig, &["--listen", &listen]);
    assert!(said.contains("a link to /dev/null"), "{said}");
    let said = refused(&rig, &["--listen", &format!("block:{}-c", rig.name), "--dev-name", "null"]);
    assert!(said.contains("/dev/null is not a link of Loligo's: it is a device"), "{said}");
    for bad in ["a/b", "..", ".x"] {
        let said = refused(&rig, &["--listen", &format!("block:{bad}")]);
        assert!(said.contains("a device is named by 1 to 64 letters"), "{said}");
    }
    std::fs::remove_file(rig.path()).expect("a link");
    std::os::unix::fs::symlink("/dev/loop4000", rig.path()).expect("a link");
    let server = rig.volume.serve().expect("a leftover link is replaced");
    direct::open(&rig.path(), 0).expect("it leads to the device");
    server.stop().expect("a clean stop");
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn a_stop_waits_for_who_has_the_device_open_and_names_them() {
    if impossible("a stop while mounted") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let mut server = rig.volume.serve().expect("a start");
    run("mkfs.ext4", &["-q", "-F", text(&rig.path())]);
    let fs = Mount::new(&rig);
    server.terminate();
    let mount = format!("the file system mounted at {}", fs.0.display());
    soon("it says who holds the device", || server.words().contains(&mount));
    std::fs::write(fs.0.join("late"), "written while it waits").expect("the volume is served");
    fs.unmount();
    let file = direct::open(&rig.path(), 0).expect("it may even be opened again");
    let own = format!("process {} ", std::process::id());
    soon("it says who holds it now", || server.words().contains(&own));
    drop(file);
    assert!(server.ended().expect("it ends").success(), "{}", server.words());
    assert_eq!(rig.left(), [""; 0]);
    let server = rig.volume.serve().expect("a start");
    let fs = Mount::new(&rig);
    assert_eq!(std::fs::read_to_string(fs.0.join("late")).expect("the file"), "written while it waits");
    fs.unmount();
    server.stop().expect("a clean stop");
}

/// A page of the device in this process's memory: it keeps the device open without a descriptor, so that no list shows it.
struct Mapped(*mut libc::c_void);

impl Mapped {
    fn new(path: &Path) -> Mapped {
        use std::os::fd::AsRawFd;
        let file = std::fs::File::open(path).expect("it opens");
        // SAFETY: a new mapping, at an address that the kernel chooses; nothing reads or writes through it.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED, "mapped");
        Mapped(at)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length and is used nowhere else.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

#[test]
fn a_stop_waits_also_for_who_cannot_be_seen_and_leaves_the_device_as_it_is() {
    if impossible("a stop with a hidden user") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let mut server = rig.volume.serve().expect("a start");
    let mapped = Mapped::new(&rig.path());
    server.terminate();
    soon("it says that somebody has it", || {
        server.words().contains("something that cannot be seen from here")
    });
    let autoclear = format!("/sys/block/{}/loop/autoclear", rig.kernel_name());
    soon("the device stays when others close it", || {
        std::fs::read_to_string(&autoclear).expect("still bound").trim() == "0"
    });
    // Who opens and closes it meanwhile is not the last user.
    for _ in 0..20 {
        let file = direct::open(&rig.path(), 0).expect("still served");
        file.read_exact_at(&mut loligo_block::Buf::alloc(4096), 0).expect("still served");
    }
    assert_eq!(rig.loops().len(), 1);
    drop(mapped);
    assert!(server.ended().expect("it ends").success(), "{}", server.words());
    assert_eq!(rig.left(), [""; 0]);
}

#[test]
fn a_second_signal_stops_it_under_its_users_and_loses_nothing_flushed() {
    if impossible("a second signal") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let mut server = rig.volume.serve().expect("a start");
    let file = direct::open(&rig.path(), 0).expect("it opens");
    let mut data = loligo_block::Buf::alloc(4096);
    data.fill(7);
    file.write_all_at(&data, 8192).and_then(|()| file.sync_all()).expect("durable");
    server.terminate();
    soon("it waits", || server.words().contains("waiting to stop"));
    server.terminate();
    assert!(server.ended().expect("it ends").success(), "{}", server.words());
    assert!(file.write_all_at(&data, 0).is_err(), "its user gets errors");
    drop(file);
    soon("the device goes with its user", || rig.left().is_empty());
    let out = rig.volume.loligo(&["inspect", text(&rig.volume.cache)]).expect("it runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    let server = rig.volume.serve().expect("a start");
    let mut back = loligo_block::Buf::alloc(4096);
    direct::open(&rig.path(), 0).and_then(|f| f.read_exact_at(&mut back, 8192)).expect("it reads");
    assert!(back[..] == data[..]);
    server.stop().expect("a clean stop");
}

/// One volume on a file system that loses what was not flushed, through `cuts` power cuts under load.
fn power(seed: u64, cuts: u64, lies: bool) -> Result<u64> {
    const CORE: u64 = 32 * MIB;
    let mut rng = Rng::new(seed);
    // Declared first, so that it goes last.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let fs = lossy::Mounted::new(dir.path(), rng.draw()).context("mounting the lossy file system")?;
    let mut rig = Device::new(MIB, 32 * MIB);
    rig.volume.core = fs.make("core", CORE);
    rig.volume.cache = dir.path().join("cache");
    if lies {
        fs.power().lie_about_flushes();
    }
    let mut history = History::new(CORE);
    for cut in 1..=cuts {
        let server = rig.volume.serve()?;
        direct::verify(&rig.path(), &mut history, (cut > 1).then_some(Crash::PowerLoss))
            .with_context(|| format!("after power cut {}: {}", cut - 1, server.words()))?;
        let survives = rng.draw();
        fs.power().power_cut_after(rng.range(200..4_000), survives);
        let late = Instant::now() + Duration::from_millis(rng.range(500..2_000));
        let switch = fs.power();
        let done = direct::run(&rig.path(), &mut history, &mut rng, (4, 512), || {
            if Instant::now() > late {
                switch.power_cut(survives);
            }
            !switch.is_on()
        })?;
        ensure!(done.failed == 0 || !switch.is_on(), "requests failed under power: {}", server.words());
        let words = server.words();
        server.kill().or_else(|e| if words.contains("panicked") { Err(e) } else { Ok(()) })?;
        history.crashed(Crash::PowerLoss);
        switch.power_on();
    }
    let server = rig.volume.serve()?;
    direct::verify(&rig.path(), &mut history, Some(Crash::PowerLoss)).with_context(|| server.words())?;
    server.stop()?;
    ensure!(rig.left().is_empty(), "left: {:?}", rig.left());
    Ok(history.stepped_back)
}

#[test]
fn whatever_a_power_cut_takes_every_synced_block_of_the_device_is_there() {
    if impossible("power loss under a block device") {
        return;
    }
    let seed = seed();
    let cuts = rounds(4);
    let lost = power(seed, cuts, false).unwrap_or_else(|e| panic!("LOLIGO_SEED={seed}: {e:?}"));
    println!("{cuts} power cuts, {lost} sectors seen without their newest write");
    assert!(lost > 0, "the power cuts took nothing: they show nothing");
}

#[test]
fn a_disk_below_the_device_that_lies_about_its_flushes_is_found_out() {
    if impossible("a lying disk under a block device") {
        return;
    }
    assert!((1..=6).any(|seed| power(seed, 3, true).is_err()), "flushes did nothing, and nothing was missed");
}

#[test]
fn its_threads_never_wait_for_memory_that_only_they_could_free() {
    if impossible("PR_SET_IO_FLUSHER") {
        return;
    }
    const NOIO_AND_LOCAL_THROTTLE: u64 = 0x0008_0000 | 0x0010_0000;
    let rig = Device::new(64 * MIB, 32 * MIB);
    let server = rig.volume.serve().expect("a start");
    if server.words().contains("PR_SET_IO_FLUSHER is refused") {
        assert!(server.words().contains("CAP_SYS_RESOURCE"), "the mend is said: {}", server.words());
        server.stop().expect("a clean stop");
        return skip("PR_SET_IO_FLUSHER", "this root has no CAP_SYS_RESOURCE");
    }
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.id())).expect("its threads");
    let mut seen = 0;
    for task in tasks.flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).expect("a thread");
        // The flags are the ninth field, the seventh behind the name.
        let flags: u64 = stat
            .rsplit(") ")
            .next()
            .and_then(|r| r.split(' ').nth(6))
            .expect("flags")
            .parse()
            .expect("a number");
        assert_eq!(flags & NOIO_AND_LOCAL_THROTTLE, NOIO_AND_LOCAL_THROTTLE, "{stat}");
        seen += 1;
    }
    assert!(seen > 3, "only {seen} threads");
    server.stop().expect("a clean stop");
}
