//! The contents that every sector may read as: its writes in real time, which of them a durable one has
//! replaced, and what a crash leaves possible. Nothing here knows how the engine works.
//!
//! A read may return a write unless another write began after it ended and ended before the read began. A
//! read that saw a write orders it after all that had ended before. A power loss may undo what is not
//! flushed; a killed process only what was not acknowledged. The answer to a read after the crash is pinned.

use crate::stamp::{Content, WriteId};

/// The oracle's own time: one step per call.
type Time = u64;

const NEVER: Time = Time::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not answered yet.
    Flight,
    /// Answered with success, or seen after a crash.
    Acked,
    /// Answered with an error: it may or may not have happened, or still happen until a later write is acknowledged.
    Failed,
    /// Unanswered when the process died, or not flushed when the power went.
    Lost,
}

#[derive(Debug, Clone, Copy)]
struct Version {
    /// 0: zeros.
    id: WriteId,
    /// The request it came from.
    token: u64,
    discard: bool,
    start: Time,
    end: Time,
    state: State,
    durable: bool,
    /// Was possible after a power loss: seen once, it is what the medium holds.
    survived: bool,
    killer: Option<u64>,
    /// The killer was acknowledged when it was named.
    firm: bool,
    dead_at: Time,
}

impl Version {
    fn base(id: WriteId) -> Version {
        Version {
            id,
            token: 0,
            discard: false,
            start: 0,
            end: 0,
            state: State::Acked,
            durable: true,
            survived: false,
            killer: None,
            firm: false,
            dead_at: NEVER,
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Sector {
    /// Empty: never changed.
    versions: Vec<Version>,
    /// Content before the first change.
    initial: WriteId,
    /// On the list of sectors with something a flush would make durable.
    listed: bool,
    /// The time at which a fault was let loose on it: since then it may fail with EIO (0: never).
    suspect: Time,
    /// The time at which it was last written anew after that.
    healed: Time,
    /// A fault that cannot be told from power loss: it may read as anything it once held.
    forgiven: bool,
}

/// A change of the volume as the oracle sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A write with this id.
    Write(WriteId),
    /// Zeros.
    Zeroes,
    /// Zeros or what was there.
    Discard,
}

/// A range of sectors with a request on it.
#[derive(Debug, Clone, Copy)]
struct Span {
    token: u64,
    first: u32,
    count: u32,
}

/// A change or read under way; given back when it ends.
#[derive(Debug)]
pub struct Ticket {
    span: Span,
    start: Time,
}

/// A sector that read as something it may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The sector of the volume.
    pub sector: u32,
    /// The data that was read.
    pub got: String,
    /// The sector's history.
    pub history: String,
}

/// The history of a volume.
#[derive(Debug)]
pub struct Oracle {
    sectors: Vec<Sector>,
    now: Time,
    reads: Vec<Time>,
    undurable: Vec<u32>,
    next_token: u64,
}

impl Oracle {
    /// A volume of `sectors` zero sectors.
    pub fn new(sectors: u32) -> Oracle {
        Oracle {
            sectors: vec![Sector::default(); sectors as usize],
            now: 1,
            reads: Vec::new(),
            undurable: Vec::new(),
            next_token: 1,
        }
    }

    /// Sectors of the volume.
    pub fn sectors(&self) -> u32 {
        self.sectors.len() as u32
    }

    /// States what a sector held before anything ran.
    pub fn preset(&mut self, sector: u32, id: WriteId) {
        self.sectors[sector as usize].initial = id;
    }

    /// True if the sector was ever changed or preset.
    pub fn is_interesting(&self, sector: u32) -> bool {
        let s = &self.sectors[sector as usize];
        !s.versions.is_empty() || s.initial != 0
    }

    fn tick(&mut self) -> Time {
        self.now += 1;
        self.now
    }

    fn span(&mut self, first: u32, count: u32) -> Ticket {
        let token = self.next_token;
        self.next_token += 1;
        Ticket { span: Span { token, first, count }, start: self.tick() }
    }

    /// A change is handed to the volume.
    pub fn begin_change(&mut self, first: u32, count: u32, change: Change) -> Ticket {
        let t = self.span(first, count);
        for s in &mut self.sectors[first as usize..(first + count) as usize] {
            if s.versions.is_empty() {
                s.versions.push(Version::base(s.initial));
            }
            s.versions.push(Version {
                id: if let Change::Write(id) = change { id } else { 0 },
                token: t.span.token,
                discard: change == Change::Discard,
                start: t.start,
                end: NEVER,
                state: State::Flight,
                durable: false,
                survived: false,
                killer: None,
                firm: false,
                dead_at: NEVER,
            });
        }
        t
    }

