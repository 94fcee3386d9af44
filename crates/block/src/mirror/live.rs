//! A mirror in use: its machine under one lock, a thread for each leg that does blocking I/O, one that keeps the time, and a
//! mailbox for each device on a ring.

use super::access::{Access, OpId, Time};
use super::machine::{Action, Change, Machine, MirrorState};
use super::mark::{Leg, Mark};
use super::setup::{MirrorView, Setup};
use crate::file::{DeviceFile, SyncFile};
use crate::mailbox::Mailbox;
use crate::{Buf, IoError, IoKind, SyncIo};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two looks at the time.
const TICK: Duration = Duration::from_millis(100);
/// So long the end waits for a leg.
const PATIENCE: Duration = Duration::from_secs(2);
/// The port of operations that a caller waits for.
const BLOCKING: u32 = u32::MAX;
/// Bytes that are read to see whether a leg answers.
const PROBE: usize = 4096;

/// An operation that a caller waits for.
#[derive(Debug, Clone)]
pub(super) enum Deed {
    Write(u64, Arc<[u8]>),
    Flush,
}

#[derive(Debug)]
enum Job {
    Do(OpId, Deed),
    Note(Mark),
    /// The last note, and who waits for it.
    Close(Mark, Sender<Result<(), IoError>>),
    /// Read this, and have the other leg write it.
    Read(Range<u64>),
    Write(Range<u64>, Buf),
    Try,
    End,
}

#[derive(Debug)]
struct Waiting {
    deed: Deed,
    /// The legs that have still to answer.
    legs: usize,
    result: Option<Result<Leg, IoError>>,
    /// Its caller has the result.
    taken: bool,
}

/// All that the lock guards.
#[derive(Debug)]
struct State {
    machine: Machine,
    ports: Vec<Port>,
    blocking: HashMap<OpId, Waiting>,
    next: u32,
    left: u64,
    ends: bool,
    scratch: Vec<Action>,
}

/// A device on a ring. Its actions stay in the order in which the machine gave them, whoever had asked.
#[derive(Debug)]
struct Port {
    actions: VecDeque<Action>,
    bell: Arc<Bell>,
}

/// Wakes the thread of a device.
pub(super) type Bell = Mailbox<()>;

/// A mirror in use.
#[derive(Debug)]
pub(super) struct Live {
    state: Mutex<State>,
    /// An operation that a caller waits for is over.
    over: Condvar,
    ends: Condvar,
    begun: Instant,
    workers: [Sender<Job>; 2],
    setup: Arc<Setup>,
}

/// Ends the threads when nobody has the mirror any more.
#[derive(Debug)]
pub(super) struct Guard {
    live: Arc<Live>,
    threads: Vec<JoinHandle<()>>,
    ended: Mutex<Receiver<()>>,
}

/// The name of an operation of the device at `port`, under its `key`.
pub(super) fn op_id(port: u32, key: usize) -> OpId {
    u64::from(port) << 32 | key as u64
}

fn port_of(id: OpId) -> u32 {
    (id >> 32) as u32
}

impl Live {
    /// Starts the threads.
    pub(super) fn begin(
        machine: Machine,
        whole: [Option<DeviceFile>; 2],
        contents: [Option<DeviceFile>; 2],
        setup: Arc<Setup>,
    ) -> Result<Guard, IoError> {
        let ([local, mirror], [jobs_local, jobs_mirror]) = {
            let (a, b) = (channel(), channel());
            ([a.0, b.0], [a.1, b.1])
        };
        let state = State {
            machine,
            ports: Vec::new(),
            blocking: HashMap::new(),
            next: 0,
            left: 0,
            ends: false,
            scratch: Vec::new(),
        };
        let live = Arc::new(Live {
            state: Mutex::new(state),
            over: Condvar::new(),
            ends: Condvar::new(),
            begun: Instant::now(),
            workers: [local, mirror],
            setup,
        });
        let (says, ended) = channel();
        let mut guard = Guard { live: live.clone(), threads: Vec::new(), ended: Mutex::new(ended) };
        for (leg, jobs) in Leg::BOTH.into_iter().zip([jobs_local, jobs_mirror]) {
            let files = whole[leg.index()].clone().zip(contents[leg.index()].clone());
            let worker = Worker { leg, files: files.map(|(w, c)| (SyncFile::new(w), SyncFile::new(c))) };
            let (live, says) = (live.clone(), says.clone());
            guard.spawn(&format!("mirror-{leg}"), move || {
                worker.run(&live, &jobs);
                // Nobody may be waiting any more.
                let _ = says.send(());
            })?;
        }
        let keeps = live;
        guard.spawn("mirror-clock", move || {
            keeps.keep_time();
            let _ = says.send(());
        })?;
        Ok(guard)
    }

    fn now(&self) -> Time {
        self.begun.elapsed().as_nanos() as Time
    }

