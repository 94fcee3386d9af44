//! Destaging: a continuous sweep over the whole dirty set in core order, a window at a time.
//!
//! A job takes one window: its slots are read and checked while its versions become durable on the cache; then it owns
//! the window's span of the core, writes, waits for a core flush, and journals what it wrote as clean. A version that
//! was replaced meanwhile stays dirty. Order and cost: research in POLICY.md section 3 — the sweep in core order meets
//! twice the pool's density at the head, which is what removes the cliff.

mod age;
mod choose;
pub(crate) mod demand;
mod depth;
mod doubt;
mod drain;
mod flush_all;
mod health;
mod jam;
mod job;
mod pace;
mod probe;
mod salvage;
mod stuck;

pub(crate) use job::Job;

use crate::api::{Effect, Nanos};
use crate::commit::RoomFor;
use crate::engine::Engine;
use crate::index::Meta;
use crate::params::LargeWrites;
use crate::refusal::CoreWriteError;
use age::Age;
use choose::Chooser;
use demand::Demand;
use depth::Depth;
use doubt::Doubt;
use flush_all::FlushAll;
use health::Health;
use jam::Jam;
use loligo_format::units::WINDOW_BLOCKS;
pub(crate) use pace::Fill;
use pace::{Pacer, fullness};
use probe::Probe;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use stuck::Refused;
use stuck::Stuck;

/// Jobs under way, at most.
const JOBS: usize = 64;
/// Core writes gathered ahead.
const AHEAD: u32 = 64;
/// Core writes in flight while clients wait for the core.
const DEPTH_BUSY: u32 = 4;
/// From so far between the low watermark and the limit on, large writes leave what room there is to small ones.
const LEFT_TO_SMALL: f64 = 0.75;
/// A cluster takes no less for a large write: one that is let into the cache sooner than that is better off there.
const CORE_TAKES: Nanos = 10_000_000;
/// Below the low watermark the sweep waits until clients have left the core alone for this long.
const IDLE: Nanos = 200_000_000;
/// Clients write the core themselves from one such write until so long after it.
const DIRECT: Nanos = 20_000_000;
/// Jobs that begin meanwhile are so far apart at least.
const TRICKLE: Nanos = 100_000_000;
/// They are not held back any more from so far between the low watermark and the limit on.
const ALMOST_FULL: f64 = 0.9;
/// After a failed core write.
const BACKOFF: Nanos = 1_000_000_000;
/// After [`LOOK`] windows without anything to do the search goes on so much later.
const SOON: Nanos = 100_000;
/// Empty windows looked at per settle.
const LOOK: u32 = 1 << 16;

/// The sweep's state.
#[derive(Debug)]
pub(crate) struct Destage {
    jobs: Slab<Job>,
    by_window: BTreeMap<u32, usize>,
    /// Client writes at the core, by window.
    claims: BTreeMap<u32, u32>,
    /// Clients that write the core although they could have used the cache, and when one last began or was done.
    direct: u32,
    last_direct: Nanos,
    /// Windows that somebody waits for.
    first: VecDeque<(u32, usize)>,
    /// Windows with dirty blocks in slots that are given away.
    given_away: BTreeSet<u32>,
    /// Jobs that a client waits for, and jobs whose clean records are in the journal's hands.
    tasked: u32,
    pub(crate) recording: u32,
    /// Jobs with slots to read, in the order they began, and slot reads in flight.
    reading: VecDeque<usize>,
    slot_reads: u32,
    /// Jobs with writes to issue, in the order they became ready.
    ready: VecDeque<usize>,
    cursor: u32,
    number: u64,
    writes: u32,
    /// Operations of clients that the core has done since a job last wrote there.
    beside: u32,
    flushes: Vec<FlushAll>,
    /// Clients that wait for a job to give its window up.
    blocked: u32,
    backoff: Nanos,
    /// The core's health, as its writes show it.
    pub(crate) health: Health,
    last_client: Nanos,
    /// Dirty blocks whose data does not match its checksum.
    bad: BTreeSet<u32>,
    /// Blocks at whose place a write to the core failed, until the cache or the core has all of them.
    doubts: BTreeMap<u32, Doubt>,
    /// Dirty versions, by block, that are read because they lack what only such a write had; with the reads' tickets.
    old_reads: BTreeMap<u32, (Meta, u64)>,
    /// The error of the newest write that had something which the cache had not.
    salvaged_why: Option<CoreWriteError>,
    /// The blocks that the core does not take.
    pub(crate) stuck: Stuck,
    jam: Jam,
    /// Until then no round is made: the last one met nothing but what the core refuses.
    quiet: Nanos,
    probe: Probe,
    chooser: Chooser,
    pub(crate) pacer: Pacer,
    /// Demand of the other shards that share the core.
    pub(crate) others: Demand,
    depth: Depth,
    next_job: Nanos,
    age: Age,
    /// Windows passed since a job was last made of one, and when the search goes on although nothing happens.
    sought: u32,
    search: Option<Nanos>,
    /// The time at which the newest job began.
    last_job: Nanos,
}