    /// A change is answered; `durable` when it was asked to be (FUA).
    pub fn end_change(&mut self, t: Ticket, ok: bool, durable: bool) {
        let now = self.tick();
        let oldest = self.reads.iter().copied().min().unwrap_or(NEVER);
        for n in t.span.first..t.span.first + t.span.count {
            let s = &mut self.sectors[n as usize];
            let Some(at) = s.versions.iter().position(|v| v.token == t.span.token) else { continue };
            s.versions[at].end = now;
            if !ok {
                s.versions[at].state = State::Failed;
                continue;
            }
            s.versions[at].state = State::Acked;
            let me = s.versions[at];
            if !me.discard {
                s.kill(me.token, now, |x| x.end < me.start);
            }
            if durable {
                s.harden(at, now);
                s.prune(oldest);
            } else if !s.listed {
                s.listed = true;
                self.undurable.push(n);
            }
        }
    }

    /// A flush is handed to the volume.
    pub fn begin_flush(&mut self) -> Ticket {
        self.span(0, 0)
    }

    /// A flush is answered with success: whatever was acknowledged before it came is durable.
    pub fn end_flush(&mut self, t: Ticket) {
        let now = self.tick();
        let oldest = self.reads.iter().copied().min().unwrap_or(NEVER);
        let mut list = std::mem::take(&mut self.undurable);
        list.retain(|n| {
            let s = &mut self.sectors[*n as usize];
            for i in 0..s.versions.len() {
                let v = s.versions[i];
                if v.state == State::Acked && v.end < t.start && !v.durable {
                    s.harden(i, now);
                }
            }
            s.prune(oldest);
            s.listed = s.versions.iter().any(|v| !v.durable);
            s.listed
        });
        self.undurable = list;
    }

    /// A read is handed to the volume.
    pub fn begin_read(&mut self, first: u32, count: u32) -> Ticket {
        let t = self.span(first, count);
        self.reads.push(t.start);
        t
    }

    /// A read is answered with `content(i)` in its `i`th sector (`None`: not told). The first sector that may not be so
    /// is returned.
    pub fn end_read(&mut self, t: Ticket, content: impl Fn(u32) -> Option<Content>) -> Option<Violation> {
        let now = self.tick();
        self.forget_read(t.start);
        (0..t.span.count).find_map(|i| {
            let c = content(i)?;
            self.observe(t.span.first + i, c, t.start, now)
        })
    }

    /// The oracle's time now, for [`Oracle::check_moment`].
    pub fn time(&self) -> u64 {
        self.now
    }

    /// Checks a frozen device: it holds in each sector something that could have been read at some time
    /// between the beginning of `since` and `moment`. It is read later, so what has been replaced meanwhile
    /// is right, and what came since is not.
    pub fn check_moment(
        &self,
        since: &Ticket,
        moment: u64,
        mut content: impl FnMut(u32) -> Content,
    ) -> Option<Violation> {
        (since.span.first..since.span.first + since.span.count).find_map(|sector| {
            let s = &self.sectors[sector as usize];
            let got = content(sector);
            let right = match got {
                Content::Zero => Some(0),
                Content::Write { id, sector: meant } if meant == sector => Some(id),
                _ => None,
            };
            let held = |id: WriteId| {
                let of_then = |v: &Version| v.id == id && v.dead_at >= since.start && v.start <= moment;
                (s.versions.is_empty() && s.initial == id) || s.versions.iter().any(of_then)
            };
            (!s.forgiven && !right.is_some_and(held)).then(|| s.violation(sector, got))
        })
    }

    /// A read is answered with an error.
    pub fn end_read_failed(&mut self, t: Ticket) {
        self.tick();
        self.forget_read(t.start);
    }

    /// True if a fault was let loose on any of the sectors, and was not healed before `ticket` was given out.
    pub fn may_fail(&self, first: u32, count: u32, ticket: &Ticket) -> bool {
        let loose = |s: &Sector| s.suspect > 0 || s.healed > ticket.start;
        self.sectors[first as usize..(first + count) as usize].iter().any(loose)
    }

    /// True if a change of the sector was under way since `ticket` was given out.
    pub fn changed_since(&self, sector: u32, ticket: &Ticket) -> bool {
        self.sectors[sector as usize].versions.iter().any(|v| v.end >= ticket.start)
    }

