//! Mutated conversations against the connection, for FUZZ_S seconds each (10 without it).

use crate::common::client::{info, meta, option, request, write};
use crate::entry::{fuzz_negotiation, fuzz_transmission};
use std::time::{Duration, Instant};

/// Marsaglia's xorshift, so that a seed gives the same inputs everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Numbers that stand at the edge of something.
const EDGES: [u32; 10] = [0, 1, 511, 512, 4096, 32 << 20, 64 << 20, 0x7fff_ffff, 0x8000_0000, u32::MAX];

fn mutate(pieces: &[Vec<u8>], r: &mut Random) -> Vec<u8> {
    let mut out = vec![r.next() as u8];
    for _ in 0..1 + r.below(12) {
        out.extend(&pieces[r.below(pieces.len())]);
    }
    for _ in 0..r.below(6) {
        if out.is_empty() {
            break;
        }
        let at = r.below(out.len());
        match r.below(5) {
            0 => out[at] ^= 1 << r.below(8),
            1 => out[at] = r.next() as u8,
            2 => out.truncate(at + 1),
            3 => {
                out.remove(at);
            }
            _ => {
                let edge = EDGES[r.below(EDGES.len())].to_be_bytes();
                out.iter_mut().skip(at).zip(edge).for_each(|(o, e)| *o = e);
            }
        }
    }
    if out.is_empty() { vec![0] } else { out }
}

fn seconds() -> Duration {
    let s = std::env::var("FUZZ_S")
        .map_or(10.0, |s| s.parse().unwrap_or_else(|_| panic!("FUZZ_S={s} is no number")));
    Duration::from_secs_f64(f64::max(s, 0.1))
}

fn fuzz(name: &str, pieces: &[Vec<u8>], seed: u64, target: fn(&[u8])) {
    let (mut r, start, mut inputs) = (Random(seed), Instant::now(), 0u64);
    while start.elapsed() < seconds() {
        for _ in 0..64 {
            let input = mutate(pieces, &mut r);
            if std::panic::catch_unwind(|| target(&input)).is_err() {
                panic!("{name}: seed {seed}, input {inputs}: {input:02x?}");
            }
            inputs += 1;
        }
    }
    println!("{name}: {inputs} inputs from seed {seed}");
    assert!(inputs > 0);
}

#[test]
fn no_negotiation_panics_or_holds_more_than_the_limits() {
    let hello = vec![0, 0, 0, 3];
    let long = option(9, &[3; 5000]);
    let options = [
        hello.clone(),
        [hello, option(7, &info("", &[0, 3])), request(0, 0, 1, 0, 4096)].concat(),
        option(1, b"disk"),
        option(2, &[]),
        option(3, &[]),
        option(5, &[]),
        option(6, &info("disk", &[0, 1, 2, 3])),
        option(7, &info("", &[])),
        option(8, &[]),
        option(9, &meta("", &["base:", "qemu:"])),
        option(10, &meta("disk", &["base:allocation"])),
        long,
    ];
    fuzz("negotiation", &options, 0x10_71_60, fuzz_negotiation);
}

#[test]
fn no_transmission_panics_or_holds_more_than_the_limits() {
    let commands = [
        request(0, 0, 1, 4096, 8192),
        request(4, 0, 2, 0, 64 << 10),
        request(0, 0, 3, 0, 1 << 20),
        write(1, 4, 8192, &[5; 4096]),
        write(0, 5, 0, &[6; 20 << 10]),
        write(0, 6, 1 << 20, &[7; 66 << 10]),
        write(0, 7, 8 << 20, &[8; 4096]),
        request(0, 3, 8, 0, 0),
        request(0, 4, 9, 0, 1 << 20),
        request(2, 6, 10, 0, 1 << 20),
        request(16, 6, 11, 0, 1 << 20),
        request(0, 5, 12, 0, 1 << 20),
        request(8, 7, 13, 0, 1 << 20),
        request(0, 7, 14, 0, 8 << 20),
        request(0, 2, 15, 0, 0),
        request(0, 99, 16, 0, 512),
    ];
    fuzz("transmission", &commands, 0x10_71_61, fuzz_transmission);
}
