//! The cluster's part of a setup: where the pair's OSDs lie in the CRUSH map, and options without which a takeover moves data, or waits.

use super::done::Done;
use crate::config::PairConfig;
use crate::whole_file;
use anyhow::{Context, Result, bail, ensure};
use loligo_client::outcome::{Ended, Outcome};
use loligo_lab::ceph::{ask, json, own_environment};
use loligo_lab::crush::{Placed, RULE, moves, rule};
use loligo_lab::interrupt::Interrupt;
use loligo_pair::plan::Side;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The time that one command may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Options with whose they are, the value that a pair needs, and what happens otherwise.
///
/// Numbers are written as the monitors give them back. Decision 0084 has what each was measured to do.
const OPTIONS: [(&str, &str, &str); 7] = [
    // Otherwise an OSD moves to the host that it was taken over by, and its data with it.
    ("osd", "osd_crush_update_on_start", "false"),
    // Otherwise the OSDs of a dead controller are marked out after 10 minutes.
    ("mon", "mon_osd_down_out_subtree_limit", "host"),
    // Otherwise the monitors publish a map a second, and a takeover waits for three: down, up, and the one that lets a primary serve.
    ("mon", "paxos_propose_interval", "0.200000"),
    // Otherwise the death of a monitor stops all maps for 10 to 15 s: a controller may have one.
    ("mon", "mon_lease", "0.700000"),
    ("mon", "mon_election_timeout", "0.500000"),
    // Otherwise OSDs and clients whose session was with a monitor that lost its power wait for it for 30 s.
    ("global", "mon_client_ping_interval", "0.500000"),
    ("global", "mon_client_ping_timeout", "1.500000"),
];

/// The option that adds to RocksDB's own, and what is added for each OSD of the pair.
///
/// Otherwise an OSD that died under writes reads up to 1 GiB of RocksDB's log, twice, before it serves anything: a takeover waits for
/// that (0087).
const ANNEX: &str = "bluestore_rocksdb_options_annex";
const LOG_LIMIT: &str = "max_total_wal_size";
const LOG_BYTES: u64 = 64 << 20;

/// The annex with a limit of the log, where it has none yet.
fn with_limit(annex: &str) -> Option<String> {
    let has_one =
        annex.split([',', ';']).any(|entry| entry.split('=').next().map(str::trim) == Some(LOG_LIMIT));
    let limit = format!("{LOG_LIMIT}={LOG_BYTES}");
    match annex.trim() {
        _ if has_one => None,
        "" => Some(limit),
        more => Some(format!("{more},{limit}")),
    }
}

/// The value of an option in the cluster's own configuration, of which `set` is the dump.
fn option_of(set: &Value, who: &str, option: &str) -> Option<String> {
    let mut entries = set.as_array().into_iter().flatten();
    let entry = entries.find(|entry| entry["section"] == who && entry["name"] == option)?;
    entry["value"].as_str().map(str::to_owned)
}

/// The options as they were before, so that they can be set back.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    magic: String,
    version: u32,
    /// By `who/option`; nothing: it was not set.
    options: BTreeMap<String, Option<String>>,
}

const MAGIC: &str = "loligo-pair-setup";
const VERSION: u32 = 1;

/// The cluster as a setup speaks to it.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    config: &'a PairConfig,
    run: PathBuf,
    /// Options that stay as they are.
    leave: &'a [String],
    dry: bool,
}

