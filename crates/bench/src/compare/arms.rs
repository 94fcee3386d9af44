//! The arms of a comparison.

use loligo_tune::apply::Sides;

/// The arms, each with a number from 0.
pub trait Arms {
    /// Puts one in place, and waits until it acts.
    ///
    /// # Errors
    /// If a value is refused or does not act, or after an interrupt.
    fn put(&mut self, arm: usize) -> Result<(), String>;
}

/// Arms that each have the steps of the one before and some more; the first has none.
#[derive(Debug)]
pub struct Ladder<'a, 'b> {
    sides: &'a mut Sides<'b>,
    /// The number of steps of each arm.
    counts: Vec<usize>,
}

impl<'a, 'b> Ladder<'a, 'b> {
    /// An arm without steps, and one for each of `counts`: the number of the first steps that it has.
    pub fn new(sides: &'a mut Sides<'b>, counts: &[usize]) -> Ladder<'a, 'b> {
        Ladder { sides, counts: [&[0], counts].concat() }
    }

    /// The number of the first steps that an arm has.
    ///
    /// # Panics
    /// If there is no such arm.
    pub fn count(&self, arm: usize) -> usize {
        self.counts[arm]
    }
}

impl Arms for Ladder<'_, '_> {
    fn put(&mut self, arm: usize) -> Result<(), String> {
        self.sides.put(self.count(arm))
    }
}
