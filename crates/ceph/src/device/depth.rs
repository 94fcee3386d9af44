//! The number of objects to write at a time: few where the cluster is busy with them, many where it takes
//! more.
//!
//! It climbs while a step up brings more bytes a second, tries a step down now and then, and goes down at once where operations take
//! so long that a snapshot would wait for them. Only what was measured while more was waiting counts. Time comes with the events.

/// Depths to choose from. The least is as much as a few disks need; the most is what the engine asks for at a time.
const STEPS: [usize; 4] = [8, 16, 32, 64];
/// Nanoseconds of a span, at least.
const SPAN: u64 = 500_000_000;
/// Operations that land in a span for each place, at least: fewer say more of chance than of the depth.
const LANDINGS: usize = 4;
/// Spans on a depth before another is tried.
const STAY: u32 = 20;
/// The same after a step up that was worth it, and at the start.
const SOON: u32 = 2;
/// The same after operations took too long.
const RECOVER: u32 = 120;
/// A step up must bring this much to be kept.
const BETTER: f64 = 1.1;
/// A step down may cost this much.
const NO_WORSE: f64 = 0.99;
/// Nanoseconds that an operation may take on average: the gate waits a second for what is under way.
const LATE: f64 = 500e6;

/// A depth that is being tried.
#[derive(Debug, Clone, Copy)]
struct Trial {
    from: usize,
    rate: f64,
}

/// Operations that landed while more was waiting.
#[derive(Debug, Default)]
struct Span {
    since: Option<u64>,
    landings: usize,
    bytes: u64,
    /// Nanoseconds that all of it took together.
    took: f64,
}

/// The depth in use, and what it has been worth.
#[derive(Debug)]
pub(super) struct Depth {
    at: usize,
    trial: Option<Trial>,
    /// Bytes a nanosecond, averaged.
    rate: f64,
    /// Spans until another depth is tried.
    left: u32,
    /// The last one that was tried lay above.
    went_up: bool,
    /// The operations under way were sent at another depth.
    settling: bool,
    span: Span,
}

impl Depth {
    pub(super) fn new() -> Depth {
        Depth {
            at: 0,
            trial: None,
            rate: 0.0,
            left: SOON,
            went_up: false,
            settling: true,
            span: Span::default(),
        }
    }

    /// Objects to have under way now.
    pub(super) fn now(&self) -> usize {
        STEPS[self.at]
    }

    /// Objects of these that may be removals: what is written has the other half, whatever is given up.
    pub(super) fn removals(&self) -> usize {
        self.now() / 2
    }

    /// An operation of so many bytes that was sent at `sent` has landed. `full`: as many were under way as may be.
    pub(super) fn landed(&mut self, now: u64, sent: u64, bytes: u64, full: bool) {
        if !full {
            self.span = Span::default();
            return;
        }
        let Some(since) = self.span.since else {
            self.span.since = Some(now);
            return;
        };
        self.span.landings += 1;
        self.span.bytes += bytes;
        self.span.took += now.saturating_sub(sent) as f64;
        let long = now.saturating_sub(since);
        if long < SPAN || self.span.landings < LANDINGS * self.now() {
            return;
        }
        let rate = self.span.bytes as f64 / long as f64;
        let late = self.span.took / self.span.landings as f64 > LATE;
        self.span = Span { since: Some(now), ..Span::default() };
        if std::mem::take(&mut self.settling) {
            return;
        }
        self.measured(rate, late);
    }

