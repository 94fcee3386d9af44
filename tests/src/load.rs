//! A mixed load over several connections that knows what it may read.

use crate::history::{Crash, History, Kind, SECTOR, pattern};
use crate::nbd::{Answer, Client, Command};
use anyhow::{Context, Result, bail};
use loligo_sim::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longest request of the load, sectors.
const LONGEST: u64 = 128;
/// Requests in flight over all connections.
const DEPTH: usize = 16;
/// Bytes read at a time when everything is read.
const CHUNK: u64 = 512 << 10;
/// A request that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(30);

/// Shares of the kinds of request, in percent; the rest reads.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Writes.
    pub write: u64,
    /// Of the writes and zeroes, those with FUA.
    pub fua: u64,
    /// Flushes.
    pub flush: u64,
    /// Discards.
    pub discard: u64,
    /// Write zeroes.
    pub zeroes: u64,
    /// Bytes at the start of the volume that take two thirds of the requests.
    pub hot: u64,
    /// Every request begins and ends at a multiple of this, bytes.
    pub unit: u64,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix { write: 60, fua: 10, flush: 3, discard: 3, zeroes: 4, hot: 12 << 20, unit: 512 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Read,
    Change { kind: Kind, stamp: u64, fua: bool },
    Flush { issued: u64 },
}

/// The end of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As ordered; everything is answered.
    Done,
    /// The service failed requests or closed a connection.
    Lost,
}

/// Connections to a volume and what is in flight on them.
#[derive(Debug)]
pub struct Load {
    clients: Vec<Client>,
    answers: Receiver<Answer>,
    flight: BTreeMap<u64, (What, Range<u64>)>,
    next: u64,
    /// Requests answered.
    pub answered: u64,
}

impl Load {
    /// Opens `connections` to the export `name` on the socket at `path`.
    ///
    /// # Errors
    /// If one is refused.
    pub fn connect(path: &Path, name: &str, connections: usize) -> Result<Load> {
        let (tx, answers) = channel();
        let clients = (0..connections)
            .map(|_| Client::connect(path, name, tx.clone()))
            .collect::<Result<Vec<_>>>()
            .context("no connection")?;
        Ok(Load { clients, answers, flight: BTreeMap::new(), next: 1, answered: 0 })
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.clients[0].size
    }

    fn send(&mut self, client: usize, sectors: Range<u64>, what: What, command: &Command) -> bool {
        let handle = self.next;
        self.next += 1;
        let offset = if matches!(what, What::Flush { .. }) { 0 } else { sectors.start * SECTOR as u64 };
        self.flight.insert(handle, (what, sectors));
        self.clients[client].send(handle, offset, command).is_ok()
    }

    /// Takes one answer; false when the service is lost.
    fn take(&mut self, history: &mut History, after: Option<Crash>) -> Result<bool> {
        let answer = match self.answers.recv_timeout(STUCK) {
            Ok(a) => a,
            Err(RecvTimeoutError::Timeout) => bail!("no answer within {STUCK:?}: {:?}", self.flight),
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        };
        let Some((what, sectors)) = self.flight.remove(&answer.handle) else { return Ok(false) };
        let Ok(data) = answer.result else { return Ok(false) };
        self.answered += 1;
        match what {
            What::Read => history.check(sectors.start, &data, after).map_err(anyhow::Error::msg)?,
            What::Change { stamp, fua, .. } => history.acknowledge(sectors, stamp, fua),
            What::Flush { issued } => history.flush_done(issued),
        }
        Ok(true)
    }

    fn free(&self, sectors: &Range<u64>, read: bool) -> bool {
        self.flight.values().all(|(what, other)| {
            other.end <= sectors.start
                || sectors.end <= other.start
                || matches!(what, What::Flush { .. })
                || (read && *what == What::Read)
        })
    }

    fn one(&mut self, history: &mut History, rng: &mut Rng, mix: &Mix) -> bool {
        let client = rng.below(self.clients.len() as u64) as usize;
        let roll = rng.below(100);
        if roll < mix.flush {
            let issued = history.flush_issued();
            return self.send(client, 0..0, What::Flush { issued }, &Command::Flush);
        }
        let roll = roll - mix.flush;
        let read = roll >= mix.write + mix.discard + mix.zeroes;
        let end = if rng.chance(2, 3) {
            (mix.hot / SECTOR as u64).min(history.sectors())
        } else {
            history.sectors()
        };
        let Some(sectors) = (0..8)
            .map(|_| {
                let len = rng.skewed(1..LONGEST + 1);
                let start = rng.below(end - len + 1);
                // Half of them whole blocks, as a file system sends them.
                let unit = if rng.chance(1, 2) { 8 } else { mix.unit / SECTOR as u64 };
                start / unit * unit..((start + len).next_multiple_of(unit)).min(end)
            })
            .find(|s| self.free(s, read))
        else {
            return true;
        };
        if read {
            let len = (sectors.end - sectors.start) as u32 * SECTOR as u32;
            return self.send(client, sectors, What::Read, &Command::Read(len));
        }
        let kind = match roll {
            r if r < mix.write => Kind::Write,
            r if r < mix.write + mix.discard => Kind::Discard,
            _ => Kind::Zeroes,
        };
        self.change(history, client, sectors, kind, kind != Kind::Discard && rng.chance(mix.fua, 100))
    }

