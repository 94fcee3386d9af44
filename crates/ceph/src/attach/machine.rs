//! The attach as a state machine: it asks for one [`Step`] at a time and is told its answer. It does no I/O and reads no clock.
//!
//! Each phase waits for one answer. A phase that takes something says beside it how that is undone; when a later phase fails
//! these run in reverse order, and the first error is the one to be told. An attach that is given up leaves its client silent.

use super::request::{Cache, Destage};
use super::step::{Answer, Client, ImageView, Step};
use crate::CephError;
use crate::given_up::GIVEN_UP_WORDS;
use crate::image::LockHolder;
use crate::lock_record::LockRecord;
use crate::spec::ImageSpec;
use std::collections::VecDeque;
use std::time::Duration;

/// The part of an [`AttachRequest`](super::request::AttachRequest) that decides.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) spec: ImageSpec,
    pub(crate) cache: Option<Cache>,
    pub(crate) steal: bool,
    pub(crate) without_cache: bool,
    pub(crate) destage: Destage,
    pub(crate) lease: Duration,
    /// A stamp that nobody else has, for the breaking of a lock.
    pub(crate) stamp: i64,
}

impl Wanted {
    /// The cache may hold data newer than the image's.
    pub(crate) fn is_dirty(&self) -> bool {
        self.cache.as_ref().is_some_and(|c| c.dirty)
    }

    /// The cache's last hold on the image.
    pub(crate) fn record(&self) -> Option<&LockRecord> {
        self.cache.as_ref().and_then(|c| c.record.as_ref())
    }

    /// The same, if nobody else can have the cache now: its client of then is dead, whatever the cluster still knows of it.
    pub(super) fn record_of_alone(&self) -> Option<&LockRecord> {
        self.record().filter(|_| self.cache.as_ref().is_some_and(|c| c.is_alone))
    }
}

/// The answer that is waited for.
///
/// From `Features` to `Snapshots` both clients go: the looking one, so that a refusal disturbs nobody, and the own one, since
/// others may have come between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A client that looks. Undo: it is closed.
    LookConnect,
    /// Feature checks.
    Features,
    /// Identity, lock holder, watchers.
    View,
    /// The marker of another cache.
    Marker,
    /// The header against the record of the cache's last hold.
    Record,
    /// The stamp of a lock that an earlier start broke.
    RecordStamp,
    /// Snapshots that others took.
    Snapshots,
    /// Options of the image.
    LookOptions,
    /// A pool that takes no write holds nobody up: the looking client gives up.
    LookWrite,
    /// The version beside the stamp.
    LookHeader,
    /// The stamp, which the own client's watch would take away.
    LookStamp,
    /// The version is noted in its place.
    LookNote,
    /// The looking client ends.
    LookClose,
    /// The own client. Undo: it is closed.
    Connect,
    /// The image, and librbd's watch of it. Undo: it is closed.
    Open,
    /// Options of the image, as the own client has them.
    Options,
    /// Reasons against groups of writes.
    Grouping,
    /// The size.
    Size,
    /// The flags.
    Flags,
    /// The lease that OSDs allow.
    WatchTimeout,
    /// Pools of header and data.
    Pools,
    /// The version of the header before anybody loses the lock.
    Version,
    /// The watch of the header. Undo: it is ended.
    Watch,
    /// The note that this client is about to take the lock. No undo: it says no more than that.
    Note,
    /// The blocklist. No undo: who had the image stays cut off.
    Blocklist,
    /// The old lock is broken. Undo, with dirty data, until the version is noted: nothing is closed, which would take the
    /// stamp away.
    Break,
    /// The note of the version at which nobody has the lock. No undo.
    NoteFree,
    /// The version once more: whoever writes takes the lock first, which moves it.
    Moved,
    /// Watchers that came meanwhile.
    Visitors,
    /// The lock. Undo: it goes back when the image is closed; with dirty data it stays as that of a dead client, unless the watch
    /// heard of others.
    Lock,
    /// The lock's holder.
    Holder,
    /// Others who took the lock since the watch began.
    Heard,
    /// Watchers that came beside the lock.
    LateVisitors,
    /// The watch of the header ends.
    EndWatch,
    /// The watch for snapshots. Undo: the attach is ended: by a detach, with dirty data by a retirement.
    Adopt,
    /// The snapshot context.
    Refresh,
    /// The marker of a clone's origin.
    Inherited,
    /// The gate for writes.
    Gate,
    /// The note of this hold.
    NoteHeld,
    /// Something failed beside the lock: a lock is kept only if the watch heard nobody.
    UndoHeard,
    /// Somebody was heard beside the lock. The note that the image was lost says so, whatever becomes of the lock.
    UndoNote,
    /// Something failed, and is undone.
    Undo,
    /// It has ended.
    Over,
}

