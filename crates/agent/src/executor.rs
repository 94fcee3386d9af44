//! Carries out what the machine asks for, each question in a thread of its own: one that hangs holds nobody else up.

use crate::cancel::Cancel;
use crate::config::{PairConfig, UnitConfig};
use crate::luns::Luns;
use crate::monitors::{Monitors, greets_any};
use crate::power;
use crate::pulse::Pulse;
use crate::runner::Runner;
use loligo_pair::lease::WAITED;
use loligo_pair::machine::{Answer, Ask, Cause, Deed, Event, Failure, Job, Order, Proof};
use loligo_pair::plan::{LunId, Side, UnitId};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Between two looks at a unit's process.
const LOOK: Duration = Duration::from_millis(50);
/// A command to the monitors that could not be sent for so long is not sent. The partner needs longer to have the OSD that is to be
/// called out, and the machine to start the one that is to be called dead.
const LATE: Duration = Duration::from_secs(1);

/// A word to the main loop.
#[derive(Debug)]
pub enum Word {
    /// An event for the machine.
    Event(Event),
    /// An operator gives an order, and hears whether it is taken.
    Order(Order, Sender<Result<(), String>>),
    /// An operator wants to know how it is.
    Status(Sender<crate::status::Status>),
    /// The agent is to end; what runs goes on.
    End,
}

/// A question to the thread of a unit.
#[derive(Debug)]
enum UnitAsk {
    Start(Job, Vec<(LunId, Proof)>),
    Kill(Job),
    Stop(Job),
}

/// Something of which one may be under way: a call that hangs is not made again beside itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Write,
    Read,
    Keys(LunId),
    Change(LunId),
}

/// Carries questions out.
#[derive(Debug, Clone)]
pub struct Executor {
    config: Arc<PairConfig>,
    me: Side,
    luns: Luns,
    monitors: Monitors,
    words: Sender<Word>,
    units: Vec<(Sender<UnitAsk>, Cancel)>,
    busy: Arc<Mutex<BTreeSet<Lane>>>,
    pulse: Pulse,
}

impl Executor {
    /// Starts the threads of the units. The processes that were there are told to `words` first.
    ///
    /// # Errors
    /// If a key makes no sense, or there can be no thread.
    pub fn start(config: Arc<PairConfig>, me: Side, words: Sender<Word>) -> anyhow::Result<Executor> {
        let luns = Luns::new(config.clone(), me)?;
        let monitors = Monitors::start(config.ceph.clone());
        let mut units = Vec::new();
        let plan = config.plan(me)?;
        for (number, unit) in config.units().enumerate() {
            let (send, asks) = channel();
            let cancel = Cancel::default();
            units.push((send, cancel.clone()));
            let runner = Runner::new(&config, unit, me)?;
            let unit = UnitId(number as u32);
            let thread = UnitThread {
                unit,
                its_luns: plan.unit(unit).luns.clone(),
                is_up: runner.is_here(),
                runner,
                cancel,
                words: words.clone(),
                luns: luns.clone(),
                born: Instant::now(),
            };
            thread.found();
            std::thread::Builder::new().name(thread.runner.name()).spawn(move || thread.run(&asks))?;
        }
        Ok(Executor { config, me, luns, monitors, words, units, busy: Arc::default(), pulse: Pulse::new() })
    }

    /// The main loop beats.
    pub fn beat(&self) {
        self.pulse.beat();
    }