    /// Has the machine do something, and passes on what it wants. The actions for the device at `port` are appended to `out`, those
    /// before them too.
    pub(super) fn ask(
        &self,
        port: u32,
        out: &mut VecDeque<Action>,
        what: impl FnOnce(&mut Machine, Time, &mut Vec<Action>),
    ) {
        let now = self.now();
        let mut state = self.state.lock();
        let mut actions = std::mem::take(&mut state.scratch);
        what(&mut state.machine, now, &mut actions);
        for action in actions.drain(..) {
            match target(&action) {
                Some(BLOCKING) => self.do_blocking(&mut state, action),
                Some(to) => {
                    if let Some(to_port) = state.ports.get_mut(to as usize) {
                        to_port.actions.push_back(action);
                        if to != port {
                            to_port.bell.ring();
                        }
                    }
                }
                None => self.look_after(&mut state, action),
            }
        }
        state.scratch = actions;
        if let Some(own) = state.ports.get_mut(port as usize) {
            out.append(&mut own.actions);
        }
    }

    /// The actions for the device at `port`, after its bell was rung.
    pub(super) fn take(&self, port: u32, out: &mut VecDeque<Action>) {
        if let Some(own) = self.state.lock().ports.get_mut(port as usize) {
            out.append(&mut own.actions);
        }
    }

    /// The same for nobody's device.
    fn tell(&self, what: impl FnOnce(&mut Machine, Time, &mut Vec<Action>)) {
        self.ask(BLOCKING, &mut VecDeque::new(), what);
    }

    /// The machine's wishes that belong to no operation.
    fn look_after(&self, state: &mut MutexGuard<'_, State>, action: Action) {
        let (leg, job) = match action {
            Action::Note(leg, mark) => (leg, Job::Note(mark)),
            Action::Copy(from, range) => (from, Job::Read(range)),
            Action::Try(leg) => (leg, Job::Try),
            Action::Say(change) => {
                if matches!(change, Change::Left(..)) {
                    state.left += 1;
                }
                return (self.setup.tell)(&change);
            }
            Action::Send(..) | Action::Answer(..) => return,
        };
        self.post(leg, job);
    }

    fn post(&self, leg: Leg, job: Job) {
        // A worker that has ended has told all that it was asked.
        let _ = self.workers[leg.index()].send(job);
    }

    fn do_blocking(&self, state: &mut MutexGuard<'_, State>, action: Action) {
        match action {
            Action::Send(id, leg) => {
                let Some(waiting) = state.blocking.get_mut(&id) else { return };
                waiting.legs += 1;
                self.post(leg, Job::Do(id, waiting.deed.clone()));
            }
            Action::Answer(id, result) => {
                if let Some(waiting) = state.blocking.get_mut(&id) {
                    waiting.result = Some(result);
                    self.over.notify_all();
                }
            }
            _ => {}
        }
    }

    /// Carries out an operation, and waits for it.
    pub(super) fn wait_for(&self, deed: Deed) -> Result<Leg, IoError> {
        let id = {
            let mut state = self.state.lock();
            state.next = state.next.wrapping_add(1);
            let id = op_id(BLOCKING, state.next as usize);
            let waiting = Waiting { deed: deed.clone(), legs: 0, result: None, taken: false };
            state.blocking.insert(id, waiting);
            id
        };
        let access = match &deed {
            Deed::Write(at, data) => Access::Write(*at..*at + data.len() as u64),
            Deed::Flush => Access::Flush,
        };
        self.tell(|machine, now, out| machine.start(now, id, access, out));
        let mut state = self.state.lock();
        loop {
            let Some(waiting) = state.blocking.get_mut(&id) else {
                return Err(IoError::new(IoKind::Gone, "the mirrored device is closed"));
            };
            if let Some(result) = waiting.result.clone() {
                waiting.taken = true;
                if waiting.legs == 0 {
                    state.blocking.remove(&id);
                }
                return result;
            }
            self.over.wait(&mut state);
        }
    }

    /// A leg has answered an operation that a caller waits for.
    fn did(&self, id: OpId, leg: Leg, result: Result<(), IoError>) {
        {
            let mut state = self.state.lock();
            if let Some(waiting) = state.blocking.get_mut(&id) {
                waiting.legs -= 1;
            }
        }
        self.tell(|machine, now, out| machine.answered(now, id, leg, result, out));
        let mut state = self.state.lock();
        if state.blocking.get(&id).is_some_and(|waiting| waiting.legs == 0 && waiting.taken) {
            state.blocking.remove(&id);
        }
    }

    /// A device on a ring gets a port: its number, and what wakes it.
    pub(super) fn port(&self) -> Result<(u32, Arc<Bell>), IoError> {
        let bell = Arc::new(Bell::new()?);
        let mut state = self.state.lock();
        state.ports.push(Port { actions: VecDeque::new(), bell: bell.clone() });
        Ok((state.ports.len() as u32 - 1, bell))
    }