/// The undo of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undo {
    /// Of [`Phase::LookConnect`].
    CloseLooking,
    /// Of [`Phase::Connect`].
    CloseClient,
    /// Of [`Phase::Open`].
    CloseImage,
    /// Of [`Phase::Watch`].
    EndWatch,
    /// Of [`Phase::Break`].
    KeepStamp,
    /// Of [`Phase::Lock`].
    KeepLock,
    /// Of [`Phase::Adopt`].
    EndAttach,
}

/// The machine's next wish.
#[derive(Debug)]
pub(crate) enum Next {
    /// This step, whose answer is waited for.
    Do(Step),
    /// Nothing: the attach has ended.
    Over(Result<Attached, CephError>),
}

/// An attach that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attached {
    /// Others may have written to the image since the cache was attached.
    pub(crate) changed: bool,
    pub(crate) warnings: Vec<String>,
}

/// True if the deed may be done although it failed: the answer did not come, or came from a cluster that refuses this client by
/// now. Any other error is an OSD's word that it did nothing.
fn may_be_done(e: &CephError) -> bool {
    matches!(e.errno(), Some(libc::ETIMEDOUT | libc::ESHUTDOWN))
}

/// The words for an image lost to somebody who came beside the lock.
const CAME: &str = "somebody came while it was taken";

/// A handler's result: an error is what fails the attach.
pub(super) type Progress = Result<Next, CephError>;

/// An attach under way.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) wanted: Wanted,
    pub(super) phase: Phase,
    /// The client that looks at the image now.
    pub(super) by: Client,
    pub(super) undo: Vec<Undo>,
    pub(super) view: Option<ImageView>,
    /// The number of the own client; 0 before there is one, which no client has.
    pub(super) me: i64,
    pub(super) warnings: Vec<String>,
    /// Reasons against groups of writes.
    pub(super) why_librbd: Vec<String>,
    /// Bytes.
    pub(super) size: u64,
    pub(super) lease: Duration,
    /// Sequence and version of the header that the record was held against.
    pub(super) header: (u64, u64),
    /// The version of the header at which nobody but those who are fenced has changed it.
    pub(super) free_at: u64,
    /// Others may have written to the image.
    pub(super) changed: bool,
    /// The record that knows this client, noted before the lock is broken.
    pub(super) tried: Option<LockRecord>,
    pub(super) blocklist: VecDeque<String>,
    /// Nanoseconds since boot, right before the lock was asked for.
    pub(super) asked: u64,
    pub(super) holder: Option<LockHolder>,
    error: Option<CephError>,
}

impl Machine {
    /// An attach that has not begun.
    pub(crate) fn new(wanted: Wanted) -> Machine {
        Machine {
            wanted,
            phase: Phase::LookConnect,
            by: Client::Looking,
            undo: Vec::new(),
            view: None,
            me: 0,
            warnings: Vec::new(),
            why_librbd: Vec::new(),
            size: 0,
            lease: Duration::ZERO,
            header: (0, 0),
            free_at: 0,
            changed: false,
            tried: None,
            blocklist: VecDeque::new(),
            asked: 0,
            holder: None,
            error: None,
        }
    }

