//! Claims about files on a ring, on whatever file system holds the build's temporary directory, and on tmpfs.

use crate::common::{Rig, pattern};
use loligo_block::{
    Buf, DevId, Device, DeviceFile, IoError, IoKind, Op, OpKind, OpenOptions, Ring, Submit, SyncFile, SyncIo,
    UringFile, alignment,
};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Each place a file may live in, and each way to open it.
fn everywhere(size: u64, claim: impl Fn(&mut Rig<UringFile>, &PathBuf)) {
    for root in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        for direct in [true, false] {
            let dir = tempfile::tempdir_in(root).unwrap();
            let path = dir.path().join("disk");
            let options = OpenOptions { direct, ..OpenOptions::default() };
            drop(DeviceFile::create(&path, size, &options).unwrap());
            let mut rig = Rig::open(&path, &options);
            println!("{root}: direct {direct} -> {:?}", rig.dev.file().dio());
            claim(&mut rig, &path);
        }
    }
}

#[test]
fn what_is_written_is_read_back_and_is_in_the_file() {
    everywhere(4 * MIB, |rig, path| {
        let data = pattern(MIB as usize, 1);
        rig.write(MIB, &data, false).unwrap();
        rig.write(3 * MIB, &data[..4096], true).unwrap();
        rig.one(0, OpKind::Flush).result.unwrap();
        assert_eq!(rig.read(MIB, MIB as usize), data);
        let file = std::fs::read(path).unwrap();
        assert_eq!(&file[MIB as usize..2 * MIB as usize], &data);
        assert_eq!(&file[3 * MIB as usize..][..4096], &data[..4096]);
        assert!(file[..MIB as usize].iter().all(|b| *b == 0));
    });
}

#[test]
fn more_operations_than_ring_and_device_hold_all_complete() {
    everywhere(16 * MIB, |rig, _| {
        let block = |n: u64| pattern(4096, n);
        let writes = (0..3000u64)
            .map(|n| Op {
                tag: n,
                offset: n * 4096,
                kind: OpKind::Write { data: Buf::copy_of(&block(n)).freeze(), fua: false },
            })
            .collect();
        let done = rig.all(writes);
        assert_eq!(done.len(), 3000);
        assert!(done.iter().enumerate().all(|(n, c)| c.tag == n as u64 && c.result.is_ok()));
        let reads = (0..3000u64)
            .map(|n| Op { tag: n, offset: n * 4096, kind: OpKind::Read(Buf::alloc(4096)) })
            .collect();
        for (n, c) in rig.all(reads).into_iter().enumerate() {
            assert_eq!(c.buf.unwrap()[..], block(n as u64)[..]);
        }
    });
}

#[test]
fn a_tail_shorter_than_the_direct_alignment_is_read_and_written() {
    everywhere(MIB + 512 * 3, |rig, path| {
        let tail = pattern(512 * 3 + 8192, 2);
        rig.write(MIB - 8192, &tail, false).unwrap();
        rig.write(MIB + 1024, &tail[..512], true).unwrap();
        let mut want = tail.clone();
        want[8192 + 1024..8192 + 1536].copy_from_slice(&tail[..512]);
        assert_eq!(rig.read(MIB - 8192, want.len()), want);
        assert_eq!(rig.read(MIB + 512, 512), want[8192 + 512..8192 + 1024]);
        assert_eq!(std::fs::metadata(path).unwrap().len(), MIB + 512 * 3);
    });
}

