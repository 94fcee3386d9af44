//! A run: several lives of one cache, each with its load, its faults and its end, and a check of every sector between.

mod exchange;
mod expel;
mod fallback;
mod filling;
mod format;
mod rot;
mod stop;

use crate::config::{Config, draw_params};
use crate::disk::Crash;
use crate::faults::{Fault, FaultKind, Target};
use crate::loligo::Loligo;
use crate::marks::Marks;
use crate::rng::Rng;
use crate::seeds::{WIDE, WORN};
use crate::subject::Subject;
use crate::world::{SETTLED, World, Wrong};
use loligo_engine::Bug;
use loligo_engine::api::Control;
use loligo_format::mode::Mode;
use loligo_format::pool::share::MIN_SLOTS;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sectors that one life changes at most, so that a run ends in time.
const MOST_SECTORS: u64 = 60_000;
/// The core is frozen for this long at most, ns: those who wait for the thaw are not stuck.
const FROZEN: u64 = 120_000_000_000;
/// The number that makes a second generator of a seed.
const EXTRA: u64 = 0x6c6f_6c69_676f;
/// And a third one.
const ALONE: u64 = 0x0061_6c6f_6e65;
/// And a fourth one.
const SIZES: u64 = 0x706f_6f6c;
/// And a fifth one.
const BAD: u64 = 0x0062_6164;
/// And a sixth one.
const WIDER: u64 = 0x7769_6465;
/// And a seventh one.
const SWAPS: u64 = 0x0073_7761_7073;
/// And an eighth one.
const WEAR: u64 = 0x7765_6172;
/// And a ninth one.
const FENCES: u64 = 0x0066_656e_6365;
/// One step of the workload in so many changes the size of a share.
const RESIZE_ONE_IN: u64 = 150;
/// Largest read of a check, sectors.
const CHECK: u64 = 256;

/// A run in which nothing went against the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The event log as a number.
    pub hash: u64,
    /// Events in it.
    pub events: u64,
    /// The marks that were reached.
    pub marks: Marks,
}

/// A run in which something did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The seed that shows it again.
    pub seed: u64,
    /// The fault, in words.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LOLIGO_SEED={}: {}", self.seed, self.what)
    }
}

/// Runs the real engine through everything that `seed` draws, with `bug` planted.
///
/// # Errors
/// The first thing that went against the rules, a panic of the engine included.
pub fn run_seed(seed: u64, bug: Option<Bug>) -> Result<Summary, Failure> {
    run::<Loligo>(seed, bug)
}

/// [`run_seed`] for any engine.
///
/// # Errors
/// As there.
pub fn run<E: Subject>(seed: u64, bug: Option<Bug>) -> Result<Summary, Failure> {
    let (cfg, rng) = draw(seed, bug);
    run_config::<E>(seed, cfg, rng)
}

/// The run that `bug` would break, without it: what is caught with the bug must be right here.
///
/// # Errors
/// As [`run_seed`].
pub fn run_without(seed: u64, bug: Bug) -> Result<Summary, Failure> {
    let (cfg, rng) = draw(seed, Some(bug));
    run_config::<Loligo>(seed, Config { bug: None, ..cfg }, rng)
}

fn draw(seed: u64, bug: Option<Bug>) -> (Config, Rng) {
    let mut rng = Rng::new(seed);
    let mut cfg = Config::draw(&mut rng, bug);
    if seed >= WIDE {
        cfg.widen(&mut Rng::new(seed ^ WIDER));
    }
    if seed >= WORN {
        cfg.wear(&mut Rng::new(seed ^ WEAR));
    }
    (cfg, rng)
}

/// [`run`] with a configuration of the caller's choice.
///
/// # Errors
/// As there.
pub fn run_config<E: Subject>(seed: u64, cfg: Config, mut rng: Rng) -> Result<Summary, Failure> {
    let extra = Rng::new(seed ^ EXTRA);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut w = World::<E>::new(cfg, rng.fork());
        w.luck = Rng::new(seed ^ ALONE);
        let mut run = Run {
            w,
            rng,
            extra,
            sizes: Rng::new(seed ^ SIZES),
            bad: Rng::new(seed ^ BAD),
            swaps: Rng::new(seed ^ SWAPS),
            worn: Rng::new(seed ^ WEAR ^ WIDER),
            fences: Rng::new(seed ^ FENCES),
            storm: false,
            thaw_in: 0,
            thaw_at: 0,
            rotted: false,
            stopped: false,
            filled: 0,
        };
        run.all().map(|()| Summary {
            hash: run.w.trace.hash(),
            events: run.w.trace.events(),
            marks: run.w.marks,
        })
    }));
    match outcome {
        Ok(result) => result.map_err(|what| Failure { seed, what }),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(Failure { seed, what: format!("panic: {}", text.unwrap_or_default()) })
        }
    }
}