    fn change(
        &mut self,
        history: &mut History,
        client: usize,
        sectors: Range<u64>,
        kind: Kind,
        fua: bool,
    ) -> bool {
        let stamp = history.issue(sectors.clone(), kind);
        let len = (sectors.end - sectors.start) as u32 * SECTOR as u32;
        let command = match kind {
            Kind::Write => {
                let mut data = vec![0; len as usize];
                pattern(stamp, sectors.start, &mut data);
                Command::Write { data, fua }
            }
            Kind::Zeroes => Command::Zeroes { len, fua },
            Kind::Discard => Command::Trim(len),
        };
        self.send(client, sectors, What::Change { kind, stamp, fua }, &command)
    }

    /// Mixed requests until `stop` says so (then everything in flight is awaited), or until the service is lost.
    ///
    /// # Errors
    /// Wrong data, or an answer that does not come.
    pub fn run(
        &mut self,
        history: &mut History,
        rng: &mut Rng,
        mix: &Mix,
        mut stop: impl FnMut() -> bool,
    ) -> Result<End> {
        while !stop() {
            let mut tries = 0;
            while self.flight.len() < DEPTH && tries < 2 * DEPTH {
                tries += 1;
                if !self.one(history, rng, mix) {
                    return self.drain(history).map(|_| End::Lost);
                }
            }
            if !self.take(history, None)? {
                return self.drain(history).map(|_| End::Lost);
            }
        }
        self.drain(history)
    }

    /// Awaits everything in flight. After a loss, what was still answered in time counts.
    fn drain(&mut self, history: &mut History) -> Result<End> {
        let mut end = End::Done;
        let from = Instant::now();
        while !self.flight.is_empty() {
            if end == End::Lost && from.elapsed() > Duration::from_millis(200) {
                break;
            }
            let waiting = Duration::from_millis(if end == End::Lost { 20 } else { 0 });
            if end == End::Lost {
                match self.answers.recv_timeout(waiting) {
                    Ok(Answer { handle, result: Ok(data) }) => self.late(history, handle, &data)?,
                    Ok(Answer { handle, result: Err(_) }) if handle != 0 => drop(self.flight.remove(&handle)),
                    Ok(_) => {}
                    Err(_) => break,
                }
            } else if !self.take(history, None)? {
                end = End::Lost;
            }
        }
        self.flight.clear();
        Ok(end)
    }

    fn late(&mut self, history: &mut History, handle: u64, data: &[u8]) -> Result<()> {
        match self.flight.remove(&handle) {
            Some((What::Read, sectors)) => {
                history.check(sectors.start, data, None).map_err(anyhow::Error::msg)
            }
            Some((What::Change { stamp, fua, .. }, sectors)) => {
                history.acknowledge(sectors, stamp, fua);
                Ok(())
            }
            Some((What::Flush { issued }, _)) => {
                history.flush_done(issued);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Reads the whole volume and checks every sector; `after` is how the last life ended.
    ///
    /// # Errors
    /// Wrong data.
    pub fn verify(&mut self, history: &mut History, after: Option<Crash>) -> Result<End> {
        let (size, mut at) = (self.size(), 0);
        while at < size || !self.flight.is_empty() {
            while at < size && self.flight.len() < 4 {
                let len = CHUNK.min(size - at);
                let sectors = at / SECTOR as u64..(at + len) / SECTOR as u64;
                let client = self.flight.len() % self.clients.len();
                at += len;
                if !self.send(client, sectors, What::Read, &Command::Read(len as u32)) {
                    return Ok(End::Lost);
                }
            }
            if !self.take(history, after)? {
                return Ok(End::Lost);
            }
        }
        Ok(End::Done)
    }

    /// Writes sectors and waits for the answer.
    ///
    /// # Errors
    /// If it fails.
    pub fn write(&mut self, history: &mut History, sectors: Range<u64>, fua: bool) -> Result<()> {
        let sent = self.change(history, 0, sectors, Kind::Write, fua);
        if sent && self.take(history, None)? { Ok(()) } else { bail!("a write failed") }
    }

    /// Reads sectors; `None` is an error answered by the service.
    ///
    /// # Errors
    /// Wrong data.
    pub fn read(&mut self, history: &mut History, sectors: Range<u64>) -> Result<Option<()>> {
        let len = (sectors.end - sectors.start) as u32 * SECTOR as u32;
        let sent = self.send(0, sectors, What::Read, &Command::Read(len));
        Ok((sent && self.take(history, None)?).then_some(()))
    }

    /// Flushes and waits for the answer.
    ///
    /// # Errors
    /// If it fails.
    pub fn flush(&mut self, history: &mut History) -> Result<()> {
        let issued = history.flush_issued();
        let sent = self.send(0, 0..0, What::Flush { issued }, &Command::Flush);
        if sent && self.take(history, None)? { Ok(()) } else { bail!("a flush failed") }
    }
}
