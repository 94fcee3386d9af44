//! The daemon's file by its sections: what is wrong with one of them concerns its volume alone.

use crate::config::{Config, DaemonConfig, PairSection, TuneSection, read};
use crate::device_ids::DeviceIds;
use crate::exclusive::{Exclusive, readable_things, things};
use crate::remembered::with_overrides;
use crate::state::State;
use anyhow::{Context, Result, anyhow};
use loligo_client::api::definition::VolumeConfig;
use loligo_client::toml_error::not_toml;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// The file before its sections are looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    daemon: DaemonConfig,
    pair: Option<PairSection>,
    tune: Option<TuneSection>,
    volume: BTreeMap<String, Table>,
}

/// A section that no volume can be served by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// As much of it as can be read.
    pub(super) readable: VolumeConfig,
    /// The fault, in words.
    pub(super) why: String,
}

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sections {
    /// The settings that concern all volumes, and the sections that are right.
    pub(super) right: Config,
    /// The others, by name.
    pub(super) wrong: BTreeMap<String, Fault>,
}

impl Sections {
    /// Reads `path`.
    ///
    /// # Errors
    /// If it cannot be read as a whole, or the section of the daemon is not right.
    pub(super) fn load(path: &Path) -> Result<Sections> {
        let (text, dir) = read(path)?;
        Sections::parse_in(&text, &dir).with_context(|| format!("{} is not right", path.display()))
    }

    fn parse_in(text: &str, dir: &Path) -> Result<Sections> {
        let raw: Raw = toml::from_str(text).map_err(|why| anyhow!(not_toml(&why)))?;
        let pair = raw.pair.map(|mut pair| {
            pair.begin_in(dir);
            pair
        });
        let tune = raw.tune.map(|mut tune| {
            tune.begin_in(dir);
            tune.check().map(|()| tune)
        });
        let tune = tune.transpose()?;
        let right = Config { daemon: raw.daemon, pair, tune, volumes: BTreeMap::new() };
        let mut sections = Sections { right, wrong: BTreeMap::new() };
        let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, table) in raw.volume {
            let volume: Result<VolumeConfig, _> = Value::Table(table.clone()).try_into();
            let volume = volume.map(|mut volume| {
                volume.begin_in(dir);
                volume
            });
            let (volume, fault) = match volume.map(|volume| (things(&name, &volume), volume)) {
                Ok((Ok(_), volume)) => (volume, None),
                Ok((Err(why), volume)) => (volume, Some(format!("{why:#}"))),
                Err(why) => {
                    let mut volume = readable(&table);
                    volume.begin_in(dir);
                    (volume, Some(not_toml(&why)))
                }
            };
            // Also of one that is wrong anyway: with its mend it is served, and may be the one that is meant.
            for thing in readable_things(&volume) {
                owners.entry(thing).or_default().push(name.clone());
            }
            match fault {
                None => drop(sections.right.volumes.insert(name, volume)),
                Some(why) => drop(sections.wrong.insert(name, Fault { readable: volume, why })),
            }
        }
        // Nobody can tell which of them is meant.
        for (thing, names) in owners.iter().filter(|(_, names)| names.len() > 1) {
            for name in names {
                let others: Vec<&str> = names.iter().filter(|n| *n != name).map(String::as_str).collect();
                let others = others.join("', '");
                sections
                    .refuse(name, format!("{thing} is that of volume '{others}' too: no two can share it"));
            }
        }
        Ok(sections)
    }

    /// True if there is a section of that name, right or wrong.
    pub(super) fn has(&self, name: &str) -> bool {
        self.right.volumes.contains_key(name) || self.wrong.contains_key(name)
    }

    fn refuse(&mut self, name: &str, why: String) {
        if let Some(readable) = self.right.volumes.remove(name) {
            self.wrong.insert(name.to_owned(), Fault { readable, why });
        }
    }

    /// Takes those for wrong that have a device of another one, by whatever name. This asks the file systems that they lie on.
    pub(super) fn be_distinct(&mut self) {
        let mut all = self.right.volumes.clone();
        all.extend(self.wrong.iter().map(|(name, fault)| (name.clone(), fault.readable.clone())));
        let looked = DeviceIds::at(all.values());
        for (name, volume) in &self.right.volumes.clone() {
            let mut others = Exclusive::default();
            for (other, of) in all.iter().filter(|(other, _)| *other != name) {
                // What is wrong with another is that one's.
                let _ = others.add_devices(other, of, &looked);
            }
            if let Err(why) = others.add_devices(name, volume, &looked) {
                self.refuse(name, format!("{why:#}"));
            }
        }
    }

    /// Takes those for wrong that have what one of these has, which were made by command: these were there first; by
    /// whatever names where devices were `looked` at.
    pub(super) fn yield_to(&mut self, made: &BTreeMap<String, VolumeConfig>, looked: Option<&DeviceIds>) {
        for (name, volume) in &self.right.volumes.clone() {
            let mut taken = Exclusive::default();
            let mut add = |name: &str, volume: &VolumeConfig| match looked {
                Some(looked) => taken.add_whole(name, volume, looked),
                None => taken.add(name, volume),
            };
            for (other, of) in made.iter().filter(|(other, _)| *other != name) {
                // What is wrong with another is that one's.
                let _ = add(other, of);
            }
            if let Err(why) = add(name, volume) {
                self.refuse(name, format!("{why:#}"));
            }
        }
    }

    /// Has these yield to the volumes that were made by command, as `state` has it; and these as they were made. By their
    /// words: a file system that hangs is to hold up nobody's start but of who lies on it.
    pub(super) fn beside_made(&mut self, state: &State) -> BTreeMap<String, VolumeConfig> {
        let alone = state.volumes.iter().filter(|(name, _)| !self.has(name));
        let made = alone.filter_map(|(name, r)| Some((name.clone(), r.made.clone()?)));
        let made: BTreeMap<String, VolumeConfig> = made.collect();
        let effective = |(name, volume): (&String, &VolumeConfig)| {
            (name.clone(), with_overrides(volume, &state.volumes[name]))
        };
        self.yield_to(&made.iter().map(effective).collect(), None);
        made
    }
}

