//! The record of a name's owner, for whoever takes the name after it was killed: which loop device is this one's.
//! Without it the next one could not tell; a path is not enough, since the kernel forgets it with the mount.

use super::owner::{Access, Owner};
use std::fmt::Write;
use std::path::PathBuf;

const FIRST: &str = "loligo block device 1";
const LAST: &str = "end";

/// The known facts of the device of a name. They count only until the system is started again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) pid: u32,
    /// The kernel's number of its own start.
    pub(super) boot: String,
    /// The mountpoint of the file below.
    pub(super) mount: PathBuf,
    /// The loop device's number, from shortly before it is bound.
    pub(super) number: Option<u32>,
    /// Its sequence number, once it is bound.
    pub(super) sequence: Option<u64>,
    /// The access to the device's node before it was given away.
    pub(super) before: Option<Access>,
}

impl Record {
    pub(super) fn to_text(&self) -> String {
        let mut text =
            format!("{FIRST}\npid {}\nboot {}\nmount {}\n", self.pid, self.boot, self.mount.display());
        if let Some(n) = self.number {
            let _ = writeln!(text, "loop {n}");
        }
        if let Some(n) = self.sequence {
            let _ = writeln!(text, "sequence {n}");
        }
        if let Some(Access { owner, mode }) = self.before {
            let _ = writeln!(text, "before {} {} {mode:o}", owner.uid, owner.gid);
        }
        text + LAST + "\n"
    }

    /// Nothing for anything but a whole record.
    pub(super) fn from_text(text: &str) -> Option<Record> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST) {
            return None;
        }
        let mut record = Record::default();
        for line in lines {
            match line.split_once(' ') {
                Some(("pid", v)) => record.pid = v.parse().ok()?,
                Some(("boot", v)) => record.boot = v.to_owned(),
                Some(("mount", v)) => record.mount = v.into(),
                Some(("loop", v)) => record.number = Some(v.parse().ok()?),
                Some(("sequence", v)) => record.sequence = Some(v.parse().ok()?),
                Some(("before", v)) => record.before = Some(access(v)?),
                None if line == LAST => return Some(record),
                _ => return None,
            }
        }
        None
    }
}

fn access(text: &str) -> Option<Access> {
    let mut words = text.split(' ');
    let owner = Owner { uid: words.next()?.parse().ok()?, gid: words.next()?.parse().ok()? };
    Some(Access { owner, mode: u32::from_str_radix(words.next()?, 8).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_written_and_nothing_less_is_believed() {
        let record = Record {
            pid: 7,
            boot: "b-1".into(),
            mount: "/run/loligo/block/a b".into(),
            number: Some(3),
            sequence: Some(199),
            before: Some(Access { owner: Owner { uid: 0, gid: 6 }, mode: 0o660 }),
        };
        let text = record.to_text();
        assert_eq!(Record::from_text(&text), Some(record.clone()));
        let early = Record { sequence: None, before: None, ..record };
        assert_eq!(Record::from_text(&early.to_text()), Some(early));
        for cut in 0..text.len() - 1 {
            assert_eq!(Record::from_text(&text[..cut]), None, "cut at {cut}");
        }
        assert_eq!(Record::from_text(&text.replace("loop 3", "loop -3")), None);
        assert_eq!(Record::from_text(&text.replace("device 1", "device 2")), None);
    }
}
