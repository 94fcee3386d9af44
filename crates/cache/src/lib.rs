//! The cache engine as a state machine: events in, effects out. No I/O, no thread, no clock, no entropy.

pub mod api;
pub mod policy;
