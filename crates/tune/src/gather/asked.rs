//! Questions to daemons, and the answers that did not come.

use crate::facts::Unseen;
use loligo_ceph::commands::{CommandClient, Recipient};
use serde_json::Value;

/// A cluster that is asked, with what it did not say.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) client: &'a CommandClient,
    pub(super) unseen: Vec<Unseen>,
}

impl Asked<'_> {
    /// Asks `to`. An answer that is refused, or is no JSON, is noted as not seen.
    pub(super) fn ask(&mut self, to: Recipient, what: &str, command: &Value) -> Option<Value> {
        match ask(self.client, to, command) {
            Ok(value) => Some(value),
            Err(why) => {
                self.unseen.push(Unseen { what: what.to_owned(), why });
                None
            }
        }
    }

    pub(super) fn monitors(&mut self, what: &str, command: &Value) -> Option<Value> {
        self.ask(Recipient::Monitors, what, command)
    }

    pub(super) fn manager(&mut self, what: &str, command: &Value) -> Option<Value> {
        self.ask(Recipient::Manager, what, command)
    }
}

/// The answer to a command, as JSON.
pub(super) fn ask(client: &CommandClient, to: Recipient, command: &Value) -> Result<Value, String> {
    let said = client.send(to, command).map_err(|why| why.to_string())?;
    serde_json::from_str(&said).map_err(|why| format!("{to} answers {command} by no JSON: {why}"))
}

/// The major release of a version: `ceph version 18.2.7 (...) reef (stable)`, or `18.2.7`.
pub(super) fn major(version: &str) -> Option<i64> {
    let number = version.strip_prefix("ceph version ").unwrap_or(version);
    number.split('.').next()?.parse().ok()
}
