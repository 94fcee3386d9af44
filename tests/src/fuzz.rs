//! Random damage for decoders, repeatable by its seed.

use std::time::{Duration, Instant};

/// The time that a fuzzer runs: `FUZZ_S` seconds, 10 without it.
///
/// # Panics
/// If `FUZZ_S` is no number: a run that is not the one that was asked for would look like it.
pub fn budget() -> Duration {
    let s = std::env::var("FUZZ_S")
        .map_or(10.0, |s| s.parse().unwrap_or_else(|_| panic!("FUZZ_S={s} is no number")));
    Duration::from_secs_f64(f64::max(s, 0.1))
}

/// A small generator (xorshift64*): enough for damage, the same for the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// From `FUZZ_SEED`, else from the clock; says which, so that a failure can be had again.
    pub fn from_env(what: &str) -> Dice {
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64);
        let seed = std::env::var("FUZZ_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(clock);
        println!("{what}: FUZZ_SEED={seed}");
        Dice::new(seed)
    }

    /// From `seed`.
    pub fn new(seed: u64) -> Dice {
        Dice(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n` (0 where `n` is 0).
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }

    /// Damages `bytes` in one to eight places: flipped bits, telling numbers, moved, repeated and lost stretches.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        const TELLING: [u64; 10] =
            [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];
        for _ in 0..=self.below(8) {
            if bytes.is_empty() {
                bytes.push(self.draw() as u8);
            }
            // Most of what matters stands in the first bytes.
            let reach = if self.below(2) == 0 { bytes.len().min(160) } else { bytes.len() };
            let at = self.below(reach);
            match self.below(8) {
                0 | 1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes[at] = self.draw() as u8,
                3 | 4 => {
                    let word =
                        TELLING[self.below(TELLING.len())].wrapping_add(self.below(3) as u64).wrapping_sub(1);
                    let n = (1usize << self.below(4)).min(bytes.len() - at);
                    bytes[at..at + n].copy_from_slice(&word.to_le_bytes()[..n]);
                }
                5 => {
                    let n = self.below(64).min(bytes.len() - at);
                    let from = self.below(bytes.len() - n + 1);
                    bytes.copy_within(from..from + n, at);
                }
                6 => {
                    let n = self.below(32).min(bytes.len() - at);
                    bytes[at..at + n].fill(0);
                }
                _ if self.below(16) == 0 => bytes.truncate(at),
                _ => bytes[at] = bytes[at].wrapping_add(1),
            }
        }
    }
}

/// Calls `one` until `time` is over; how often it did.
pub fn for_a_while(time: Duration, mut one: impl FnMut()) -> u64 {
    let (began, mut n) = (Instant::now(), 0);
    while n % 64 != 0 || began.elapsed() < time {
        one();
        n += 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_does_the_same_damage_and_does_some() {
        let run = |seed| {
            let mut bytes = vec![7u8; 300];
            let mut d = Dice::new(seed);
            (0..50).for_each(|_| d.damage(&mut bytes));
            bytes
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