struct Run<E> {
    w: World<E>,
    rng: Rng,
    /// For what came later, so that known seeds stay what they are.
    extra: Rng,
    /// For the share's size.
    sizes: Rng,
    /// For bad sectors.
    bad: Rng,
    /// For caches that come and go.
    swaps: Rng,
    /// For parts of the core that take no writes.
    worn: Rng,
    /// For arrays that fence this controller.
    fences: Rng,
    /// Clients do not pause while the core is frozen.
    storm: bool,
    /// Steps of the workload until the core is thawed, and when it is at the latest, ns.
    thaw_in: u64,
    thaw_at: u64,
    /// Metadata on the cache was damaged before this start: it may refuse.
    rotted: bool,
    /// The last life ended with a clean stop.
    stopped: bool,
    /// Sectors that a full cache was filled with.
    filled: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    None,
    Loud,
    Silent,
    RotData,
    RotClean,
    RotCopy,
    RotMeta,
}

impl<E: Subject> Run<E> {
    fn all(&mut self) -> Result<(), Wrong> {
        self.preset();
        self.format()?;
        for _ in 0..2 + self.rng.below(4) {
            if !self.start()? {
                return Ok(());
            }
            self.live()?;
        }
        if self.start()? {
            self.farewell()?;
        }
        Ok(())
    }

    fn crash(&mut self) -> Crash {
        let crash = if self.rng.chance(2, 3) { Crash::Power } else { Crash::Kill };
        self.w.crash(crash);
        crash
    }

    fn stalled(&self) -> Wrong {
        format!("stalled: {:?} has no answer and nothing is left to happen", self.w.clients.oldest())
    }

    /// Lets time go on; where nothing can happen before the core is thawed, it is. False when nothing ever will.
    fn pump(&mut self, wake: Option<u64>) -> Result<bool, Wrong> {
        let happens = self.w.pump(wake)?;
        let frozen = self.w.is_frozen();
        if frozen && (!happens || self.w.now > self.thaw_at) {
            self.w.thaw();
        }
        Ok(happens || frozen)
    }

    /// Ends a freeze, after a while.
    fn release(&mut self) -> Result<(), Wrong> {
        if self.w.is_frozen() {
            for _ in 0..self.extra.skewed(1..4000) {
                if self.w.now > self.thaw_at || !self.w.pump(None)? {
                    break;
                }
            }
            self.w.thaw();
        }
        Ok(())
    }

    /// Waits until every request is answered.
    fn drain(&mut self) -> Result<(), Wrong> {
        self.release()?;
        while self.w.clients.under_way() > 0 || self.w.is_controlling() || self.w.is_rescuing() {
            if !self.w.pump(None)? {
                return Err(self.stalled());
            }
        }
        self.w.recount()
    }

    fn idle(&mut self, ns: u64) -> Result<(), Wrong> {
        let until = self.w.now + ns;
        while self.w.now < until {
            self.w.pump(Some(until))?;
        }
        Ok(())
    }

    /// Reads every sector that was ever changed.
    fn verify(&mut self) -> Result<(), Wrong> {
        let (all, mut at) = (self.w.clients.sectors(), 0);
        while at < all {
            if !self.w.oracle.is_interesting(at as u32) {
                at += 1;
                continue;
            }
            let align = self.w.clients.align();
            let first = at / align * align;
            let most = (first + CHECK).min(all);
            let end = (first..most)
                .find(|s| s % align == 0 && *s > at && !self.w.oracle.is_interesting(*s as u32))
                .unwrap_or(most);
            while self.w.clients.under_way() >= 32 {
                if !self.w.pump(None)? {
                    return Err(self.stalled());
                }
            }
            let req = self.w.clients.read(self.w.now, &mut self.w.oracle, first, end - first);
            self.w.ask(req);
            at = end;
        }
        self.drain()?;
        self.w.marks.hit("every sector checked");
        Ok(())
    }