    /// The answer that is waited for.
    #[cfg(test)]
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// The first step.
    pub(crate) fn begin(&mut self) -> Next {
        self.ask(Phase::LookConnect, Step::Connect(Client::Looking))
    }

    /// Waits for the answer to `step` in `phase`.
    pub(super) fn ask(&mut self, phase: Phase, step: Step) -> Next {
        self.phase = phase;
        Next::Do(step)
    }

    /// The last step has this answer.
    pub(crate) fn answered(&mut self, answer: Result<Answer, CephError>) -> Next {
        if matches!(self.phase, Phase::Undo | Phase::UndoNote) {
            // The first error is the one to be told.
            return self.undo_next();
        }
        if self.phase == Phase::UndoHeard {
            return if answer == Ok(Answer::Is(false)) { self.leave() } else { self.note_lost() };
        }
        let progress = match answer {
            Ok(answer) => self.heard(answer),
            // What was not ended goes with its client.
            Err(_) if matches!(self.phase, Phase::LookClose | Phase::EndWatch) => self.heard(Answer::Done),
            // It was let go meanwhile, which the dead do not do: that is seen next.
            Err(e) if self.phase == Phase::Break && e.errno() == Some(libc::ENOENT) => self.was_let_go(),
            Err(e) => {
                if self.phase == Phase::Break && !may_be_done(&e) {
                    self.keeps(Undo::KeepStamp);
                }
                Err(e)
            }
        };
        progress.unwrap_or_else(|e| self.fail(e))
    }

    /// The attach is given up: its own client says nothing any more, and nothing of it is undone behind the back of who comes
    /// next.
    pub(crate) fn give_up(&mut self) -> Next {
        let given_up = CephError::named(GIVEN_UP_WORDS);
        // The looking client has nothing to leave.
        if self.phase != Phase::Undo && matches!(self.undo[..], [] | [Undo::CloseLooking]) {
            return self.fail(given_up);
        }
        self.error.get_or_insert(given_up);
        self.leave()
    }

    /// Nothing more is undone: closing would change the only record of who had the image.
    fn leave(&mut self) -> Next {
        self.undo.clear();
        self.ask(Phase::Undo, Step::Leave)
    }

    fn fail(&mut self, error: CephError) -> Next {
        self.error = Some(error);
        self.undo_next()
    }

    /// Fails since somebody came beside the lock, which goes back: kept, it would say at the next start that nobody was there.
    pub(super) fn fail_lost(&mut self, error: CephError) -> Next {
        self.error = Some(error);
        self.keeps(Undo::KeepLock);
        self.note_lost()
    }

    fn note_lost(&mut self) -> Next {
        match self.tried.clone() {
            Some(tried) => self.ask(Phase::UndoNote, Step::NoteLost(Box::new(tried), CAME)),
            None => self.undo_next(),
        }
    }

    /// Undoes the last thing that is not undone yet.
    fn undo_next(&mut self) -> Next {
        let dirty = self.wanted.is_dirty();
        while let Some(last) = self.undo.pop() {
            let step = match last {
                Undo::CloseLooking => Step::CloseLooking,
                Undo::CloseClient => Step::CloseClient,
                Undo::CloseImage => Step::CloseImage,
                Undo::EndWatch => Step::EndWatch,
                Undo::KeepStamp if dirty => return self.leave(),
                // A lock that is kept says at the next start that nobody else was there.
                Undo::KeepLock if dirty => return self.ask(Phase::UndoHeard, Step::ReadHeard),
                Undo::KeepStamp | Undo::KeepLock => continue,
                Undo::EndAttach if dirty => Step::Retire,
                Undo::EndAttach => Step::Detach,
            };
            return self.ask(Phase::Undo, step);
        }
        self.phase = Phase::Over;
        let error = self.error.take();
        Next::Over(Err(error.unwrap_or_else(|| CephError::named("the attach has ended"))))
    }

