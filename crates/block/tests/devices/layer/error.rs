//! A device that fails where and when it is told to.

use super::Pick;
use loligo_block::{
    Completion, Device, Geometry, IoError, IoKind, Op, OpKind, Ring, SECTOR, Submit, parse_size,
};
use std::ops::Range;
use std::str::FromStr;

/// The operations a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// All of them.
    Any,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Writes of zeros.
    Zeroes,
}

impl OpClass {
    fn covers(self, kind: &OpKind) -> bool {
        let class = match kind {
            OpKind::Read(_) => OpClass::Read,
            OpKind::Write { .. } | OpKind::WriteMany(_) => OpClass::Write,
            OpKind::Flush => OpClass::Flush,
            OpKind::Discard { .. } => OpClass::Discard,
            OpKind::WriteZeroes { .. } => OpClass::Zeroes,
        };
        self == OpClass::Any || self == class
    }
}

/// Which operations fail, and how. As text:
/// `error:CLASS[,lba=FROM..TO][,after=N][,nth=N][,errno=N]` with CLASS one of any, read, write, flush, discard,
/// zeroes; `lba` in sectors, the end not included; `errno` 5 (EIO) if not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorRule {
    /// Kind of operation.
    pub class: OpClass,
    /// Bytes; an operation that touches any of them matches, a flush matches always.
    pub range: Range<u64>,
    /// Which of the matching ones.
    pub pick: Pick,
    /// Their error.
    pub errno: i32,
}

impl ErrorRule {
    fn matches(&self, op: &Op) -> bool {
        self.class.covers(&op.kind) && (op.touches(&self.range) || matches!(op.kind, OpKind::Flush))
    }
}

impl FromStr for ErrorRule {
    type Err = IoError;

    fn from_str(text: &str) -> Result<ErrorRule, IoError> {
        let bad = |what: &str| {
            let usage =
                "error:read|write|flush|discard|zeroes|any[,lba=FROM..TO][,after=N][,nth=N][,errno=N]";
            IoError::new(IoKind::Invalid, format!("'{text}': {what}; write {usage}"))
        };
        let mut parts =
            text.strip_prefix("error:").ok_or_else(|| bad("it does not start with error:"))?.split(',');
        let class = match parts.next().unwrap_or_default() {
            "any" => OpClass::Any,
            "read" => OpClass::Read,
            "write" => OpClass::Write,
            "flush" => OpClass::Flush,
            "discard" => OpClass::Discard,
            "zeroes" => OpClass::Zeroes,
            other => return Err(bad(&format!("unknown operation '{other}'"))),
        };
        let mut rule = ErrorRule { class, range: 0..u64::MAX, pick: Pick::ALL, errno: libc::EIO };
        for part in parts {
            let number = |v: &str| parse_size(v).map_err(|e| bad(&e.context));
            match part.split_once('=') {
                Some(("lba", range)) => {
                    let (from, to) = range.split_once("..").ok_or_else(|| bad("lba needs FROM..TO"))?;
                    rule.range = number(from)?.saturating_mul(SECTOR)..number(to)?.saturating_mul(SECTOR);
                }
                Some(("after", n)) => rule.pick.after = number(n)?,
                Some(("nth", n)) => rule.pick.nth = number(n)?,
                Some(("errno", n)) => rule.errno = n.parse().map_err(|_| bad("errno needs a number"))?,
                _ => return Err(bad(&format!("unknown part '{part}'"))),
            }
        }
        Ok(rule)
    }
}

/// Fails operations by rule, without passing them on.
#[derive(Debug)]
pub struct ErrorDevice<D> {
    inner: D,
    rule: ErrorRule,
    matched: u64,
}

impl<D: Device> ErrorDevice<D> {
    /// `inner`, failing by `rule`.
    pub fn new(inner: D, rule: ErrorRule) -> ErrorDevice<D> {
        ErrorDevice { inner, rule, matched: 0 }
    }
}

impl<D: Device> Device for ErrorDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, ring: &mut Ring, now: u64, op: Op) -> Submit {
        if !self.rule.matches(&op) {
            return self.inner.submit(ring, now, op);
        }
        if self.rule.pick.hits(self.matched + 1) {
            self.matched += 1;
            let context = format!("injected at {}", op.offset);
            return Submit::Finished(op.complete(Err(IoError::from_errno(self.rule.errno, context))));
        }
        let outcome = self.inner.submit(ring, now, op);
        // One that comes back will be offered again, and counts then.
        self.matched += u64::from(!matches!(outcome, Submit::Busy(_)));
        outcome
    }

    fn poll(&mut self, ring: &mut Ring, now: u64, out: &mut Vec<Completion>) {
        self.inner.poll(ring, now, out);
    }

    fn next_deadline(&self) -> Option<u64> {
        self.inner.next_deadline()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
