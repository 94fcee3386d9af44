//! The journal of a run: a file of lines, each with its checksum, that is durable before each deed.
//!
//! docs/format.md has the bytes.

use super::effect::Effect;
use super::step::Step;
use crate::plan::Purpose;
use loligo_block::crc32c;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The word that each journal begins with.
pub const MAGIC: &str = "loligo-tune-run";
/// The version of its lines.
pub const VERSION: u32 = 1;
/// Bytes of a journal beyond which it is none.
const LONGEST: u64 = 64 << 20;

/// The first entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: String,
    /// [`VERSION`].
    pub version: u32,
    /// The name of the run.
    pub run: String,
    /// The cluster.
    pub fsid: String,
    /// The host that the program ran on.
    pub host: String,
    /// Seconds since 1970.
    pub at: u64,
    /// The purpose of the plan.
    pub purpose: Purpose,
    /// The command that made the run; nothing: an older program did, and has not said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<RunKind>,
}

/// The command that a run is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// Values are to stay.
    Apply,
    /// A comparison: all is as before in the end.
    Verify,
    /// Trials: all is as before in the end.
    Search,
}

impl RunKind {
    /// As the command is named.
    pub fn word(self) -> &'static str {
        match self {
            RunKind::Apply => "apply",
            RunKind::Verify => "verify",
            RunKind::Search => "search",
        }
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// The first.
    Head(Head),
    /// A change that is to be made. All of them come before the first deed.
    Step(Box<Step>),
    /// What comes before is the cluster's copy, and no host's own journal.
    ByCopy,
    /// The step of this number is about to be made.
    Doing(u32),
    /// Another value is about to be put at the place of this step.
    Trying(u32, Option<String>),
    /// It is made, and this was seen.
    Done(u32, Effect),
    /// The OSD is about to be told not to be marked out.
    Noout(i64),
    /// That has ended.
    NooutEnded(i64),
    /// The OSD is about to be restarted.
    Restarting(i64),
    /// It is up again, and all is clean.
    Restarted(i64),
    /// The run is over.
    Ended {
        /// Seconds since 1970.
        at: u64,
        /// Its end.
        how: How,
        /// The reason, where it was stopped.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// The step is about to be taken back.
    Undoing(u32),
    /// It was taken back, or left as it was for this reason.
    Undone(u32, Option<String>),
    /// All is taken back.
    RolledBack {
        /// Seconds since 1970.
        at: u64,
    },
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// All steps were made, and act.
    Applied,
    /// It stopped before that.
    Stopped,
}

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadJournal {
    /// The file cannot be read or written.
    #[error("{path}: {why}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        why: std::io::Error,
    },
    /// It is none, or was changed.
    #[error("{path} is no journal of the tuner, or is damaged: {why}")]
    Damaged {
        /// The file, or the cluster's copy.
        path: PathBuf,
        /// The line and its fault.
        why: String,
    },
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

/// An entry as a line.
pub fn line(entry: &Entry) -> String {
    let text = serde_json::to_string(entry).unwrap_or_default();
    format!("{:08x} {text}\n", crc32c(text.as_bytes()))
}

/// The entries of `text`, and the bytes that they take: a last line that is torn counts for nothing.
///
/// # Errors
/// If a line that has its end is damaged, or the first is no head; the number of the line and its fault.
pub fn read(text: &[u8]) -> Result<(Vec<Entry>, usize), String> {
    let (mut entries, mut good) = (Vec::new(), 0);
    for (number, raw) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // The end of a line is its last byte: one that is whole and wrong was not torn.
        if number > 0 && !raw.ends_with(b"\n") {
            break;
        }
        entries.push(entry(raw).map_err(|why| format!("line {}: {why}", number + 1))?);
        good += raw.len();
    }
    match entries.first() {
        Some(Entry::Head(head)) if head.magic == MAGIC && head.version == VERSION => Ok((entries, good)),
        Some(Entry::Head(head)) if head.magic == MAGIC => {
            Err(format!("its version is {}, and this program reads {VERSION}", head.version))
        }
        _ => Err("it does not begin as one".to_owned()),
    }
}

fn entry(raw: &[u8]) -> Result<Entry, &'static str> {
    let line = raw.strip_suffix(b"\n").ok_or("it has no end")?;
    let line = std::str::from_utf8(line).map_err(|_| "it is no text")?;
    let (sum, text) = line.split_once(' ').ok_or("it has no checksum")?;
    let sum = u32::from_str_radix(sum, 16).map_err(|_| "it has no checksum")?;
    if sum != crc32c(text.as_bytes()) {
        return Err("its checksum does not match");
    }
    serde_json::from_str(text).map_err(|_| "its words are not known")
}

