//! Claims about the spinning-disk model, all in virtual time.

use loligo_block::{Finished, HddKind, HddModel, HddParams, Rpm};
use std::collections::HashMap;

const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn disk(rpm: Rpm) -> HddModel {
    HddModel::new(HddParams::preset(rpm, 1 << 20), GIB)
}

/// Keeps `depth` of the commands outstanding and returns how many ended per second.
fn rate(disk: &mut HddModel, depth: usize, kind: HddKind, commands: impl Iterator<Item = (u64, u64)>) -> f64 {
    let mut commands = commands.enumerate();
    let (mut now, mut ended, mut out) = (0, 0u64, Vec::new());
    for (id, (offset, len)) in commands.by_ref().take(depth) {
        disk.submit(now, id as u64, offset, len, kind);
    }
    while let Some(next) = disk.next_deadline() {
        now = next;
        disk.advance(now, &mut out);
        for _ in out.drain(..) {
            ended += 1;
            if let Some((id, (offset, len))) = commands.next() {
                disk.submit(now, id as u64, offset, len, kind);
            }
        }
    }
    ended as f64 * SECOND as f64 / now as f64
}

fn random_4k(rpm: Rpm, depth: usize, kind: HddKind) -> f64 {
    let mut r = Random(88172645463325252);
    rate(&mut disk(rpm), depth, kind, (0..20_000).map(|_| (r.below(GIB / 4096) * 4096, 4096)))
}

fn sequential_mb(rpm: Rpm, depth: usize, len: u64, kind: HddKind) -> f64 {
    rate(&mut disk(rpm), depth, kind, (0..GIB / len).map(|n| (n * len, len))) * len as f64 / 1e6
}

fn within(what: &str, got: f64, low: f64, high: f64) {
    println!("{what}: {got:.1} (wanted {low} to {high})");
    assert!((low..=high).contains(&got), "{what}: {got:.1} is not in {low}..={high}");
}

#[test]
fn a_7200_rpm_disk_does_what_one_does() {
    for kind in [HddKind::Read, HddKind::Write] {
        within("random 4K at depth 1 /s", random_4k(Rpm::R7200, 1, kind), 76.0, 84.0);
        within("random 4K at depth 32 /s", random_4k(Rpm::R7200, 32, kind), 170.0, 215.0);
        within(
            "sequential 512K at depth 1 MB/s",
            sequential_mb(Rpm::R7200, 1, 512 << 10, kind),
            102.0,
            108.0,
        );
        within("sequential 1M at depth 8 MB/s", sequential_mb(Rpm::R7200, 8, 1 << 20, kind), 102.0, 108.0);
    }
    within(
        "sequential 4K read at depth 1 MB/s",
        sequential_mb(Rpm::R7200, 1, 4096, HddKind::Read),
        80.0,
        108.0,
    );
    within(
        "sequential 4K write at depth 1 /s",
        sequential_mb(Rpm::R7200, 1, 4096, HddKind::Write) / 0.004096,
        110.0,
        121.0,
    );
}

#[test]
fn a_10000_rpm_disk_does_what_one_does() {
    within("random 4K at depth 1 /s", random_4k(Rpm::R10000, 1, HddKind::Write), 125.0, 150.0);
    within("random 4K at depth 32 /s", random_4k(Rpm::R10000, 32, HddKind::Write), 311.0, 350.0);
    within(
        "sequential 512K at depth 1 MB/s",
        sequential_mb(Rpm::R10000, 1, 512 << 10, HddKind::Write),
        140.0,
        155.0,
    );
}

/// A destage sweep's load: half of all blocks, ascending.
#[test]
fn a_sweep_over_half_the_blocks_is_45_times_random_writing() {
    for (rpm, least) in [(Rpm::R7200, 45.0), (Rpm::R10000, 30.0)] {
        let raw = random_4k(rpm, 32, HddKind::Write);
        let mut r = Random(42);
        let blocks: Vec<u64> = (0..GIB / 4096).filter(|_| r.below(1000) < 500).collect();
        let sweep = rate(&mut disk(rpm), 32, HddKind::Write, blocks.into_iter().map(|b| (b * 4096, 4096)));
        println!("{rpm:?}: sweep {sweep:.0}/s, raw {raw:.1}/s, ratio {:.1}", sweep / raw);
        assert!(sweep / raw >= least);
    }
}