    fn forget_read(&mut self, start: Time) {
        if let Some(at) = self.reads.iter().position(|r| *r == start) {
            self.reads.swap_remove(at);
        }
    }

    /// Lets the sector fail with EIO until it is durably written anew.
    pub fn suspect(&mut self, sector: u32) {
        let now = self.now;
        if let Some(s) = self.sectors.get_mut(sector as usize) {
            s.suspect = now;
        }
    }

    /// Lets the sector read as anything it ever held, or fail, until it is durably written anew.
    pub fn forgive(&mut self, sector: u32) {
        let now = self.now;
        if let Some(s) = self.sectors.get_mut(sector as usize) {
            s.suspect = now;
            s.forgiven = true;
        }
    }

    /// The content of a sector now, seen outside a request (the core alone, for one).
    pub fn see(&mut self, sector: u32, content: Content) -> Option<Violation> {
        let now = self.tick();
        self.observe(sector, content, now, now)
    }

    fn observe(&mut self, sector: u32, content: Content, rs: Time, now: Time) -> Option<Violation> {
        let oldest = self.reads.iter().copied().min().unwrap_or(NEVER);
        let s = &mut self.sectors[sector as usize];
        let id = match content {
            Content::Zero => 0,
            Content::Write { id, sector: meant } if meant == sector && id != 0 => id,
            _ => return Some(s.violation(sector, content)),
        };
        if s.versions.is_empty() {
            return (id != s.initial && !s.forgiven).then(|| s.violation(sector, content));
        }
        if s.versions.len() == 1 {
            return (id != s.versions[0].id && !s.forgiven).then(|| s.violation(sector, content));
        }
        let matches = |v: &Version| v.id == id && v.dead_at >= rs;
        let (mut seen, mut count, mut since, mut discard) = (usize::MAX, 0, NEVER, false);
        for (i, v) in s.versions.iter().enumerate().filter(|(_, v)| matches(v)) {
            let weakest = seen == usize::MAX
                || (s.versions[seen].state == State::Acked && (v.state != State::Acked || !v.durable));
            seen = if weakest { i } else { seen };
            count += 1;
            since = since.min(v.start);
            discard |= v.discard;
        }
        if count == 0 {
            return (!s.forgiven).then(|| s.violation(sector, content));
        }
        if s.forgiven {
            return None;
        }
        if count == 1 && s.versions[seen].state == State::Lost {
            s.versions[seen].state = State::Acked;
        }
        if !discard && s.versions[seen].state != State::Failed {
            let token = s.versions[seen].token;
            s.kill(token, now, |x| {
                x.state != State::Failed
                    && x.end < if x.discard { since } else { rs.max(since) }
                    && !(x.id == id && x.dead_at >= rs)
            });
        }
        if count == 1 && s.versions[seen].survived && !s.versions[seen].durable {
            s.harden(seen, now);
        }
        s.prune(oldest);
        None
    }

    /// The process died, and with `power` the devices lost what was not flushed. Requests under way are forgotten.
    pub fn crash(&mut self, power: bool) {
        let now = self.tick();
        self.reads.clear();
        for s in self.sectors.iter_mut().filter(|s| !s.versions.is_empty()) {
            for v in s.versions.iter_mut().filter(|v| matches!(v.state, State::Flight | State::Failed)) {
                v.end = v.end.min(now);
                v.state = State::Lost;
            }
            s.prune(NEVER);
            let acked: Vec<u64> =
                s.versions.iter().filter(|v| v.state == State::Acked).map(|v| v.token).collect();
            for v in &mut s.versions {
                if power || v.killer.is_some_and(|k| !acked.contains(&k)) {
                    v.killer = None;
                    v.firm = false;
                    v.dead_at = NEVER;
                }
                v.survived |= power;
                if power && !v.durable {
                    // Which of these the medium holds is open until one is seen: a later flush settles nothing.
                    v.state = State::Lost;
                }
            }
        }
    }
}

impl Sector {
    /// Marks what `which` picks as replaced by the version `by`.
    fn kill(&mut self, by: u64, now: Time, which: impl Fn(&Version) -> bool) {
        let firm = self.versions.iter().any(|v| v.token == by && v.state == State::Acked);
        for x in &mut self.versions {
            if !x.firm && x.token != by && which(x) {
                x.dead_at = x.dead_at.min(now);
                x.killer = Some(by);
                x.firm = firm;
            }
        }
    }