    /// Carries `ask` out; its answer comes as a word.
    pub fn ask(&self, job: Job, ask: Ask) {
        match ask {
            Ask::WriteSector(beat) => {
                self.lane(job, Lane::Write, move |it| it.luns.write_sector(&beat));
            }
            Ask::ReadSector => self.lane(job, Lane::Read, |it| it.luns.read_sector()),
            Ask::ReadKeys(lun) => self.lane(job, Lane::Keys(lun), move |it| it.luns.read_keys(lun)),
            Ask::Race(lun) => {
                // Evidence from before this host stood still is none. An array that is slow makes nothing old.
                let gaps = self.pulse.at_beat();
                self.lane(job, Lane::Change(lun), move |it| {
                    let may = || it.pulse.gaps() == gaps;
                    it.luns.race(lun, may)
                });
            }
            Ask::Take(lun) => self.lane(job, Lane::Change(lun), move |it| it.luns.take(lun)),
            Ask::Hold(lun) => self.lane(job, Lane::Change(lun), move |it| it.luns.hold(lun)),
            Ask::Join(lun, joining) => {
                self.lane(job, Lane::Change(lun), move |it| it.luns.join(lun, joining))
            }
            Ask::Leave(lun) => self.lane(job, Lane::Change(lun), move |it| it.luns.leave(lun)),
            Ask::Open(lun) => self.lane(job, Lane::Change(lun), move |it| it.luns.release(lun)),
            Ask::Monitors => self.thread(job, |it| it.monitors.ask()),
            Ask::Speaks(unit) => {
                self.thread(job, move |it| Answer::Speaks(it.speaks(unit)));
            }
            Ask::PowerOff => self.thread(job, |it| {
                let partner = &it.config.controller[&it.me.other()];
                power::cut(&partner.power_off, &partner.power_status)
            }),
            Ask::Owned(needs, Deed::Start(unit)) => self.unit(unit, UnitAsk::Start(job, needs)),
            Ask::Owned(needs, deed) => {
                let asked = Instant::now();
                self.thread(job, move |it| {
                    for (lun, proof) in needs {
                        if let Err(why) = it.luns.prove(lun, proof) {
                            return Answer::Failed(why);
                        }
                    }
                    match asked.elapsed() > LATE {
                        true => Answer::Failed(Failure::TimedOut),
                        false => it.tell(deed),
                    }
                })
            }
            Ask::Kill(unit) => self.unit(unit, UnitAsk::Kill(job)),
            Ask::Stop(unit) => self.unit(unit, UnitAsk::Stop(job)),
        }
    }

    fn tell(&self, deed: Deed) -> Answer {
        let tell = |unit: UnitId, how: &dyn Fn(u32) -> Result<(), Failure>| match self.config.unit(unit) {
            Some(UnitConfig::Osd(osd)) => how(osd.id),
            _ => Err(Failure::Other("the monitors know no such unit".to_owned())),
        };
        let monitors = &self.monitors;
        let done = match deed {
            Deed::Down { unit, dead } => tell(unit, &|id| monitors.down(id, dead)),
            Deed::Out(unit) => tell(unit, &|id| monitors.out(id)),
            Deed::In(unit) => tell(unit, &|id| monitors.put_in(id)),
            Deed::Scrub(unit) => tell(unit, &|id| monitors.scrub(id)),
            Deed::Start(_) => Err(Failure::Other("the unit's thread starts it".to_owned())),
        };
        done.map_or_else(Answer::Failed, |()| Answer::Done)
    }

    /// True if the partner's process of the unit speaks.
    fn speaks(&self, unit: UnitId) -> bool {
        match self.config.unit(unit) {
            Some(UnitConfig::Osd(osd)) => self.monitors.speaks(osd.id),
            Some(UnitConfig::Volume(volume)) => greets_any(&volume.sockets()),
            None => false,
        }
    }

    fn unit(&self, unit: UnitId, ask: UnitAsk) {
        let (thread, cancel) = &self.units[unit.0 as usize];
        match ask {
            UnitAsk::Start(..) => {}
            // A start that is under way is given up for it.
            UnitAsk::Kill(_) | UnitAsk::Stop(_) => cancel.ask(),
        }
        // The thread lives as long as this.
        let _ = thread.send(ask);
    }

