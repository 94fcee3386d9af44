//! Taking back what was begun.

use anyhow::Result;
use loligo_log::say;

type Step = (String, Box<dyn FnOnce() -> Result<()>>);

/// The steps that leave nothing behind, last first.
#[derive(Default)]
pub(crate) struct Undo(Vec<Step>);

impl Undo {
    /// Notes how the step that is done next is taken back; `by_hand` says how a person would.
    pub(crate) fn note(&mut self, by_hand: impl Into<String>, step: impl FnOnce() -> Result<()> + 'static) {
        self.0.push((by_hand.into(), Box::new(step)));
    }

    /// Takes everything back. What cannot be is said, with the way to do it by hand.
    pub(crate) fn take_back(self) {
        for (by_hand, step) in self.0.into_iter().rev() {
            if let Err(why) = step() {
                say!("warning: not taken back: {why:#}. By hand: {by_hand}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn steps_are_taken_back_in_reverse_and_a_failed_one_stops_no_other() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut undo = Undo::default();
        for n in 0..3 {
            let order = order.clone();
            undo.note("x", move || {
                order.borrow_mut().push(n);
                anyhow::ensure!(n != 1, "it does not work");
                Ok(())
            });
        }
        undo.take_back();
        assert_eq!(*order.borrow(), [2, 1, 0]);
    }
}
