//! Messages of threads to each other, and to whoever manages them.

use crate::clients::{AnswerTo, Local};
use crate::command_error::CommandError;
use crate::engine_setup::EngineSetup;
use loligo_block::{Mailbox, Request};
use loligo_engine::api::Control;
use loligo_engine::params::Params;
use loligo_engine::refusal::NeedsCache;
use loligo_engine::relay::ShardMessage;
use loligo_engine::stats::Stats;
use loligo_engine::{FallbackState, Refused};
use loligo_export::fuse::Session;
use loligo_export::ublk::Queue;
use loligo_export::{ListenAddr, Listener};
use loligo_format::mode::Mode;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A management request to one thread.
#[derive(Debug)]
pub enum Command {
    /// For the engine.
    Control(Control),
    /// A copy of the numbers.
    Snapshot,
    /// The engine must be able to take requests up to here. The exported length in its superblock reaches as far.
    Reach(u64),
    /// The volume has so many bytes from now on: requests and new connections are judged by that. If there are several
    /// threads, all of them reach as far before the first is told.
    Resize(u64),
    /// Requests that come from now on are held. Answered when none that came before is under way in this thread.
    Pause,
    /// While all threads pause: this engine takes the place of the one that is there, once that one is quiet.
    Exchange(Box<EngineSetup>),
    /// Requests that are held go on, and those that come are taken again.
    Resume,
    /// Every request fails from now on, those that a pause holds among them: the threads' engines are not of one kind.
    Fail,
    /// Waits for the cache device no longer, because of this: it fails from now on, and what was under way to it at once.
    Abandon(String),
    /// Ends the thread at once, because of this: nobody is answered, every connection is closed, and no device is waited for or
    /// asked for anything more.
    Abort(String),
    /// Clients may come from here, too. Nothing if there is no thread that takes clients any more. For the first thread.
    Listen(Listener),
    /// No more clients from here; those that came are hung up on. For every thread.
    Unlisten(ListenAddr),
    /// Turn clients away: accepted requests are answered, later ones refused, connections closed. Answered when no
    /// connection and no request is left.
    Drain,
    /// End the thread.
    End,
}

/// The answer to an [`Command`].
#[derive(Debug)]
pub enum Response {
    /// Carried out, or why not.
    Done(Result<(), CommandError>),
    /// The numbers of each shard that the thread has.
    Snapshots(Vec<Snapshot>),
}

/// A thread's report on a shard, or on itself if there is no cache.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its counters and histograms.
    pub stats: Stats,
    /// Its mode; nothing without a cache.
    pub mode: Option<Mode>,
    /// Its tunables.
    pub params: Params,
    /// The reason why it stopped acknowledging, if it did.
    pub poisoned: Option<String>,
    /// A flush of its core has failed.
    pub core_flush_failed: bool,
    /// The error of writes to its core, if the newest ones failed.
    pub core_failing: Option<String>,
    /// The sectors that its core refuses, if it is only some.
    pub core_refuses: Option<Refused>,
    /// The reason why its devices are another's, if they are.
    pub expelled: Option<String>,
    /// The way it serves without its cache; nothing while it has one.
    pub fallback: Option<FallbackState>,
    /// The reason why the core alone could not go on from here; nothing: it has everything.
    pub needs_cache: Option<NeedsCache>,
    /// Blocks that a flush under way still has before it.
    pub flush_remaining: Option<u64>,
    /// Open connections.
    pub connections: usize,
    /// The most operations that the core had in flight at once.
    pub core_queue_max: usize,
    /// RAM of the index and its kin, by part, bytes.
    pub ram: Vec<(&'static str, usize)>,
}

/// One message.
#[derive(Debug)]
pub(crate) enum Message {
    /// A part of a request, or what became of one.
    Shard(ShardMessage),
    /// This thread has ended and says nothing more.
    Ended(u16),
    /// A client that the listening thread accepted, and whether it may only read.
    Socket { socket: OwnedFd, read_only: bool },
    /// A request of a client in this process.
    Local(Request, AnswerTo),
    /// A queue of a block device, which the thread serves from now on.
    Queue(Box<Queue>),
    /// A mount, whose requests the thread serves from now on.
    Mount(Box<Session>),
    /// Management.
    Command(Command, Sender<Response>),
}

/// A thread's mailbox. Its content is bounded by the requests that connections (`export::Limits`), mounts and
/// queues may have in flight.
pub(crate) type ThreadMailbox = Mailbox<Message>;

/// Between two looks at the clock while answers are missing.
const LOOK: Duration = Duration::from_millis(50);

/// A handle to talk to the threads of a running volume, from any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    boxes: Arc<[ThreadMailbox]>,
}

