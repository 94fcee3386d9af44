//! The one source of chance in a run: everything drawn comes from a single 64-bit seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng};
use std::ops::Range;

/// A seeded stream of choices.
#[derive(Debug, Clone)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A stream of its own, so that one part's draws do not shift another's.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.draw())
    }

    /// 64 fair bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 for `n` = 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `range`, which must not be empty.
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True `n` times in `of`.
    pub fn chance(&mut self, n: u64, of: u64) -> bool {
        self.below(of) < n
    }

    /// One of `items`.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// A number in `range`, small ones as likely as large ones per factor of two.
    pub fn skewed(&mut self, range: Range<u64>) -> u64 {
        let span = range.end - range.start;
        let bits = u64::from(64 - span.leading_zeros());
        let shift = self.below(bits);
        range.start + self.below((span >> shift).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream_and_draws_stay_in_range() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for n in 1..2000 {
            let x = a.range(5..5 + n);
            assert!(x >= 5 && x < 5 + n && x == b.range(5..5 + n));
            let s = a.skewed(3..3 + n);
            assert!(s >= 3 && s < 3 + n && s == b.skewed(3..3 + n));
        }
        assert_ne!(Rng::new(7).draw(), Rng::new(8).draw());
    }
}
