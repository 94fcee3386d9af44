//! The thread of a volume: it starts the volume, looks after it and stops it, as the supervisor is told.

use super::{DesiredState, Inner, Status, Supervisor};
use crate::control::ControlThread;
use crate::device_ids::DeviceIds;
use crate::hook::after_start;
use loligo_block::keyed;
use loligo_block::silence::Cause;
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_client::outcome::Absent;
use loligo_format::units::BLOCK;
use loligo_log::{say, speak_for};
use loligo_volume::hung_device::Standstill;
use loligo_volume::last_cache::LastCache;
use loligo_volume::memory::{Begins, Memory};
use loligo_volume::signals::{CutOff, StopSignals, Stopper};
use loligo_volume::volume::live::After;
use loligo_volume::volume::{GLANCE, LOOK, Volume};
use loligo_volume::volume_state::VolumeState;
use parking_lot::Condvar;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks for a device that is not there.
const ABSENT: Duration = Duration::from_secs(2);
/// The pause before a volume whose threads have ended is started again; doubled each time, up to [`LONGEST`].
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

impl Supervisor {
    /// Waits until there is another wish than number `seen`, or for `limit`.
    fn other_wish(&self, seen: u64, limit: Duration) {
        self.changed.wait_while_for(&mut self.lock(), |i| i.wishes == seen, limit);
    }

