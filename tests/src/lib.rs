//! What crosses rooms: the house rules as a test, and tests with real clients, fuzzed decoders and power loss.

pub mod fuzz;
pub mod tidy;
