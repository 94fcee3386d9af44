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
    pub fn words(&self) -> &str {
        self.now.as_deref().unwrap_or("nothing")
    }
}