    /// The workload, until `requests` were asked.
    fn drive(&mut self, requests: u64) -> Result<(), Wrong> {
        let (mut left, mut next) = (requests, self.w.now);
        let changed = self.w.marks.get("sectors changed");
        while left > 0 && self.w.marks.get("sectors changed") - changed < MOST_SECTORS {
            let room = self.w.clients.has_room();
            if self.w.is_frozen() {
                self.thaw_in = self.thaw_in.saturating_sub(1);
                if self.thaw_in == 0 || self.w.now > self.thaw_at {
                    self.w.thaw();
                }
            } else if self.extra.chance(1, self.w.cfg.load.freeze_one_in) {
                self.w.freeze();
                self.storm = self.extra.chance(1, 2);
                self.thaw_in = self.extra.skewed(1..4000);
                self.thaw_at = self.w.now + FROZEN;
            }
            if self.w.cfg.share && !self.w.is_controlling() && self.sizes.chance(1, RESIZE_ONE_IN) {
                let most = self.w.parts.data.iter().map(|r| (r.end - r.start) / 4096).min().unwrap_or(0);
                // An engine without slots knows nothing of it.
                if most > u64::from(MIN_SLOTS) {
                    let limit = self.sizes.range(u64::from(MIN_SLOTS)..most + 1) as u32;
                    self.w.resize_share(limit);
                }
            }
            if self.w.cfg.spoil_one_in > 0 && self.bad.chance(1, self.w.cfg.spoil_one_in) {
                self.w.spoil_core(&mut self.bad);
            }
            if self.w.cfg.wear_one_in > 0 && self.worn.chance(1, self.w.cfg.wear_one_in) {
                self.w.wear_core(&mut self.worn);
            }
            if room && self.w.now >= next {
                let req = self.w.clients.draw(self.w.now, &mut self.w.oracle);
                self.w.ask(req);
                left -= 1;
                next = self.w.now + self.w.clients.pause();
                if self.storm && self.w.is_frozen() {
                    next = self.w.now;
                }
                if !self.w.is_controlling() && self.w.clients.wants_control() {
                    self.manage()?;
                }
                continue;
            }
            let wake = room.then_some(next);
            if !self.pump(wake)? {
                return Err(self.stalled());
            }
            self.check_control("management")?;
        }
        self.w.recount()
    }

    fn check_control(&mut self, what: &str) -> Result<bool, Wrong> {
        match self.w.controlled() {
            Some(Err(e)) if !(self.w.broken || self.w.lied || self.w.is_alone()) && self.w.is_renewed() => {
                Err(format!("{what} failed and nothing is wrong: {e}"))
            }
            Some(result) => Ok(result.is_ok()),
            None => Ok(false),
        }
    }

    fn manage(&mut self) -> Result<(), Wrong> {
        if self.w.is_plain() {
            return Ok(());
        }
        let control = match self.rng.below(4) {
            0 | 1 => {
                self.w.cfg.mode = self.rng.pick(&Mode::ALL);
                self.w.marks.hit("live mode switch");
                Control::SetMode(self.w.cfg.mode)
            }
            2 => {
                self.w.cfg.params = draw_params(&mut self.rng);
                Control::SetParams(self.w.cfg.params)
            }
            _ => {
                self.w.marks.hit("live flush of dirty data");
                Control::FlushDirty
            }
        };
        self.w.control(&control);
        Ok(())
    }

    /// A management request with nothing else under way; whether it succeeded.
    fn command(&mut self, control: &Control) -> Result<bool, Wrong> {
        self.drain()?;
        self.check_control("management")?;
        self.w.control(control);
        self.drain()?;
        self.check_control(&format!("{control:?}"))
    }

