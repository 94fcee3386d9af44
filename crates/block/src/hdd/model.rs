//! The clockwork: which command is next, and when it ends.

use super::HddParams;
use std::collections::VecDeque;

/// The kind of a command to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HddKind {
    /// Reads media, or the buffer behind them.
    Read,
    /// Writes media; there is no write cache.
    Write,
    /// Costs nothing, because nothing is cached.
    Flush,
    /// Discard or write zeroes: remembered, not carried out.
    Metadata,
}

/// A command that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// As submitted.
    pub id: u64,
    /// The exact nanosecond, which may lie before the `now` at which it was asked for.
    pub at: u64,
}

#[derive(Debug, Clone, Copy)]
struct Command {
    id: u64,
    arrival: u64,
    offset: u64,
    len: u64,
    kind: HddKind,
}

/// The heads' last deed; while nothing else happens they go on from there.
#[derive(Debug, Clone, Copy)]
struct Stream {
    kind: HddKind,
    len: u64,
    end: u64,
    /// The time at which `end` passed the head.
    at: u64,
}

/// The times at which a command would touch the media and would end.
#[derive(Debug, Clone, Copy)]
struct Plan {
    start: u64,
    /// The time at which its last sector passes the head; the stream goes on from here.
    passed: u64,
    end: u64,
    /// The model's lag after it.
    lag: u64,
}

/// A disk on a virtual clock. `now` never decreases from call to call; how late a call comes changes nothing: commands
/// are chosen, among those that had arrived, at the exact end of the one before.
#[derive(Debug)]
pub struct HddModel {
    params: HddParams,
    tracks: u64,
    /// Commands the disk does not know of yet, in order of arrival.
    waiting: VecDeque<Command>,
    /// Commands the disk chooses from, in order of arrival.
    queue: Vec<Command>,
    active: Option<Finished>,
    done: VecDeque<Finished>,
    /// The time at which the last command ended.
    free_at: u64,
    track: u64,
    stream: Option<Stream>,
    /// Nanoseconds by which the platter's clock is behind: see [`HddParams::overhead`].
    lag: u64,
}

impl HddModel {
    /// A disk of `size` bytes, at rest on its first track.
    pub fn new(params: HddParams, size: u64) -> HddModel {
        HddModel {
            params,
            tracks: size.div_ceil(params.track).max(1),
            waiting: VecDeque::new(),
            queue: Vec::with_capacity(params.queue),
            active: None,
            done: VecDeque::new(),
            free_at: 0,
            track: 0,
            stream: None,
            lag: 0,
        }
    }

    /// A command arrives: `len` bytes from byte `offset`.
    pub fn submit(&mut self, now: u64, id: u64, offset: u64, len: u64, kind: HddKind) {
        self.run(now);
        if kind == HddKind::Flush {
            self.done.push_back(Finished { id, at: now });
            return;
        }
        self.waiting.push_back(Command { id, arrival: now, offset, len, kind });
        self.run(now);
    }

    /// Appends every command that has ended by `now`.
    pub fn advance(&mut self, now: u64, out: &mut Vec<Finished>) {
        self.run(now);
        out.extend(self.done.drain(..));
    }

    /// The time at which the next command ends (or ended, if `advance` has not handed it out yet).
    pub fn next_deadline(&self) -> Option<u64> {
        self.done.front().or(self.active.as_ref()).map(|f| f.at)
    }

    /// Commands submitted and not handed out.
    pub fn in_flight(&self) -> usize {
        self.waiting.len() + self.queue.len() + self.active.iter().count() + self.done.len()
    }

    fn run(&mut self, now: u64) {
        loop {
            if let Some(active) = self.active {
                if active.at > now {
                    return;
                }
                self.free_at = active.at;
                self.done.push_back(active);
                self.active = None;
            }
            let Some(first) = self.queue.first().or(self.waiting.front()) else { return };
            let t = self.free_at.max(first.arrival);
            while self.queue.len() < self.params.queue && self.waiting.front().is_some_and(|c| c.arrival <= t)
            {
                self.queue.extend(self.waiting.pop_front());
            }
            self.begin(t);
        }
    }

    /// Starts the best of the queue at `t`.
    fn begin(&mut self, t: u64) {
        let overdue = t.saturating_sub(self.queue[0].arrival) > self.params.patience;
        let (index, plan) = if overdue {
            (0, self.plan(t, &self.queue[0]))
        } else {
            let plans = self.queue.iter().map(|c| self.plan(t, c)).enumerate();
            plans.min_by_key(|(_, p)| p.start).expect("there is a command to begin")
        };
        let command = self.queue.remove(index);
        self.active = Some(Finished { id: command.id, at: plan.end });
        self.lag = plan.lag;
        if command.kind != HddKind::Metadata {
            let end = command.offset + command.len;
            self.track = end.saturating_sub(1) / self.params.track;
            self.stream = Some(Stream { kind: command.kind, len: command.len, end, at: plan.passed });
        }
    }

    fn plan(&self, t: u64, c: &Command) -> Plan {
        let p = &self.params;
        if c.kind == HddKind::Metadata {
            let end = t + p.metadata;
            return Plan { start: t, passed: end, end, lag: self.lag };
        }
        if let Some(plan) = self.stream.as_ref().and_then(|s| self.follow(s, t, c)) {
            return plan;
        }
        let queued = c.arrival + p.overhead <= t;
        let lag = self.lag + if queued { p.overhead } else { 0 };
        let ready = if queued { t } else { c.arrival } + p.overhead;
        let there = ready + p.seek((c.offset / p.track).abs_diff(self.track), self.tracks);
        let angle = p.media_start(c.offset) % p.revolution;
        let start = there + (angle + p.revolution - (there - lag) % p.revolution) % p.revolution;
        let end = start + p.media_end(c.offset + c.len) - p.media_start(c.offset);
        Plan { start, passed: end, end, lag }
    }

    /// The plan of a command that goes on where the heads are: a read behind a read comes out of the read-ahead, a
    /// large write behind a large write joins its stream.
    fn follow(&self, s: &Stream, t: u64, c: &Command) -> Option<Plan> {
        let p = &self.params;
        if c.offset != s.end || c.kind != s.kind {
            return None;
        }
        let passed = s.at + p.media_end(c.offset + c.len) - p.media_end(s.end);
        let ready = t + p.overhead;
        match c.kind {
            HddKind::Read => {
                // A full buffer stops the read-ahead; what it holds is still good.
                let full = s.at + p.media_end(s.end + p.read_ahead) - p.media_end(s.end);
                let bus = c.len.div_ceil(1024) * p.bus_per_kib;
                (passed <= full || t <= full).then_some(Plan {
                    start: t,
                    passed,
                    end: passed.max(ready + bus),
                    lag: self.lag,
                })
            }
            HddKind::Write => {
                let joins = c.len.min(s.len) >= p.stream_min && t <= s.at + p.stream_gap;
                joins.then_some(Plan { start: t, passed, end: passed.max(ready), lag: self.lag })
            }
            HddKind::Flush | HddKind::Metadata => None,
        }
    }
}
