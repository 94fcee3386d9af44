//! The word that a start is to be given up: an end of its unit waits for it.

use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Ends of one unit that are asked for and have not begun.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicUsize>);

impl Cancel {
    /// An end is asked for.
    pub(crate) fn ask(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// One of them begins.
    pub(crate) fn done(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// For a start, between its steps.
    ///
    /// # Errors
    /// If an end is asked for.
    pub fn check(&self) -> Result<()> {
        ensure!(self.0.load(Ordering::Acquire) == 0, "its end was asked for while it started");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_given_up_until_each_end_has_begun() {
        let cancel = Cancel::default();
        assert!(cancel.check().is_ok());
        cancel.ask();
        cancel.ask();
        cancel.done();
        assert!(cancel.check().is_err());
        cancel.done();
        assert!(cancel.check().is_ok());
    }
}
