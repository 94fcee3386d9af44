//! S3-FIFO whose small queue's share is chosen again and again by what miniatures with other shares would have missed.

use super::hash::mix;
use super::s3::S3;
use super::shadow::Shadow;

/// Shares to choose from, in permille.
const SHARES: [u32; 5] = [10, 100, 300, 600, 900];
/// The share to start with: S3-FIFO's.
const START: usize = 1;
/// Size of a miniature, up to a factor of two, unless the cache is smaller than that.
const MINI: u32 = 1024;
/// Part of a miniature's misses that still counts a period later.
const DECAY: f64 = 0.95;
/// A share is left only for one with fewer misses than this part of its own.
const SWITCH: f64 = 0.98;

/// The default replacement policy.
#[derive(Debug)]
pub struct S3Cm {
    real: S3,
    shadows: Vec<Shadow>,
    /// Decayed misses of each.
    score: [f64; SHARES.len()],
    chosen: usize,
    /// The share that did best at the last comparison.
    favourite: usize,
    seed: u64,
    mask: u64,
    /// Sampled accesses until the shares are compared again.
    left: u32,
    period: u32,
    /// Lines that the miniatures stand for.
    planned: u32,
}

impl S3Cm {
    /// Nothing resident.
    pub fn new(capacity: u32, seed: u64) -> S3Cm {
        let mut s = S3Cm {
            real: S3::new(capacity, SHARES[START]),
            shadows: Vec::new(),
            score: [0.0; SHARES.len()],
            chosen: START,
            favourite: START,
            seed: mix(seed),
            mask: 0,
            left: 0,
            period: 0,
            planned: 0,
        };
        s.set_limit(capacity.max(1));
        s
    }

    /// Plans for so many lines. Miniatures that are of another size by more than an eighth begin anew.
    pub fn set_limit(&mut self, limit: u32) {
        self.real.set_limit(limit);
        if limit.abs_diff(self.planned) <= self.planned / 8 {
            return;
        }
        let shift = (limit / MINI).max(1).ilog2();
        let mini = (limit >> shift).max(1);
        self.shadows = SHARES.iter().map(|&s| Shadow::new(mini, s)).collect();
        self.score = [0.0; SHARES.len()];
        (self.mask, self.left, self.period) = ((1 << shift) - 1, mini, mini);
        self.planned = limit;
    }

    #[inline]
    fn sample(&mut self, hash: u64) {
        if (hash ^ self.seed) & self.mask == 0 {
            self.sampled((hash >> 32) as u32);
        }
    }

    fn sampled(&mut self, key: u32) {
        for s in &mut self.shadows {
            s.access(key);
        }
        self.left -= 1;
        if self.left == 0 {
            self.left = self.period;
            self.choose();
        }
    }

    /// Takes the share with the fewest misses over many periods, if it is clearly better, was so a period ago, and was
    /// not worse in the last one: a change costs misses of its own, and a burst is over before it pays.
    fn choose(&mut self) {
        let last: [f64; SHARES.len()] = std::array::from_fn(|i| f64::from(self.shadows[i].take_misses()));
        for (score, last) in self.score.iter_mut().zip(last) {
            *score = *score * DECAY + last;
        }
        let mut best = self.chosen;
        for i in 0..SHARES.len() {
            if self.score[i] < self.score[best] && last[i] <= last[self.chosen] {
                best = i;
            }
        }
        let again = std::mem::replace(&mut self.favourite, best) == best;
        if again && self.score[best] < self.score[self.chosen] * SWITCH {
            self.chosen = best;
            self.real.set_share(SHARES[best]);
        }
    }

    /// `id` became resident with `key`.
    pub fn insert(&mut self, id: u32, key: u64) {
        self.real.insert(id, key);
    }

    /// `id` was used.
    #[inline]
    pub fn hit(&mut self, id: u32, key: u64) {
        self.real.hit(id);
        self.sample(mix(key));
    }

    /// An access found nothing resident.
    pub fn missed(&mut self, key: u64) {
        let hash = mix(key);
        self.real.expect(hash);
        self.sample(hash);
    }

    /// The policy proper.
    pub fn real(&self) -> &S3 {
        &self.real
    }

    /// The policy proper.
    pub fn real_mut(&mut self) -> &mut S3 {
        &mut self.real
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        self.real.bytes() + self.shadows.iter().map(Shadow::bytes).sum::<usize>() + size_of::<S3Cm>()
    }
}
