//! The events of a run, folded into one number (equal for equal runs) and printed on request.

// Printed for the person who runs one seed again.
#![allow(clippy::print_stderr)]

use crate::disk::Nanos;
use loligo_block::{Op, OpKind};
use loligo_engine::api::Dev;

/// The event log of a run.
#[derive(Debug, Clone)]
pub struct Trace {
    hash: u64,
    events: u64,
    print: bool,
}

impl Trace {
    /// An empty log; it is printed to standard error as it grows when `LOLIGO_TRACE` is set.
    pub fn from_env() -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, events: 0, print: std::env::var_os("LOLIGO_TRACE").is_some() }
    }

    fn fold(&mut self, n: u64) {
        self.hash = (self.hash ^ n).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// One event.
    pub fn note(&mut self, now: Nanos, what: &str, a: u64, b: u64) {
        self.events += 1;
        what.bytes().for_each(|c| self.fold(u64::from(c)));
        self.fold(now);
        self.fold(a);
        self.fold(b);
        if self.print {
            eprintln!("{now:>14} {what:12} {a:#x} {b:#x}");
        }
    }

    /// One operation handed to a device.
    pub fn io(&mut self, now: Nanos, shard: usize, dev: Dev, op: &Op) {
        let kind = match &op.kind {
            OpKind::Read(_) => "read",
            OpKind::Write { fua: true, .. } => "write fua",
            OpKind::Write { .. } => "write",
            OpKind::WriteMany(_) => "write many",
            OpKind::Flush => "flush",
            OpKind::Discard { .. } => "discard",
            OpKind::WriteZeroes { .. } => "zero",
        };
        self.note(now, kind, op.offset ^ (dev as u64) << 62, op.tag ^ op.len() << 40);
        if self.print {
            eprintln!("{:>14} {shard} {dev:?} {kind} {} +{} tag {:#x}", "", op.offset, op.len(), op.tag);
        }
    }

    /// A line for the reader only.
    pub fn say(&self, text: impl FnOnce() -> String) {
        if self.print {
            eprintln!("{:>14} {}", "", text());
        }
    }

    /// The whole log as a number.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }
}