#[test]
fn seeks_scale_with_the_size_of_the_disk() {
    let full = |size: u64| {
        let mut d = HddModel::new(HddParams::preset(Rpm::R7200, 1 << 20), size);
        rate(&mut d, 1, HddKind::Write, (0..2000).map(|n| (if n % 2 == 0 { 0 } else { size - 4096 }, 4096)))
    };
    let (small, large) = (full(256 << 20), full(64 * GIB));
    assert!((small / large - 1.0).abs() < 0.25, "{small} against {large}");
}

#[test]
fn how_late_it_is_polled_does_not_change_when_commands_end() {
    let ends = |polls: &dyn Fn(u64) -> u64| {
        let mut d = disk(Rpm::R7200);
        let mut r = Random(7);
        let mut ends = HashMap::new();
        let mut out: Vec<Finished> = Vec::new();
        let mut arrival = 0;
        for id in 0..2_000u64 {
            arrival += r.below(2 * 6_000_000);
            let mut at = 0;
            while let Some(next) = d.next_deadline() {
                at = polls(next.max(at));
                if at >= arrival {
                    break;
                }
                d.advance(at, &mut out);
            }
            d.submit(arrival, id, r.below(GIB / 4096) * 4096, 4096, HddKind::Write);
        }
        while d.in_flight() > 0 {
            d.advance(polls(d.next_deadline().unwrap().max(arrival)), &mut out);
        }
        for f in out {
            ends.insert(f.id, f.at);
        }
        ends
    };
    let punctual = ends(&|t| t);
    assert_eq!(punctual.len(), 2_000);
    assert_eq!(punctual, ends(&|t| t.next_multiple_of(5_000_000)));
    assert_eq!(punctual, ends(&|t| t.next_multiple_of(SECOND)));
}

#[test]
fn a_far_read_amid_a_sweep_is_served_within_its_patience() {
    let mut d = disk(Rpm::R7200);
    let mut out = Vec::new();
    let mut next = 0;
    while next < 32 {
        d.submit(0, next, next * 8192, 4096, HddKind::Write);
        next += 1;
    }
    d.submit(0, u64::MAX, GIB - 4096, 4096, HddKind::Read);
    let served = loop {
        let now = d.next_deadline().unwrap();
        assert!(now < 2 * SECOND, "starved");
        d.advance(now, &mut out);
        if let Some(f) = out.iter().find(|f| f.id == u64::MAX) {
            break f.at;
        }
        for _ in out.drain(..) {
            d.submit(now, next, next * 8192, 4096, HddKind::Write);
            next += 1;
        }
    };
    println!("served after {} ms, {next} writes", served / 1_000_000);
}

#[test]
fn flushes_cost_nothing_and_zeroing_next_to_nothing() {
    let mut d = disk(Rpm::R7200);
    let mut out = Vec::new();
    d.submit(1000, 1, 0, 0, HddKind::Flush);
    d.submit(1000, 2, 0, GIB, HddKind::Metadata);
    d.advance(SECOND, &mut out);
    assert_eq!(out[0], Finished { id: 1, at: 1000 });
    assert!(out[1].at < 1_000_000);
}

#[test]
fn more_commands_than_the_disks_queue_wait_in_order_of_arrival() {
    let mut d = disk(Rpm::R7200);
    let mut out = Vec::new();
    let mut r = Random(3);
    for id in 0..512 {
        d.submit(0, id, r.below(GIB / 4096) * 4096, 4096, HddKind::Write);
    }
    d.advance(100 * SECOND, &mut out);
    assert_eq!(out.len(), 512);
    for (n, f) in out.iter().enumerate() {
        assert!(f.id <= n as u64 + 32, "command {} was number {n}", f.id);
    }
    assert!(out.is_sorted_by_key(|f| f.at));
}
