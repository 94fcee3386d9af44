//! Operations of clients of a mirrored device.

use std::ops::Range;

/// Nanoseconds on a clock that never steps back.
pub type Time = u64;

/// An operation's name, chosen by whoever starts it. It may be used again after its `Action::Answer`, once both legs have
/// answered what was sent to them.
pub type OpId = u64;

/// An operation of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// A read.
    Read,
    /// Whatever changes these bytes.
    Write(Range<u64>),
    /// Everything completed before it is durable.
    Flush,
}