impl Destage {
    pub(crate) fn new() -> Destage {
        Destage {
            jobs: Slab::with_capacity(JOBS),
            by_window: BTreeMap::new(),
            claims: BTreeMap::new(),
            direct: 0,
            last_direct: 0,
            first: VecDeque::new(),
            given_away: BTreeSet::new(),
            tasked: 0,
            recording: 0,
            reading: VecDeque::new(),
            slot_reads: 0,
            ready: VecDeque::new(),
            cursor: 0,
            number: 0,
            writes: 0,
            beside: 0,
            flushes: Vec::new(),
            blocked: 0,
            backoff: 0,
            health: Health::default(),
            last_client: 0,
            bad: BTreeSet::new(),
            doubts: BTreeMap::new(),
            old_reads: BTreeMap::new(),
            salvaged_why: None,
            stuck: Stuck::default(),
            jam: Jam::default(),
            quiet: 0,
            probe: Probe::default(),
            chooser: Chooser::default(),
            pacer: Pacer::default(),
            others: Demand::default(),
            depth: Depth::default(),
            next_job: 0,
            age: Age::default(),
            sought: 0,
            search: None,
            last_job: 0,
        }
    }

    /// The newest version of `block` is another now.
    #[inline]
    pub(crate) fn superseded(&mut self, block: u32) {
        if !self.bad.is_empty() {
            self.bad.remove(&block);
        }
        self.stuck.changed(block);
        if let Some(doubt) = self.doubts.get_mut(&block) {
            doubt.superseded();
        }
        if self.by_window.is_empty() {
            return;
        }
        if let Some(key) = self.by_window.get(&(block / WINDOW_BLOCKS as u32)) {
            self.jobs[*key].superseded(block);
        }
    }

    /// A client wants to write the core in `window`: true if it may now, else it is remembered by the job there. `wanted`:
    /// somebody waits for what destaging brings about, so that a job which waits for clients has its turn before others come.
    pub(crate) fn claim(&mut self, window: u32, task: usize, wanted: bool) -> bool {
        if let Some(key) = self.by_window.get(&window)
            && (self.jobs[*key].owns_core() || (wanted && self.jobs[*key].waits_for_clients()))
        {
            self.jobs[*key].claimants.push(task);
            self.blocked += 1;
            return false;
        }
        *self.claims.entry(window).or_insert(0) += 1;
        true
    }

    /// Gives the window back: its write is over.
    pub(crate) fn unclaim(&mut self, window: u32) {
        if let Some(n) = self.claims.get_mut(&window) {
            *n -= 1;
            if *n == 0 {
                self.claims.remove(&window);
            }
        }
    }