    /// Lives on after a panic: its volume has failed then, and nobody is served any more by threads that went with it.
    pub(super) fn live_on(&self, memory: &dyn Memory, control: &ControlThread) {
        speak_for(&self.name, &self.lock().says);
        let mut pause = AGAIN;
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.live(memory, control))) {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
            let seen = {
                let mut inner = self.lock();
                inner.has_nothing();
                inner.status = Status::Failed(format!("the volume's thread panicked: {words}"));
                inner.wishes
            };
            self.changed.notify_all();
            self.other_wish(seen, pause);
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// Does nothing more.
    fn end(inner: &mut Inner, changed: &Condvar) {
        // One whose stop failed says so to the last.
        if !matches!(inner.status, Status::Failed(_) | Status::Lost(_)) {
            inner.status = Status::Stopped;
        }
        inner.over = true;
        changed.notify_all();
    }

    /// Does what is wanted of the volume, until it is to end.
    fn live(&self, memory: &dyn Memory, control: &ControlThread) {
        let mut pause = AGAIN;
        loop {
            let (desired, seen, config) = {
                let mut inner = self.lock();
                // Decided and said under one lock: whoever takes it back is heard, or sees that it is too late.
                if inner.desired == DesiredState::Quit {
                    return Supervisor::end(&mut inner, &self.changed);
                }
                inner.anew = false;
                inner.looks = matches!(inner.desired, DesiredState::Run(_));
                let now = (inner.desired.clone(), inner.wishes, inner.config.clone());
                // This start alone has what is allowed, in whatever way it ends, by a panic too.
                inner.allow_no_more();
                now
            };
            let DesiredState::Run(leave) = desired else {
                match desired {
                    DesiredState::Refuse(why) => self.set(Status::Refused(why)),
                    _ if matches!(self.status(), Status::Failed(_) | Status::Lost(_)) => {}
                    _ => self.set(Status::Stopped),
                }
                self.other_wish(seen, Duration::MAX);
                continue;
            };
            // One that is waited for is tried now and then, and stays what it is until its device comes.
            if !matches!(self.status(), Status::Waiting(_)) {
                self.set(Status::Starting);
            }
            let begun = Instant::now();
            let served = self.serve(&config, leave, seen, memory, control);
            self.lock().looks = false;
            match served {
                Ok(()) => {}
                // Something else is wanted by now, and is done next.
                Err(Ended::Refused(why)) if why.is::<CutOff>() => {}
                Err(Ended::ByOrder) => say!("ended at once: its cache is as after a crash"),
                Err(Ended::Lost(why)) => {
                    if let Err(unnoted) = memory.lost(&self.name, &why) {
                        say!("warning: a restart of the daemon will not know that it was lost: {unnoted:#}");
                    }
                    self.set(Status::Lost(why));
                    self.other_wish(seen, Duration::MAX);
                }
                Err(Ended::Refused(why)) => {
                    let text = keyed!("{why:#}").for_file();
                    if why.is::<Absent>() {
                        self.wait_for_device(&text, seen);
                    } else {
                        say!("error: {text}");
                        self.set(Status::Refused(text));
                        self.other_wish(seen, Duration::MAX);
                    }
                }
                Err(Ended::Failed(why)) => {
                    let text = keyed!("{why:#}").for_file();
                    say!("error: {text}");
                    self.set(Status::Failed(text));
                    pause = if begun.elapsed() > LONGEST { AGAIN } else { (pause * 2).min(LONGEST) };
                    self.other_wish(seen, pause);
                }
            }
        }
    }

    fn wait_for_device(&self, why: &str, seen: u64) {
        let now = Status::Waiting(why.to_owned());
        let mut inner = self.lock();
        if inner.status != now {
            inner.status = now;
            drop(inner);
            self.changed.notify_all();
            say!("waiting: {why}");
        } else {
            drop(inner);
        }
        self.other_wish(seen, ABSENT);
    }

    /// From the start to the stop, by the wish with number `seen`.
    fn serve(
        &self,
        config: &VolumeConfig,
        leave: Leave,
        seen: u64,
        memory: &dyn Memory,
        control: &ControlThread,
    ) -> Result<(), Ended> {
        let refused = Ended::Refused;
        let options = memory.options(&self.name, config, leave).map_err(refused)?;
        // Nothing is open yet: if one of them hangs, nobody else need wait for this one.
        let looked = DeviceIds::at_those_of(&options);
        let (signals, stopper) = StopSignals::driven();
        {
            let mut inner = self.lock();
            // A wish that comes from now on is told to the stopper.
            // One that has come already may want another definition.
            if inner.wishes != seen {
                return Ok(());
            }
            (inner.stopper, inner.looks) = (Some(stopper), false);
            inner.used = Some((config.clone(), looked));
        }
        let core = options.core.clone();
        let expected = options.cache.as_ref().and_then(|c| c.expected.clone());
        let note = |cache: Option<LastCache>| match cache {
            // How a start that failed has left it.
            Some(cache) if cache.dirty_bytes.is_some() => memory.cache_was(&self.name, cache),
            cache => {
                let (core, expected) = (&core.names(), expected.as_ref());
                memory.begins(&self.name, Begins { core, cache, forced: leave.force, expected })
            }
        };
        let started = Volume::start(options, &signals, control, &note);
        let served = started.map_err(refused).and_then(|mut volume| {
            memory.follow(&volume.app);
            let (after, hurried) = self.run(&mut volume, config, memory, &signals);
            if after == After::Silent {
                self.lock().ending = volume.end();
                return Ok(());
            }
            let broken = after == After::Broken;
            let cache = volume.last_cache();
            let failed = volume.has_failed();
            self.set(Status::Stopping);
            if hurried || matches!(self.lock().desired, DesiredState::Stop { flush: true }) {
                volume.flush_on_stop(!hurried);
            }
            let stopped = volume.stop(&signals);
            let dirty = stopped.map_err(Ended::Failed)?;
            if let Some(cache) = cache {
                let cache = LastCache { dirty_bytes: Some(dirty * BLOCK), ..cache };
                memory.cache_was(&self.name, cache).map_err(Ended::Failed)?;
            }
            let why = match (broken, failed) {
                (true, _) => "it could not go on after a change: the log says why",
                (false, true) => "the volume's threads ended by themselves",
                (false, false) => return Ok(()),
            };
            Err(Ended::Failed(anyhow::anyhow!(why)))
        });
        self.lock().has_nothing();
        // In whatever way it came to its end: nothing is noted of it but this.
        match signals.silence().cause() {
            Some(Cause::Ended) => Err(Ended::ByOrder),
            Some(cause @ Cause::Fenced(_)) => Err(Ended::Lost(cause.to_string())),
            None => served,
        }
    }

    /// Finds its devices again, which `volume` has open.
    fn has_devices_of(&self, volume: &Volume) {
        let found = DeviceIds::at_those_of(volume.options());
        if let Some((_, looked)) = &mut self.lock().used {
            *looked = found;
        }
    }

    /// True if its stop is to write everything dirty to the core first, while it is served: only a stop for good is in a hurry.
    fn flushes_first(&self, volume: &Volume) -> bool {
        match self.lock().desired {
            DesiredState::Stop { flush } => {
                (flush || volume.flushes_on_stop()) && volume.last_cache().is_some()
            }
            DesiredState::Run(_) | DesiredState::Refuse(_) | DesiredState::Quit => false,
        }
    }

    /// Goes on where a stop that has done nothing yet that clients would see is taken back; whether it is.
    fn is_taken_back(&self) -> bool {
        let mut inner = self.lock();
        if inner.anew || !matches!(inner.desired, DesiredState::Run(_)) {
            return false;
        }
        inner.allow_no_more();
        if let Some(stopper) = &inner.stopper {
            stopper.forget();
        }
        inner.status = Status::Serving;
        drop(inner);
        self.changed.notify_all();
        say!("the stop is taken back: the volume is served on");
        true
    }

    /// Looks after a served volume until it is to stop or has ended; and whether somebody gave up what the stop waited for.
    fn run(
        &self,
        volume: &mut Volume,
        config: &VolumeConfig,
        memory: &dyn Memory,
        signals: &StopSignals,
    ) -> (After, bool) {
        {
            let mut inner = self.lock();
            inner.app = Some(volume.app.clone());
            inner.last_app = Arc::downgrade(&volume.app);
            inner.allow_no_more();
            if !inner.stopper.as_ref().is_some_and(Stopper::is_asked) {
                inner.status = Status::Serving;
            }
        }
        self.changed.notify_all();
        say!("serving");
        // The start may have made its cache.
        self.has_devices_of(volume);
        after_start(&config.after_start);
        let mut next = Instant::now() + LOOK;
        let (mut after, mut flush, mut hurried) = (After::Served, None, false);
        while after == After::Served && !volume.has_failed() {
            if volume.silent().is_some() {
                after = After::Silent;
                break;
            }
            if signals.within(GLANCE) {
                hurried = flush.is_some();
                if hurried {
                    // What comes after the flush is to be hurried, too.
                    signals.put_back();
                    break;
                }
                if !self.is_taken_back() {
                    if !self.flushes_first(volume) {
                        break;
                    }
                    flush = Some(FirstFlush::begin(&volume.app));
                }
            }
            if let Some(first) = &mut flush {
                if self.is_taken_back() {
                    flush = None;
                } else if first.is_over(&volume.app) {
                    break;
                }
            }
            if Instant::now() >= next {
                next += LOOK;
                volume.look(Some(memory));
            }
            if let Some(wanted) = volume.app.changes.take() {
                after = volume.change(wanted, memory, signals);
                self.has_devices_of(volume);
            }
            if after == After::Served
                && let Err(why) = volume.glance()
            {
                say!("error: the volume cannot go on and is started anew: {why:#}");
                after = After::Broken;
            }
        }
        if volume.app.silent().is_some() {
            // Also where the signal to end was seen first.
            let _ = volume.silent();
            after = After::Silent;
        }
        volume.app.changes.end();
        self.lock().app = None;
        (after, hurried)
    }
}

/// The flush of a stop while clients are still served, so that the stop can be taken back.
struct FirstFlush {
    number: u64,
    still: Standstill,
}

impl FirstFlush {
    fn begin(app: &Arc<VolumeState>) -> FirstFlush {
        say!(
            "flushing to the core before the stop; until that is over clients are served, and 'loligo volume start {}' takes the stop back",
            app.name
        );
        FirstFlush { number: app.start_flush().number, still: Standstill::begins() }
    }

    /// True if nothing more comes of it: where it has failed or stands still, the stop tries it again with more patience.
    fn is_over(&mut self, app: &VolumeState) -> bool {
        let state = app.flush_progress(Some(self.number));
        self.still.goes_on(state.remaining_bytes);
        !state.running || self.still.is_long()
    }
}

/// The end of a volume's life, if not as wanted.
enum Ended {
    /// It never began.
    Refused(anyhow::Error),
    /// It was served, and then this.
    Failed(anyhow::Error),
    /// At once, because somebody said so.
    ByOrder,
    /// The array has given its devices to another controller, in these words.
    Lost(String),
}