impl<'a> Cluster<'a> {
    /// # Errors
    /// If `leave` names an option that is none of these.
    pub(super) fn new(
        config: &'a PairConfig,
        me: Side,
        leave: &'a [String],
        dry: bool,
    ) -> Result<Cluster<'a>> {
        for name in leave {
            let known: Vec<&str> = OPTIONS.iter().map(|(_, option, _)| *option).chain([ANNEX]).collect();
            if !known.contains(&name.as_str()) {
                let words =
                    format!("'{name}' is no option that a setup sets: those are {}", known.join(", "));
                bail!(Ended::with(Outcome::Usage, words));
            }
        }
        Ok(Cluster { config, run: config.controller[&me].run.clone(), leave, dry })
    }

    fn command(&self) -> Command {
        let ceph = &self.config.ceph;
        let mut command = Command::new("ceph");
        own_environment(&mut command, &ceph.conf);
        command.args(["--connect-timeout", "15", "--name", &ceph.name]);
        if let Some(keyring) = &ceph.keyring {
            command.arg("--keyring").arg(keyring);
        }
        command
    }

    fn run<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Result<String> {
        ask(self.command(), words, LIMIT, &Interrupt::default())
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        json(words, |all| self.run(all))
    }

    /// Puts everything to its place.
    ///
    /// # Errors
    /// If the cluster refuses, or what was there before cannot be noted.
    pub(super) fn set_up(&self) -> Result<Vec<Done>> {
        let mut commands = self.places()?;
        let rules = self.json(&["osd", "crush", "rule", "ls"])?;
        if !rules.as_array().into_iter().flatten().any(|name| name == RULE) {
            commands.push(rule("chassis"));
        }
        let mut before = BTreeMap::new();
        let set = self.json(&["config", "dump"])?;
        let left = |option: &str| self.leave.iter().any(|name| name == option);
        for (who, option, value) in OPTIONS.into_iter().filter(|(_, option, _)| !left(option)) {
            let was = option_of(&set, who, option);
            if was.as_deref() != Some(value) {
                before.insert(format!("{who}/{option}"), was);
                commands.push(["config", "set", who, option, value].map(str::to_owned).to_vec());
            }
        }
        for osd in self.config.osd.iter().filter(|_| !left(ANNEX)) {
            let who = format!("osd.{}", osd.id);
            let annex = self.run(&["config", "get", &who, ANNEX])?;
            if let Some(value) = with_limit(&annex) {
                before.insert(format!("{who}/{ANNEX}"), option_of(&set, &who, ANNEX));
                commands.push(["config", "set", &who, ANNEX, &value].map(str::to_owned).to_vec());
            }
        }
        if !self.dry && !before.is_empty() {
            self.note(before)?;
        }
        self.carry_out(&commands)
    }

    /// Sets the options back. OSDs stay where they are: moving them moves their data.
    ///
    /// # Errors
    /// If the note cannot be read, or the cluster refuses.
    pub(super) fn set_back(&self) -> Result<Vec<Done>> {
        let path = self.path();
        if !path.exists() {
            return Ok(Vec::new());
        }
        let mut commands = Vec::new();
        for (name, was) in self.noted()?.options {
            let (who, option) =
                name.split_once('/').with_context(|| format!("{} is damaged", path.display()))?;
            commands.push(match was {
                Some(value) => ["config", "set", who, option, &value].map(str::to_owned).to_vec(),
                None => ["config", "rm", who, option].map(str::to_owned).to_vec(),
            });
        }
        let done = self.carry_out(&commands)?;
        if !self.dry {
            std::fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))?;
        }
        Ok(done)
    }

    /// The commands that put the OSDs to their controllers, and those into the node's chassis.
    fn places(&self) -> Result<Vec<Vec<String>>> {
        let tree = self.json(&["osd", "tree"])?;
        let weight = |id: u32| {
            let nodes = tree["nodes"].as_array().into_iter().flatten();
            nodes
                .filter(|node| node["id"] == id)
                .find_map(|node| node["crush_weight"].as_f64())
                .unwrap_or(0.0)
        };
        let osds = Side::BOTH.map(|side| {
            let own = self.config.osd.iter().filter(|osd| osd.home == side);
            own.map(|osd| (osd.id, weight(osd.id))).collect::<Vec<_>>()
        });
        let hosts = Side::BOTH.map(|side| &self.config.controller[&side].host);
        let placed = [Placed { host: hosts[0], osds: &osds[0] }, Placed { host: hosts[1], osds: &osds[1] }];
        Ok(moves(&tree, &self.config.pair, &placed))
    }

    fn carry_out(&self, commands: &[Vec<String>]) -> Result<Vec<Done>> {
        let mut done = Vec::new();
        for words in commands {
            if !self.dry {
                self.run(words)?;
            }
            done.push(Done { lun: "cluster".to_owned(), what: format!("ceph {}", words.join(" ")) });
        }
        Ok(done)
    }

    fn path(&self) -> PathBuf {
        self.run.join("pair.setup.json")
    }

    /// Notes what was there before the first setup; a later one adds what it finds anew.
    fn note(&self, before: BTreeMap<String, Option<String>>) -> Result<()> {
        let path = self.path();
        let mut options = if path.exists() { self.noted()?.options } else { BTreeMap::new() };
        for (name, was) in before {
            options.entry(name).or_insert(was);
        }
        let note = Before { magic: MAGIC.to_owned(), version: VERSION, options };
        whole_file::write(&path, &serde_json::to_vec_pretty(&note)?)
            .with_context(|| format!("{} cannot be written", path.display()))
    }

    fn noted(&self) -> Result<Before> {
        let path = self.path();
        let text = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        let note: Before =
            serde_json::from_slice(&text).with_context(|| format!("{} is damaged", path.display()))?;
        ensure!(
            note.magic == MAGIC && note.version == VERSION,
            "{} is not of this program: use the one that made it",
            path.display()
        );
        Ok(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_added_to_what_is_there_and_given_once() {
        let limit = "max_total_wal_size=67108864";
        assert_eq!(with_limit("\n").as_deref(), Some(limit));
        assert_eq!(
            with_limit("compaction_readahead_size=2MB").as_deref(),
            Some(&*format!("compaction_readahead_size=2MB,{limit}"))
        );
        assert_eq!(with_limit("max_total_wal_size=1"), None);
        assert_eq!(with_limit("a=1, max_total_wal_size=1"), None);
    }
}