    fn measured(&mut self, rate: f64, late: bool) {
        if late && self.at > 0 {
            self.trial = None;
            return self.stay_at(self.at - 1, 0.0, RECOVER);
        }
        let Some(Trial { from, rate: before }) = self.trial.take() else {
            self.rate = if self.rate == 0.0 { rate } else { self.rate * 0.7 + rate * 0.3 };
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                self.try_another();
            }
            return;
        };
        if self.at > from && rate > before * BETTER {
            self.stay_at(self.at, rate, SOON);
            // Straight on while it climbs.
            self.went_up = false;
        } else if self.at < from && rate >= before * NO_WORSE {
            self.stay_at(self.at, rate, STAY);
        } else {
            self.stay_at(from, before, STAY);
        }
    }

    fn stay_at(&mut self, step: usize, rate: f64, spans: u32) {
        self.settling = self.at != step;
        (self.at, self.rate, self.left) = (step, rate, spans);
    }

    /// One step up and one down, in turn, as far as there are any.
    fn try_another(&mut self) {
        let up = self.at == 0 || (!self.went_up && self.at + 1 < STEPS.len());
        self.trial = Some(Trial { from: self.at, rate: self.rate });
        self.went_up = up;
        self.at = if up { self.at + 1 } else { self.at - 1 };
        self.settling = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    /// A cluster of so many servers, each of which takes so long for one operation.
    struct Model {
        depth: Depth,
        now: u64,
        /// The time at which each server is free.
        servers: Vec<u64>,
        service: u64,
        /// The times at which it lands and was sent.
        flight: BinaryHeap<Reverse<(u64, u64)>>,
    }

    impl Model {
        fn new(servers: usize, service: u64) -> Model {
            Model {
                depth: Depth::new(),
                now: 0,
                servers: vec![0; servers],
                service,
                flight: BinaryHeap::new(),
            }
        }

        /// Another cluster from now on, for what is sent from now on.
        fn becomes(&mut self, servers: usize, service: u64) {
            self.servers = vec![self.now; servers];
            self.service = service;
        }

        /// Keeps `waiting` operations at most under way for so long. The depths in use at the landings, and how many there were.
        fn run(&mut self, seconds: u64, waiting: usize) -> Vec<usize> {
            let until = self.now + seconds * SECOND;
            let mut seen = Vec::new();
            while self.now < until {
                while self.flight.len() < self.depth.now().min(waiting) {
                    let server = self.servers.iter_mut().min().expect("some");
                    // A little off each time, or all of them land at once.
                    let lands =
                        (*server).max(self.now) + self.service + seen.len() as u64 % 7 * self.service / 50;
                    *server = lands;
                    self.flight.push(Reverse((lands, self.now)));
                }
                let full = self.flight.len() >= self.depth.now();
                let Reverse((lands, sent)) = self.flight.pop().expect("something is under way");
                self.now = lands;
                self.depth.landed(lands, sent, 65536, full);
                seen.push(self.depth.now());
            }
            seen
        }
    }

    fn share(seen: &[usize], depth: usize) -> f64 {
        seen.iter().filter(|d| **d == depth).count() as f64 / seen.len() as f64
    }

    #[test]
    fn a_cluster_that_takes_more_gets_more_within_seconds() {
        let mut model = Model::new(64, 20 * MS);
        model.run(15, 1000);
        assert_eq!(model.depth.now(), 64);
        let seen = model.run(60, 1000);
        assert!(share(&seen, 64) > 0.8, "{}", share(&seen, 64));
    }

    #[test]
    fn a_cluster_of_few_disks_stays_shallow() {
        let mut model = Model::new(4, 5 * MS);
        let seen = model.run(120, 1000);
        assert!(share(&seen, 8) > 0.7, "{}", share(&seen, 8));
        assert!(seen.iter().all(|d| *d <= 16), "it climbs for nothing");
    }

    #[test]
    fn one_in_between_is_not_passed() {
        let mut model = Model::new(16, 10 * MS);
        model.run(30, 1000);
        let seen = model.run(120, 1000);
        assert!(share(&seen, 16) > 0.6, "{}", share(&seen, 16));
    }

    #[test]
    fn one_that_becomes_slow_gets_less_again() {
        let mut model = Model::new(64, 20 * MS);
        assert!(model.run(20, 1000).contains(&64));
        // 64 at a time at 50 a second would take 1.3 s each.
        model.becomes(1, 20 * MS);
        model.run(120, 1000);
        assert!(model.depth.now() <= 16, "{}", model.depth.now());
    }

    #[test]
    fn nothing_is_learned_while_little_is_to_be_written() {
        let mut model = Model::new(64, 20 * MS);
        let seen = model.run(60, 6);
        assert!(seen.iter().all(|d| *d == 8));
    }

    #[test]
    fn removals_never_have_more_than_half_the_places() {
        let depth = Depth { at: 2, ..Depth::new() };
        assert_eq!((Depth::new().removals(), depth.removals(), depth.now()), (4, 16, 32));
    }
}