impl Handle {
    pub(crate) fn new(boxes: Arc<[ThreadMailbox]>) -> Handle {
        Handle { boxes }
    }

    /// Threads of the volume: one for each shard, or one for all.
    pub fn shards(&self) -> usize {
        self.boxes.len()
    }

    /// A way in for a client in this process. Several should have different numbers: they are spread over the threads.
    pub fn local(&self, number: usize) -> Local {
        Local { boxes: self.boxes.clone(), home: number % self.shards() }
    }

    /// Has one of the threads serve a mount: all its requests, as those of a connection, so that streams are recognised. Several
    /// should have different numbers: they are spread over the threads.
    pub fn serve_mount(&self, number: usize, session: Session) {
        self.boxes[number % self.shards()].put([Message::Mount(Box::new(session))]);
    }

    /// Gives the queues of a block device to the threads in turn.
    pub fn serve_queues(&self, queues: Vec<Queue>) {
        for (number, queue) in queues.into_iter().enumerate() {
            self.boxes[number % self.shards()].put([Message::Queue(Box::new(queue))]);
        }
    }

    /// Asks one thread. The channel is cut without an answer where the thread has ended.
    pub fn send(&self, shard: usize, ask: Command) -> Receiver<Response> {
        let (send, said) = channel();
        self.boxes[shard].put([Message::Command(ask, send)]);
        said
    }

    /// Asks all threads.
    pub fn send_all(&self, ask: impl Fn() -> Command) -> Vec<Receiver<Response>> {
        (0..self.shards()).map(|s| self.send(s, ask())).collect()
    }

    /// Has every thread carry out `control`, and waits for all.
    ///
    /// # Errors
    /// If one fails; the error is that of the first.
    pub fn control(&self, control: &Control) -> Result<(), CommandError> {
        self.wait_all(self.send_all(|| Command::Control(control.clone())))
    }

    /// Gives the volume another size, which its superblock has already where there is one.
    ///
    /// # Errors
    /// If a cache cannot follow; then no request reaches further than before.
    pub fn resize(&self, bytes: u64) -> Result<(), CommandError> {
        self.wait_all(self.send_all(|| Command::Reach(bytes)))?;
        self.wait_all(self.send_all(|| Command::Resize(bytes)))
    }

    /// As [`Handle::wait_all`], for `limit` at most.
    ///
    /// # Errors
    /// As there, or that it took longer.
    pub fn wait_within(&self, said: Vec<Receiver<Response>>, limit: Duration) -> Result<(), CommandError> {
        let until = Instant::now() + limit;
        self.wait_while(said, LOOK.min(limit), || match Instant::now() < until {
            true => Ok(()),
            false => Err(CommandError::Slow(limit)),
        })
    }

    /// Waits for the answers to [`Handle::send_all`].
    ///
    /// # Errors
    /// If one fails; the error is that of the first.
    pub fn wait_all(&self, said: Vec<Receiver<Response>>) -> Result<(), CommandError> {
        self.wait_while(said, Duration::MAX, || Ok(()))
    }

    /// The same, while `patient` says so, which is asked about every `pause` for as long as answers are missing.
    ///
    /// # Errors
    /// As there, or what `patient` said, which ends the wait at once.
    pub fn wait_while<E: From<CommandError>>(
        &self,
        said: Vec<Receiver<Response>>,
        pause: Duration,
        mut patient: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut result = Ok(());
        for said in said {
            let one = loop {
                match said.recv_timeout(pause) {
                    Ok(Response::Done(done)) => break done,
                    Ok(Response::Snapshots(_)) => break Ok(()),
                    Err(RecvTimeoutError::Disconnected) => {
                        break Err(CommandError::Ended);
                    }
                    Err(RecvTimeoutError::Timeout) => patient()?,
                }
            };
            result = result.and(one);
        }
        result.map_err(E::from)
    }

    /// The numbers of every shard whose thread still runs; nothing where one has not answered within `limit`.
    pub fn snapshots_within(&self, limit: Duration) -> Option<Vec<Snapshot>> {
        let until = Instant::now() + limit;
        let mut all = Vec::new();
        for said in self.send_all(|| Command::Snapshot) {
            match said.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Response::Snapshots(shards)) => all.extend(shards),
                Err(RecvTimeoutError::Timeout) => return None,
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        Some(all)
    }

    /// The numbers of every shard whose thread still runs, however long one takes.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let all = self.send_all(|| Command::Snapshot);
        let taken = all.into_iter().filter_map(|said| match said.recv() {
            Ok(Response::Snapshots(shards)) => Some(shards),
            _ => None,
        });
        taken.flatten().collect()
    }
}
