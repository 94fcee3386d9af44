//! The cluster's copy of a run: its state, and what was there before, in the monitors' store of keys.
//!
//! The copy is whole before the first deed, so that a run can be taken back from another host.

use super::effect::Effect;
use super::journal::{Entry, Head, Run, RunKind, line, read};
use super::step::Step;
use super::witness;
use crate::gather::asked::{ask, command};
use loligo_ceph::commands::{CommandClient, Recipient};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeSet;

/// The folder of all keys.
const FOLDER: &str = "loligo/tune/";
/// Bytes of lines in one value; monitors take 64 KiB (`mon_config_key_max_entry_size`).
const PIECE: usize = 32 << 10;

/// The state of a run, as every host may read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its name.
    pub run: String,
    /// The host that it ran on.
    pub host: String,
    /// `applying`, `applied`, `stopped`, `rolling-back`, `rolled-back`.
    pub state: String,
    /// Seconds since 1970 at which it was begun.
    pub at: u64,
    /// The command that made it; nothing: an older program did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<RunKind>,
    /// Values that the copy has.
    pub pieces: usize,
    /// OSDs that it keeps from being marked out.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub noout: BTreeSet<i64>,
}

impl State {
    /// Of a run that is about to begin.
    pub fn new(head: &Head) -> State {
        let (run, host, state) = (head.run.clone(), head.host.clone(), "applying".to_owned());
        State { run, host, state, at: head.at, kind: head.kind, pieces: 0, noout: BTreeSet::new() }
    }

    /// Takes an entry of the journal up; true if that changed it.
    fn follow(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::Noout(osd) => self.noout.insert(*osd),
            Entry::NooutEnded(osd) => self.noout.remove(osd),
            _ => false,
        }
    }

    /// Entries that a host without the journal goes by, beside `steps`. The copy does not know which OSDs restarted: all count that may.
    fn entries(&self, steps: &[Step]) -> Vec<Entry> {
        let unseen = || Effect::NotVisible("the cluster's copy has not what was seen".to_owned());
        let mut entries = vec![Entry::ByCopy];
        entries.extend(steps.iter().map(|step| Entry::Doing(step.number)));
        entries.extend(self.noout.iter().copied().map(Entry::Noout));
        let osds: BTreeSet<i64> = steps.iter().flat_map(|step| step.restarts.iter().copied()).collect();
        entries.extend(osds.into_iter().map(Entry::Restarting));
        match self.state.as_str() {
            "applied" => entries.extend(steps.iter().map(|step| Entry::Done(step.number, unseen()))),
            "rolled-back" => entries.push(Entry::RolledBack { at: self.at }),
            _ => {}
        }
        entries
    }

    /// It was cut in the middle, if nobody is at it now.
    pub fn is_cut(&self) -> bool {
        matches!(self.state.as_str(), "applying" | "rolling-back")
    }
}

/// Writes the copy of a run that is about to begin.
///
/// # Errors
/// If the monitors refuse, or cannot be reached.
pub fn write(client: &CommandClient, entries: &[Entry], state: &mut State) -> Result<(), String> {
    let pieces = pieces(entries);
    state.pieces = pieces.len();
    for (number, piece) in pieces.iter().enumerate() {
        put(client, &format!("{}/{number:04}", state.run), piece)?;
    }
    witness::put(client, &state.run, &pieces.concat())?;
    tell(client, state)
}

/// Says how far a run is. The copy of one that is taken back has no witness any more.
///
/// # Errors
/// If the monitors refuse, or cannot be reached.
pub fn tell(client: &CommandClient, state: &State) -> Result<(), String> {
    let text = serde_json::to_string(state).map_err(|why| why.to_string())?;
    put(client, &format!("{}/state", state.run), &text)?;
    if state.state == "rolled-back" { witness::forget(client, &state.run) } else { Ok(()) }
}

/// Tells the cluster what another host must know before the deed of `entry`.
///
/// # Errors
/// If the monitors refuse, or cannot be reached.
pub fn follow(client: &CommandClient, state: &mut State, entry: &Entry) -> Result<(), String> {
    if state.follow(entry) { tell(client, state) } else { Ok(()) }
}