    /// It is not to be undone any more.
    pub(super) fn keeps(&mut self, undo: Undo) {
        self.undo.retain(|u| *u != undo);
    }

    fn heard(&mut self, answer: Answer) -> Progress {
        match (self.phase, answer) {
            (Phase::LookConnect, Answer::Connected(_)) => self.look_connected(),
            (Phase::Features, Answer::Features(bits, old)) => self.features_read(bits, old),
            (Phase::View, Answer::View(view)) => self.viewed(*view),
            (Phase::Marker, Answer::Marker(marker)) => self.marker_read(marker.as_deref()),
            (Phase::Record, Answer::Header(seq, version)) => self.record_header_read(seq, version),
            (Phase::RecordStamp, Answer::Is(last)) => self.record_judged(last),
            (Phase::Snapshots, Answer::Snapshots(all)) => self.snapshots_read(&all),
            (Phase::LookOptions, Answer::Reasons(overridden)) => self.look_options_read(&overridden),
            (Phase::LookWrite, Answer::Done) => self.wrote(),
            (Phase::LookHeader, Answer::Header(_, version)) => self.look_header_read(version),
            (Phase::LookStamp, Answer::Is(last)) => self.look_stamp_read(last),
            (Phase::LookNote, Answer::Done) => self.close_looking(),
            (Phase::LookClose, Answer::Done) => self.looked(),
            (Phase::Connect, Answer::Connected(me)) => self.connected(me),
            (Phase::Open, Answer::Done) => self.opened(),
            (Phase::Options, Answer::Reasons(overridden)) => self.options_read(&overridden),
            (Phase::Grouping, Answer::Reasons(against)) => self.grouping_read(against),
            (Phase::Size, Answer::Number(bytes)) => self.size_read(bytes),
            (Phase::Flags, Answer::Reasons(warnings)) => self.flags_read(warnings),
            (Phase::WatchTimeout, Answer::Number(seconds)) => self.watch_timeout_read(seconds),
            (Phase::Pools, Answer::Done) => self.pools_opened(),
            (Phase::Version, Answer::Header(_, version)) => self.version_read(version),
            (Phase::Watch, Answer::Done) => self.watched(),
            (Phase::Note, Answer::Done) => self.noted(),
            (Phase::Blocklist, Answer::Done) => self.blocklist_next(),
            (Phase::Break, Answer::Version(version)) => self.broken(version),
            (Phase::NoteFree, Answer::Done) => self.free(),
            (Phase::Moved, Answer::Header(_, version)) => self.moved_read(version),
            (Phase::Visitors, Answer::Clients(now)) => self.visitors_read(&now),
            (Phase::Lock, Answer::Locked(asked)) => self.locked(asked),
            (Phase::Holder, Answer::Holder(holder)) => self.holder_read(holder),
            (Phase::Heard, Answer::Is(came)) => self.heard_read(came),
            (Phase::LateVisitors, Answer::Clients(now)) => self.late_visitors_read(&now),
            (Phase::EndWatch, Answer::Done) => self.watch_ended(),
            (Phase::Adopt, Answer::Done) => self.adopted(),
            (Phase::Refresh, Answer::Done) => self.refreshed(),
            (Phase::Inherited, Answer::Done) => self.inherited_dropped(),
            (Phase::Gate, Answer::Record(record)) => self.gate_opened(*record),
            (Phase::NoteHeld, Answer::Done) => Ok(self.succeeded()),
            (phase, answer) => unreachable!("{phase:?} has no such answer: {answer:?}"),
        }
    }

    fn succeeded(&mut self) -> Next {
        self.phase = Phase::Over;
        self.undo.clear();
        Next::Over(Ok(Attached { changed: self.changed, warnings: std::mem::take(&mut self.warnings) }))
    }

    /// The view that the phases after it go by.
    pub(super) fn view(&self) -> &ImageView {
        self.view.as_ref().expect("the phases before it have read one")
    }
}