    fn thread(&self, job: Job, work: impl FnOnce(&Executor) -> Answer + Send + 'static) {
        let it = self.clone();
        let run = move || {
            let answer = work(&it);
            let _ = it.words.send(Word::Event(Event::Answered(job, answer)));
        };
        if let Err(why) = std::thread::Builder::new().name("ask".to_owned()).spawn(run) {
            let answer = Answer::Failed(Failure::Other(why.to_string()));
            let _ = self.words.send(Word::Event(Event::Answered(job, answer)));
        }
    }

    /// The same, one at a time in a lane.
    fn lane(&self, job: Job, lane: Lane, work: impl FnOnce(&Executor) -> Answer + Send + 'static) {
        if !self.busy.lock().insert(lane.clone()) {
            // The machine has given up on one that still hangs.
            let answer = Answer::Failed(Failure::TimedOut);
            let _ = self.words.send(Word::Event(Event::Answered(job, answer)));
            return;
        }
        self.thread(job, move |it| {
            let answer = work(it);
            it.busy.lock().remove(&lane);
            answer
        });
    }
}

/// The thread of a unit: what it is asked is done in order.
struct UnitThread {
    unit: UnitId,
    its_luns: Vec<LunId>,
    is_up: bool,
    runner: Runner,
    cancel: Cancel,
    words: Sender<Word>,
    luns: Luns,
    /// Its beginning. An agent before this one may have begun to wait, and has left no word of that.
    born: Instant,
}

impl UnitThread {
    fn run(mut self, asks: &Receiver<UnitAsk>) {
        if !self.is_up {
            self.runner.clear();
        }
        loop {
            let (job, answer) = match asks.recv_timeout(LOOK) {
                Ok(UnitAsk::Start(job, needs)) => {
                    let answer = self.start(&needs);
                    self.is_up = answer == Answer::Done;
                    (job, answer)
                }
                Ok(UnitAsk::Kill(job)) => {
                    self.cancel.done();
                    self.is_up = false;
                    (job, self.runner.kill())
                }
                Ok(UnitAsk::Stop(job)) => {
                    self.cancel.done();
                    self.is_up = false;
                    (job, self.runner.stop())
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if self.words.send(Word::Event(Event::Answered(job, answer))).is_err() {
                return;
            }
        }
    }

    fn look(&mut self) {
        if self.is_up
            && let Some(cause) = self.runner.has_ended()
        {
            self.is_up = false;
            let cause = self.fenced().unwrap_or(cause);
            let _ = self.words.send(Word::Event(Event::Ended(self.unit, cause)));
        } else if !self.is_up && self.runner.has_come() {
            self.is_up = true;
            self.found();
        }
        // The address is announced by the owner alone.
        // A look whether it is shut binds its sockets, if the address is there.
        let may_open = self.is_up && self.born.elapsed() > WAITED;
        if may_open && self.runner.is_shut() && self.holds_all() {
            self.runner.open();
        }
    }

    fn holds_all(&self) -> bool {
        let proof = Proof::Held;
        self.its_luns.iter().all(|lun| self.luns.prove(*lun, proof).is_ok())
    }

    /// Tells that it runs, if it does.
    fn found(&self) {
        if self.is_up {
            let _ = self.words.send(Word::Event(Event::Found(self.unit)));
        }
    }

    fn start(&mut self, needs: &[(LunId, Proof)]) -> Answer {
        for (lun, proof) in needs {
            if let Err(why) = self.luns.prove(*lun, *proof) {
                return Answer::Failed(why);
            }
        }
        // The partner's daemon may live on: it answers for as long as the array's last word counts there.
        let takes_over = needs.iter().any(|(_, proof)| *proof == Proof::Sole);
        self.runner.start(&self.cancel, takes_over.then(|| Instant::now() + WAITED))
    }

    /// The process may have ended because the array refuses this side.
    fn fenced(&self) -> Option<Cause> {
        let is_lost = |lun: &LunId| matches!(self.luns.prove(*lun, Proof::Held), Err(Failure::NotMine(_)));
        self.its_luns.iter().any(is_lost).then_some(Cause::Fenced)
    }
}