    /// Version `at` is durable, and so is whatever it replaced.
    fn harden(&mut self, at: usize, now: Time) {
        let me = self.versions[at];
        self.versions[at].durable = true;
        if !me.discard && self.suspect > 0 && self.suspect < me.start {
            // Only now: power loss could have brought back what the fault had hit.
            self.suspect = 0;
            self.forgiven = false;
            self.healed = now;
        }
        if me.discard {
            // Older than what it may have left in place: gone for good.
            let ended: Vec<u64> = self
                .versions
                .iter()
                .filter(|v| v.state == State::Acked && !v.discard && v.end < me.start)
                .map(|v| v.token)
                .collect();
            for v in &mut self.versions {
                if v.killer.is_some_and(|k| ended.contains(&k)) {
                    v.killer = Some(me.token);
                }
            }
        }
    }

    /// Forgets versions that neither a read nor a crash can bring back.
    fn prune(&mut self, oldest_read: Time) {
        let mut gone: Vec<u64> = Vec::new();
        loop {
            let next = self.versions.iter().find(|x| {
                !gone.contains(&x.token)
                    && (x.killer.is_some_and(|k| {
                        gone.contains(&k) || self.versions.iter().any(|v| v.token == k && v.durable)
                    }) || self
                        .versions
                        .iter()
                        .any(|w| w.durable && !w.discard && w.state == State::Acked && w.start > x.end))
            });
            match next {
                Some(x) => gone.push(x.token),
                None => break,
            }
        }
        self.versions.retain(|x| {
            !gone.contains(&x.token)
                || (x.dead_at != NEVER && x.dead_at >= oldest_read && oldest_read != NEVER)
        });
    }

