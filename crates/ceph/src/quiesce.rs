//! Goes along with what others do to the image: snapshots are told to the cache before they are taken, and whatever changes the
//! snapshot context stops the writes that carry it until the new one is known.
//!
//! One thread, to which librbd's callbacks only send [`Notice`]s. It asks the cluster, which may not answer; that the image is lost is
//! told by another, which asks nobody.

use crate::attached_image::{AttachedImage, Notice};
use crate::cache_access::CacheAccess;
pub use crate::cache_access::Clients;
use crate::error::refuse;
use crate::waits::Cancellable;
use crate::{CephError, status};
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks while something is waited for.
const LOOK: Duration = Duration::from_millis(5);
/// The same while nothing is.
const IDLE: Duration = Duration::from_secs(1);
/// The time that operations under way are waited for at a time.
const DRAIN: Duration = Duration::from_secs(1);
/// Each attempt of the requester's to reach us.
const ATTEMPT: Duration = Duration::from_secs(5);
/// A refused snapshot may still be taken by one who ignores that: nothing is destaged for so long.
const REFUSED: Duration = Duration::from_secs(5);
/// An unquiesce that may belong to an earlier refusal is waited past for so long.
const OWED: Duration = Duration::from_secs(15);
/// After so long without an unquiesce whoever asked is taken for dead.
const FORGOTTEN: Duration = Duration::from_secs(120);

/// The end waits no longer for a cluster that is well, but slow.
const LONGEST: Duration = Duration::from_secs(60);

const STOPPING: &str = "the volume is being stopped";

/// The work of the quiescer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QuiesceState {
    /// Nothing out of the ordinary.
    Running,
    /// A snapshot waits until the image holds its moment.
    Freezing,
    /// It does, and the snapshot is being taken.
    Quiesced,
    /// A snapshot was refused.
    Refused,
    /// The image is another client's.
    Lost,
}

/// The counters of the quiescer.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Its work.
    #[serde(rename = "doing")]
    pub state: QuiesceState,
    /// Seconds for which it has.
    pub seconds: f64,
    /// Snapshots that were made ready.
    pub quiesced: u64,
    /// Snapshots that were refused.
    pub refused: u64,
    /// The time that the last requester waited, seconds.
    pub last_wait: f64,
    /// The reason why the image is lost.
    pub lost: Option<String>,
}

struct QuiesceCounters {
    state: QuiesceState,
    since: Instant,
    quiesced: u64,
    refused: u64,
    last_wait: Duration,
    lost: Option<String>,
}

/// A running quiescer.
pub struct Quiescer {
    image: Arc<AttachedImage>,
    cache_access: CacheAccess,
    kept: Arc<Mutex<QuiesceCounters>>,
    thread: Option<JoinHandle<()>>,
    herald: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Quiescer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Quiescer({:?})", self.report())
    }
}

impl Quiescer {
    /// Starts to keep `image`. A snapshot is refused where the image cannot be made ready within 0.8 of `attempts` of 5 s.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(
        image: Arc<AttachedImage>,
        notices: Receiver<Notice>,
        clients: Box<dyn Clients>,
        attempts: u32,
    ) -> std::io::Result<Quiescer> {
        let kept = Arc::new(Mutex::new(QuiesceCounters {
            state: QuiesceState::Running,
            since: Instant::now(),
            quiesced: 0,
            refused: 0,
            last_wait: Duration::ZERO,
            lost: None,
        }));
        let cache_access = CacheAccess::new(clients);
        let watch = Watch {
            image: image.clone(),
            cache_access: cache_access.clone(),
            kept: kept.clone(),
            limit: ATTEMPT * attempts * 4 / 5,
            answer: None,
            owed: 0,
            seq: 0,
            next: false,
            // Somebody may have changed it since it was looked at, before anybody listened.
            stale: true,
            stopping: false,
            told: image.limit(),
            cutting: None,
            again: None,
        };
        let thread =
            std::thread::Builder::new().name("rbd-quiescer".to_owned()).spawn(move || watch.run(&notices))?;
        // Before the second thread: where that cannot be had, the end of this ends the first.
        let mut quiescer = Quiescer { image, cache_access, kept, thread: Some(thread), herald: None };
        let (lost, told, clients) =
            (quiescer.image.clone(), quiescer.kept.clone(), quiescer.cache_access.clone());
        let herald = std::thread::Builder::new().name("rbd-lost".to_owned()).spawn(move || {
            if let Some(why) = lost.loss.wait() {
                clients.ask(|c| c.lose(&why));
                let mut k = told.lock();
                k.lost = Some(why);
                (k.state, k.since) = (QuiesceState::Lost, Instant::now());
            }
        })?;
        quiescer.herald = Some(herald);
        Ok(quiescer)
    }

    /// Its work now.
    pub fn report(&self) -> Report {
        let k = self.kept.lock();
        Report {
            state: k.state,
            seconds: k.since.elapsed().as_secs_f64(),
            quiesced: k.quiesced,
            refused: k.refused,
            last_wait: k.last_wait.as_secs_f64(),
            lost: k.lost.clone(),
        }
    }

    /// The volume is about to stop: whoever waits for a snapshot is not left waiting, and holds nobody up.
    pub fn refuse_snapshots(&self) {
        self.image.tell(Notice::Stop);
    }

    /// Ends it. A snapshot that waits is refused.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.image.tell(Notice::End);
        self.image.loss.forget();
        // A question that nobody answers any more, to the cluster or to the cache, holds no stop up: the thread then goes with the
        // process.
        let (until, most) = (Instant::now() + OWED + DRAIN, Instant::now() + LONGEST);
        let soon = || Instant::now() < until;
        let answered = || soon() || (self.image.may_send() && Instant::now() < most);
        // A loss that was found is written down.
        wait_for(self.herald.take(), soon);
        wait_for(self.thread.take(), || answered() && !self.image.is_lost());
        // One that is left behind holds what it asks the cache right now, and nothing once it has its answer.
        let until = Instant::now() + DRAIN;
        while !self.cache_access.end() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

