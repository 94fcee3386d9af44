//! The pacer: new dirty data is admitted on a slope against the measured destage rate, so that a cache that fills up
//! slows down smoothly and never meets a step.
//!
//! With x = how far the dirty share is between the low watermark and the limit (0 to 1), the admission rate is
//! `destage rate / x^2`: four times the destage rate half way, the destage rate itself at the limit.

use crate::api::Nanos;

/// The rate is measured over at least this long.
const SPAN: Nanos = 250_000_000;
/// Credit that may be saved up.
const BURST: Nanos = 4_000_000;

#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// Blocks a second, smoothed; 0: not known yet.
    rate: f64,
    /// The same of all shards that share the core.
    shared: f64,
    since: Nanos,
    blocks: u64,
    /// Blocks destaged so far, and what the others had destaged when the span began.
    total: u64,
    others: u64,
    /// Blocks admitted that are not paid for yet; below 0: credit. Their price is that of a block now, so
    /// that blocks let in while room was dear are not paid for dearly once there is room again.
    owed: f64,
    paid: Nanos,
    next: Nanos,
}

/// The fill of a cache, as the pacer sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    /// Blocks that are dirty, or to be.
    pub(crate) dirty: u64,
    /// The most that there should be.
    pub(crate) limit: u64,
    /// The most that there can be.
    pub(crate) wall: u64,
    /// Percent of the limit below which writes are not paced.
    pub(crate) low: u32,
    /// The least cost of a block, nanoseconds.
    pub(crate) least: f64,
}