/// A definition by those keys of a section that can be understood.
fn readable(table: &Table) -> VolumeConfig {
    let nothing = [("core", Value::from("")), ("listen", Value::Array(Vec::new()))];
    let mut known: Table = nothing.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let read = |table: &Table| -> Option<VolumeConfig> { Value::Table(table.clone()).try_into().ok() };
    for (key, value) in table {
        let mut more = known.clone();
        more.insert(key.clone(), value.clone());
        if read(&more).is_some() {
            known = more;
        }
    }
    read(&known).expect("a core and no listeners make a definition")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "[volume.a]\ncore = \"x\"\nlisten = [\"unix:/a\"]\n";

    fn parsed(more: &str) -> Sections {
        Sections::parse_in(&format!("{RIGHT}{more}"), Path::new("/dir")).unwrap()
    }

    #[test]
    fn a_wrong_section_leaves_the_others_right() {
        let wrong = |section: &str, said: &str| {
            let of = parsed(section);
            assert_eq!(of.right.volumes["a"].core, "/dir/x");
            let fault = &of.wrong["b"];
            assert!(fault.why.contains(said), "{section}: {}", fault.why);
            fault.readable.clone()
        };
        let unknown = wrong("[volume.b]\ncore = \"y\"\ncahce = \"z\"\nlisten = [\"unix:/b\"]", "`cahce`");
        assert_eq!((unknown.core.as_str(), unknown.listen.len()), ("/dir/y", 1));
        assert_eq!(wrong("[volume.b]\ncore = \"y\"", "listen").core, "/dir/y");
        wrong("[volume.b]\ncore = 5\nlisten = [\"unix:/b\"]", "core");
        wrong("[volume.b]\ncore = \"y\"\nmode = \"wb\"\nlisten = [\"unix:/b\"]", "cache is not");
    }

    #[test]
    fn of_two_that_share_a_thing_neither_is_right() {
        let of = parsed(
            "[volume.b]\ncore = \"./x\"\nlisten = [\"unix:/b\"]\n[volume.c]\ncore = \"c\"\nlisten = [\"unix:/c\"]",
        );
        assert_eq!(of.wrong.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(of.wrong["a"].why.contains("core /dir/x is that of volume 'b' too"), "{of:?}");
        assert_eq!(of.right.volumes.keys().collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn what_a_wrong_section_has_is_nobody_elses() {
        for more in ["mode = \"wb\"", "cahce = \"z\"", "shards = \"many\""] {
            let of = parsed(&format!("[volume.b]\ncore = \"x\"\n{more}\nlisten = [\"unix:/b\"]"));
            assert_eq!(of.wrong.keys().collect::<Vec<_>>(), ["a", "b"], "{more}");
            assert!(of.wrong["a"].why.contains("that of volume 'b' too"), "{of:?}");
            assert!(!of.wrong["b"].why.contains("'a'"), "its own error is what is to be mended: {of:?}");
        }
        let of = parsed("[volume.b]\ncore = \"y\"\nmode = \"wb\"\nlisten = [\"unix:/a\", \"nonsense\"]");
        assert!(of.wrong["a"].why.contains("listen unix:/a is that of volume 'b' too"), "{of:?}");
    }

    #[test]
    fn what_concerns_all_volumes_is_wrong_for_all() {
        for text in ["[volume.a", "[daemon]\nstate = 5", "[volumes.a]\ncore = \"x\""] {
            assert!(Sections::parse_in(text, Path::new("/")).is_err(), "{text}");
        }
    }

    #[test]
    fn a_device_by_two_names_makes_both_wrong() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("x"), dir.path().join("y")).unwrap();
        let text = format!("{RIGHT}[volume.b]\ncore = \"y\"\nlisten = [\"unix:/b\"]\n");
        let mut of = Sections::parse_in(&text, dir.path()).unwrap();
        assert!(of.wrong.is_empty());
        of.be_distinct();
        assert_eq!(of.wrong.keys().collect::<Vec<_>>(), ["a", "b"]);
    }
}