/// The states of all runs, the oldest first.
///
/// # Errors
/// If the monitors refuse, or cannot be reached.
pub fn states(client: &CommandClient) -> Result<Vec<State>, String> {
    let keys = ask(client, Recipient::Monitors, &command("config-key ls"))?;
    let keys = keys.as_array().into_iter().flatten().filter_map(|key| key.as_str());
    let mut all = Vec::new();
    for key in keys.filter(|key| key.starts_with(FOLDER) && key.ends_with("/state")) {
        let text = get(client, key)?;
        let state: State = serde_json::from_str(&text)
            .map_err(|why| format!("the key {key} is no state of a run: {why}"))?;
        if key != format!("{FOLDER}{}/state", state.run) {
            return Err(format!("the key {key} is the state of another run, {}", state.run));
        }
        all.push(state);
    }
    all.sort_by(|one, two| (one.at, &one.run).cmp(&(two.at, &two.run)));
    Ok(all)
}

/// A run by the cluster's copy.
#[derive(Debug)]
pub struct Copied {
    /// The run.
    pub run: Run,
    /// The entries of a journal that goes on with it.
    pub entries: Vec<Entry>,
    /// The reason why nothing may be done by it: the run left no witness of it.
    pub doubt: Option<String>,
}

/// The run of a state by the copy, of the cluster `fsid`. All of its steps count as begun: the copy does not know better.
///
/// # Errors
/// If a piece is missing, damaged or of another run, or the monitors cannot be reached.
pub fn run(client: &CommandClient, state: &State, fsid: &str) -> Result<Copied, String> {
    let mut text = String::new();
    for number in 0..state.pieces {
        text.push_str(&get(client, &format!("{FOLDER}{}/{number:04}", state.run))?);
    }
    let (mut entries, _) =
        read(text.as_bytes()).map_err(|why| format!("the copy of the run {}: {why}", state.run))?;
    let steps: Vec<Step> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Step(step) => Some((**step).clone()),
            _ => None,
        })
        .collect();
    entries.extend(state.entries(&steps));
    let run = Run::of(&entries).ok_or_else(|| format!("the copy of the run {} is empty", state.run))?;
    run.is_of(fsid, &state.run)?;
    let doubt = witness::doubt(client, &state.run, &text)?;
    Ok(Copied { run, entries, doubt })
}

/// The lines of entries, several to a value.
fn pieces(entries: &[Entry]) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in entries.iter().map(line) {
        match pieces.last_mut() {
            Some(piece) if piece.is_empty() || piece.len() + line.len() <= PIECE => piece.push_str(&line),
            _ => pieces.push(line),
        }
    }
    pieces
}

fn put(client: &CommandClient, key: &str, value: &str) -> Result<(), String> {
    let order = json!({"prefix": "config-key set", "key": format!("{FOLDER}{key}"), "val": value});
    client.send(Recipient::Monitors, &order).map(drop).map_err(|why| why.to_string())
}

fn get(client: &CommandClient, key: &str) -> Result<String, String> {
    let order = json!({"prefix": "config-key get", "key": key});
    client.send(Recipient::Monitors, &order).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::value::Value;
    use crate::plan::{Change, Now};
    use crate::rules::{Observe, Target};

    #[test]
    fn another_host_knows_noout_and_restarts_all_osds() {
        let old = r#"{"run": "r", "host": "h", "state": "stopped", "at": 1, "pieces": 1}"#;
        let mut state: State = serde_json::from_str(old).expect("the state of an older program");
        assert_eq!(state.kind, None);
        state.kind = Some(RunKind::Verify);
        assert!(state.follow(&Entry::Noout(2)) && state.follow(&Entry::Noout(1)));
        assert!(state.follow(&Entry::NooutEnded(1)) && !state.follow(&Entry::Restarting(2)));
        let text = serde_json::to_string(&state).expect("JSON");
        let state: State = serde_json::from_str(&text).expect("a state");
        assert_eq!(state.kind, Some(RunKind::Verify), "{text}");
        let change = Change {
            target: Target::Config,
            who: "osd".into(),
            key: "k".into(),
            now: Now::default(),
            value: None,
            observe: Observe::Option,
        };
        let step =
            Step { number: 1, rule: "R".into(), change, before: Value::default(), restarts: vec![3, 2] };
        let entries = state.entries(&[step]);
        let later = [Entry::Doing(1), Entry::Noout(2), Entry::Restarting(2), Entry::Restarting(3)];
        assert_eq!(entries, [&[Entry::ByCopy], &later[..]].concat());
    }
}