/// A journal that is written to.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// A new one with these entries, durable with its name.
    ///
    /// # Errors
    /// If it is there already, or cannot be made durable.
    pub fn create(path: &Path, entries: &[Entry]) -> Result<Journal, BadJournal> {
        let fail = |why| BadJournal::Io { path: path.to_owned(), why };
        let dir = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(dir).map_err(fail)?;
        let file = OpenOptions::new().append(true).create_new(true).open(path).map_err(fail)?;
        let mut journal = Journal { file, path: path.to_owned() };
        journal.write(&entries.iter().map(line).collect::<String>())?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail)?;
        Ok(journal)
    }

    /// One that is there, with its entries. A torn last line is cut off.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn open(path: &Path) -> Result<(Journal, Vec<Entry>), BadJournal> {
        let fail = |why| BadJournal::Io { path: path.to_owned(), why };
        let mut file = OpenOptions::new().read(true).append(true).open(path).map_err(fail)?;
        let mut text = Vec::new();
        (&mut file).take(LONGEST).read_to_end(&mut text).map_err(fail)?;
        let (entries, good) =
            read(&text).map_err(|why| BadJournal::Damaged { path: path.to_owned(), why })?;
        file.set_len(good as u64).map_err(fail)?;
        Ok((Journal { file, path: path.to_owned() }, entries))
    }

    /// Adds an entry; it is durable once this returns.
    ///
    /// # Errors
    /// If it cannot be made durable.
    pub fn add(&mut self, entry: &Entry) -> Result<(), BadJournal> {
        self.write(&line(entry))
    }

    fn write(&mut self, text: &str) -> Result<(), BadJournal> {
        let done = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        done.map_err(|why| BadJournal::Io { path: self.path.clone(), why })
    }
}

/// A run, by its journal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Its head.
    pub head: Head,
    /// Its steps, in their order.
    pub steps: Vec<Step>,
    /// It is known by the cluster's copy alone.
    pub by_copy: bool,
    /// Steps that were begun.
    pub begun: BTreeSet<u32>,
    /// Other values that were put at their places.
    pub tried: BTreeSet<(u32, Option<String>)>,
    /// Steps that were made, with what was seen.
    pub done: BTreeMap<u32, Effect>,
    /// OSDs that were restarted, or may have been.
    pub restarted: BTreeSet<i64>,
    /// OSDs that this run keeps from being marked out.
    pub noout: BTreeSet<i64>,
    /// The end, with its moment and the reason.
    pub ended: Option<(How, u64, String)>,
    /// Steps that were taken back; those that were left have the reason.
    pub undone: BTreeMap<u32, Option<String>>,
    /// Taking back was begun.
    pub undoing: bool,
    /// The moment at which all was taken back.
    pub rolled_back: Option<u64>,
}

impl Run {
    /// Of its entries; nothing: they have no head.
    pub fn of(entries: &[Entry]) -> Option<Run> {
        let Some(Entry::Head(head)) = entries.first() else { return None };
        let mut run = Run {
            head: head.clone(),
            steps: Vec::new(),
            by_copy: false,
            begun: BTreeSet::new(),
            tried: BTreeSet::new(),
            done: BTreeMap::new(),
            restarted: BTreeSet::new(),
            noout: BTreeSet::new(),
            ended: None,
            undone: BTreeMap::new(),
            undoing: false,
            rolled_back: None,
        };
        for entry in entries {
            match entry {
                Entry::Head(_) | Entry::Restarted(_) => {}
                Entry::Step(step) => run.steps.push((**step).clone()),
                Entry::ByCopy => run.by_copy = true,
                Entry::Doing(number) => drop(run.begun.insert(*number)),
                Entry::Trying(number, value) => drop(run.tried.insert((*number, value.clone()))),
                Entry::Done(number, effect) => drop(run.done.insert(*number, effect.clone())),
                Entry::Noout(osd) => drop(run.noout.insert(*osd)),
                Entry::NooutEnded(osd) => drop(run.noout.remove(osd)),
                Entry::Restarting(osd) => drop(run.restarted.insert(*osd)),
                Entry::Ended { at, how, why } => run.ended = Some((*how, *at, why.clone())),
                Entry::Undoing(_) => run.undoing = true,
                Entry::Undone(number, why) => drop(run.undone.insert(*number, why.clone())),
                Entry::RolledBack { at } => run.rolled_back = Some(*at),
            }
        }
        Some(run)
    }

    /// Checks that it is the run `name` of the cluster `fsid`: a journal or a copy may lie where another one belongs.
    ///
    /// # Errors
    /// If it is another.
    pub fn is_of(&self, fsid: &str, name: &str) -> Result<(), String> {
        if self.head.fsid == fsid && self.head.run == name {
            return Ok(());
        }
        let Head { fsid: of, run, .. } = &self.head;
        Err(format!(
            "the record of the run {name} is refused: it says that it is the run {run} of the cluster {of}, and this cluster is {fsid}"
        ))
    }

    /// It was cut in the middle: nobody has said how it ended.
    pub fn is_cut(&self) -> bool {
        self.rolled_back.is_none() && (self.ended.is_none() || self.undoing)
    }

    /// Its state, in one word.
    pub fn state(&self) -> &'static str {
        match (&self.rolled_back, self.undoing, &self.ended) {
            (Some(_), _, _) => "rolled-back",
            (None, true, _) => "rollback-cut",
            (None, false, Some((How::Applied, _, _))) => "applied",
            (None, false, Some((How::Stopped, _, _))) => "stopped",
            (None, false, None) => "cut",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Goal, Workload};

