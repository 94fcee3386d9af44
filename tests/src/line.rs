//! A connection with one request at a time, for tests that say exactly what happens when.

use crate::fixture::Content;
use crate::nbd::{Answer, Client, Command};
use crate::server::Volume;
use anyhow::{Context, Result, anyhow, ensure};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Bytes read at a time when everything is read.
const CHUNK: u64 = 512 << 10;
/// A request that takes longer is stuck.
const STUCK: Duration = Duration::from_secs(30);
/// The protocol's EIO.
pub const EIO: u32 = 5;

/// One connection.
#[derive(Debug)]
pub struct Line {
    client: Client,
    answers: Receiver<Answer>,
    sent: u64,
}

impl Line {
    /// To the export of `volume`.
    ///
    /// # Errors
    /// If it is refused.
    pub fn to(volume: &Volume) -> Result<Line> {
        Line::connect(&volume.socket(), Volume::NAME)
    }

    /// To the export `name` on the socket at `path`.
    ///
    /// # Errors
    /// If it is refused.
    pub fn connect(path: &Path, name: &str) -> Result<Line> {
        let (tell, answers) = channel();
        Ok(Line { client: Client::connect(path, name, tell)?, answers, sent: 0 })
    }

    /// Bytes of the volume.
    pub fn size(&self) -> u64 {
        self.client.size
    }

    /// Asks and waits: what was read, or the protocol's error.
    ///
    /// # Errors
    /// If no answer comes.
    pub fn try_ask(&mut self, offset: u64, command: &Command) -> Result<Result<Vec<u8>, u32>> {
        self.sent += 1;
        self.client.send(self.sent, offset, command)?;
        let answer = self.answers.recv_timeout(STUCK).context("no answer")?;
        ensure!(answer.handle == self.sent, "the connection is closed");
        Ok(answer.result)
    }

    /// Asks for what must succeed.
    ///
    /// # Errors
    /// If it does not.
    pub fn ask(&mut self, offset: u64, command: &Command) -> Result<Vec<u8>> {
        self.try_ask(offset, command)?.map_err(|e| anyhow!("a request at {offset} failed with NBD error {e}"))
    }

    /// Writes `n` times `len` bytes, `step` apart, numbered from `stamp` on.
    ///
    /// # Errors
    /// If one fails.
    pub fn writes(
        &mut self,
        content: &mut Content,
        stamp: u64,
        (first, step, n): (u64, u64, u64),
        len: usize,
    ) -> Result<()> {
        for i in 0..n {
            let at = first + i * step;
            let data = content.write(at, len, stamp + i);
            self.ask(at, &Command::Write { data, fua: false })?;
        }
        Ok(())
    }

    /// Everything answered is to be durable.
    ///
    /// # Errors
    /// If it fails.
    pub fn flush(&mut self) -> Result<()> {
        self.ask(0, &Command::Flush).map(drop)
    }

    /// Reads everything and compares it.
    ///
    /// # Errors
    /// If they differ; the error says in what.
    pub fn check(&mut self, content: &Content) -> Result<()> {
        let size = self.size();
        ensure!(size == content.size(), "the volume has {size} bytes, not {}", content.size());
        for at in (0..size).step_by(CHUNK as usize) {
            let data = self.ask(at, &Command::Read(CHUNK.min(size - at) as u32))?;
            content.check(at, &data)?;
        }
        Ok(())
    }
}
