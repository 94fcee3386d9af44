//! Claims about the layers, over memory.

use crate::common::{Rig, pattern};
use crate::layer::*;
use loligo_block::*;

const MIB: u64 = 1 << 20;

fn ram() -> RamDevice {
    RamDevice::new(4 * MIB).unwrap()
}

fn over<D: Device>(dev: D) -> Rig<D> {
    Rig { dev, ring: Ring::new(4).unwrap() }
}

fn write(tag: u64, offset: u64, len: usize) -> Op {
    Op {
        tag,
        offset,
        kind: OpKind::Write { data: Buf::copy_of(&pattern(len, tag + 1)).freeze(), fua: false },
    }
}

#[test]
fn a_delayed_operation_completes_at_its_deadline_and_not_before() {
    let mut ring = Ring::new(4).unwrap();
    let mut out = Vec::new();
    let mut dev = DelayDevice::new(ram(), Delay::Fixed(1000), 0);
    assert!(matches!(dev.submit(&mut ring, 500, write(1, 0, 512)), Submit::Taken));
    assert_eq!((dev.in_flight(), dev.next_deadline()), (1, Some(1500)));
    dev.poll(&mut ring, 1499, &mut out);
    assert!(out.is_empty());
    dev.poll(&mut ring, 1500, &mut out);
    assert_eq!((out.len(), dev.in_flight(), dev.next_deadline()), (1, 0, None));
}

#[test]
fn a_uniform_delay_stays_in_range_reorders_and_replays() {
    let run = |seed| {
        let mut ring = Ring::new(4).unwrap();
        let mut dev = DelayDevice::new(ram(), Delay::Uniform(100, 200), seed);
        for tag in 0..50 {
            dev.submit(&mut ring, 0, write(tag, tag * 512, 512));
        }
        let mut order = Vec::new();
        while let Some(next) = dev.next_deadline() {
            assert!((100..200).contains(&next));
            let mut out = Vec::new();
            dev.poll(&mut ring, next, &mut out);
            order.extend(out.iter().map(|c| (next, c.tag)));
        }
        order
    };
    let first = run(1);
    assert_eq!(first.len(), 50);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    assert!(!first.is_sorted_by_key(|(_, tag)| *tag));
}

#[test]
fn errors_hit_the_kind_range_and_turn_that_the_rule_names() {
    let rule: ErrorRule = "error:read,lba=8..16,after=1,nth=2,errno=28".parse().unwrap();
    let mut rig = over(ErrorDevice::new(ram(), rule));
    rig.write(4096, &[1; 4096], false).unwrap();
    let mut hits = Vec::new();
    for n in 0..6 {
        let done = rig.one(4096 + 512 * n, OpKind::Read(Buf::alloc(512)));
        assert_eq!(done.buf.unwrap().len(), 512, "the buffer comes back either way");
        hits.push(done.result.err().map(|e| e.kind));
    }
    let full = Some(IoKind::NoSpace);
    assert_eq!(hits, [None, None, full, None, full, None]);
    assert!(rig.one(0, OpKind::Read(Buf::alloc(4096))).result.is_ok(), "ends where the range begins");
    assert!(rig.one(8192, OpKind::Read(Buf::alloc(4096))).result.is_ok(), "begins where the range ends");
    let flushes: ErrorRule = "error:flush".parse().unwrap();
    assert!(over(ErrorDevice::new(ram(), flushes)).one(0, OpKind::Flush).result.is_err());
    for wrong in ["read", "error:seek", "error:read,lba=4", "error:read,x=1", "error:read,nth=x"] {
        let said = wrong.parse::<ErrorRule>().unwrap_err().to_string();
        assert!(said.contains("error:read|write"), "{said}");
    }
}

#[test]
fn a_torn_write_leaves_its_beginning_and_what_was_behind_it() {
    for admit in [false, true] {
        let mut rig = over(TornDevice::new(ram(), TornRule { pick: Pick { after: 1, nth: 1 }, admit }, 5));
        rig.write(0, &[1; 8192], false).unwrap();
        assert_eq!(rig.write(0, &[2; 8192], false).is_err(), admit);
        let now = rig.read(0, 8192);
        let kept = now.iter().filter(|b| **b == 2).count();
        assert!(kept.is_multiple_of(512) && (512..8192).contains(&kept), "{kept}");
        assert!(now[..kept].iter().all(|b| *b == 2) && now[kept..].iter().all(|b| *b == 1));
        rig.write(0, &[3; 512], false).unwrap();
    }
}

#[test]
fn the_log_has_every_operation_and_its_end_in_order() {
    let dev = LogDevice::new(DelayDevice::new(ram(), Delay::Fixed(10), 0));
    let log = dev.log();
    let mut rig = over(dev);
    rig.dev.submit(&mut rig.ring, 5, write(1, 4096, 512));
    rig.dev.submit(&mut rig.ring, 6, Op { tag: 2, offset: 0, kind: OpKind::Flush });
    rig.dev.poll(&mut rig.ring, 15, &mut Vec::new());
    let entries = log.take();
    assert_eq!(
        entries[0],
        LogEntry { at: 5, tag: 1, op: LogOp::Write { fua: false }, offset: 4096, len: 512 }
    );
    assert_eq!(entries[1].op, LogOp::Flush);
    assert_eq!(entries[2], LogEntry { at: 15, tag: 1, op: LogOp::Done { ok: true }, offset: 0, len: 0 });
    assert_eq!(entries.len(), 3);
    assert!(log.take().is_empty());
}

#[test]
fn a_group_goes_through_layers_as_one_and_is_torn_by_the_sector() {
    let group = || {
        let piece = |at: u64| (at, Buf::copy_of(&[2; 4096]).freeze());
        OpKind::WriteMany(vec![piece(4096), piece(65_536)])
    };
    for admit in [false, true] {
        let log = LogDevice::new(TornDevice::new(ram(), TornRule { pick: Pick::ALL, admit }, 3));
        let handle = log.log();
        let mut rig = over(log);
        assert_eq!(rig.one(4096, group()).result.is_err(), admit);
        assert_eq!(handle.take()[0].op, LogOp::WriteMany { pieces: 2 });
        let (first, second) = (rig.read(4096, 4096), rig.read(65_536, 4096));
        let kept = first.iter().chain(&second).filter(|b| **b == 2).count();
        assert!(kept.is_multiple_of(512) && (512..8192).contains(&kept), "{kept}");
        assert!(first.iter().chain(&second).take(kept).all(|b| *b == 2), "its beginning");
    }
    let rule = |text: &str| over(ErrorDevice::new(ram(), text.parse().unwrap()));
    assert!(rule("error:write,lba=128..129").one(4096, group()).result.is_err(), "its second piece");
    assert!(rule("error:write,lba=16..128").one(4096, group()).result.is_ok(), "the gap is none of it");
}
