//! Values that are in force already: a change to one of these changes nothing.

use super::effect::{by_database, runs_with};
use super::places::Hands;
use super::step::Chosen;
use crate::facts::{Facts, Osd};
use crate::plan::{is_of, is_same};
use loligo_ceph::commands::Recipient;
use serde_json::json;

/// Those who have the value of a change already, in words; nothing: somebody has another one, or nobody is up who could say it.
///
/// # Errors
/// If an OSD that is up, or no monitor, answers.
pub fn in_force(hands: Hands<'_>, facts: &Facts, chosen: &Chosen) -> Result<Option<String>, String> {
    let change = &chosen.change;
    let Some(want) = change.value.as_deref() else { return Ok(None) };
    if change.who.starts_with("client") {
        let order = json!({"prefix": "config get", "who": change.who, "key": change.key});
        let said = hands.client.send(Recipient::Monitors, &order).map_err(|why| why.to_string())?;
        return Ok(is_same(said.trim(), want).then(|| format!("{} has {}", change.who, said.trim())));
    }
    let osds: Vec<&Osd> = facts.osds.iter().filter(|osd| osd.up && is_of(osd, &change.who)).collect();
    for osd in &osds {
        let runs = runs_with(hands.client, osd.id, &change.key).map_err(|why| why.to_string())?;
        // One that is read at start may be another one at the next.
        let is_late = chosen.restarts.contains(&osd.id);
        if !is_same(&runs, want) || (is_late && !is_same(&by_database(hands, osd, &change.key)?, want)) {
            return Ok(None);
        }
    }
    Ok(match osds.as_slice() {
        [] => None,
        [one] => Some(format!("osd.{} runs with {want}", one.id)),
        [first, rest @ ..] => Some(format!("osd.{} and {} more run with {want}", first.id, rest.len())),
    })
}
