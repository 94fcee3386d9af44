//! A deadline that progress pushes back.

use super::limits::Limits;
use std::time::{Duration, Instant};

/// Watches one direction of a connection for a client that stalls.
#[derive(Debug, Default)]
pub struct Watch {
    deadline: Option<Instant>,
    moved: u64,
}

impl Watch {
    /// Notes `bytes` moved while something is under way; [`Limits::STALL_BYTES`] of them renew the deadline.
    pub fn moved(&mut self, bytes: u64, now: Instant, stall: Duration) {
        self.moved += bytes;
        if self.deadline.is_none() || self.moved >= Limits::STALL_BYTES {
            self.deadline = Some(now + stall);
            self.moved = 0;
        }
    }

    /// Nothing is under way.
    pub fn rest(&mut self) {
        self.deadline = None;
        self.moved = 0;
    }

    /// The time at which the client counts as stalled.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}