/// Joins `thread` once it has ended, while `waits` says so.
fn wait_for(thread: Option<JoinHandle<()>>, waits: impl Fn() -> bool) {
    let Some(thread) = thread else { return };
    while !thread.is_finished() && waits() {
        std::thread::sleep(LOOK);
    }
    if thread.is_finished() {
        // What a panic left is looked at elsewhere.
        let _ = thread.join();
    }
}

impl Drop for Quiescer {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

/// The bytes behind `end` are being cut off.
struct Cutting {
    end: u64,
    since: Instant,
    cut: Cancellable<Result<(), CephError>>,
}

struct Watch {
    image: Arc<AttachedImage>,
    cache_access: CacheAccess,
    kept: Arc<Mutex<QuiesceCounters>>,
    limit: Duration,
    /// Comes when the image holds the moment.
    answer: Option<Receiver<Result<(), String>>>,
    /// Unquiesces that will come for snapshots that were refused.
    owed: u32,
    /// The header's sequence when the last snapshot was let go ahead.
    seq: u64,
    /// Another snapshot waits for this one to end.
    next: bool,
    /// The snapshot context is to be read again.
    stale: bool,
    /// No snapshot is made ready any more.
    stopping: bool,
    /// The size that clients were told.
    told: u64,
    /// A thread cuts off what lies behind the end.
    cutting: Option<Cutting>,
    /// The header could not be read: not before then again.
    again: Option<Instant>,
}

impl Watch {
    fn state(&self) -> (QuiesceState, Instant) {
        let k = self.kept.lock();
        (k.state, k.since)
    }

    fn now(&self, state: QuiesceState) {
        let mut k = self.kept.lock();
        if k.state == QuiesceState::Lost {
            return;
        }
        k.state = state;
        k.since = Instant::now();
    }

    /// Tells the cache, while the quiescer has one.
    fn tell(&self, what: impl FnOnce(&dyn Clients)) {
        self.cache_access.ask(what);
    }

    fn note(&self, change: impl FnOnce(&mut QuiesceCounters)) {
        change(&mut self.kept.lock());
    }