    fn head() -> Entry {
        let purpose = Purpose { workload: Workload::Mixed, goal: Goal::Iops };
        let (magic, run) = (MAGIC.to_owned(), "r".to_owned());
        let kind = Some(RunKind::Apply);
        let (fsid, host) = ("f".to_owned(), "h".to_owned());
        Entry::Head(Head { magic, version: VERSION, run, fsid, host, at: 1, purpose, kind })
    }

    #[test]
    fn a_head_of_an_older_program_is_read_and_kept_to_the_byte() {
        let old = concat!(
            r#"bb5ed7e7 {"head":{"magic":"loligo-tune-run","version":1,"run":"20261128-201500-4711","fsid":"f","#,
            r#""host":"n1","at":1764361200,"purpose":{"workload":"mixed","goal":"iops"}}}"#,
            "\n"
        );
        let (entries, good) = read(old.as_bytes()).expect("a journal");
        assert_eq!((Run::of(&entries).expect("a run").head.kind, good), (None, old.len()));
        assert_eq!(line(&entries[0]), old);
    }

    #[test]
    fn the_command_of_a_run_is_in_its_head() {
        let text = line(&head());
        assert!(text.contains(r#""kind":"apply""#), "{text}");
        let (entries, _) = read(text.as_bytes()).expect("a journal");
        assert_eq!(entries, [head()]);
        let all = [RunKind::Apply, RunKind::Verify, RunKind::Search];
        assert!(
            all.iter()
                .all(|it| serde_json::to_string(it).is_ok_and(|said| said == format!("{:?}", it.word())))
        );
    }

    #[test]
    fn a_torn_end_is_cut_off_and_the_journal_goes_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a/run.journal");
        let mut journal = Journal::create(&path, &[head()]).expect("a journal");
        journal.add(&Entry::Doing(1)).expect("written");
        drop(journal);
        let whole = std::fs::read(&path).expect("bytes");
        let first = line(&head()).len();
        for cut in first..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("written");
            let (mut journal, entries) = Journal::open(&path).expect("a journal");
            assert_eq!(entries, [head()], "cut at {cut}");
            journal.add(&Entry::Doing(2)).expect("written");
            let (_, entries) = Journal::open(&path).expect("a journal");
            assert_eq!(entries, [head(), Entry::Doing(2)]);
        }
        assert!(Journal::create(&path, &[head()]).is_err(), "a journal is never written over");
    }

    #[test]
    fn what_two_write_to_a_journal_is_all_there() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("run.journal");
        let mut one = Journal::create(&path, &[head()]).expect("a journal");
        let (mut two, _) = Journal::open(&path).expect("a journal");
        for number in 1..4 {
            one.add(&Entry::Doing(number)).expect("written");
            two.add(&Entry::Undoing(number)).expect("written");
        }
        let (_, entries) = Journal::open(&path).expect("a journal");
        assert_eq!(entries.len(), 7, "{entries:?}");
    }

    #[test]
    fn a_damaged_line_in_the_middle_is_refused_wherever_it_is() {
        let text = [head(), Entry::Doing(1), Entry::Doing(2)].iter().map(line).collect::<String>();
        // Without its very last byte the last line is a torn one.
        for at in 0..text.len() - 1 {
            let mut raw = text.clone().into_bytes();
            raw[at] ^= 0x11;
            assert!(read(&raw).is_err(), "a wrong byte at {at} is not seen");
        }
        assert!(read(b"").is_err() && read(b"x\n").is_err());
    }

    #[test]
    fn a_record_of_another_cluster_or_run_is_refused() {
        let run = Run::of(&[head()]).expect("a run");
        let (fsid, name) = (run.head.fsid.as_str(), run.head.run.as_str());
        assert_eq!(run.is_of(fsid, name), Ok(()));
        assert!(run.is_of("another", name).is_err() && run.is_of(fsid, "another").is_err());
    }

    #[test]
    fn a_run_that_nobody_ended_is_cut() {
        let of = |more: &[Entry]| {
            let mut all = vec![head(), Entry::Doing(1)];
            all.extend_from_slice(more);
            Run::of(&all).expect("a run")
        };
        let ended = Entry::Ended { at: 2, how: How::Applied, why: String::new() };
        assert_eq!((of(&[]).state(), of(&[]).is_cut()), ("cut", true));
        assert_eq!(
            (of(std::slice::from_ref(&ended)).state(), of(std::slice::from_ref(&ended)).is_cut()),
            ("applied", false)
        );
        let half = [ended.clone(), Entry::Undoing(1)];
        assert_eq!((of(&half).state(), of(&half).is_cut()), ("rollback-cut", true));
        let back = [ended, Entry::Undoing(1), Entry::Undone(1, None), Entry::RolledBack { at: 3 }];
        assert_eq!((of(&back).state(), of(&back).is_cut()), ("rolled-back", false));
    }
}