#[test]
fn what_direct_io_refuses_works_all_the_same() {
    everywhere(4 * MIB, |rig, path| {
        let whole = pattern(4 * MIB as usize, 3);
        std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all(&whole).unwrap();
        let mut want = whole;
        for (n, (offset, len, slice)) in [
            (512u64, 512usize, 0usize),
            (4096 * 3 + 512, 9216, 512),
            (65536, 8192, 24),
            (99 * 512, 70144, 7),
            (0, 131072, 512),
        ]
        .into_iter()
        .enumerate()
        {
            let source = Buf::copy_of(&pattern(len + slice, n as u64 + 10)).freeze();
            let data = source.slice(slice..slice + len);
            want[offset as usize..offset as usize + len].copy_from_slice(&data);
            rig.one(offset, OpKind::Write { data, fua: n % 2 == 0 }).result.unwrap();
            assert_eq!(rig.read(offset, len), want[offset as usize..][..len]);
        }
        assert_eq!(rig.read(0, 4 * MIB as usize), want);
    });
}

#[test]
fn zeroed_ranges_are_zeros_and_discarded_ones_spare_neighbours() {
    everywhere(8 * MIB, |rig, path| {
        let whole = pattern(8 * MIB as usize, 4);
        rig.write(0, &whole, false).unwrap();
        for (offset, len, unmap) in [
            (512, 512, false),
            (MIB, 2 * MIB, true),
            (4 * MIB + 512, MIB + 1024, false),
            (8 * MIB - 512, 512, true),
        ] {
            rig.one(offset, OpKind::WriteZeroes { len, unmap }).result.unwrap();
            assert!(rig.read(offset, len as usize).iter().all(|b| *b == 0), "{offset} {len} {unmap}");
            assert_eq!(rig.read(offset - 512, 512), whole[offset as usize - 512..][..512]);
        }
        rig.one(6 * MIB, OpKind::Discard { len: MIB }).result.unwrap();
        let after = rig.read(6 * MIB, MIB as usize);
        assert!(after.iter().all(|b| *b == 0) || after == whole[6 * MIB as usize..][..MIB as usize]);
        assert_eq!(rig.read(7 * MIB, 4096), whole[7 * MIB as usize..][..4096]);
        assert_eq!(std::fs::metadata(path).unwrap().len(), 8 * MIB);
    });
}

#[test]
fn holes_and_data_are_told_apart_where_the_file_system_can() {
    everywhere(8 * MIB, |rig, _| {
        rig.write(2 * MIB, &pattern(MIB as usize, 5), false).unwrap();
        rig.one(0, OpKind::Flush).result.unwrap();
        let found = rig.dev.file().extents(MIB, 4 * MIB, 64).unwrap();
        let runs: Vec<_> = found.iter().map(|e| (e.len, e.allocated, e.zero)).collect();
        assert_eq!(runs, [(MIB, false, true), (MIB, true, false), (2 * MIB, false, true)]);
        assert_eq!(rig.dev.file().extents(MIB, 4 * MIB, 1).unwrap().len(), 1);
    });
}

#[test]
fn an_error_gives_the_read_buffer_back() {
    everywhere(MIB, |rig, path| {
        let refused = rig.one(MIB, OpKind::Read(Buf::alloc(4096)));
        assert_eq!(refused.result.unwrap_err().kind, IoKind::Invalid);
        assert_eq!(refused.buf.unwrap().len(), 4096);
        // The file shrinks under the device: the read ends early and must not pretend otherwise.
        std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(MIB / 2).unwrap();
        let short = rig.one(MIB / 2 - 4096, OpKind::Read(Buf::alloc(8192)));
        assert!(short.result.unwrap_err().to_string().contains("shrink"));
        assert_eq!(short.buf.unwrap().len(), 8192);
    });
}

#[test]
fn a_write_that_the_system_refuses_fails_and_names_the_place() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    drop(DeviceFile::create(&path, MIB, &OpenOptions::default()).unwrap());
    let mut rig = Rig::open(&path, &OpenOptions { read_only: true, ..OpenOptions::default() });
    let refused = rig.write(4096, &[1; 4096], false).unwrap_err();
    assert_eq!(refused.errno, 9, "EBADF: the descriptor is read-only");
    assert!(refused.to_string().contains("at 4096 of "), "{refused}");
}

