//! One look at all volumes.

use super::latency::Distribution;
use crate::client::{Client, DaemonClient};
use crate::names;
use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time that a volume may take to answer before it is shown as one that does not.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that somebody who speaks first is waited for.
const GREETING: Duration = Duration::from_millis(100);

/// A volume's report on itself, as far as it is watched.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "named as in the statistics")]
pub struct Numbers {
    pub mode: String,
    pub uptime_s: f64,
    pub poisoned: Option<String>,
    pub cache_gone: Option<String>,
    pub connections: u64,
    pub cache_bytes: u64,
    pub occupied_bytes: u64,
    pub dirty_bytes: u64,
    pub read_hits: u64,
    pub read_misses: u64,
    pub write_hits: u64,
    pub write_misses: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub crc_errors: u64,
    pub io_errors: u64,
    pub cache_read_bytes: u64,
    pub cache_write_bytes: u64,
    pub core_read_bytes: u64,
    pub core_write_bytes: u64,
    pub destaged_blocks: u64,
    pub evictions: u64,
    pub fills: u64,
    pub paced: u64,
    pub bypass: BTreeMap<String, u64>,
    pub histograms: BTreeMap<String, Value>,
    pub rbd: Option<Value>,
}

impl Numbers {
    /// Requests of a kind since the start.
    pub(super) fn count(&self, kind: &str) -> u64 {
        self.histograms.get(kind).and_then(|h| h["count"].as_u64()).unwrap_or(0)
    }

    /// Its image was taken by somebody else.
    pub(super) fn is_lost(&self) -> bool {
        self.rbd.as_ref().is_some_and(|r| r["lease"] == "lost")
    }
}

/// One volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// In a word: serving, waiting, refused ...
    pub state: String,
    /// The reason why it is in that state.
    pub why: Option<String>,
    /// Its numbers, while it answers.
    pub numbers: Option<Numbers>,
    /// Its latencies since the start, by kind.
    pub latencies: BTreeMap<String, Distribution>,
}

/// Every volume at one moment.
#[derive(Debug, Clone)]
pub struct Look {
    /// The time of the look.
    pub at: Instant,
    /// By name.
    pub volumes: BTreeMap<String, Seen>,
}

/// Looks at every volume of this host.
///
/// # Errors
/// If nobody can say where control sockets lie, or their folder cannot be read.
pub fn look() -> Result<Look> {
    let daemons = daemons();
    let sockets: BTreeSet<String> = names::with_sockets()?.into_iter().collect();
    let names: BTreeSet<&String> = sockets.iter().chain(daemons.keys()).collect();
    let volumes = std::thread::scope(|s| {
        let asked: Vec<_> = names
            .into_iter()
            .map(|name| {
                let known = daemons.get(name).cloned();
                let listens = sockets.contains(name);
                s.spawn(move || Some((name.clone(), volume(name, known, listens)?)))
            })
            .collect();
        asked.into_iter().filter_map(|t| t.join().ok().flatten()).collect()
    });
    Ok(Look { at: Instant::now(), volumes })
}

/// The daemon's report on its volumes; nothing if none runs.
fn daemons() -> BTreeMap<String, Seen> {
    let listed = DaemonClient::new().map(|d| d.within(PATIENCE)).and_then(|d| d.volumes());
    let seen = |v: crate::api::listed::Listed| {
        let why = v.status.why().map(str::to_owned);
        (v.name, Seen { state: v.status.word().to_owned(), why, ..Seen::default() })
    };
    listed.unwrap_or_default().into_iter().map(seen).collect()
}

/// Nothing where its socket is what a killed service left, or somebody else's.
fn volume(name: &str, known: Option<Seen>, listens: bool) -> Option<Seen> {
    let serving = known.as_ref().is_none_or(|k| k.state == "serving");
    if !listens || !serving {
        return known;
    }
    let asked = Client::new(name).map(|c| c.within(PATIENCE)).and_then(|c| Ok((c.stats()?, c)));
    let (stats, client) = match asked {
        Ok(asked) => asked,
        Err(_) if known.is_none() && is_strange(name) => return None,
        Err(why) => {
            let state = "silent".to_owned();
            return Some(Seen { state, why: Some(format!("{why:#}")), ..Seen::default() });
        }
    };
    // A service of before has no such answer; its latencies are not shown.
    let latencies = client.latencies().unwrap_or_default();
    Some(Seen {
        state: "serving".to_owned(),
        why: None,
        numbers: serde_json::from_value(stats).ok(),
        latencies: latencies.into_iter().map(|(kind, pairs)| (kind, Distribution::new(&pairs))).collect(),
    })
}

/// True if nobody listens, or somebody who is no volume: a server of NBD speaks first, one of HTTP never does.
fn is_strange(name: &str) -> bool {
    let Ok(socket) = names::socket_of(name) else { return false };
    match UnixStream::connect(socket) {
        Ok(mut stream) => {
            let _ = stream.set_read_timeout(Some(GREETING));
            stream.read(&mut [0; 8]).is_ok_and(|n| n > 0)
        }
        Err(e) => matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound),
    }
}
