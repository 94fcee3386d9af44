//! The history of the cluster's map of OSDs: what changed in each epoch, at the time that the monitors gave it.

use anyhow::{Context, Result};
use loligo_ceph::monitors::Monitors;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// A change of an OSD in the map.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MapChange {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// The epoch.
    pub epoch: u64,
    /// The OSD.
    pub osd: u64,
    /// `down`, `up`, `out` or `in`.
    pub what: &'static str,
}

fn dump(monitors: &Monitors, epoch: Option<u64>) -> Result<Value> {
    let mut command = json!({"prefix": "osd dump", "format": "json"});
    if let Some(epoch) = epoch {
        command["epoch"] = json!(epoch);
    }
    let text = monitors.ask(&command.to_string())?;
    serde_json::from_str(&text).context("the map of OSDs is not JSON")
}

/// The present epoch.
///
/// # Errors
/// If no monitor answers.
pub(crate) fn epoch(monitors: &Monitors) -> Result<u64> {
    dump(monitors, None)?["epoch"].as_u64().context("the map of OSDs has no epoch")
}

/// The changes of the epochs after `from`.
///
/// # Errors
/// If no monitor answers, or one has forgotten an epoch.
pub(crate) fn changes(monitors: &Monitors, from: u64) -> Result<Vec<MapChange>> {
    let last = epoch(monitors)?;
    let mut before = states(&dump(monitors, Some(from))?);
    let mut changes = Vec::new();
    for epoch in from + 1..=last {
        let map = dump(monitors, Some(epoch))?;
        let at_ms = modified(&map).with_context(|| format!("the time of epoch {epoch}"))?;
        let now = states(&map);
        for (osd, state) in &now {
            let was = before.get(osd).unwrap_or(state);
            let words = [("down", "up"), ("out", "in")];
            for at in 0..2 {
                if was[at] != state[at] {
                    let what = if state[at] { words[at].1 } else { words[at].0 };
                    changes.push(MapChange { at_ms, epoch, osd: *osd, what });
                }
            }
        }
        before = now;
    }
    Ok(changes)
}

/// The reason why not every placement group is active and clean; nothing: all are, and all OSDs are up and in.
pub(crate) fn unclean(monitors: &Monitors) -> Option<String> {
    let text = match monitors.ask(r#"{"prefix":"status","format":"json"}"#) {
        Ok(text) => text,
        Err(why) => return Some(why.to_string()),
    };
    let status: Value = serde_json::from_str(&text).unwrap_or_default();
    let all = status["pgmap"]["num_pgs"].as_u64().unwrap_or(0);
    let states = status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten();
    let clean =
        |state: &&Value| state["state_name"].as_str().is_some_and(|name| name.starts_with("active+clean"));
    let sum: u64 = states.filter(clean).filter_map(|state| state["count"].as_u64()).sum();
    let (up, osds) = (status["osdmap"]["num_up_osds"].as_u64(), status["osdmap"]["num_osds"].as_u64());
    let is_in = status["osdmap"]["num_in_osds"].as_u64() == osds;
    if all > 0 && sum == all && up == osds && is_in {
        return None;
    }
    let number = |n: Option<u64>| n.unwrap_or(0);
    Some(format!(
        "{sum} of {all} placement groups are active and clean, {} of {} OSDs up",
        number(up),
        number(osds)
    ))
}

/// Of each OSD whether it is up, and in.
fn states(map: &Value) -> BTreeMap<u64, [bool; 2]> {
    let osds = map["osds"].as_array().into_iter().flatten();
    osds.filter_map(|osd| Some((osd["osd"].as_u64()?, [osd["up"] == 1, osd["in"] == 1]))).collect()
}

fn modified(map: &Value) -> Option<u64> {
    let text = map["modified"].as_str()?.replace("+0000", "Z");
    let at = humantime::parse_rfc3339(&text).ok()?;
    Some(at.duration_since(UNIX_EPOCH).ok()?.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_epoch_and_the_states_of_osds_are_read() {
        let map =
            json!({"modified": "2026-11-27T21:28:13.250000+0000", "osds": [{"osd": 3, "up": 0, "in": 1}]});
        assert_eq!(modified(&map), Some(1_795_814_893_250));
        assert_eq!(states(&map), [(3, [false, true])].into());
    }
}