    fn violation(&self, sector: u32, got: Content) -> Violation {
        let mut history = format!("initially {}", self.initial);
        for v in &self.versions {
            let end = if v.end == NEVER { "…".into() } else { v.end.to_string() };
            let what = if v.discard { "discard".into() } else { format!("write {}", v.id) };
            history += &format!(
                "; {what} [{}-{end}] {:?}{}{}",
                v.start,
                v.state,
                if v.durable { " durable" } else { "" },
                if v.dead_at == NEVER { "" } else { " replaced" }
            );
        }
        Violation { sector, got: format!("{got:?}"), history }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(o: &mut Oracle, id: WriteId) {
        let t = o.begin_change(0, 1, Change::Write(id));
        o.end_change(t, true, false);
    }

    fn flush(o: &mut Oracle) {
        let t = o.begin_flush();
        o.end_flush(t);
    }

    fn may_be(o: &mut Oracle, id: WriteId) -> bool {
        let c = if id == 0 { Content::Zero } else { Content::Write { id, sector: 0 } };
        let t = o.begin_read(0, 1);
        o.end_read(t, |_| Some(c)).is_none()
    }

    /// True if the sector may read as `id`, asked of a copy of the history, so that nothing is pinned.
    fn could_be(build: impl Fn() -> Oracle, id: WriteId) -> bool {
        may_be(&mut build(), id)
    }

    #[test]
    fn a_read_sees_the_last_write_or_one_that_overlaps_the_read() {
        let build = || {
            let mut o = Oracle::new(1);
            put(&mut o, 1);
            put(&mut o, 2);
            o.begin_change(0, 1, Change::Write(3));
            o
        };
        assert_eq!([0, 1, 2, 3, 4].map(|id| could_be(build, id)), [false, false, true, true, false]);
    }

    #[test]
    fn a_read_under_way_may_return_what_was_replaced_meanwhile() {
        let mut o = Oracle::new(1);
        put(&mut o, 1);
        let r = o.begin_read(0, 1);
        put(&mut o, 2);
        flush(&mut o);
        assert_eq!(o.end_read(r, |_| Some(Content::Write { id: 1, sector: 0 })), None);
        assert!(!may_be(&mut o, 1) && may_be(&mut o, 2));
    }

    #[test]
    fn once_a_write_in_flight_was_seen_the_older_one_is_gone() {
        let mut o = Oracle::new(1);
        put(&mut o, 1);
        o.begin_change(0, 1, Change::Write(2));
        assert!(may_be(&mut o, 1) && may_be(&mut o, 2) && !may_be(&mut o, 1));
    }

    #[test]
    fn overlapping_writes_may_end_either_way_but_not_both_ways() {
        let mut o = Oracle::new(1);
        let (a, b) = (o.begin_change(0, 1, Change::Write(1)), o.begin_change(0, 1, Change::Write(2)));
        o.end_change(b, true, false);
        o.end_change(a, true, false);
        assert!(may_be(&mut o, 2) && !may_be(&mut o, 1));
    }

    #[test]
    fn power_loss_keeps_what_was_flushed_a_kill_what_was_answered() {
        let build = |power: bool| {
            move || {
                let mut o = Oracle::new(1);
                put(&mut o, 1);
                put(&mut o, 2);
                flush(&mut o);
                put(&mut o, 3);
                o.begin_change(0, 1, Change::Write(4));
                o.crash(power);
                o
            }
        };
        assert_eq!([0, 1, 2, 3, 4].map(|id| could_be(build(true), id)), [false, false, true, true, true]);
        assert_eq!([0, 1, 2, 3, 4].map(|id| could_be(build(false), id)), [false, false, false, true, true]);
    }

    #[test]
    fn a_flush_covers_only_writes_acknowledged_before_it_came() {
        let mut o = Oracle::new(1);
        put(&mut o, 1);
        let w = o.begin_change(0, 1, Change::Write(2));
        let f = o.begin_flush();
        o.end_change(w, true, false);
        o.end_flush(f);
        o.crash(true);
        assert!(may_be(&mut o, 1));
    }

    #[test]
    fn a_read_after_a_crash_pins_what_it_saw() {
        let mut o = Oracle::new(1);
        put(&mut o, 1);
        o.begin_change(0, 1, Change::Write(2));
        o.crash(true);
        assert!(may_be(&mut o, 0) && !may_be(&mut o, 1) && !may_be(&mut o, 2));
        o.crash(true);
        assert!(!may_be(&mut o, 2) && may_be(&mut o, 0));
        let mut o = Oracle::new(1);
        put(&mut o, 1);
        o.crash(false);
        assert!(may_be(&mut o, 1));
        o.crash(true);
        assert!(may_be(&mut o, 0), "a kill makes nothing durable");
    }

    #[test]
    fn a_flush_after_power_loss_says_nothing_of_writes_before_it() {
        let mut o = Oracle::new(1);
        put(&mut o, 1);
        flush(&mut o);
        put(&mut o, 2);
        o.crash(true);
        flush(&mut o);
        assert!(may_be(&mut o, 1));
    }

    #[test]
    fn a_discarded_sector_is_zero_or_its_last_content_never_older() {
        let build = |durable: bool| {
            move || {
                let mut o = Oracle::new(1);
                put(&mut o, 1);
                flush(&mut o);
                put(&mut o, 2);
                let d = o.begin_change(0, 1, Change::Discard);
                o.end_change(d, true, durable);
                o
            }
        };
        assert_eq!([0, 1, 2].map(|id| could_be(build(true), id)), [true, false, true]);
        let crashed = |durable: bool| {
            move || {
                let mut o = build(durable)();
                o.crash(true);
                o
            }
        };
        assert_eq!([0, 1, 2].map(|id| could_be(crashed(true), id)), [true, false, true]);
        assert_eq!([0, 1, 2].map(|id| could_be(crashed(false), id)), [true, true, true]);
    }

    #[test]
    fn a_failed_write_may_have_happened_until_the_next_one() {
        let mut o = Oracle::new(1);
        put(&mut o, 1);
        let w = o.begin_change(0, 1, Change::Write(2));
        o.end_change(w, false, false);
        assert!(may_be(&mut o, 1) && may_be(&mut o, 2) && may_be(&mut o, 1));
        put(&mut o, 3);
        assert!(!may_be(&mut o, 2) && may_be(&mut o, 3));
    }

    #[test]
    fn a_fault_ends_with_a_durable_write_that_began_after_it() {
        let mut o = Oracle::new(1);
        let w = o.begin_change(0, 1, Change::Write(1));
        o.suspect(0);
        o.end_change(w, true, false);
        let during = o.begin_read(0, 1);
        assert!(o.may_fail(0, 1, &during));
        put(&mut o, 2);
        assert!(o.may_fail(0, 1, &during));
        flush(&mut o);
        let after = o.begin_read(0, 1);
        assert!(o.may_fail(0, 1, &during) && !o.may_fail(0, 1, &after));
    }

    #[test]
    fn garbage_and_misplaced_sectors_are_never_accepted() {
        let mut o = Oracle::new(2);
        let t = o.begin_change(0, 2, Change::Write(1));
        o.end_change(t, true, false);
        assert!(o.see(0, Content::Garbage).is_some());
        assert!(o.see(0, Content::Write { id: 1, sector: 1 }).is_some());
        assert!(o.see(0, Content::Write { id: 1, sector: 0 }).is_none());
    }
}
