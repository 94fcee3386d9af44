//! Questions to daemons, and the answers that did not come.

use crate::facts::Unseen;
use loligo_ceph::commands::{CommandClient, Recipient};
use serde_json::{Value, json};

/// A cluster that is asked, with what it did not say.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) client: &'a CommandClient,
    pub(super) unseen: Vec<Unseen>,
}

impl Asked<'_> {
    /// Asks the monitors. An answer that is refused, or is no JSON, is noted as not seen.
    pub(super) fn monitors(&mut self, what: &str, prefix: &str) -> Option<Value> {
        self.ask(Recipient::Monitors, what, command(prefix))
    }

    /// The same of the manager.
    pub(super) fn manager(&mut self, what: &str, prefix: &str) -> Option<Value> {
        self.ask(Recipient::Manager, what, command(prefix))
    }

    /// The same of `to`, by a command with more words.
    pub(super) fn ask(&mut self, to: Recipient, what: &str, command: Value) -> Option<Value> {
        let said = ask(self.client, to, &command);
        said.map_err(|why| self.unseen.push(Unseen { what: what.to_owned(), why })).ok()
    }
}

/// The command that begins with `prefix` and wants JSON.
pub(crate) fn command(prefix: &str) -> Value {
    json!({"prefix": prefix, "format": "json"})
}

/// The answer to a command, as JSON.
pub(crate) fn ask(client: &CommandClient, to: Recipient, command: &Value) -> Result<Value, String> {
    let said = client.send(to, command).map_err(|why| why.to_string())?;
    serde_json::from_str(&said).map_err(|why| format!("{to} answers {command} by no JSON: {why}"))
}

/// The major release of a version: `ceph version 18.2.7 (...) reef (stable)`, or `18.2.7`.
pub(super) fn major(version: &str) -> Option<i64> {
    let number = version.strip_prefix("ceph version ").unwrap_or(version);
    number.split('.').next()?.parse().ok()
}

/// The entry of `list` whose `key` is `id`; null where there is none.
pub(crate) fn by_id<'a>(list: &'a Value, key: &str, id: i64) -> &'a Value {
    let mut entries = list.as_array().into_iter().flatten();
    entries.find(|entry| entry[key].as_i64() == Some(id)).unwrap_or(&Value::Null)
}
