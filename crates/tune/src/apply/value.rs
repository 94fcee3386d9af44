//! A value at its place.

use serde::{Deserialize, Serialize};

/// The value at a place, as it is read and put back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The value in force there; nothing: none is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// The value that the host's own files give it at each boot, where this program has written one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl Value {
    /// One that is not kept in files of a host.
    pub fn plain(now: Option<String>) -> Value {
        Value { now, kept: None }
    }

    /// In words.
    pub fn words(&self) -> String {
        self.now.as_deref().map_or_else(|| "nothing".to_owned(), in_one_line)
    }
}

/// A value in one line: of a file the lines that are no comments.
pub(super) fn in_one_line(value: &str) -> String {
    let lines: Vec<&str> =
        value.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    if value.contains('\n') { lines.join("; ") } else { value.to_owned() }
}
