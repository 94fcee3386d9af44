//! The time for which an array's word counts that a controller holds a LUN. Writes of one that was fenced are refused by the array.
//! Reads are not: a daemon that lives on, with its clients, would give them what its partner's clients have written over by now.

use std::time::Duration;

/// A daemon answers its clients so long after it asked the array who holds its devices, if the array said that it does.
pub const LEASE: Duration = Duration::from_secs(1);

/// Between two such questions.
pub const ASKED_EVERY: Duration = Duration::from_millis(250);

/// A side that takes a volume over lets no client in before this has passed since it read that its partner has no key any more. It
/// is longer than [`LEASE`] by more than two clocks differ in that time.
pub const WAITED: Duration = Duration::from_millis(1050);
