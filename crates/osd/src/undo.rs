//! Taking back what was begun.

use anyhow::Result;
use loligo_lab::interrupt::Interrupt;
use loligo_log::say;

type Step<'a> = (String, Box<dyn FnOnce() -> Result<()> + 'a>);

/// The steps that leave nothing behind, last first.
#[derive(Default)]
pub(crate) struct Undo<'a>(Vec<Step<'a>>);

impl<'a> Undo<'a> {
    /// Notes how the step that is done next is taken back; `by_hand` says how a person would.
    pub(crate) fn note(&mut self, by_hand: impl Into<String>, step: impl FnOnce() -> Result<()> + 'a) {
        self.0.push((by_hand.into(), Box::new(step)));
    }

    /// Takes everything back. A step that cannot be taken back is reported, with the way to do it by hand.
    pub(crate) fn take_back(self) {
        for (by_hand, step) in self.0.into_iter().rev() {
            if let Err(why) = step() {
                say!("warning: not taken back: {why:#}. By hand: {by_hand}");
            }
        }
    }
}

/// One phase of a command, with the way back beside it.
pub(crate) struct Deed<'a> {
    act: Box<dyn FnOnce() -> Result<()> + 'a>,
    undo: Option<Step<'a>>,
}

impl<'a> Deed<'a> {
    /// A deed that leaves nothing behind.
    pub(crate) fn new(act: impl FnOnce() -> Result<()> + 'a) -> Deed<'a> {
        Deed { act: Box::new(act), undo: None }
    }

    /// The same that `step` takes back; `by_hand` says how a person would.
    pub(crate) fn undone_by(
        self,
        by_hand: impl Into<String>,
        step: impl FnOnce() -> Result<()> + 'a,
    ) -> Deed<'a> {
        Deed { undo: Some((by_hand.into(), Box::new(step))), ..self }
    }

    /// Does `deeds` in their order. One that fails, and `stop` before one, has all that was begun taken back, last first. The undo of a deed
    /// is noted before it: one that fails halfway is taken back as well.
    ///
    /// # Errors
    /// Those of the deed that fails, or the interrupt.
    pub(crate) fn all(deeds: impl IntoIterator<Item = Deed<'a>>, stop: &Interrupt) -> Result<()> {
        let mut undo = Undo::default();
        let done = deeds.into_iter().try_for_each(|deed| {
            stop.check()?;
            undo.0.extend(deed.undo);
            (deed.act)()
        });
        done.inspect_err(|_| {
            say!("taking back what was done");
            undo.take_back();
        })
    }

    /// The same with nothing done but what `spy` does, which is told whether it is the deed or its undo.
    #[cfg(test)]
    pub(crate) fn spied(self, spy: impl Fn(bool) -> Result<()> + Clone + 'a) -> Deed<'a> {
        let act = spy.clone();
        let undo = self.undo.map(|(by_hand, _)| -> Step<'a> { (by_hand, Box::new(move || spy(true))) });
        Deed { act: Box::new(move || act(false)), undo }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn steps_go_back_in_reverse_and_a_failed_one_stops_no_other() {
        let order = RefCell::new(Vec::new());
        let mut undo = Undo::default();
        for n in 0..3 {
            let order = &order;
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