    /// A client that could have used the cache begins to write the core instead (`on`), or is done with it.
    pub(crate) fn direct_write(&mut self, now: Nanos, on: bool) {
        self.direct = if on { self.direct + 1 } else { self.direct - 1 };
        self.last_direct = now;
    }

    /// The core has done an operation of a client's.
    pub(crate) fn client_done(&mut self) {
        self.beside = self.beside.saturating_add(1);
    }

    /// True if any of the blocks is dirty and does not match its checksum.
    pub(crate) fn any_bad(&self, first: u32, last: u32) -> bool {
        self.bad.range(first..=last).next().is_some()
    }

    /// Forgets which windows somebody waits for; those who did.
    pub(crate) fn forget_wanted(&mut self) -> Vec<usize> {
        self.first.drain(..).map(|(_, task)| task).collect()
    }

    /// Has `window` destaged soon, for its slots; whether that is news.
    pub(crate) fn shrink(&mut self, window: u32) -> bool {
        !self.by_window.contains_key(&window) && self.given_away.insert(window)
    }

    /// Windows wanted for their slots.
    pub(crate) fn shrinking(&self) -> usize {
        self.given_away.len()
    }

    /// No slots are given away any more.
    pub(crate) fn forget_shrunk(&mut self) {
        self.given_away.clear();
    }

    /// A freeze begins (`on`) or ends: what jobs hold as newest versions is pinned, or nothing is.
    pub(crate) fn pin_jobs(&mut self, on: bool) {
        for (_, job) in &mut self.jobs {
            job.pin(on);
        }
    }

    /// The pinned version of `block` is none any more.
    pub(crate) fn unpin(&mut self, block: u32) {
        if let Some(key) = self.by_window.get(&(block / WINDOW_BLOCKS as u32)) {
            self.jobs[*key].unpin(block);
        }
    }

    /// True if anything changes the core now: a client, or a job.
    pub(crate) fn uses_core(&self) -> bool {
        !self.claims.is_empty() || self.writes > 0 || self.jobs.iter().any(|(_, j)| j.owns_core())
    }

    /// True if anything of a job is at the core, to be written there.
    pub(crate) fn writes_core(&self) -> bool {
        self.writes > 0
    }

    /// True if a job brings something to the core that it lacks, or may. One that only finds out whether the core takes what it has
    /// does not.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.doubts.is_empty() || self.jobs.iter().any(|(_, j)| !j.is_probe())
    }

    /// Clients that wait for a job to give its window up wait no longer.
    pub(crate) fn let_clients_go(&mut self) {
        self.blocked = 0;
        self.jobs.iter_mut().for_each(|(_, j)| j.claimants.clear());
    }

    /// A dirty block whose data does not match its checksum.
    pub(crate) fn first_bad(&self) -> Option<u32> {
        self.bad.first().copied()
    }

    /// True if `fresh` more dirty blocks may be admitted now.
    pub(crate) fn credit(&mut self, now: Nanos, fresh: u64, fill: Fill) -> bool {
        self.pacer.credit(now, fresh, fill)
    }

    /// Forgives the debt: the blocks admitted so far have cost enough.
    pub(crate) fn forgive(&mut self, now: Nanos) {
        self.pacer.forgive(now);
    }

    /// Blocks a second over the last while.
    pub(crate) fn rate(&self) -> u64 {
        self.pacer.rate()
    }

    /// The same of all shards that share the core.
    pub(crate) fn shared_rate(&self) -> u64 {
        self.pacer.shared_rate()
    }

    /// Blocks destaged so far.
    pub(crate) fn total(&self) -> u64 {
        self.pacer.total()
    }

    /// Has the refused blocks tried now.
    fn retry_all(&mut self) {
        self.quiet = 0;
        self.stuck.retry_all();
    }

    /// Nothing under way.
    pub(crate) fn idle(&self) -> bool {
        self.jobs.is_empty() && self.old_reads.is_empty()
    }

    /// True if a write of what the core has already may still fail and spoil its place: one of a job up to number `from`, or of
    /// any that only finds out whether the core takes it.
    fn rewrites_until(&self, from: u64) -> bool {
        self.jobs.iter().any(|(_, j)| j.is_probe() || j.may_write(from))
    }
}

