//! A client that writes blocks as fast as it is answered and notes what it sent and what was acknowledged.

use crate::shadow::{Shadow, content};
use crate::site::SIZE;
use loligo_sim::rng::Rng;
use loligo_tests::nbd::{Answer, Client, Command};
use loligo_tests::server::Volume;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests in flight.
const DEPTH: usize = 16;
/// A request that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(90);
/// Bytes of a read when everything is read.
const CHUNK: u32 = 1 << 20;

/// A shadow that a writer keeps up to date.
pub(crate) type Kept = Arc<Mutex<Shadow>>;

/// One of an image of the usual size, to which nothing was written.
pub(crate) fn fresh() -> Kept {
    Arc::new(Mutex::new(Shadow::new(SIZE)))
}

/// Looks at it.
pub(crate) fn look(shadow: &Kept) -> MutexGuard<'_, Shadow> {
    shadow.lock()
}

/// The end of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As ordered; everything is answered.
    Done,
    /// The first error the service gave.
    Refused(u32),
    /// The connection broke.
    Broken,
}

/// A running writer.
#[derive(Debug)]
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    acked: Arc<AtomicU64>,
    thread: JoinHandle<End>,
}

impl Writer {
    /// Writes to random blocks among the first `blocks` of the volume at `socket`.
    pub(crate) fn start(socket: &Path, shadow: &Kept, seed: u64, blocks: usize) -> Writer {
        Writer::at(socket, shadow, seed, blocks, |block| block as u64 * 4096)
    }

    /// The same where block `n` of the shadow is at the byte `place(n)` of the volume.
    pub(crate) fn at(
        socket: &Path,
        shadow: &Kept,
        seed: u64,
        blocks: usize,
        place: fn(usize) -> u64,
    ) -> Writer {
        let (stop, acked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (socket, shadow) = (socket.to_owned(), shadow.clone());
        let (ordered, count) = (stop.clone(), acked.clone());
        let thread = std::thread::spawn(move || {
            write(&socket, &shadow, Rng::new(seed), (blocks, place), &ordered, &count)
        });
        Writer { stop, acked, thread }
    }

    /// Writes acknowledged so far.
    pub(crate) fn acked(&self) -> u64 {
        self.acked.load(Ordering::Acquire)
    }

    /// Waits until `n` more writes are acknowledged.
    pub(crate) fn goes_on(&self, n: u64) {
        let from = self.acked();
        crate::cluster::wait_until("writes to be acknowledged", || {
            assert!(!self.thread.is_finished(), "the writer has ended");
            self.acked() >= from + n
        });
    }

    /// Waits for its end, which nobody orders.
    pub(crate) fn ended(self) -> End {
        self.thread.join().expect("the writer does not panic")
    }

    /// Ends it and waits for its last answer.
    pub(crate) fn stop(self) -> End {
        self.stop.store(true, Ordering::Release);
        self.ended()
    }
}

fn write(
    socket: &Path,
    shadow: &Kept,
    mut rng: Rng,
    (blocks, place): (usize, fn(usize) -> u64),
    stop: &AtomicBool,
    acked: &AtomicU64,
) -> End {
    let (send, answers) = channel();
    let mut client = Client::connect(socket, Volume::NAME, send).expect("a connection");
    let mut flight: HashMap<u64, (usize, u32)> = HashMap::new();
    let (mut next, mut refused) = (1, None);
    loop {
        while flight.len() < DEPTH && refused.is_none() && !stop.load(Ordering::Acquire) {
            let block = rng.range(0..blocks as u64) as usize;
            // One at a time for each block, so that the newer version is the later write.
            if flight.values().any(|(b, _)| *b == block) {
                continue;
            }
            let version = {
                let mut s = look(shadow);
                s.sent[block] += 1;
                s.sent[block]
            };
            let data = content(block, version);
            flight.insert(next, (block, version));
            if client.send(next, place(block), &Command::Write { data, fua: false }).is_err() {
                return End::Broken;
            }
            next += 1;
        }
        if flight.is_empty() {
            return refused.map_or(End::Done, End::Refused);
        }
        let Answer { handle, result } = answers.recv_timeout(STUCK).expect("an answer");
        let Some((block, version)) = flight.remove(&handle) else { return End::Broken };
        match result {
            Ok(_) => {
                look(shadow).acked[block] = version;
                acked.fetch_add(1, Ordering::AcqRel);
            }
            Err(errno) => {
                refused.get_or_insert(errno);
            }
        }
    }
}

/// Bytes that the volume at `socket` says it has.
pub(crate) fn size(socket: &Path) -> u64 {
    let (send, _answers) = channel();
    Client::connect(socket, Volume::NAME, send).expect("a connection").size
}

/// Everything the volume at `socket` holds.
pub(crate) fn read_all(socket: &Path) -> Vec<u8> {
    let (send, answers) = channel();
    let mut client = Client::connect(socket, Volume::NAME, send).expect("a connection");
    let mut all = Vec::with_capacity(client.size as usize);
    while (all.len() as u64) < client.size {
        let left = (client.size - all.len() as u64).min(u64::from(CHUNK)) as u32;
        client.send(1, all.len() as u64, &Command::Read(left)).expect("a connection");
        all.extend(answers.recv_timeout(STUCK).expect("an answer").result.expect("a read that succeeds"));
    }
    all
}

/// One request; the protocol's error number where it is refused.
pub(crate) fn request(socket: &Path, offset: u64, command: &Command) -> Result<Vec<u8>, u32> {
    let (send, answers) = channel();
    let mut client = Client::connect(socket, Volume::NAME, send).expect("a connection");
    client.send(1, offset, command).expect("a connection");
    answers.recv_timeout(STUCK).expect("an answer").result
}
