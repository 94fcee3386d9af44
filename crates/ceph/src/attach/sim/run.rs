//! Runs of the machine in the model, with the rules that hold after each.

use super::scenario::Order;
use super::world::{CACHE, Deed, Handles, Life, World, address, identity, lost_answer, marker};
use crate::CephError;
use crate::attach::machine::{Attached, Machine, Next, Phase, Wanted};
use crate::attach::request::{Cache, Destage};
use crate::attach::step::{Answer, Client, Step};
use crate::attach_marker::AttachMarker;
use crate::lock_record::LockRecord;
use std::collections::BTreeMap;
use std::time::Duration;

/// An event at one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The deed is done, and its answer lost.
    LoseAnswer,
    /// The deed is not done, and fails.
    LoseDeed,
    /// The attach is given up before the deed.
    Cancel,
    /// The attach is given up while its thread waits for the answer, which never comes.
    CancelUnheard,
    /// The process is killed before the deed.
    Kill,
    /// The process is killed after it.
    KillAfter,
    /// A stranger acts before the deed.
    Stranger(Deed),
}

/// A rule of the attach that a driver breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bug {
    /// Nothing is undone.
    UndoSkipped,
    /// An image whose lock is to stay is closed when a look for others fails.
    LockGivenBack,
    /// An image is closed while the stamp in its header is the only record.
    StampLost,
    /// A note is written once the deed after it is done.
    NoteAfterDeed,
    /// The lost answer of a broken lock is taken for that of a holder who let it go.
    LostTakenForLetGo,
    /// Nobody is put on the blocklist.
    Unfenced,
    /// The watch of the header hears nobody.
    DeafWatch,
    /// The version of the header is not looked at again.
    VersionIgnored,
}

/// The end of a run.
#[derive(Debug)]
pub(super) enum End {
    /// By this client.
    Attached(i64),
    Failed(CephError),
    /// Given up or killed.
    Gone,
}

/// Steps and events, for who looks into a failure.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) is_wanted: bool,
    pub(super) lines: Vec<String>,
}

impl Trace {
    pub(super) fn say(&mut self, line: impl FnOnce() -> String) {
        if self.is_wanted {
            self.lines.push(line());
        }
    }
}

/// The driver of a run.
pub(super) struct Run<'a> {
    pub(super) world: &'a mut World,
    pub(super) events: &'a BTreeMap<usize, Event>,
    /// Steps so far, over all runs of a plan.
    pub(super) at: &'a mut usize,
    pub(super) bug: Option<Bug>,
    pub(super) trace: &'a mut Trace,
}

/// A note that is held back until a deed is done.
#[derive(Debug, Default)]
struct Late {
    record: Option<LockRecord>,
    /// It is written before the next step.
    is_due: bool,
}

pub(super) fn wanted(world: &World, order: &Order) -> Wanted {
    let cache = order.cache.then(|| Cache {
        cache: CACHE.to_owned(),
        volume: "volume".to_owned(),
        core: order.known.then(|| identity().to_string()),
        dirty: order.dirty,
        dirty_bytes: None,
        record: world.record.clone(),
        force: order.force,
        is_alone: true,
    });
    Wanted {
        spec: "rbd:volumes/one".parse().expect("an image"),
        cache,
        steal: order.steal,
        without_cache: order.without_cache,
        destage: Destage::Auto,
        lease: Duration::from_secs(20),
        stamp: world.version as i64,
    }
}

/// One attach under way.
#[derive(Debug, Default)]
struct Trial {
    handles: Handles,
    /// The own client, as soon as there is one.
    me: Option<i64>,
    /// The phase that failed, once something did; else the last one.
    last: Option<Phase>,
    late: Late,
    /// Times that strangers had taken the lock when the own client looked.
    acquired: u64,
    /// The marker, and whether a loss was noted, when it began.
    marker: Option<String>,
    was_lost: bool,
    /// A step of the undo was lost.
    undo_lost: bool,
    /// A watch may be there of which the machine does not know: it ends with its client.
    watch_lost: bool,
    /// The own client was left, or refused by its own order.
    left: bool,
}