impl Destage {
    /// Has the window of `block` destaged before others; `task` is told when a pass over it is over.
    pub(crate) fn put_first(&mut self, block: u32, task: usize) {
        self.first.push_back((block / WINDOW_BLOCKS as u32, task));
    }
}

impl Engine {
    /// Starts jobs while that is worth while, and issues their writes.
    pub(crate) fn sweep(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        // A core without clients is not idle while they are served from the cache: destaging shares the cache's flushes.
        if self.intake.core_busy > 0 || !self.intake.tasks.is_empty() {
            self.destage.last_client = now;
        }
        self.forget_clean();
        self.note_doubts(now, fx);
        self.check_flushes(now, fx);
        self.probe_if_due(now, fx);
        self.destage.search = None;
        let windows = if self.map.index.dirty_blocks() > 0 { self.map.index.windows() } else { 0 };
        self.destage.age.look(now, self.cfg.params.destage_age, windows);
        // Whoever waits for a window hears of it also when nothing in it is dirty any more.
        let wanted =
            self.map.index.dirty_blocks() > 0 || !self.destage.first.is_empty() || self.state.is_draining();
        if wanted && now >= self.destage.backoff && self.commit.has_room(RoomFor::Housekeeping) {
            self.start_jobs(now, fx);
        }
        self.issue_core_writes(now, fx);
    }

    fn start_jobs(&mut self, now: Nanos, fx: &mut Vec<Effect>) {
        if self.state.has_freeze() {
            return self.drain(now, fx);
        }
        for _ in 0..self.destage.first.len() {
            let Some((window, task)) = self.destage.first.pop_front() else { break };
            if self.destage.by_window.contains_key(&window) || self.destage.jobs.len() >= JOBS {
                self.destage.first.push_back((window, task));
            } else {
                self.start_job(now, window, vec![task], fx);
            }
        }
        while self.destage.jobs.len() < JOBS && self.destage.backlog(self.cfg.devices.core_groups) < AHEAD {
            let Some(window) = self.destage.given_away.pop_first() else { break };
            if !self.destage.by_window.contains_key(&window) && self.map.index.window_dirty(window) > 0 {
                self.start_job(now, window, Vec::new(), fx);
            }
        }
        let hurried =
            !self.destage.flushes.is_empty() || !self.destage.first.is_empty() || self.intake.is_starved();
        // Whoever waits for room behind a core that fails is to hear soon whether it has come back.
        let hurried = hurried || (self.destage.health.is_failing() && !self.intake.waiting.is_empty());
        // A stop lets nothing new in, but those who wait for room get it.
        let hurried = hurried || (self.state.is_stopping() && !self.intake.waiting.is_empty());
        let idle = self.intake.core_busy == 0 && now.saturating_sub(self.destage.last_client) >= IDLE;
        let stopping = self.state.is_stopping();
        let by_age = !hurried && !idle && self.is_low();
        if (stopping && !hurried) || (by_age && !self.destage.age.is_round()) || now < self.destage.quiet {
            return;
        }
        // Once round at most: windows that have a job already are met again.
        let mut look = LOOK.min(self.map.index.windows());
        let groups = self.cfg.devices.core_groups;
        let mut backlog = self.destage.backlog(groups);
        let most = if groups && !hurried && !idle { self.jobs_beside_clients(now) } else { JOBS };
        let (mut refused, mut began) = (false, false);
        while self.destage.jobs.len() < most && backlog < AHEAD && look > 0 {
            // Whoever has everything flushed wants it done.
            let slowed = self.cfg.params.destage_rate > 0 && self.destage.flushes.is_empty();
            if (slowed && now < self.destage.next_job) || (by_age && !self.destage.age.is_round()) {
                return;
            }
            let from = self.destage.cursor;
            match self.map.index.next_dirty_window(from, look) {
                Ok(w) => {
                    let n = self.map.index.windows();
                    let passed = (w + n - from) % n + 1;
                    look = look.saturating_sub(passed);
                    self.destage.sought = self.destage.sought.saturating_add(passed);
                    self.destage.cursor = if w + 1 == n { 0 } else { w + 1 };
                    let dirty = usize::from(self.map.index.window_dirty(w));
                    if self.destage.stuck.keeps_all(w, dirty, now) {
                        refused = true;
                    } else if !self.destage.by_window.contains_key(&w) {
                        let blocks = self.start_job(now, w, Vec::new(), fx);
                        backlog += blocks.min(if groups { 1 } else { 32 }) as u32;
                        if blocks > 0 {
                            began = true;
                            self.destage.sought = 0;
                        }
                        if let Some(gap) = (blocks * 1_000_000_000).checked_div(self.cfg.params.destage_rate)
                        {
                            self.destage.next_job = self.destage.next_job.max(now.saturating_sub(gap)) + gap;
                        }
                    }
                    self.destage.age.passed(passed);
                }
                Err(next) => {
                    self.destage.cursor = next;
                    self.destage.age.passed(look);
                    self.destage.sought = self.destage.sought.saturating_add(look);
                    self.search_on(now);
                    break;
                }
            }
        }
        if refused && !began {
            // A round over nothing but what waits costs the more the more that is.
            self.destage.quiet = now + TRICKLE;
        }
    }

