//! The device as the kernel, file systems and programs see it.

use crate::{MIB, Mount, run, text, with_block};
use loligo_sim::rng::Rng;
use loligo_tests::blockdev::{Device, impossible};
use loligo_tests::direct;
use loligo_tests::server::Server;
use loligo_tests::skip::{installed, skip};
use rustix::fs::{FallocateFlags, fallocate};
use std::os::unix::fs::FileExt;

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

/// Takes the cache of every loop device that nobody has, and gives it back at the end.
struct WithoutCache(Vec<std::path::PathBuf>);

impl WithoutCache {
    fn of_free_ones() -> WithoutCache {
        let all = std::fs::read_dir("/sys/block").expect("the kernel's disks").flatten().map(|e| e.path());
        let free = all.filter(|disk| {
            let name = disk.file_name().expect("a name").to_string_lossy();
            name.starts_with("loop") && !disk.join("loop/backing_file").exists()
        });
        let settings: Vec<_> = free.map(|disk| disk.join("queue/write_cache")).collect();
        let set = |path: &std::path::PathBuf| std::fs::write(path, "write through").is_ok();
        WithoutCache(settings.into_iter().filter(set).collect())
    }
}

impl Drop for WithoutCache {
    fn drop(&mut self) {
        for setting in &self.0 {
            let _ = std::fs::write(setting, "write back");
        }
    }
}

#[test]
fn flushes_arrive_where_a_former_user_set_them_to_be_dropped() {
    if impossible("a loop device's setting") {
        return;
    }
    let rig = Device::new(64 * MIB, 32 * MIB);
    let changed = WithoutCache::of_free_ones();
    let server = rig.volume.serve().expect("a start");
    assert_eq!(rig.queue("write_cache"), "write back");
    let file = rig.open(0).expect("it opens");
    file.write_all_at(&[1; 4096], 0).unwrap();
    let before = rig.number("cache_flushes").expect("a counter");
    file.sync_all().unwrap();
    assert!(rig.number("cache_flushes").expect("a counter") > before, "the flush was dropped");
    drop((file, changed));
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
