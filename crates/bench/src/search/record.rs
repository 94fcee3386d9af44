//! The record of a search: a file of lines, one for each trial, by which it goes on after it was cut.

use super::space::Space;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// A trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Values of the space's options, in their order.
    pub values: Vec<String>,
    /// Requests a second over those of the default beside it.
    pub iops: f64,
    /// Mean latency over that of the default.
    pub mean: f64,
    /// 99th percentile over that of the default.
    pub p99: f64,
    /// The reason why it is none: a value was refused, or a run did not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Its values are the reason: the cluster refuses them, or no load ends with them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_values: bool,
    /// The reason why it counts for less, and is never the result: its 99th percentile is beyond the bound of that search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
}

/// Failures after which values are not tried again. One alone may be of a host, a command or a monitor.
const FAILURES: usize = 2;

/// True if some trials say enough of these values: they are not tried again.
pub fn are_tried(trials: &[Trial], values: &[String]) -> bool {
    let mut of_them = trials.iter().filter(|it| it.values.as_slice() == values);
    let failures = of_them.clone().filter(|it| it.failed.is_some() && it.by_values).count();
    failures >= FAILURES || of_them.any(|it| it.failed.is_none())
}

/// The first line: a record goes on only with the same space, load and seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    space: Space,
    load: String,
    seed: u64,
}

/// A record that is written to.
#[derive(Debug)]
pub struct Record {
    file: File,
    /// Trials that it had.
    pub trials: Vec<Trial>,
}

impl Record {
    /// Opens a record, or begins one.
    ///
    /// # Errors
    /// If it cannot be read or written, or is of another search.
    pub fn open(path: &Path, space: &Space, load: &str, seed: u64) -> Result<Record> {
        let head = Head { space: space.clone(), load: load.to_owned(), seed };
        let text = match std::fs::read_to_string(path) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.with_context(|| path.display().to_string())?,
        };
        let mut trials = Vec::new();
        let mut good = 0;
        for (number, raw) in text.split_inclusive('\n').enumerate() {
            // A line that was torn in the end is written anew.
            let Some(line) = raw.strip_suffix('\n') else { break };
            let at = || format!("{}, line {}", path.display(), number + 1);
            if number == 0 {
                let was: Head = serde_json::from_str(line).with_context(at)?;
                ensure!(
                    was == head,
                    "{} is the record of another search: its space, load or seed differ. Name another file",
                    path.display()
                );
            } else {
                trials.push(serde_json::from_str(line).with_context(at)?);
            }
            good += raw.len();
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let mut file = file.with_context(|| path.display().to_string())?;
        file.set_len(good as u64)?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
        let mut record = Record { file, trials };
        if good == 0 {
            record.line(&head)?;
        }
        Ok(record)
    }

    /// Adds a trial, durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn add(&mut self, trial: Trial) -> Result<()> {
        self.line(&trial)?;
        self.trials.push(trial);
        Ok(())
    }

    fn line(&mut self, what: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(what)? + "\n";
        self.file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data())
            .context("writing the record")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_an_older_program_goes_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record");
        let old = concat!(
            r#"{"space":{"version":1,"option":[{"who":"osd","name":"a","from":1,"to":9,"log":false}]},"load":"4K","seed":1}"#,
            "\n",
            r#"{"values":["3"],"iops":1.5,"mean":1.0,"p99":9.0}"#,
            "\n",
            r#"{"values":["4"],"iops":0.0,"mean":0.0,"p99":0.0,"failed":"refused","by_values":true}"#,
            "\n",
            r#"{"values":["5"],"iops":0.0,"mean":0.0,"p99":0.0,"failed":"disturbed"}"#,
            "\n"
        );
        std::fs::write(&path, old).expect("a record");
        let space = Space::read("version = 1\n[[option]]\nwho = \"osd\"\nname = \"a\"\nfrom = 1\nto = 9\n");
        let record = Record::open(&path, &space.expect("a space"), "4K", 1).expect("a record");
        let tried = |value: &str, trials: &[Trial]| are_tried(trials, &[value.to_owned()]);
        let all = &record.trials;
        assert_eq!(["3", "4", "5"].map(|value| tried(value, all)), [true, false, false]);
        let twice = [all.as_slice(), all.as_slice()].concat();
        assert!(tried("4", &twice), "values that failed twice");
        assert!(!tried("5", &twice), "failures that are of nobody's values");
        assert_eq!(std::fs::read_to_string(&path).expect("a record"), old, "nothing of it is written anew");
    }

    #[test]
    fn a_record_goes_on_with_its_own_search_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("record");
        let space = Space::read("version = 1\n[[option]]\nwho = \"osd\"\nname = \"a\"\nfrom = 1\nto = 9\n")
            .expect("a space");
        let trial = |iops| Trial {
            values: vec!["3".into()],
            iops,
            mean: 1.0,
            p99: 1.0,
            failed: None,
            by_values: false,
            beyond: None,
        };
        let mut record = Record::open(&path, &space, "4K", 1).expect("a record");
        record.add(trial(1.5)).expect("written");
        record.add(trial(0.5)).expect("written");
        drop(record);
        let whole = std::fs::read(&path).expect("bytes");
        std::fs::write(&path, &whole[..whole.len() - 5]).expect("torn");
        let mut again = Record::open(&path, &space, "4K", 1).expect("a record");
        assert_eq!(again.trials, [trial(1.5)]);
        again.add(trial(0.7)).expect("written");
        assert_eq!(Record::open(&path, &space, "4K", 1).expect("a record").trials, [trial(1.5), trial(0.7)]);
        assert!(
            Record::open(&path, &space, "8K", 1).is_err() && Record::open(&path, &space, "4K", 2).is_err()
        );
    }
}
