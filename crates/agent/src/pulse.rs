//! Whether this host has stood still: the main loop beats, and a gap between two beats is remembered.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A longer gap between two beats is a host that stood still.
const GAP: Duration = Duration::from_secs(1);

/// The pulse of the main loop.
#[derive(Debug, Clone)]
pub struct Pulse(Arc<Mutex<Beats>>);

#[derive(Debug)]
struct Beats {
    last: Instant,
    gaps: u64,
    /// The gaps by the last beat.
    at_beat: u64,
}

impl Beats {
    fn look(&mut self) {
        if self.last.elapsed() > GAP {
            self.gaps += 1;
            self.last = Instant::now();
        }
    }
}

impl Pulse {
    /// A pulse that begins now.
    pub fn new() -> Pulse {
        Pulse(Arc::new(Mutex::new(Beats { last: Instant::now(), gaps: 0, at_beat: 0 })))
    }

    /// A beat.
    pub fn beat(&self) {
        let mut beats = self.0.lock();
        beats.look();
        (beats.last, beats.at_beat) = (Instant::now(), beats.gaps);
    }

    /// The gaps by the last beat: the loop may have stood still since, between a decision and what it asks for.
    pub fn at_beat(&self) -> u64 {
        self.0.lock().at_beat
    }

    /// The gaps so far, one that goes on among them. Whoever is the first to look after a gap counts it.
    pub fn gaps(&self) -> u64 {
        let mut beats = self.0.lock();
        beats.look();
        beats.gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_seen_whoever_looks_first() {
        let pulse = Pulse::new();
        pulse.beat();
        assert_eq!(pulse.gaps(), 0);
        std::thread::sleep(GAP + Duration::from_millis(100));
        assert_eq!(pulse.gaps(), 1);
        pulse.beat();
        assert_eq!(pulse.gaps(), 1);
        std::thread::sleep(GAP + Duration::from_millis(100));
        pulse.beat();
        assert_eq!(pulse.gaps(), 2);
    }

    #[test]
    fn a_loop_that_stands_still_after_a_decision_is_seen() {
        let pulse = Pulse::new();
        pulse.beat();
        std::thread::sleep(GAP + Duration::from_millis(100));
        let decided = pulse.at_beat();
        assert_ne!(pulse.gaps(), decided);
        pulse.beat();
        assert_eq!(pulse.gaps(), pulse.at_beat());
    }
}
