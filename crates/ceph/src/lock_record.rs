//! A cache's record of its hold on an image: the next start sees by it whether anybody else had it since.

use crate::image::{LockHolder, WatcherInfo};
use serde::{Deserialize, Serialize};

/// The hold on the image of an earlier attach. The lock that still carries these names shows that nobody had the image since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
    /// The client that held the lock.
    #[serde(flatten)]
    pub holder: LockHolder,
    /// The newest snapshot sequence then known.
    pub seq: u64,
    /// A client that was about to take the lock over from that one: `client.4123`; an address where an older release wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tried: Option<String>,
    /// The stamp with which the lock of that hold is about to be broken, or has been.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "b")]
    pub broken: Option<i64>,
    /// The version of the image's header when that lock had been broken and nobody had taken it.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "f")]
    pub free_at: Option<u64>,
    /// The version of the image's header when the lock was let go after everything had been flushed.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "v")]
    pub left_at: Option<u64>,
    /// The newest version of the image's header that was seen when this was written.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "w")]
    pub version: Option<u64>,
    /// The version of the image's header once the client that left its lock could change nothing any more. The sequence above is
    /// of that moment then.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "r")]
    pub rests_at: Option<u64>,
    /// Others may have written to the image, and the cache has not been told yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not", rename = "x")]
    pub suspect: bool,
    /// The image was lost to somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "l")]
    pub lost: Option<Loss>,
}

/// An image was found to be somebody else's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Seconds since 1970.
    pub at: u64,
    /// By what it showed.
    pub why: String,
}

impl Loss {
    /// Found out now.
    pub fn now(why: &str) -> Loss {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Loss { at: since.as_secs(), why: why.to_owned() }
    }

    /// The time since then, in words.
    pub(crate) fn ago(&self) -> String {
        let now = Loss::now("").at;
        match now.saturating_sub(self.at) {
            s @ 0..120 => format!("{s} s"),
            s @ 120..7200 => format!("{} min", s / 60),
            s => format!("{} h", s / 3600),
        }
    }
}

impl LockRecord {
    /// True if that hold is of this cache: a client's number is never given again, and one that has lost its image sends nothing
    /// any more, so that it cannot take the lock back. The cookie changes whenever librbd has to watch the image anew.
    pub(crate) fn knows(&self, holder: &LockHolder) -> bool {
        holder.client == self.holder.client
            || self.tried.as_ref().is_some_and(|t| *t == holder.client || *t == holder.address)
    }

    /// Evidence in a header against it that still carries this hold's lock, or was left free by it: `seq` and `version` only
    /// grow, and nothing moves either while nobody changes the header.
    pub(crate) fn contradicts(&self, seq: u64, version: u64) -> Option<String> {
        let known = self.version.max(self.rests_at).unwrap_or_default();
        if version < known || seq < self.seq {
            return Some(format!(
                "its header is an older one (version {version} and snapshot sequence {seq}; they were {known} and {}): it was put back \
                 from a copy",
                self.seq
            ));
        }
        let rested = self.rests_at.filter(|r| *r != version || self.seq != seq)?;
        Some(format!(
            "its header was changed (version {version}, {rested} when the cache was stopped) although its lock is still this cache's. \
             A clone of one of its snapshots does that without writing to it, and so does a mirror daemon"
        ))
    }

    pub(crate) fn knows_watcher(&self, watcher: &WatcherInfo) -> bool {
        let client = format!("client.{}", watcher.client);
        client == self.holder.client
            || self.tried.as_ref().is_some_and(|t| *t == client || *t == watcher.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_went_back_or_moved_after_a_stop_is_seen() {
        let text = r#"{"client":"client.4","cookie":"auto 1","address":"10.0.0.1:0/7","seq":5,"w":100}"#;
        let served: LockRecord = serde_json::from_str(text).expect("a record");
        // Killed: what was done to the image until then is not known.
        assert_eq!(served.contradicts(5, 100), None);
        assert_eq!(served.contradicts(7, 130), None);
        assert!(served.contradicts(5, 99).is_some_and(|why| why.contains("copy")));
        assert!(served.contradicts(4, 130).is_some_and(|why| why.contains("copy")));
        let stopped = LockRecord { rests_at: Some(120), ..served };
        assert_eq!(stopped.contradicts(5, 120), None);
        assert!(stopped.contradicts(5, 121).is_some_and(|why| why.contains("changed")));
        assert!(stopped.contradicts(6, 120).is_some_and(|why| why.contains("changed")));
        assert!(stopped.contradicts(5, 110).is_some_and(|why| why.contains("copy")));
    }

    fn holder(client: &str, cookie: &str) -> LockHolder {
        let (client, cookie) = (client.to_owned(), cookie.to_owned());
        LockHolder { client, cookie, address: "10.0.0.1:0/77".to_owned() }
    }

    #[test]
    fn a_witness_goes_by_the_client_and_not_by_its_address() {
        let old = r#"{"client":"client.12","cookie":"auto 1","address":"10.0.0.1:0/77","seq":4,"tried":"10.0.0.2:0/5"}"#;
        let record: LockRecord = serde_json::from_str(old).expect("what older releases wrote");
        assert!(record.knows(&holder("client.12", "auto 1")));
        assert!(record.knows(&holder("client.12", "auto 2")), "watched anew, and not noted yet");
        assert!(!record.knows(&holder("client.13", "auto 1")), "another client at the address");
        let tried = LockHolder { address: "10.0.0.2:0/5".to_owned(), ..holder("client.14", "auto 9") };
        assert!(record.knows(&tried), "noted by an older release");
        let record = LockRecord { tried: Some("client.15".to_owned()), ..record };
        assert!(record.knows(&holder("client.15", "auto 3")));
        let watcher = |client| WatcherInfo {
            address: "10.0.0.1:0/77".to_owned(),
            client,
            kernel: false,
            mirrors: false,
        };
        assert!(record.knows_watcher(&watcher(12)) && record.knows_watcher(&watcher(15)));
        assert!(!record.knows_watcher(&watcher(16)));
    }
}