    /// A part of a large core has been searched for something to do, in vain.
    fn search_on(&mut self, now: Nanos) {
        let d = &mut self.destage;
        let round = d.sought >= self.map.index.windows();
        d.search = d.jobs.is_empty().then_some(now + if round { BACKOFF } else { SOON });
        if round {
            d.sought = 0;
        }
    }

    /// True if so little is dirty that the sweep waits for an idle core, or for what is dirty to be old.
    fn is_low(&self) -> bool {
        self.map.index.dirty_blocks() <= self.dirty_limit() * u64::from(self.cfg.params.destage_low) / 100
    }

    /// True if jobs leave nothing of their window behind: a round by age, in which nobody waits for room.
    fn takes_all(&self) -> bool {
        self.destage.age.is_round() && self.is_low()
    }

    /// The level of dirty data between the low watermark and the limit, 0 to 1.
    fn fullness(&self) -> f64 {
        fullness(self.map.index.dirty_blocks(), self.dirty_limit(), self.cfg.params.destage_low)
    }

    /// Jobs for a core that takes groups: the more is dirty, the more blocks share one of its operations, so that a cache with
    /// room lets its dirty data grow dense instead of working it off as fast as it can.
    fn jobs_beside_clients(&self, now: Nanos) -> usize {
        if self.holds_back(now) {
            return usize::from(now.saturating_sub(self.destage.last_job) >= TRICKLE);
        }
        let x = self.fullness();
        ((JOBS as f64 * 1.5 * x * x) as usize).clamp(1, JOBS)
    }

    /// True if destaging all but stops because clients write the core themselves: they are not to share it with what nobody
    /// waits for.
    pub(super) fn holds_back(&self, now: Nanos) -> bool {
        let d = &self.destage;
        let direct = d.direct > 0 || now.saturating_sub(d.last_direct) < DIRECT;
        self.cfg.devices.core_groups
            && direct
            && d.last_direct > 0
            && self.intake.waiting.is_empty()
            && self.fullness() < ALMOST_FULL
    }

