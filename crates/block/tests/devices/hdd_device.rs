//! Claims about the spinning disk in real time: the same clockwork as in virtual time, over a file.

use crate::common::pattern;
use crate::layer::*;
use loligo_block::*;
use std::time::Instant;

const MIB: u64 = 1 << 20;

/// Runs the shard's loop on the real clock until `ops` have ended.
fn run(dev: &mut AnyDevice, ring: &mut Ring, ops: Vec<Op>) -> (Vec<Completion>, u64) {
    let clock = Instant::now();
    let now = || clock.elapsed().as_nanos() as u64;
    let mut out = Vec::new();
    for op in ops {
        assert!(matches!(dev.submit(ring, now(), op), Submit::Taken));
    }
    while dev.in_flight() > 0 {
        let wait = dev.next_deadline().map(|d| d.saturating_sub(now()));
        ring.submit_and_wait(1, wait).unwrap();
        ring.reap(|_| ());
        dev.poll(ring, now(), &mut out);
    }
    (out, now())
}

#[test]
fn a_modelled_disk_over_a_file_takes_its_time_and_keeps_bytes() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk");
    let file = DeviceFile::create(&path, 64 * MIB, &OpenOptions::default()).unwrap();
    let spec: DeviceSpec = format!("hdd:{}?rpm=10000", path.display()).parse().unwrap();
    let mut dev = spec.device(file, DevId(0));
    let mut ring = Ring::new(64).unwrap();
    assert!(dev.geometry().rotational && dev.geometry().volatile_cache);

    let offsets: Vec<u64> = (0..64u64).map(|n| (n * 37 % 64) * MIB + n * 4096).collect();
    let writes = || {
        offsets.iter().enumerate().map(|(n, o)| {
            let data = Buf::copy_of(&pattern(4096, n as u64)).freeze();
            Op { tag: n as u64 + 100, offset: *o, kind: OpKind::Write { data, fua: false } }
        })
    };
    let (done, took) = run(&mut dev, &mut ring, writes().collect());
    assert!(done.iter().all(|c| c.result.is_ok() && (100..164).contains(&c.tag)));
    assert_eq!(done.len(), 64);

    // The same commands in virtual time, all at once: the real run can end later, never sooner than by the small
    // differences in arrival allow.
    let mut model = HddModel::new(HddParams::preset(Rpm::R10000, MIB), 64 * MIB);
    for (n, o) in offsets.iter().enumerate() {
        model.submit(0, n as u64, *o, 4096, HddKind::Write);
    }
    let mut ends = Vec::new();
    model.advance(u64::MAX, &mut ends);
    let virtual_end = ends.iter().map(|f| f.at).max().unwrap();
    println!("real {} ms, virtual {} ms", took / 1_000_000, virtual_end / 1_000_000);
    assert!(took as f64 > virtual_end as f64 * 0.8, "{took} against {virtual_end}");

    let reads = offsets.iter().enumerate().map(|(n, o)| Op {
        tag: n as u64,
        offset: *o,
        kind: OpKind::Read(Buf::alloc(4096)),
    });
    for c in run(&mut dev, &mut ring, reads.collect()).0 {
        assert_eq!(c.buf.unwrap()[..], pattern(4096, c.tag)[..]);
    }
    let (flushed, _) = run(&mut dev, &mut ring, vec![Op { tag: 1, offset: 0, kind: OpKind::Flush }]);
    assert!(flushed[0].result.is_ok());
}

#[test]
fn files_and_modelled_disks_refuse_groups_and_write_nothing() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut ring = Ring::new(4).unwrap();
    let file = || DeviceFile::create(dir.path().join("disk"), 8 * MIB, &OpenOptions::default()).unwrap();
    let hdd = HddDevice::new(RamDevice::new(8 * MIB).unwrap(), HddParams::preset(Rpm::R10000, MIB));
    let mut devices: [Box<dyn Device>; 2] = [Box::new(UringFile::new(file(), DevId(0))), Box::new(hdd)];
    for dev in &mut devices {
        let kind = OpKind::WriteMany(vec![(4096, Buf::copy_of(&[1; 4096]).freeze())]);
        match dev.submit(&mut ring, 0, Op { tag: 3, offset: 4096, kind }) {
            Submit::Finished(c) => assert_eq!(c.result.unwrap_err().kind, IoKind::Unsupported),
            other => panic!("{other:?}"),
        }
        assert_eq!(dev.in_flight(), 0);
    }
    assert!(std::fs::read(dir.path().join("disk")).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn errors_from_below_come_up_with_the_callers_tag_and_buffer() {
    let rule: ErrorRule = "error:read".parse().unwrap();
    let broken = ErrorDevice::new(RamDevice::new(8 * MIB).unwrap(), rule);
    let hdd = HddDevice::new(AnyDevice::Other(Box::new(broken)), HddParams::preset(Rpm::R10000, MIB));
    let (mut dev, mut ring) = (AnyDevice::Hdd(Box::new(hdd)), Ring::new(4).unwrap());
    let (done, _) =
        run(&mut dev, &mut ring, vec![Op { tag: 77, offset: MIB, kind: OpKind::Read(Buf::alloc(4096)) }]);
    assert_eq!(done[0].tag, 77);
    assert!(done[0].result.is_err());
    assert_eq!(done[0].buf.as_ref().unwrap().len(), 4096);
}
