//! What threads say to each other, and to whoever manages them.

use crate::locals::{Asker, Local};
use loligo_block::{Letterbox, Reply, ReqId, Request};
use loligo_cache::api::{Control, Hint};
use loligo_cache::mode::Mode;
use loligo_cache::params::Params;
use loligo_cache::stats::Stats;
use loligo_export::ublk::Queue;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A management request to one thread.
#[derive(Debug)]
pub enum Ask {
    /// For the engine.
    Control(Control),
    /// A copy of the numbers.
    Snapshot,
    /// The volume has so many bytes from now on: requests and new connections are judged by that. For a volume of one thread;
    /// what its superblock says of the exported length reaches as far.
    Resize(u64),
    /// Turn clients away: accepted requests are answered, later ones refused, connections closed. Answered when no
    /// connection and no request is left.
    Drain,
    /// End the thread.
    End,
}

/// The answer to an [`Ask`].
#[derive(Debug)]
pub enum Said {
    /// Carried out, or why not.
    Done(Result<(), String>),
    /// The numbers.
    Snapshot(Box<Snapshot>),
}

/// What a thread says of itself.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its counters and histograms.
    pub stats: Stats,
    /// Its mode; nothing without a cache.
    pub mode: Option<Mode>,
    /// Its tunables.
    pub params: Params,
    /// Why it stopped acknowledging, if it did.
    pub poisoned: Option<String>,
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
pub(crate) enum Mail {
    /// Part of a request for a window of the receiver's. The top byte of its id names the thread that asks.
    Part(Request, Hint),
    /// The answer to such a part.
    Answered(Reply),
    /// Such a part was not wholly in the cache; comes before its answer.
    Missed(ReqId),
    /// A client that the listening thread accepted.
    Socket(OwnedFd),
    /// A request of a client in this process.
    Local(Request, Asker),
    /// A queue of a block device, which the thread serves from now on.
    Queue(Box<Queue>),
    /// Management.
    Ask(Ask, Sender<Said>),
}

/// A thread's letter box. What lies in it is bounded by what connections may have in flight (`export::Limits`), and by what
/// the kernel has under way with a mount.
pub(crate) type Mailbox = Letterbox<Mail>;

/// How to talk to the threads of a running volume, from any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    boxes: Arc<[Mailbox]>,
}

impl Handle {
    pub(crate) fn new(boxes: Arc<[Mailbox]>) -> Handle {
        Handle { boxes }
    }

    /// Threads of the volume.
    pub fn shards(&self) -> usize {
        self.boxes.len()
    }

    /// A way in for a client in this process. Several should have different numbers: they are spread over the threads.
    pub fn local(&self, number: usize) -> Local {
        Local { boxes: self.boxes.clone(), home: number % self.shards() }
    }

    /// Gives the queues of a block device to the threads in turn.
    pub fn serve_queues(&self, queues: Vec<Queue>) {
        for (number, queue) in queues.into_iter().enumerate() {
            self.boxes[number % self.shards()].put([Mail::Queue(Box::new(queue))]);
        }
    }

    /// Asks one thread. The channel is cut without an answer where the thread has ended.
    pub fn ask(&self, shard: usize, ask: Ask) -> Receiver<Said> {
        let (send, said) = channel();
        self.boxes[shard].put([Mail::Ask(ask, send)]);
        said
    }

    /// Asks all threads.
    pub fn ask_all(&self, ask: impl Fn() -> Ask) -> Vec<Receiver<Said>> {
        (0..self.shards()).map(|s| self.ask(s, ask())).collect()
    }

    /// Has every thread carry out `control`, and waits for all.
    ///
    /// # Errors
    /// What the first that failed said.
    pub fn control(&self, control: &Control) -> Result<(), String> {
        self.wait_all(self.ask_all(|| Ask::Control(control.clone())))
    }

    /// Waits for the answers to [`Handle::ask_all`].
    ///
    /// # Errors
    /// What the first that failed said.
    pub fn wait_all(&self, said: Vec<Receiver<Said>>) -> Result<(), String> {
        let mut result = Ok(());
        for said in said {
            let one = match said.recv() {
                Ok(Said::Done(r)) => r,
                Ok(Said::Snapshot(_)) => Ok(()),
                Err(_) => Err("a thread of the volume has ended".to_owned()),
            };
            result = result.and(one);
        }
        result
    }

    /// The numbers of every thread that still runs.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        let all = self.ask_all(|| Ask::Snapshot);
        let taken = all.into_iter().filter_map(|said| match said.recv() {
            Ok(Said::Snapshot(s)) => Some(*s),
            _ => None,
        });
        taken.collect()
    }
}
