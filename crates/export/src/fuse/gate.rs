//! Who may change the volume at the same time. Changes of whole blocks go side by side. One of a part of a block reads the
//! block first and must then be alone: whatever else were written there between its read and its write would be undone.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What goes in.
type Job = Box<dyn FnOnce(Pass) + Send>;

#[derive(Default)]
struct State {
    inside: usize,
    /// The one inside is to stay alone.
    alone: bool,
    /// In the order in which they came, so that nobody waits for ever.
    waiting: VecDeque<(bool, Job)>,
}

/// The gate of one mount. Nobody blocks at it: what may not go in yet is kept and started by whoever leaves.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
}

/// The right to be inside; dropping it is leaving.
#[derive(Debug)]
pub(super) struct Pass(Arc<Gate>);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts `job` as soon as it may, often at once.
    pub(super) fn enter(self: &Arc<Gate>, alone: bool, job: impl FnOnce(Pass) + Send + 'static) {
        {
            let mut s = self.lock();
            if s.alone || !s.waiting.is_empty() || (alone && s.inside > 0) {
                s.waiting.push_back((alone, Box::new(job)));
                return;
            }
            s.inside += 1;
            s.alone = alone;
        }
        job(Pass(self.clone()));
    }

    /// One has left: those that may follow.
    fn left(&self) -> Vec<Job> {
        let mut s = self.lock();
        s.inside -= 1;
        s.alone &= s.inside > 0;
        let mut next = Vec::new();
        while let Some((alone, _)) = s.waiting.front() {
            if s.alone || (*alone && s.inside > 0) {
                break;
            }
            if let Some((alone, job)) = s.waiting.pop_front() {
                s.inside += 1;
                s.alone = alone;
                next.push(job);
            }
        }
        next
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        for job in self.0.left() {
            job(Pass(self.0.clone()));
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.lock();
        write!(f, "Gate({} inside, {} waiting)", s.inside, s.waiting.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// Lets `name` in, when it may; what arrives is its pass.
    fn enter(gate: &Arc<Gate>, alone: bool) -> Receiver<Pass> {
        let (inside, arrived) = channel();
        gate.enter(alone, move |pass| drop(inside.send(pass)));
        arrived
    }

    #[test]
    fn whole_blocks_go_side_by_side_and_a_part_of_one_goes_alone_in_its_turn() {
        let gate = Arc::new(Gate::default());
        let (a, b) = (enter(&gate, false), enter(&gate, false));
        let (a, b) = (a.try_recv().expect("at once"), b.try_recv().expect("at once"));
        let part = enter(&gate, true);
        let late = enter(&gate, false);
        drop(a);
        assert!(part.try_recv().is_err() && late.try_recv().is_err(), "one is still inside");
        drop(b);
        let part = part.try_recv().expect("alone now");
        assert!(late.try_recv().is_err(), "it came later and may not join");
        drop(part);
        assert!(late.try_recv().is_ok());
    }

    #[test]
    fn parts_of_blocks_follow_one_another() {
        let gate = Arc::new(Gate::default());
        let all: Vec<_> = (0..3).map(|_| enter(&gate, true)).collect();
        for (i, one) in all.iter().enumerate() {
            let pass = one.try_recv().expect("its turn");
            assert!(all[i + 1..].iter().all(|other| other.try_recv().is_err()), "two inside");
            drop(pass);
        }
        assert!(enter(&gate, false).try_recv().is_ok(), "the gate is free again");
    }
}