    /// One life, from a start to its end.
    fn live(&mut self) -> Result<(), Wrong> {
        let fate = if self.w.cfg.faults {
            self.rng.pick(&[
                Fate::None,
                Fate::Loud,
                Fate::Loud,
                Fate::Silent,
                Fate::Silent,
                Fate::RotData,
                Fate::RotClean,
                Fate::RotCopy,
                Fate::RotMeta,
            ])
        } else {
            Fate::None
        };
        if self.rng.chance(3, 4) {
            self.verify()?;
        }
        if std::mem::take(&mut self.w.cfg.load.fill) {
            self.fill()?;
        }
        if std::mem::take(&mut self.w.cfg.jam) {
            self.jam()?;
        }
        let cold = self.w.cfg.load.cools_one_in > 0;
        if cold && self.w.marks.get("cold majority") == 0 {
            self.chill()?;
        }
        if self.filled > 0 {
            self.w.clients.focus(self.filled);
        }
        self.arm(fate);
        let requests = if cold { self.rng.range(40..300) } else { self.rng.skewed(10..1200) };
        self.drive(requests)?;
        match fate {
            Fate::RotData | Fate::RotClean => self.rot_data(fate == Fate::RotClean)?,
            Fate::RotCopy | Fate::RotMeta => return self.rot_meta(fate == Fate::RotCopy),
            Fate::None | Fate::Loud | Fate::Silent => {}
        }
        while self.w.cfg.exchanges && self.swaps.chance(2, 3) {
            if self.exchange()? {
                return Ok(());
            }
            if self.swaps.chance(1, 2) {
                self.verify()?;
            }
            let requests = self.swaps.skewed(10..300);
            self.drive(requests)?;
        }
        self.end()
    }

    fn arm(&mut self, fate: Fate) {
        match fate {
            Fate::Loud => {
                let kind =
                    self.rng.pick(&[FaultKind::Error, FaultKind::Error, FaultKind::Error, FaultKind::Gone]);
                let target = self.rng.pick(&[Target::Reads, Target::Writes, Target::Writes, Target::Flushes]);
                let skip = self.rng.skewed(0..300);
                let disk = if self.rng.chance(1, 2) { &mut self.w.cache } else { &mut self.w.core };
                disk.arm(Fault { kind, target, range: 0..u64::MAX, skip });
            }
            Fate::Silent => {
                let kind = self.rng.pick(&[FaultKind::Lost, FaultKind::Torn, FaultKind::Misdirected]);
                for range in self.w.parts.data.clone() {
                    let skip = self.rng.skewed(0..100);
                    self.w.cache.arm(Fault { kind, target: Target::Writes, range, skip });
                }
            }
            _ => {}
        }
    }

    /// Ends a life.
    fn end(&mut self) -> Result<(), Wrong> {
        let bare = self.w.is_bare();
        // The seeds that show another bug stay what they are.
        let shown = self.w.cfg.bug.is_none_or(|bug| bug == Bug::FencedTakenForFailed);
        if shown && !bare && self.fences.chance(1, 12) {
            return self.expel();
        }
        if self.extra.chance(1, 12) && !bare {
            return self.fence();
        }
        if self.w.luck.chance(1, 12) && !bare {
            self.fall_back()?;
        }
        let busy = self.filled > 0 || self.w.cfg.load.cools_one_in > 0;
        let how = if busy && self.rng.chance(3, 4) { 7 } else { self.rng.below(8) };
        match how {
            0 => {
                self.drain()?;
                let ns = self.rng.range(SETTLED..2 * SETTLED);
                self.idle(ns)?;
                self.w.marks.hit("crash after idling");
                self.crash();
            }
            1 => {
                let flush = self.w.clients.flush(self.w.now, &mut self.w.oracle);
                self.w.ask(flush);
                self.drain()?;
                self.w.marks.hit("crash after a flush");
                self.crash();
            }
            2 if !bare => self.stop()?,
            3 => {
                self.drain()?;
                self.check_control("management")?;
                if self.command(&Control::FlushDirty)? {
                    self.w.check_core()?;
                }
                if !bare && self.rng.chance(1, 2) {
                    self.stop()?;
                } else {
                    self.crash();
                }
            }
            _ => {
                let most = if self.filled > 0 { 10 } else { 100 };
                for _ in 0..self.rng.skewed(1..most) {
                    if !self.w.pump(None)? {
                        break;
                    }
                }
                if self.w.clients.under_way() > 0 {
                    self.w.marks.hit("crash with requests under way");
                }
                if self.crash() == Crash::Kill {
                    self.w.marks.hit("killed");
                } else {
                    self.w.marks.hit("power lost");
                }
            }
        }
        Ok(())
    }
}
