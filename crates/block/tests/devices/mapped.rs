//! Claims about shares of a device: what goes to which extent, on files and in memory, alone and many at once.

use crate::common::{Rig, pattern};
use crate::layer::*;
use loligo_block::*;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const EXTENT: u64 = 64 << 10;
const START: u64 = 4096;

/// Extents 0 to 7 of a share, scattered over the device, two neighbours among them; extent 5 is missing.
fn scattered() -> Arc<ExtentMap> {
    let map = ExtentMap::new(START, EXTENT, 8 * EXTENT);
    let there = [9, 2, 3, 12, 0, 99, 7, 1];
    (0u32..).zip(there).filter(|(_, t)| *t != 99).for_each(|(here, t)| map.set(here, Some(t)));
    Arc::new(map)
}

/// The place of byte `at` of the share.
fn place(map: &ExtentMap, at: u64) -> usize {
    map.run(at, 1).unwrap().offset as usize
}

fn over_ram() -> Rig<MappedDevice<RamDevice>> {
    Rig { dev: MappedDevice::new(RamDevice::new(MIB).unwrap(), scattered()), ring: Ring::new(4).unwrap() }
}

/// On a file system and on tmpfs, where I/O is over at once.
fn over_files(claim: impl Fn(&mut Rig<MappedDevice<UringFile>>, &std::path::Path)) {
    for root in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        let dir = tempfile::tempdir_in(root).unwrap();
        let path = dir.path().join("disk");
        let file = DeviceFile::create(&path, MIB, &OpenOptions::default()).unwrap();
        let dev = MappedDevice::new(UringFile::new(file, DevId(0)), scattered());
        claim(&mut Rig { dev, ring: Ring::new(8).unwrap() }, &path);
    }
}

#[test]
fn a_write_over_borders_goes_to_each_extent_and_returns_whole() {
    over_files(|rig, path| {
        let data = pattern(4 * EXTENT as usize, 1);
        rig.write(EXTENT / 2, &data, false).unwrap();
        assert_eq!(rig.read(EXTENT / 2, data.len()), data);
        rig.one(0, OpKind::Flush).result.unwrap();
        let raw = std::fs::read(path).unwrap();
        let map = scattered();
        for at in (0..data.len()).step_by(512) {
            let there = place(&map, EXTENT / 2 + at as u64);
            assert_eq!(raw[there..there + 512], data[at..at + 512], "{at}");
        }
        assert!(raw[..START as usize].iter().all(|b| *b == 0), "what is before the extents is nobody's");
        let written = raw.chunks(512).filter(|s| s.iter().any(|b| *b != 0)).count();
        assert_eq!(written, data.len() / 512, "and nothing else was touched");
    });
}

#[test]
fn zeroes_and_discards_over_borders_stay_within_the_share() {
    over_files(|rig, path| {
        std::fs::write(path, vec![0xaa; MIB as usize]).unwrap();
        rig.one(0, OpKind::WriteZeroes { len: 5 * EXTENT, unmap: false }).result.unwrap();
        rig.one(6 * EXTENT, OpKind::Discard { len: EXTENT }).result.unwrap();
        rig.one(0, OpKind::Flush).result.unwrap();
        assert_eq!(rig.read(0, 5 * EXTENT as usize), vec![0; 5 * EXTENT as usize]);
        let raw = std::fs::read(path).unwrap();
        let map = scattered();
        let ours: Vec<usize> = [0, 1, 2, 3, 4, 6].map(|e| place(&map, e * EXTENT) / 4096).to_vec();
        for (page, bytes) in raw.chunks(4096).enumerate() {
            let mine = ours.iter().any(|first| (*first..first + 16).contains(&page));
            assert!(mine || bytes.iter().all(|b| *b == 0xaa), "page {page}");
        }
    });
}

#[test]
fn what_has_no_extent_fails_and_changes_nothing() {
    let mut rig = over_ram();
    rig.write(5 * EXTENT, &[1; 512], false).unwrap_err();
    rig.write(5 * EXTENT - 512, &[1; 1024], false).unwrap_err();
    assert_eq!(rig.read(5 * EXTENT - 512, 512), [0; 512], "not even the part that has one");
    let done = rig.one(4 * EXTENT, OpKind::Read(Buf::alloc(2 * EXTENT as usize)));
    assert!(done.result.is_err() && done.buf.is_some(), "the buffer comes back");
    rig.write(8 * EXTENT, &[1; 512], false).unwrap_err();
    assert_eq!(rig.dev.geometry().size, 8 * EXTENT);
}

#[test]
fn many_at_once_keep_their_tags_and_their_bytes() {
    over_files(|rig, _| {
        let lens = [512, 4096, EXTENT as usize + 1024, 3 * EXTENT as usize];
        let at = |tag: u64| (tag * 7919 * 512) % (2 * EXTENT) / 512 * 512;
        let data = |tag: u64| pattern(lens[tag as usize % lens.len()], tag + 1);
        for tag in 0..64 {
            let kind = OpKind::Write { data: Buf::copy_of(&data(tag)).freeze(), fua: tag % 5 == 0 };
            let done = rig.all(vec![Op { tag, offset: at(tag), kind }]);
            assert!(done.len() == 1 && done[0].tag == tag && done[0].result.is_ok());
            assert_eq!(rig.read(at(tag), lens[tag as usize % lens.len()]), data(tag));
        }
        let reads = |tag: u64| Op { tag, offset: at(63), kind: OpKind::Read(Buf::alloc(lens[3])) };
        let done = rig.all((100..300).map(reads).collect());
        assert_eq!(done.iter().map(|c| c.tag).collect::<Vec<_>>(), (100..300).collect::<Vec<_>>());
        for c in done {
            assert_eq!(c.buf.unwrap()[..], data(63));
        }
        assert_eq!(rig.dev.in_flight(), 0);
    });
}

#[test]
fn a_part_that_fails_fails_the_whole() {
    let second = place(&scattered(), EXTENT) as u64;
    let rule = ErrorRule { class: OpClass::Write, range: second..second + 512, pick: Pick::ALL, errno: 5 };
    let dev = MappedDevice::new(ErrorDevice::new(RamDevice::new(MIB).unwrap(), rule), scattered());
    let mut rig = Rig { dev, ring: Ring::new(4).unwrap() };
    rig.write(EXTENT - 512, &[3; 1024], false).unwrap_err();
    rig.write(EXTENT - 512, &[3; 512], false).unwrap();
    rig.write(EXTENT + 512, &[3; 2 * EXTENT as usize], false).unwrap();
}

#[test]
fn blocking_access_and_the_ring_see_the_same_share() {
    over_files(|rig, _| {
        let file = rig.dev.inner().file().clone();
        let share = CacheDevice::Share(file, scattered());
        let mut sync = share.sync_io();
        let data = pattern(3 * EXTENT as usize, 5);
        sync.write_at(EXTENT - 4096, &data).unwrap();
        assert_eq!(rig.read(EXTENT - 4096, data.len()), data);
        // Reads that were announced, over borders and within them.
        let ranges = vec![(EXTENT - 4096, 8192), (2 * EXTENT, 4096), (2 * EXTENT + 4096, EXTENT as usize)];
        sync.read_next(ranges.clone());
        for (at, len) in ranges {
            let from = (at + 4096 - EXTENT) as usize;
            assert_eq!(sync.read_owned(at, len, None).unwrap()[..], data[from..from + len]);
        }
        sync.read_at(5 * EXTENT, &mut [0; 512]).unwrap_err();
        sync.write_at(8 * EXTENT - 512, &[0; 1024]).unwrap_err();
        sync.flush().unwrap();
    });
}