impl Pacer {
    /// `blocks` were destaged, and `others` so far by those that share the core; `busy`: there was more to do all the time. The
    /// rate of a span that has just ended, if it was busy throughout.
    pub(crate) fn destaged(&mut self, now: Nanos, blocks: u64, others: u64, busy: bool) -> Option<f64> {
        self.blocks += blocks;
        self.total += blocks;
        let span = now.saturating_sub(self.since);
        if span < SPAN {
            return None;
        }
        let rate = self.blocks as f64 * 1e9 / span as f64;
        let beside = others.saturating_sub(self.others) as f64 * 1e9 / span as f64;
        if span < 8 * SPAN {
            self.rate = smoothed(self.rate, rate, busy);
            self.shared = smoothed(self.shared, rate + beside, busy);
        }
        self.since = now;
        self.blocks = 0;
        self.others = others;
        (busy && span < 8 * SPAN).then_some(rate)
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Blocks a second of all shards that share the core.
    pub(crate) fn shared_rate(&self) -> u64 {
        self.shared as u64
    }

    /// Blocks destaged so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// True if `fresh` more dirty blocks may be admitted.
    pub(crate) fn credit(&mut self, now: Nanos, fresh: u64, fill: Fill) -> bool {
        let price = self.price(fill);
        let passed = now.saturating_sub(self.paid) as f64;
        self.paid = now;
        self.next = now;
        if price <= 0.0 {
            self.owed = 0.0;
            return true;
        }
        self.owed = (self.owed - passed / price).max(-(BURST as f64) / price);
        if self.owed > 0.0 {
            self.next = now + (self.owed * price) as Nanos + 1;
            return false;
        }
        self.owed += fresh as f64;
        self.next = now + (self.owed.max(0.0) * price) as Nanos;
        true
    }

    /// The cost of a block, nanoseconds.
    fn price(&self, fill: Fill) -> f64 {
        let Fill { dirty, limit, wall, low, least } = fill;
        let x = fullness(dirty, limit, low);
        if x <= 0.0 {
            return least;
        }
        // Until the first measurement the only limit is the dirty limit itself, approached at a modest pace.
        let base = if self.rate == 0.0 { 4000.0 } else { self.rate.max(50.0) };
        // Beyond the limit, which may have moved with the rate, less is let in than goes out: down to a quarter.
        let slope = x.max(0.01) * (dirty as f64 / limit.max(1) as f64).clamp(1.0, 2.0);
        // And the nearer the wall, the less: what is left before it is never given out as fast as it was at the limit.
        let left = wall.saturating_sub(dirty).max(1) as f64;
        let ease = (wall.saturating_sub(limit) as f64 / left).max(1.0);
        (slope * slope * ease * 1e9 / base).max(least)
    }

    /// Forgives the debt: the blocks admitted so far have cost enough.
    pub(crate) fn forgive(&mut self, now: Nanos) {
        self.next = self.next.min(now);
        self.owed = self.owed.min(0.0);
    }

    /// The time at which there is credit again.
    pub(crate) fn deadline(&self) -> Nanos {
        self.next
    }
}

/// A span that was not busy shows only that the rate is higher.
fn smoothed(before: f64, rate: f64, busy: bool) -> f64 {
    match before {
        _ if !busy && rate <= before => before,
        0.0 => rate,
        _ => before * 0.7 + rate * 0.3,
    }
}

/// The level of the dirty share between the low watermark (percent of `limit`) and the limit, 0 to 1.
pub(super) fn fullness(dirty: u64, limit: u64, low: u32) -> f64 {
    let share = dirty as f64 / limit.max(1) as f64;
    let low = f64::from(low) / 100.0;
    ((share - low) / (1.0 - low)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(p: &mut Pacer, share: f64, from: Nanos) -> u64 {
        let (limit, mut n) = (1_000_000u64, 0);
        for t in (0..1_000_000_000).step_by(20_000) {
            let dirty = (limit as f64 * share) as u64;
            let fill = Fill { dirty, limit, wall: limit, low: 10, least: 0.0 };
            while p.credit(from + t, 1, fill) && n < 10_000_000 {
                n += 1;
                if share < 0.1 {
                    break;
                }
            }
        }
        n
    }

    #[test]
    fn admission_falls_smoothly_to_the_destage_rate_at_the_limit() {
        let mut p = Pacer::default();
        for i in 1..40 {
            p.destaged(i * SPAN, 2_000, 0, true);
        }
        let rate = p.rate();
        assert!((7_500..8_500).contains(&rate), "{rate}");
        let mut last = u64::MAX;
        for (i, share) in [0.2, 0.4, 0.6, 0.8, 1.0].into_iter().enumerate() {
            let n = admitted(&mut p, share, (i as u64 + 10) * 2_000_000_000);
            assert!(n < last, "{share}: {n} after {last}");
            last = n;
        }
        assert!((rate * 95 / 100..rate * 108 / 100).contains(&last), "{last} at the limit, destage {rate}");
    }

    #[test]
    fn the_shared_rate_counts_what_other_shards_destage() {
        let mut p = Pacer::default();
        for i in 1..40 {
            p.destaged(i * SPAN, 500, i * 1_500, true);
        }
        assert!((1_900..2_100).contains(&p.rate()), "{}", p.rate());
        assert!((7_500..8_500).contains(&p.shared_rate()), "{}", p.shared_rate());
        // An idle span of this one shows what the others alone were given, which is less than the core takes.
        p.destaged(41 * SPAN, 0, 60_000, false);
        assert!(p.shared_rate() >= 7_500, "{}", p.shared_rate());
    }

    /// A pacer whose rate is 8,000 blocks a second, and a cache that is full up to its limit: 4,000 blocks before the wall.
    fn full() -> (Pacer, Fill) {
        let mut p = Pacer::default();
        for i in 1..40 {
            p.destaged(i * SPAN, 2_000, 0, true);
        }
        (p, Fill { dirty: 60_000, limit: 60_000, wall: 64_000, low: 10, least: 0.0 })
    }

    #[test]
    fn without_destaging_the_room_before_the_wall_lasts_for_seconds() {
        let (mut p, mut fill) = full();
        let mut tenths = vec![0; 30];
        for t in (0..3_000_000_000).step_by(20_000) {
            while fill.dirty < fill.wall && p.credit(20 * SPAN + t, 1, fill) {
                fill.dirty += 1;
                tenths[(t / 100_000_000) as usize] += 1;
            }
        }
        assert!((500..1000).contains(&tenths[0]), "{tenths:?}");
        assert!(
            tenths.windows(2).all(|w| w[1] <= w[0] + 1 && w[1] * 10 + 10 >= w[0] * 7),
            "a step: {tenths:?}"
        );
        assert!(tenths[9] > 50 && tenths[19] > 0, "{tenths:?}");
    }

    #[test]
    fn debts_of_a_full_cache_are_cheap_once_there_is_room() {
        let (mut p, mut fill) = full();
        let now = 20 * SPAN;
        fill.dirty = fill.wall - 16;
        assert!(p.credit(now, 16, fill));
        fill.dirty = fill.wall;
        assert!(
            !p.credit(now + 1_000_000, 1, fill) && p.deadline() > now + 1_000_000_000,
            "{}",
            p.deadline()
        );
        fill.dirty = fill.limit;
        assert!(p.credit(now + 6_000_000, 1, fill), "{} ns later", p.deadline() - now);
    }
}
