//! Trims and zeroes. They carry no payload, so that a few bytes from a client can ask for terabytes of work: so much of it is
//! under way at a time, and what a client that has gone had asked for beyond that is not begun.

use super::{Command, Conn};
use crate::nbd::proto::{RequestHeader, errno};
use loligo_block::{ReqKind, Request};

/// Bytes that the volume is asked to trim or to zero at a time, for one connection.
const UNDER_WAY: u32 = 32 << 20;

/// Those of a connection that the volume was not asked for.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    waiting: std::collections::VecDeque<Range>,
    under_way: u32,
}

#[derive(Debug)]
struct Range {
    header: RequestHeader,
    command: Command,
    /// Bytes of it that the volume was asked for.
    asked: u32,
    /// The whole of its parts.
    whole: usize,
}

impl Ranges {
    /// Requests of which some part waits.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The volume has answered for so many bytes of one.
    pub(super) fn over(&mut self, bytes: u32) {
        self.under_way -= bytes;
    }

    /// Nobody waits for them any more.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
    }

    /// The next part: of which request, from where on and how long.
    fn next(&mut self) -> Option<(RequestHeader, Command, (u64, u32), usize)> {
        let r = self.waiting.front_mut()?;
        let len = UNDER_WAY.min(r.header.len - r.asked);
        if self.under_way > 0 && self.under_way + len > UNDER_WAY {
            return None;
        }
        let part = (r.header, r.command, (r.header.offset + u64::from(r.asked), len), r.whole);
        r.asked += len;
        if r.asked == r.header.len {
            self.waiting.pop_front();
        }
        Some(part)
    }
}

/// The request to the volume; nothing for a command that is no range.
pub(super) fn kind_of(command: Command) -> Option<ReqKind> {
    match command {
        Command::Trim => Some(ReqKind::Discard),
        Command::WriteZeroes { unmap, .. } => Some(ReqKind::WriteZeroes { unmap }),
        _ => None,
    }
}

impl Conn {
    /// A range waits for its turn.
    pub(super) fn begin_range(&mut self, header: RequestHeader, command: Command) {
        let whole = self.wholes.begin(header.cookie, header.len.div_ceil(UNDER_WAY) as usize);
        self.ranges.waiting.push_back(Range { header, command, asked: 0, whole });
    }

    /// The volume is not asked for what waits: nobody can be sure of that any more, and it may take hours.
    pub(super) fn refuse_ranges(&mut self) {
        let refusal = (errno::ESHUTDOWN, "the connection or the server ends, and this was not begun");
        for r in std::mem::take(&mut self.ranges.waiting) {
            let parts = (r.header.len - r.asked).div_ceil(UNDER_WAY);
            (0..parts).for_each(|_| self.part_over(r.whole, Some(refusal)));
        }
    }

    /// Asks for parts of ranges as far as the limit goes.
    pub(super) fn go_on_with_ranges(&mut self, requests: &mut Vec<Request>) {
        while !self.table.is_full()
            && let Some((header, command, (offset, len), whole)) = self.ranges.next()
            && let Some(kind) = kind_of(command)
        {
            self.ranges.under_way += len;
            self.accept(header, command, kind, (offset, len), Some(whole), requests);
        }
    }
}