#[test]
fn a_buffered_file_is_read_from_its_device_after_opening() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, pattern(MIB as usize, 3)).unwrap();
    let plain = std::fs::File::open(&path).unwrap();
    let in_memory = || {
        let mut buf = [0; 4096];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(&plain, &mut [std::io::IoSliceMut::new(&mut buf)], 64 << 10, flags).is_ok()
    };
    if !in_memory() {
        // Not every file system can say so.
        println!("SKIP: pages dropped at opening: this file system does not say what is in memory");
        return;
    }
    let options = OpenOptions { direct: false, ..OpenOptions::default() };
    // Asking has the kernel read ahead, so that pages may be there again at once.
    let opened = (0..5).map(|_| DeviceFile::open(&path, &options).unwrap()).find(|_| !in_memory());
    let file = opened.expect("pages that were in memory are dropped");
    let mut buf = Buf::zeroed(4096);
    SyncFile::new(file).read_at(64 << 10, &mut buf).unwrap();
    assert_eq!(&buf[..], &pattern(MIB as usize, 3)[64 << 10..][..4096]);
}

#[test]
fn blocking_and_ring_io_see_each_others_writes_in_one_file() {
    everywhere(10 * MIB + 512, |rig, _| {
        let mut sync = SyncFile::new(rig.dev.file().clone());
        let data = pattern(9 * MIB as usize + 513, 6);
        // An odd address: the whole transfer is bounced.
        sync.write_at(512, &data[1..]).unwrap();
        sync.flush().unwrap();
        assert_eq!(rig.read(512, 9 * MIB as usize + 512), &data[1..]);
        rig.write(MIB, &data[..4096], false).unwrap();
        let mut back = vec![0; 4097];
        sync.read_at(MIB, &mut back[1..]).unwrap();
        assert_eq!(&back[1..], &data[..4096]);
        let mut last = [1; 512];
        sync.read_at(10 * MIB, &mut last).unwrap();
        assert_eq!(last, [0; 512]);
        assert_eq!(sync.read_at(10 * MIB, &mut [0; 1024]).unwrap_err().kind, IoKind::Invalid);
    });
}

#[test]
fn filling_allocates_every_byte() {
    everywhere(5 * MIB + 512, |rig, path| {
        let mut last = 0;
        SyncFile::new(rig.dev.file().clone())
            .fill(|done| {
                last = done;
                Ok::<(), IoError>(())
            })
            .unwrap();
        assert_eq!(last, 5 * MIB + 512);
        let mut before = 0;
        let cut = SyncFile::new(rig.dev.file().clone()).fill(|done| match done {
            done if before > 0 => Err(IoError::new(IoKind::Invalid, format!("{done} after {before}"))),
            done => {
                before = done;
                Ok(())
            }
        });
        assert_eq!(cut.unwrap_err().kind, IoKind::Invalid, "whoever watches it can end it");
        let meta = std::fs::metadata(path).unwrap();
        assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 >= 5 * MIB);
    });
}

