//! The client as a process of its own: started, waited for, and asked what it saw.

use super::op::{READY, Report, STOP};
use crate::child::Child;
use anyhow::{Context, Result, bail, ensure};
use loligo_lab::interrupt::Interrupt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time that the client may take for its images, and for its last words.
const CLIENT: Duration = Duration::from_secs(400);

/// The time that it may take to end once it has said all.
const CLOSE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The client's process.
pub(crate) struct Client {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    /// Starts it by `command`, with its errors in `log`, and waits until its images are written and its load runs.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Client> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = Child::spawn(&mut command).context("starting the client")?;
        let stdin = child.take_stdin().context("the client's standard input")?;
        let stdout = child.take_stdout().context("the client's standard output")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines();
            lines.map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let client = Client { child, stdin, lines };
        let said = client.line()?;
        ensure!(said == READY, "the client says '{said}', not '{READY}'");
        Ok(client)
    }

    fn line(&self) -> Result<String> {
        match self.lines.recv_timeout(CLIENT) {
            Ok(line) => Ok(line),
            Err(_) => bail!("the client says nothing: its words are in its log"),
        }
    }

    /// Ends the load: what it saw.
    pub(crate) fn finish(&mut self) -> Result<Report> {
        writeln!(self.stdin, "{STOP}").context("telling the client to stop")?;
        self.stdin.flush()?;
        let report = serde_json::from_str(&self.line()?).context("the client's report")?;
        // It has said all: that it ends is not waited for.
        let _ = self.child.try_wait();
        Ok(report)
    }

    /// Waits until the process has ended by itself: it closes its images then.
    pub(crate) fn close(mut self, stop: &Interrupt) -> Result<()> {
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            stop.check()?;
            ensure!(begun.elapsed() < CLOSE, "the client has not ended after {} s", CLOSE.as_secs());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}