    /// True if a large write would have to wait for room, or would take what is better left to small ones.
    pub(crate) fn is_short_of_room(&self, now: Nanos) -> bool {
        let x = self.fullness();
        let deadline = self.destage.pacer.deadline();
        let waits = || match self.cfg.params.large_writes {
            LargeWrites::Past => !self.intake.waiting.is_empty() || now < deadline,
            LargeWrites::Cached => now + CORE_TAKES < deadline,
        };
        x > LEFT_TO_SMALL || (x > 0.0 && waits())
    }

    /// The time at which the sweep wants to look again although nothing else happens.
    pub(crate) fn sweep_deadline(&self, now: Nanos) -> Option<Nanos> {
        let d = &self.destage;
        let waited = !d.flushes.is_empty() || !d.first.is_empty() || !self.intake.waiting.is_empty();
        if self.state.has_freeze() {
            // The rest waits for the thaw.
            let probe = d.probe_deadline().filter(|at| *at > now);
            let again = [(d.backoff > now).then_some(d.backoff), d.stuck.deadline(now), probe];
            return again.into_iter().flatten().min().filter(|_| self.state.is_draining());
        }
        if !waited && (self.map.index.dirty_blocks() == 0 || self.state.is_stopping()) {
            return None;
        }
        let idle_at = d.last_client + IDLE;
        let held = self.holds_back(now).then_some((d.last_direct + DIRECT).max(d.last_job + TRICKLE));
        let low = self.is_low();
        let aged = self.destage.age.deadline().filter(|at| self.cfg.params.destage_age > 0 && *at > now);
        [
            d.search,
            d.probe_deadline().filter(|at| *at > now),
            self.intake.is_starved().then(|| d.jam.deadline()).flatten().filter(|at| *at > now),
            aged,
            d.stuck.deadline(now),
            (d.backoff > now).then_some(d.backoff),
            (d.quiet > now).then_some(d.quiet),
            (self.cfg.params.destage_rate > 0 && d.next_job > now).then_some(d.next_job),
            (low && self.intake.core_busy == 0 && idle_at > now).then_some(idle_at),
            held.filter(|at| *at > now),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The time at which the pacer lets the next waiting write in.
    pub(crate) fn pace_deadline(&self) -> Option<Nanos> {
        (!self.intake.waiting.is_empty()).then(|| self.destage.pacer.deadline())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_wanted_for_their_slots_are_news_once() {
        let mut d = Destage::new();
        assert!(d.shrink(3) && !d.shrink(3) && d.shrink(4));
        assert_eq!(d.shrinking(), 2);
        d.forget_shrunk();
        assert_eq!(d.shrinking(), 0);
    }

    #[test]
    fn a_claim_keeps_the_core_in_use_until_it_ends() {
        let mut d = Destage::new();
        assert!(d.claim(3, 0, false) && d.claim(3, 1, false));
        d.unclaim(3);
        assert!(d.uses_core(), "another client writes there");
        d.unclaim(3);
        assert!(!d.uses_core() && !d.writes_core());
    }

    #[test]
    fn a_replaced_block_is_damaged_no_more() {
        let mut d = Destage::new();
        d.bad.extend([5, 9]);
        assert!(d.any_bad(4, 6) && !d.any_bad(6, 8));
        d.superseded(5);
        assert_eq!((d.any_bad(4, 6), d.first_bad()), (false, Some(9)));
    }

    #[test]
    fn who_waits_for_a_window_is_handed_over_in_order() {
        let mut d = Destage::new();
        d.first.extend([(7, 30), (2, 10), (7, 20)]);
        assert_eq!(d.forget_wanted(), [30, 10, 20]);
        assert_eq!(d.forget_wanted(), []);
    }

    #[test]
    fn nothing_under_way_is_idle_and_brings_nothing() {
        let d = Destage::new();
        assert!(d.idle() && !d.has_dirty() && !d.uses_core());
        assert_eq!((d.first_bad(), d.backlog(false), d.total()), (None, 0, 0));
    }
}
