//! A value at its place.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// The identity of the disk that the place is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The identity of the network interface that the place is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Values that the kernel sets anew as this one changes, by their names below its folder: they come back after it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub beside: BTreeMap<String, String>,
}

impl Value {
    /// One that is not kept in files of a host.
    pub fn plain(now: Option<String>) -> Value {
        Value { now, ..Value::default() }
    }

    /// True if a place with this value is as it was with `before`.
    pub(super) fn is_as(&self, before: &Value) -> bool {
        let is_beside = before.beside.iter().all(|(name, value)| self.beside.get(name) == Some(value));
        let of = |it: &Value| [&it.now, &it.kept, &it.disk, &it.nic].map(Clone::clone);
        is_beside && of(self) == of(before)
    }

    /// The reason why a place with this value is not the one that had `before`; nothing: it is the same, or of no disk and no interface.
    pub(super) fn is_another(&self, before: &Value) -> Option<String> {
        let kinds = [("disk", &self.disk, &before.disk), ("interface", &self.nic, &before.nic)];
        kinds.into_iter().find_map(|(kind, is, had)| {
            let had = had.as_ref().filter(|had| is.as_ref() != Some(had))?;
            let is = is.as_deref().unwrap_or("one that does not say its identity");
            Some(format!("another {kind} has this name now: {is}, and it was {had}"))
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_was_swapped_is_another_one() {
        let of = |disk: Option<&str>| Value { disk: disk.map(str::to_owned), ..Value::default() };
        assert_eq!(of(Some("naa.1")).is_another(&of(Some("naa.1"))), None);
        assert_eq!(of(None).is_another(&of(None)), None);
        assert_eq!(of(Some("naa.1")).is_another(&of(None)), None, "none was recorded");
        let why = of(Some("naa.2")).is_another(&of(Some("naa.1"))).expect("another");
        assert!(why.contains("naa.2, and it was naa.1"), "{why}");
        assert!(of(None).is_another(&of(Some("naa.1"))).is_some());
        let of = |nic: &str| Value { nic: Some(nic.to_owned()), ..Value::default() };
        assert!(of("aa:01").is_another(&of("aa:02")).is_some_and(|why| why.contains("another interface")));
        assert!(!of("aa:01").is_as(&of("aa:02")) && of("aa:01").is_as(&of("aa:01")));
    }
}
