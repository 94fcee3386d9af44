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
    since: Nanos,
    blocks: u64,
    next: Nanos,
}

impl Pacer {
    /// `blocks` were destaged; `busy`: there was more to do all the time. The rate of a span that has just ended, if it
    /// was busy throughout.
    pub(crate) fn destaged(&mut self, now: Nanos, blocks: u64, busy: bool) -> Option<f64> {
        self.blocks += blocks;
        let span = now.saturating_sub(self.since);
        if span < SPAN {
            return None;
        }
        let rate = self.blocks as f64 * 1e9 / span as f64;
        if span < 8 * SPAN && (busy || rate > self.rate) {
            self.rate = if self.rate == 0.0 { rate } else { self.rate * 0.7 + rate * 0.3 };
        }
        self.since = now;
        self.blocks = 0;
        (busy && span < 8 * SPAN).then_some(rate)
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate as u64
    }

    /// Whether `fresh` more dirty blocks may be admitted, each for `least` nanoseconds at least. `x`: [`fullness`]; `share`: what
    /// is dirty, of the limit.
    pub(crate) fn credit(&mut self, now: Nanos, fresh: u64, x: f64, share: f64, least: f64) -> bool {
        if x <= 0.0 && least <= 0.0 {
            return true;
        }
        if now < self.next {
            return false;
        }
        // Until the first measurement the only limit is the dirty limit itself, approached at a modest pace.
        let base = if self.rate == 0.0 { 4000.0 } else { self.rate.max(50.0) };
        // Beyond the limit, which may have moved with the rate, less is let in than goes out: down to a quarter.
        let slope = if x > 0.0 { x.max(0.01) * share.clamp(1.0, 2.0) } else { 0.0 };
        let cost = (fresh as f64 * (slope * slope * 1e9 / base).max(least)) as Nanos;
        self.next = self.next.max(now.saturating_sub(BURST)) + cost;
        true
    }

    /// What was admitted so far has cost enough.
    pub(crate) fn forgive(&mut self, now: Nanos) {
        self.next = self.next.min(now);
    }

    /// When there is credit again.
    pub(crate) fn deadline(&self) -> Nanos {
        self.next
    }
}

/// How far the dirty share is between the low watermark (percent of `limit`) and the limit, 0 to 1.
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
            let x = fullness((limit as f64 * share) as u64, limit, 10);
            while p.credit(from + t, 1, x, share, 0.0) && n < 10_000_000 {
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
            p.destaged(i * SPAN, 2_000, true);
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
}