    pub(super) fn view(&self) -> MirrorView {
        let state = self.state.lock();
        MirrorView {
            state: state.machine.state(),
            copied: state.machine.copied_bytes(),
            size: state.machine.size(),
            left: state.left,
        }
    }

    /// The leg that reads go to.
    pub(super) fn primary(&self) -> Leg {
        self.state.lock().machine.primary()
    }

    /// True if either leg may be read.
    pub(super) fn is_in_step(&self) -> bool {
        self.state.lock().machine.state() == MirrorState::InStep
    }

    fn keep_time(&self) {
        loop {
            let mut state = self.state.lock();
            if !state.ends {
                self.ends.wait_for(&mut state, TICK);
            }
            if state.ends {
                return;
            }
            drop(state);
            self.tell(|machine, now, out| machine.tick(now, out));
        }
    }

    /// The last notes, if both legs are alike. A leg that does not answer is not waited for: the next start copies.
    pub(super) fn close(&self) {
        let notes = self.state.lock().machine.close();
        for (leg, mark) in notes {
            let (says, said) = channel();
            self.post(leg, Job::Close(mark, says));
            if !matches!(said.recv_timeout(PATIENCE), Ok(Ok(()))) {
                return;
            }
        }
    }
}

/// The port that an action is for.
fn target(action: &Action) -> Option<u32> {
    match action {
        Action::Send(id, _) | Action::Answer(id, _) => Some(port_of(*id)),
        Action::Note(..) | Action::Copy(..) | Action::Try(_) | Action::Say(_) => None,
    }
}

/// The thread of a leg.
struct Worker {
    leg: Leg,
    /// Whole, and behind its label.
    files: Option<(SyncFile, SyncFile)>,
}

impl Worker {
    fn run(mut self, live: &Live, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            if matches!(job, Job::End) {
                return;
            }
            self.carry_out(live, job);
        }
    }

    fn carry_out(&mut self, live: &Live, job: Job) {
        let leg = self.leg;
        let gone = || IoError::new(IoKind::Gone, format!("the {leg} leg is not there"));
        let content = |files: &mut Option<(SyncFile, SyncFile)>, what: &mut dyn FnMut(&mut SyncFile) -> _| {
            files.as_mut().map_or_else(|| Err(gone()), |(_, content)| what(content))
        };
        match job {
            Job::Do(id, deed) => {
                let result = content(&mut self.files, &mut |file| match &deed {
                    Deed::Write(at, data) => file.write_at(*at, data),
                    Deed::Flush => file.flush(),
                });
                live.did(id, leg, result);
            }
            Job::Note(mark) => {
                let result = self.note(live, &mark);
                live.tell(|machine, now, out| machine.noted(now, leg, mark, result, out));
            }
            Job::Close(mark, says) => {
                // Whoever waited may have given up.
                let _ = says.send(self.note(live, &mark));
            }
            Job::Read(range) => {
                let mut buf = Buf::alloc((range.end - range.start) as usize);
                match content(&mut self.files, &mut |file| file.read_at(range.start, &mut buf)) {
                    Ok(()) => live.post(leg.other(), Job::Write(range, buf)),
                    Err(why) => live.tell(|machine, now, out| {
                        machine.copied(now, leg.other(), range, Err((leg, why)), out);
                    }),
                }
            }
            Job::Write(range, buf) => {
                let done = content(&mut self.files, &mut |file| file.write_at(range.start, &buf));
                let done = done.map_err(|why| (leg, why));
                live.tell(|machine, now, out| machine.copied(now, leg, range, done, out));
            }
            Job::Try => {
                let result = content(&mut self.files, &mut |file| file.read_at(0, &mut [0; PROBE]));
                live.tell(|machine, now, out| machine.tried(now, leg, result, out));
            }
            Job::End => {}
        }
    }

    fn note(&mut self, live: &Live, mark: &Mark) -> Result<(), IoError> {
        let gone = || IoError::new(IoKind::Gone, format!("the {} leg is not there", self.leg));
        let (whole, _) = self.files.as_mut().ok_or_else(gone)?;
        (live.setup.store)(whole, mark)
    }
}

impl Guard {
    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), IoError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|e| IoError::new(IoKind::Io, format!("starting a thread: {e}")))?;
        self.threads.push(thread);
        Ok(())
    }

    pub(super) fn live(&self) -> &Arc<Live> {
        &self.live
    }
}

impl Drop for Guard {
    /// Ends the threads, and waits for them; not for one whose leg does not answer.
    fn drop(&mut self) {
        self.live.state.lock().ends = true;
        self.live.ends.notify_all();
        Leg::BOTH.into_iter().for_each(|leg| self.live.post(leg, Job::End));
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..self.threads.len() {
            if self.ended.get_mut().recv_timeout(deadline.saturating_duration_since(Instant::now())).is_err()
            {
                return;
            }
        }
        for thread in self.threads.drain(..) {
            // It has said its last word.
            let _ = thread.join();
        }
    }
}