#[test]
fn unawaited_operations_fail_at_once_and_keep_their_buffers() {
    everywhere(MIB, |rig, _| {
        let op = |tag, offset, kind| Op { tag, offset, kind };
        let data = Buf::copy_of(&pattern(4096, 3)).freeze();
        let write = OpKind::Write { data: data.clone(), fua: false };
        for op in [op(1, 0, OpKind::Read(Buf::alloc(512 << 10))), op(2, 4096, write)] {
            // Where it is done at once there is nothing to wait for.
            if !matches!(rig.dev.submit(&mut rig.ring, 0, op), Submit::Taken) {
                return;
            }
        }
        rig.ring.disown(DevId(3), "it sleeps");
        assert!(matches!(rig.dev.submit(&mut rig.ring, 0, op(3, 0, OpKind::Flush)), Submit::Taken));
        let mut out = Vec::new();
        rig.dev.poll(&mut rig.ring, 0, &mut out);
        out.sort_by_key(|c| c.tag);
        assert_eq!(out.iter().map(|c| c.tag).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(out.iter().all(|c| c.result.as_ref().is_err_and(|e| e.to_string().contains("it sleeps"))));
        assert_eq!(out[0].buf.as_ref().map(|b| b.len()), Some(512 << 10), "another buffer than the kernel's");
        assert!(rig.dev.in_flight() == 0 && rig.ring.has_orphans());
        // The kernel carries them out all the same.
        while rig.ring.has_orphans() {
            rig.ring.submit_and_wait(1, Some(1_000_000_000)).unwrap();
            rig.ring.reap(|_| ());
        }
        rig.dev.poll(&mut rig.ring, 0, &mut out);
        assert_eq!((out.len(), rig.ring.in_flight()), (3, 0), "nobody hears of it");
        rig.ring.readmit(DevId(3));
        assert_eq!(rig.read(4096, 4096), data[..]);
    });
}

#[test]
fn two_devices_and_foreign_entries_share_one_ring() {
    use loligo_block::io_uring::{opcode, types};
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut ring = Ring::new(8).unwrap();
    let mut devices: Vec<UringFile> = (0..2)
        .map(|n| {
            let file =
                DeviceFile::create(dir.path().join(n.to_string()), MIB, &OpenOptions::default()).unwrap();
            UringFile::new(file, DevId(n))
        })
        .collect();
    for (n, dev) in devices.iter_mut().enumerate() {
        for tag in 0..20u64 {
            let data = Buf::copy_of(&[n as u8 + 1; 4096]).freeze();
            dev.submit(
                &mut ring,
                0,
                Op { tag, offset: tag * 4096, kind: OpKind::Write { data, fua: false } },
            );
        }
    }
    let soon = types::Timespec::new().nsec(1);
    // SAFETY: `soon` outlives the loop that waits for this entry.
    unsafe { ring.push_foreign(opcode::Timeout::new(&soon).build().user_data(42)) };
    let (mut foreign, mut done) = (Vec::new(), [Vec::new(), Vec::new()]);
    while foreign.is_empty() || done.iter().any(|d| d.len() < 20) {
        ring.submit_and_wait(1, Some(1_000_000_000)).unwrap();
        ring.reap(|f| foreign.push((f.user_data, f.res)));
        for (dev, out) in devices.iter_mut().zip(&mut done) {
            dev.poll(&mut ring, 0, out);
        }
    }
    assert_eq!(foreign, [(42, -62)], "the timeout expired (ETIME)");
    assert!(done.iter().flatten().all(|c| c.result.is_ok()));
    for n in 0..2u8 {
        assert!(std::fs::read(dir.path().join(n.to_string())).unwrap()[..81920].iter().all(|b| *b == n + 1));
    }
}

#[test]
fn waiting_ends_at_its_timeout_when_nothing_happens() {
    let mut ring = Ring::new(8).unwrap();
    let start = std::time::Instant::now();
    ring.submit_and_wait(1, Some(20_000_000)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(ring.reap(|_| ()), 0);
}

#[test]
fn dropping_the_ring_waits_for_what_is_in_flight() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    let file = DeviceFile::create(&path, 4 * MIB, &OpenOptions::default()).unwrap();
    let mut dev = UringFile::new(file, DevId(0));
    let mut ring = Ring::new(64).unwrap();
    for n in 0..1024 {
        let data = Buf::copy_of(&[9; 4096]).freeze();
        dev.submit(&mut ring, 0, Op { tag: n, offset: n * 4096, kind: OpKind::Write { data, fua: false } });
    }
    drop(dev);
    drop(ring);
    assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 9));
}

#[test]
fn forced_pages_of_64_kib_are_honoured_and_all_claims_hold() {
    if alignment() == 65536 {
        return;
    }
    let me = std::env::current_exe().unwrap();
    let run = std::process::Command::new(me)
        .arg("file_device")
        .env("LOLIGO_FORCE_ALIGN", "65536")
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