    fn run(mut self, notices: &Receiver<Notice>) {
        let mut ending = None;
        loop {
            let waiting = self.stale || self.state().0 != QuiesceState::Running;
            match notices.recv_timeout(if waiting { LOOK } else { IDLE }) {
                Ok(Notice::End) => {
                    self.notice(Notice::Stop);
                    ending = Some(Instant::now() + OWED);
                }
                Ok(notice) => self.notice(notice),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.step();
            // A snapshot that is being taken is waited for.
            if ending.is_some_and(|t| t <= Instant::now() || self.state().0 != QuiesceState::Quiesced) {
                return;
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        let (state, since) = self.state();
        if notice == Notice::Update && state != QuiesceState::Lost {
            // At once: until what is under way has landed it may have grown again, and what was cut off was cut off all the same.
            if let Err(e) = self.look_for_cut() {
                tracing::warn!(image = self.image.name, error = %e, "cannot go along with the image's size yet");
                self.stale = true;
            }
        }
        match (notice, state) {
            (_, QuiesceState::Lost) | (Notice::End, _) => {}
            (Notice::Held, _) => self.tell(|c| c.lock_record_changed()),
            (Notice::Stop, state) => {
                self.stopping = true;
                if state == QuiesceState::Freezing {
                    self.refuse(STOPPING);
                }
            }
            (Notice::Quiesce, QuiesceState::Running) if self.stopping => self.refuse(STOPPING),
            (Notice::Quiesce, QuiesceState::Running) => self.freeze(),
            (Notice::Quiesce, QuiesceState::Refused) => {
                self.stale = true;
                self.next = true;
            }
            (Notice::Quiesce, QuiesceState::Freezing | QuiesceState::Quiesced) => self.next = true,
            (Notice::Unquiesce, QuiesceState::Quiesced) => {
                let moved = self.header_moved();
                if self.owed > 0 && !moved && since.elapsed() < OWED {
                    self.owed -= 1;
                } else {
                    self.resume();
                }
            }
            (Notice::Unquiesce, _) => self.owed = self.owed.saturating_sub(1),
            // Kept for the end of the snapshot: until then nothing is written that could carry anything old.
            (Notice::Update | Notice::Stale, QuiesceState::Quiesced) => {}
            (Notice::Update | Notice::Stale, _) => self.stale = true,
        }
    }

    /// True if the snapshot has been taken, as far as the header says.
    fn header_moved(&self) -> bool {
        crate::snapc::SnapContext::read(&self.image.header, &self.image.identity.id)
            .is_ok_and(|c| c.seq != self.seq)
    }

    fn freeze(&mut self) {
        self.next = false;
        self.answer = self.cache_access.ask(|c| c.freeze());
        self.now(QuiesceState::Freezing);
    }

    fn step(&mut self) {
        let (state, since) = self.state();
        match state {
            QuiesceState::Lost => return,
            QuiesceState::Freezing => self.look_at_freeze(since),
            QuiesceState::Quiesced if since.elapsed() >= FORGOTTEN => {
                self.image.fall_back(
                    "a snapshot was announced and its end never came: it may still be taken at any time"
                        .to_owned(),
                );
                self.resume();
            }
            QuiesceState::Refused if since.elapsed() >= REFUSED || self.next => {
                self.stale = true;
                self.now(QuiesceState::Running);
            }
            QuiesceState::Running | QuiesceState::Quiesced | QuiesceState::Refused => {}
        }
        if self.stale && !matches!(self.state().0, QuiesceState::Quiesced | QuiesceState::Refused) {
            self.refresh();
        }
        if self.next && !self.stale && self.state().0 == QuiesceState::Running {
            if self.stopping {
                self.next = false;
                self.refuse(STOPPING);
            } else {
                self.freeze();
            }
        }
    }

    /// Looks whether the image holds the moment by now.
    fn look_at_freeze(&mut self, since: Instant) {
        let answer = self.answer.as_ref().map(Receiver::try_recv);
        match answer {
            Some(Ok(Ok(()))) if !self.stale => {
                if !self.image.gate.close(DRAIN) {
                    // Looked at again while there is time.
                    self.answer = if since.elapsed() < self.limit { Some(done()) } else { None };
                    return;
                }
                self.image.gate.new_epoch();
                self.answer = None;
                self.seq = self.image.context().seq;
                self.note(|k| {
                    k.quiesced += 1;
                    k.last_wait = k.since.elapsed();
                });
                self.now(QuiesceState::Quiesced);
                self.image.quiesced(true);
            }
            // Looked at again once the new context is known.
            Some(Ok(Ok(()))) => self.answer = Some(done()),
            Some(Ok(Err(why))) => self.refuse(&why),
            Some(Err(TryRecvError::Disconnected)) | None => self.refuse("the cache did not answer"),
            Some(Err(TryRecvError::Empty)) if since.elapsed() >= self.limit => {
                self.refuse("the dirty data could not be written in time");
            }
            Some(Err(TryRecvError::Empty)) => {}
        }
    }

    fn refuse(&mut self, why: &str) {
        tracing::warn!(image = self.image.name, why, "a snapshot of the image was refused");
        self.answer = None;
        // One who ignores the refusal takes the snapshot all the same, at any moment now: nothing may carry the old context.
        self.image.gate.close(Duration::ZERO);
        self.tell(|c| c.thaw());
        self.note(|k| {
            k.refused += 1;
            k.last_wait = k.since.elapsed();
        });
        self.owed += 1;
        self.now(QuiesceState::Refused);
        self.image.quiesced(false);
    }

    /// The snapshot is over: what was held back may go.
    fn resume(&mut self) {
        self.now(QuiesceState::Running);
        self.stale = true;
        self.refresh();
        self.tell(|c| c.thaw());
    }

    /// Bytes of the image now, in whole sectors.
    fn look_at_size(&self) -> Result<u64, CephError> {
        self.image.image().size().map(|n| n - n % loligo_block::SECTOR)
    }

    /// Looks whether the image ends earlier than it was ever seen to; its size now. Nothing is answered by that before the cache
    /// knows it durably: otherwise what a write behind the end was told would be believed after a crash.
    fn look_for_cut(&mut self) -> Result<u64, CephError> {
        let size = self.look_at_size()?;
        // It may have grown again since.
        let low = self.image.take_lowest().min(size);
        let low = low - low % loligo_block::SECTOR;
        if low < self.image.limit() {
            let noted = self.cache_access.ask(|c| c.cut(low)).unwrap_or_else(|| Err(STOPPING.to_owned()));
            noted.map_err(|why| {
                self.image.saw_size(low, self.image.reach());
                CephError::named(why)
            })?;
            self.image.end_at(low);
        }
        Ok(size)
    }

    /// Has what lies behind `end` cut off. OSDs that do not answer are left to it, because a snapshot or a stop that comes
    /// meanwhile is not to wait for them: it is asked about again.
    fn cut_boundary(&mut self, end: u64) -> Result<(), CephError> {
        loop {
            let begun = match self.cutting.take() {
                Some(begun) => begun,
                None => Cutting { end, since: Instant::now(), cut: self.image.cut_boundary(end)? },
            };
            let Cutting { end: at, since, .. } = begun;
            match begun.cut.within(DRAIN)? {
                Some(done) => done?,
                None => {
                    self.cutting = Some(begun);
                    return refuse(format!(
                        "what lies behind byte {at}, where image {} ends by now, cannot be cut off: its OSDs have not answered for \
                         {} s. Nothing is written to the image until they do: 'ceph health detail' says what they lack",
                        self.image.name,
                        since.elapsed().as_secs()
                    ));
                }
            }
            // It may have got smaller again meanwhile.
            if at == end {
                return Ok(());
            }
        }
    }

    /// Goes along with another size, with the gate closed. The part that was cut off is void although it may
    /// be there again: a volume that got smaller stays so, and grows at the next start.
    fn follow_size(&mut self) -> Result<(), CephError> {
        let size = self.look_for_cut()?;
        let end = self.image.limit();
        if end < self.told {
            self.cut_boundary(end)?;
            self.told = end;
            self.tell(|c| c.resized(self.told));
        } else if size > self.told && self.told == self.image.reach() {
            self.image.grow(size);
            self.told = size;
            self.tell(|c| c.resized(self.told));
        }
        let unusable = status::unusable(&self.image.name, self.image.image().features()?, false);
        if !unusable.is_empty() {
            self.image.fall_back(format!("somebody changed the image: {}", unusable.join("; ")));
        }
        Ok(())
    }

    /// Reads what every write must carry, with no write under way. Stays to be done where that does not work yet.
    fn refresh(&mut self) {
        if self.again.is_some_and(|t| Instant::now() < t) {
            return;
        }
        self.again = None;
        if !self.image.gate.close(DRAIN) {
            return;
        }
        let before = self.image.context().seq;
        match self.image.refresh().and_then(|()| self.follow_size()) {
            Ok(()) => {
                self.stale = false;
                self.image.gate.new_epoch();
                self.image.gate.open();
                self.image.counters.refreshes.fetch_add(1, Relaxed);
                self.image.ring();
                let now = self.image.context().seq;
                if now != before {
                    self.tell(|c| c.lock_record_changed());
                }
            }
            Err(e) if e.errno() == Some(libc::ESHUTDOWN) => self.image.lose(e.to_string()),
            Err(e) if e.errno() == Some(libc::ERANGE) => {
                self.image
                    .fall_back("the image has more snapshots than a group of writes can name".to_owned());
                match self.follow_size() {
                    Ok(()) => {
                        self.stale = false;
                        self.image.gate.open();
                        self.image.ring();
                    }
                    Err(e) => self.try_again(&e),
                }
            }
            Err(e) => self.try_again(&e),
        }
    }

    /// Nothing goes to the image until its header could be read and gone along with.
    fn try_again(&mut self, error: &CephError) {
        tracing::warn!(image = self.image.name, %error, "cannot go along with the image's header");
        self.again = Some(Instant::now() + IDLE);
    }
}

/// An answer that is there already.
fn done() -> Receiver<Result<(), String>> {
    let (send, answer) = std::sync::mpsc::channel();
    let _ = send.send(Ok(()));
    answer
}
