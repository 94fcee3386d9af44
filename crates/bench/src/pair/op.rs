//! An operation of the client, as its process writes it down and the experiment reads it.

use super::ledger::Counts;
use serde::{Deserialize, Serialize};

/// The client's line once its images are written and its load runs.
pub(crate) const READY: &str = "ready";
/// The line to the client that ends its load.
pub(crate) const STOP: &str = "stop";

/// The hearer of an operation's end. An error is in words.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, String>) + Send>;

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Op {
    /// The number of its image.
    pub(crate) image: usize,
    /// A write, or else a read.
    pub(crate) write: bool,
    /// When it was due, milliseconds since 1970.
    pub(crate) due_ms: f64,
    /// The time from then to its end, or its age when the client gave up, milliseconds.
    pub(crate) took_ms: f64,
}

/// All that the client has to say.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Every operation.
    pub(crate) ops: Vec<Op>,
    /// By image.
    pub(crate) counts: Vec<Counts>,
    /// Words of the first errors.
    pub(crate) errors: Vec<String>,
}

/// The worst operation of `report` on an image that was outstanding at some time from `from` to `to`, milliseconds since 1970. Of one
/// that was due before, the time since `from` counts.
pub(crate) fn worst(report: &Report, image: usize, write: bool, [from, to]: [f64; 2]) -> f64 {
    let of = report.ops.iter().filter(|op| op.image == image && op.write == write);
    let within = of.filter(|op| op.due_ms <= to && op.due_ms + op.took_ms >= from);
    within.map(|op| op.due_ms + op.took_ms - op.due_ms.max(from)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_counts_from_when_it_was_due() {
        let op = |due_ms, took_ms| Op { image: 0, write: true, due_ms, took_ms };
        let ops = vec![op(0.0, 900.0), op(990.0, 50.0), op(1500.0, 30.0), op(3000.0, 700.0)];
        let report = Report { ops, counts: Vec::new(), errors: Vec::new() };
        assert_eq!(worst(&report, 0, true, [1000.0, 2000.0]), 40.0, "of the one before its time since then");
        assert_eq!(worst(&report, 0, true, [950.0, 980.0]), 0.0);
        assert_eq!(worst(&report, 0, true, [2000.0, 4000.0]), 700.0);
        assert_eq!(worst(&report, 0, false, [0.0, 4000.0]), 0.0);
    }
}