impl Run<'_> {
    /// One attach. Its end, and whether a step of its undo was lost.
    pub(super) fn attach(&mut self, order: &Order) -> (End, bool) {
        let mut machine = Machine::new(wanted(self.world, order));
        let mut trial = Trial {
            marker: self.world.marker.clone(),
            was_lost: self.world.record.as_ref().is_some_and(|r| r.lost.is_some()),
            ..Trial::default()
        };
        let mut next = machine.begin();
        loop {
            let step = match next {
                Next::Do(step) => step,
                Next::Over(result) => return (self.over(order, &trial, result), trial.undo_lost),
            };
            let event = self.events.get(self.at).copied();
            self.trace.say(|| format!("{:3} {:?} {step:?} {event:?}", self.at, machine.phase()));
            *self.at += 1;
            let answer = self.step(order, &machine, &mut trial, &step, event);
            match event {
                Some(Event::Kill | Event::KillAfter) => {
                    self.forgets_visit(&trial);
                    self.world.silence(&mut trial.handles);
                    self.world.end_process();
                    return (End::Gone, trial.undo_lost);
                }
                Some(Event::CancelUnheard) => {
                    self.cut(&mut trial);
                    return (End::Gone, trial.undo_lost);
                }
                Some(Event::Cancel) if step != Step::Leave => {
                    self.cut(&mut trial);
                    next = machine.give_up();
                }
                _ => next = machine.answered(answer),
            }
            self.world.check_writers();
        }
    }

    /// One step, with what happens beside it.
    fn step(
        &mut self,
        order: &Order,
        machine: &Machine,
        trial: &mut Trial,
        step: &Step,
        event: Option<Event>,
    ) -> Result<Answer, CephError> {
        if let Some(Event::Stranger(deed)) = event {
            self.world.act(deed);
        }
        let undoes = matches!(machine.phase(), Phase::Undo | Phase::UndoHeard | Phase::UndoNote);
        if !undoes {
            trial.last = Some(machine.phase());
        }
        trial.undo_lost |= undoes && event == Some(Event::LoseDeed);
        trial.left |= matches!(step, Step::Leave | Step::Retire);
        // These need nobody's answer.
        let is_local = matches!(step, Step::Leave | Step::CloseClient | Step::CloseLooking)
            || machine.phase() == Phase::UndoHeard;
        let does = is_local || !matches!(event, Some(Event::LoseDeed | Event::Cancel | Event::Kill));
        self.check_order(order, step);
        let mut answer = if does { self.carry_out(trial, step, undoes) } else { Err(lost_answer()) };
        trial.me = trial.me.or(trial.handles.own);
        if matches!(step, Step::ReadView(Client::Own)) {
            trial.acquired = self.world.acquired;
        }
        let takes = matches!(step, Step::BreakLock(..) | Step::TakeLock) && answer.is_ok();
        if takes && order.dirty && order.force && trial.acquired == self.world.acquired {
            // From here on the order to write over it stands in lock and record.
            self.world.foreign = false;
        }
        if matches!(event, Some(Event::LoseAnswer | Event::LoseDeed)) && !is_local {
            trial.watch_lost |= matches!(step, Step::OpenImage | Step::WatchHeader(_) | Step::EndWatch);
            self.give_back(&mut trial.handles, step, does);
            answer = Err(lost_answer());
        }
        match (self.bug, step) {
            (Some(Bug::VersionIgnored), Step::ReadHeader(_)) if machine.phase() == Phase::Moved => {
                answer.map(|_| Answer::Header(self.world.seq, machine.free_at))
            }
            (Some(Bug::LostTakenForLetGo), Step::BreakLock(..)) if event.is_some() => {
                answer.map_err(|_| CephError::call("breaking the lock", -libc::ENOENT))
            }
            _ => answer,
        }
    }

    fn carry_out(&mut self, trial: &mut Trial, step: &Step, undoes: bool) -> Result<Answer, CephError> {
        let Trial { late, handles, last: failed, .. } = trial;
        if late.is_due {
            late.is_due = false;
            self.world.record = late.record.take();
        }
        let answer = match (self.bug, step) {
            (Some(Bug::UndoSkipped), step) if undoes && *step != Step::CloseClient => Ok(Answer::Done),
            (Some(Bug::LockGivenBack), Step::Leave) if *failed == Some(Phase::LateVisitors) => {
                self.close(handles)
            }
            (Some(Bug::StampLost), Step::Leave) if matches!(failed, Some(Phase::Break | Phase::NoteFree)) => {
                self.close(handles)
            }
            (Some(Bug::NoteAfterDeed), Step::Note(record)) => {
                late.record = Some((**record).clone());
                Ok(Answer::Done)
            }
            (Some(Bug::Unfenced), Step::Blocklist(_)) => Ok(Answer::Done),
            (Some(Bug::DeafWatch), Step::ReadHeard) => Ok(Answer::Is(false)),
            _ => self.world.carry_out(handles, step),
        };
        late.is_due = late.record.is_some() && matches!(step, Step::BreakLock(..) | Step::TakeLock);
        answer
    }

    fn over(&mut self, order: &Order, trial: &Trial, result: Result<Attached, CephError>) -> End {
        match result {
            Ok(attached) => {
                let me = trial.me.expect("it has a client");
                self.check_attached(order, trial, &attached, me);
                End::Attached(me)
            }
            Err(e) => {
                if let Some(me) = trial.me {
                    self.check_failed(order, trial, me);
                }
                End::Failed(e)
            }
        }
    }

    fn close(&mut self, handles: &mut Handles) -> Result<Answer, CephError> {
        for step in [Step::EndWatch, Step::CloseImage, Step::CloseClient] {
            self.world.carry_out(handles, &step)?;
        }
        Ok(Answer::Done)
    }

    /// Gives back, as the driver does by itself, the client of a step that failed.
    fn give_back(&mut self, handles: &mut Handles, step: &Step, does: bool) {
        match step {
            Step::Connect(_) => {
                for client in [handles.looking.take(), handles.own.take()].into_iter().flatten() {
                    self.world.clients.insert(client, Life::Gone);
                }
            }
            Step::Retire if !does => self.world.silence(handles),
            Step::Detach if !does => {
                let own = handles.own.take();
                self.world.clients.extend(own.map(|c| (c, Life::Gone)));
            }
            _ => {}
        }
    }

    /// A living stranger is cut off by `--steal` alone, and a dead one's lock broken where somebody has decided that.
    fn check_order(&mut self, order: &Order, step: &Step) {
        let Step::Blocklist(at) = step else { return };
        let client = self.world.clients.keys().copied().find(|c| address(*c) == *at);
        let Some(client) = client.filter(|c| self.world.is_stranger(*c) && !self.world.is_refused(*c)) else {
            return;
        };
        let alive = self.world.watchers.contains(&client) && self.world.may_send(client);
        if alive && !order.steal {
            self.world.wrong.push(format!("client.{client} was cut off without --steal"));
        }
        if !(order.steal || order.force || order.without_cache) {
            self.world.wrong.push(format!("the lock of client.{client} was broken without an order"));
        }
    }

    fn check_attached(&mut self, order: &Order, trial: &Trial, attached: &Attached, me: i64) {
        let world = &mut *self.world;
        if !world.may_send(me) {
            // It was taken away at once, which the lease shows.
            return;
        }
        let mut wrong = Vec::new();
        let mut rule = |is_broken: bool, why: &str| wrong.extend(is_broken.then(|| why.to_owned()));
        let unforced = order.dirty && !order.force;
        rule(!world.is_locked_by(me), "attached without the lock");
        rule(unforced && world.foreign, "dirty data goes over what others wrote, without --force");
        rule(unforced && trial.was_lost, "a cache that lost its image was attached without --force");
        let came = trial.acquired != world.acquired;
        rule(order.dirty && came, "dirty data goes over what others wrote beside the attach");
        let kept = order.known && !order.dirty && !attached.changed;
        rule(kept && world.foreign, "clean data counts although others wrote");
        let marker = world.marker.as_deref().and_then(AttachMarker::decode);
        let theirs = marker.is_some_and(|m| m.cache != CACHE);
        rule(theirs && !order.without_cache, "another cache may hold what the image lacks");
        world.wrong.extend(wrong);
        world.foreign = false;
        world.writers.insert(me);
        world.check_writers();
    }

    fn check_failed(&mut self, order: &Order, trial: &Trial, me: i64) {
        let world = &mut *self.world;
        let mut wrong = Vec::new();
        let mut rule = |is_broken: bool, why: &str| wrong.extend(is_broken.then(|| why.to_owned()));
        // Thieves set another one, and an inherited one goes.
        let inherited = trial.marker.as_ref().is_some_and(|m| *m == marker("theirs", "b2"));
        let stolen = world.marker.as_ref().is_some_and(|m| *m == marker("theirs", "a1"));
        let kept = trial.marker == world.marker || inherited || stolen;
        rule(!kept, "a failed attach changed the marker");
        rule(world.life(me) == Life::Alive, "a failed attach keeps its client");
        if !trial.left && !trial.undo_lost && !world.is_refused(me) {
            rule(world.is_locked_by(me) && !order.dirty, "a failed attach keeps the lock");
            let watches = world.watchers.contains(&me) || world.ears.contains_key(&me);
            rule(watches && !trial.watch_lost, "a failed attach watches the image");
        }
        world.wrong.extend(wrong);
    }

    /// The limit of what is known: a stranger came between the last look and the lock, which the watch alone has heard, and the
    /// process ends before it is asked.
    fn forgets_visit(&mut self, trial: &Trial) {
        let world = &mut *self.world;
        if trial.me.is_some_and(|me| world.is_locked_by(me) && world.ears.get(&me) == Some(&true)) {
            world.foreign = false;
        }
    }

    /// The attach is given up: its client is silenced where it may have changed anything.
    fn cut(&mut self, trial: &mut Trial) {
        self.forgets_visit(trial);
        trial.left = true;
        self.world.given_up.extend(trial.handles.own);
        self.world.silence(&mut trial.handles);
    }
}
