//! The witness of a run's copy: its digest, in the configuration database of the cluster.
//!
//! The copy lies among keys that others may write. An entry of the configuration is written by those alone who may set any option, so
//! that a copy with its witness lets nobody do more than before.

use super::places::entry;
use crate::gather::asked::{ask, command};
use loligo_ceph::commands::{CommandClient, Recipient};
use serde_json::json;

/// The section of the witness. The manager takes options of modules that it does not have, and does nothing with them.
const SECTION: &str = "mgr";
/// The folder of all witnesses.
const FOLDER: &str = "mgr/loligo_tune/";

/// The name of a run's witness.
fn key(run: &str) -> String {
    format!("{FOLDER}{}", run.replace('-', "_"))
}

/// The digest of a copy: SHA-256, in hexadecimal.
fn digest(text: &str) -> String {
    openssl::sha::sha256(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the witness of a copy.
///
/// # Errors
/// If the monitors refuse, or cannot be reached.
pub(super) fn put(client: &CommandClient, run: &str, copy: &str) -> Result<(), String> {
    // No module declares such an option.
    let order = json!({
        "prefix": "config set", "who": SECTION, "name": key(run), "value": digest(copy), "force": true
    });
    client.send(Recipient::Monitors, &order).map(drop).map_err(|why| why.to_string())
}

/// Takes it away: nobody goes by the copy again.
///
/// # Errors
/// If the monitors refuse, or cannot be reached.
pub(super) fn forget(client: &CommandClient, run: &str) -> Result<(), String> {
    let order = json!({"prefix": "config rm", "who": SECTION, "name": key(run)});
    client.send(Recipient::Monitors, &order).map(drop).map_err(|why| why.to_string())
}

/// The reason why a copy is not to be believed; nothing: its witness is there.
///
/// # Errors
/// If the monitors refuse, or cannot be reached.
pub(super) fn doubt(client: &CommandClient, run: &str, copy: &str) -> Result<Option<String>, String> {
    let dump = ask(client, Recipient::Monitors, &command("config dump"))?;
    Ok(judged(entry(&dump, SECTION, &key(run)).as_deref(), run, copy))
}

fn judged(witness: Option<&str>, run: &str, copy: &str) -> Option<String> {
    let key = key(run);
    match witness {
        Some(it) if it == digest(copy) => None,
        Some(_) => Some(format!(
            "the copy was changed since: its digest is not the one that the run left as {key} in the configuration"
        )),
        None => Some(format!(
            "the run left no {key} in the configuration: an older program or somebody else wrote the copy"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_with_the_digest_of_its_very_bytes() {
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest("abc"), known, "FIPS 180-2, appendix B.1");
        assert_eq!(judged(Some(known), "r-1", "abc"), None);
        assert!(judged(Some(known), "r-1", "abd").is_some_and(|why| why.contains("mgr/loligo_tune/r_1")));
        assert!(judged(None, "r-1", "abc").is_some_and(|why| why.contains("left no mgr/loligo_tune/r_1")));
    }
}
