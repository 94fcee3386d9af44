//! How a command ends: its exit status, and what it prints as JSON.

use crate::values;
use anyhow::{Result, bail};
use loligo_client::api::volume::{ChangeState, FlushState};
use loligo_client::client::{Client, Until};
use loligo_client::outcome::{Ended, Outcome};
use loligo_lab::interrupt::{Interrupted, exit_code};
use loligo_log::{out, outln};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// For commands that change something.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Json {
    /// Print JSON on stdout, one object with 'outcome', whatever becomes of it; 'loligo --help' says more
    #[arg(long)]
    json: bool,
}

impl Json {
    /// Says that it is done: `what` where JSON is wanted, `words` otherwise.
    pub(crate) fn done(self, what: impl Serialize, words: impl FnOnce()) -> Result<()> {
        self.ended("done", what, words)
    }

    /// Says that it has begun, and goes on.
    pub(crate) fn begun(self, what: impl Serialize, words: impl FnOnce()) -> Result<()> {
        self.ended("begun", what, words)
    }

    fn ended(self, outcome: &str, what: impl Serialize, words: impl FnOnce()) -> Result<()> {
        let mut all = serde_json::to_value(what)?;
        all["outcome"] = json!(outcome);
        show(self.json, all, words)
    }

    /// How a change of a served volume ended, or that it has begun.
    pub(crate) fn changed(self, change: &ChangeState) -> Result<()> {
        if change.running {
            return self.begun(change, || outln!("the {} has begun", change.what));
        }
        self.done(change, || match change.held_ms > 0.0 {
            true => outln!("{} (requests were held for {:.1} ms)", change.done, change.held_ms),
            false => outln!("{}", change.done),
        })
    }

    /// The same of a flush.
    pub(crate) fn flushed(self, volume: &str, flush: &FlushState) -> Result<()> {
        let what = json!({ "volume": volume, "flush": flush });
        if flush.running { self.begun(what, || ()) } else { self.done(what, || ()) }
    }
}

/// Prints `what` as JSON where that is asked for; else `words` say it.
pub(crate) fn show(json: bool, what: impl Serialize, words: impl FnOnce()) -> Result<()> {
    if json {
        out!("{}\n", serde_json::to_string_pretty(&what)?);
    } else {
        words();
    }
    Ok(())
}

/// For commands whose work goes on without them.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Patience {
    /// Wait until it is over, also for a device that is not there (default: not for that)
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Return once it has begun
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Wait so long at most; it goes on all the same, and the exit status is 4
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    timeout: Option<Duration>,
}

impl Patience {
    /// Until when is waited.
    pub(crate) fn until(self) -> Until {
        match (self.wait, self.no_wait) {
            (_, true) => Until::Begun,
            (true, _) => Until::Served,
            (false, false) => Until::Over,
        }
    }

    /// How long at most.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.timeout
    }
}

/// A volume that is to do something
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// The volume
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) json: Json,
}

impl Named {
    /// The volume, as whoever waits for it speaks to it.
    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.name)?.waiting(self.patience.until(), self.patience.limit()))
    }
}

/// The exit status of a command that ended with `error`.
pub(crate) fn exit_status(error: &anyhow::Error) -> u8 {
    match exit_code(error) {
        Interrupted::EXIT_CODE => Interrupted::EXIT_CODE as u8,
        _ => Outcome::of(error).exit_code(),
    }
}

/// The output for `error` where JSON is wanted.
pub(crate) fn problem(error: &anyhow::Error) -> Value {
    let interrupted = exit_code(error) == Interrupted::EXIT_CODE;
    let outcome = if interrupted { json!("interrupted") } else { json!(Outcome::of(error)) };
    json!({ "outcome": outcome, "error": format!("{error:#}") })
}

/// The output for words that are no command.
pub(crate) fn misuse(said: &str) -> Value {
    json!({ "outcome": Outcome::Usage, "error": said.trim_start_matches("error: ").trim_end() })
}

/// Refuses what was asked.
pub(crate) fn refuse<T>(words: impl Into<String>) -> Result<T> {
    bail!(Ended::refused(words))
}
