//! The process of an OSD that does not come up, and the last words of its log: asked of its host.

use super::on_host::{Found, Order};
use super::osd_log::{ENDS, START};
use crate::rules::Target;
use std::path::PathBuf;

/// Looks at an OSD in a row that must show the same end. systemd may start it once more between two: after 10 s by Ceph's units.
const LOOKS: u32 = 3;

/// The word of a host on an OSD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LastWords {
    /// A process of it runs.
    runs: bool,
    /// The line that its last start begins with; empty: its log tells of none, or it has no file.
    start: String,
    /// Its daemon has said since then that it ends.
    ends: bool,
    /// Failures since then, in one line; empty: none.
    words: String,
}

impl LastWords {
    /// The answer to [`order`].
    pub(super) fn of(found: Found) -> LastWords {
        let Found { value, seen, .. } = found;
        LastWords {
            runs: value.now.is_some(),
            start: value.beside.get(START).cloned().unwrap_or_default(),
            ends: value.beside.contains_key(ENDS),
            words: seen.unwrap_or_default(),
        }
    }
}

/// An OSD that is started anew.
#[derive(Debug)]
pub(super) struct Anew {
    /// The start before.
    before: LastWords,
    /// The last look, and looks in a row that have shown this end.
    last: LastWords,
    ended: u32,
}

impl Anew {
    /// After a look at it before the order.
    pub(super) fn new(before: LastWords) -> Anew {
        Anew { before, last: LastWords::default(), ended: 0 }
    }

    /// Failures of the new start, with one more look; nothing: it has not begun, or tells of none.
    pub(super) fn failures(&mut self, is: LastWords) -> Option<&str> {
        let is_new = !is.start.is_empty() && is.start != self.before.start;
        let has_ended = is_new && is.ends && !is.runs;
        let again = if is.start == self.last.start { self.ended + 1 } else { 1 };
        self.ended = if has_ended { again } else { 0 };
        self.last = is;
        Some(self.last.words.as_str()).filter(|words| is_new && !words.is_empty())
    }

    /// True once the new start has ended for good: its daemon said so, and no process was there in several looks. One that is only slow,
    /// or has not begun, has not.
    pub(super) fn has_ended(&self) -> bool {
        self.ended >= LOOKS
    }
}

/// Asks for the words of an OSD whose log is `log`; empty: it has no file.
pub(super) fn order(osd: i64, log: &str) -> Order {
    let key = format!("osd.{osd}:{log}");
    Order { target: Target::Daemon, key, conf: PathBuf::new(), put: None, trial: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::on_host::carry_out;
    use crate::apply::value::Value;
    use crate::small_tree::tree;

    #[test]
    fn a_host_tells_of_an_end_and_shows_no_other_file() {
        let dir = tree(&[
            ("proc/7/comm", "ceph-osd\n"),
            ("proc/7/cmdline", "/usr/bin/ceph-osd\0-f\0--id\x003\0"),
            ("var/log/ceph/ceph-osd.4.log", "x, process ceph-osd, pid 9\n2026 7f -1 it ends\n"),
            ("etc/shadow", "secret\n"),
            ("proc/8/comm", "ceph-osd\n"),
            ("proc/8/cmdline", "/usr/bin/ceph-osd\0-f\0--id\x004\0"),
            ("x/ceph_fsid", "another\n"),
            ("etc/ceph/ceph.conf", "[global]\nfsid = own\n"),
        ]);
        std::fs::create_dir_all(dir.path().join("proc/8/fd")).expect("a folder");
        std::os::unix::fs::symlink("/x/fsid", dir.path().join("proc/8/fd/3")).expect("a link");
        let of = |osd, log: &str| {
            let order = Order { conf: "/etc/ceph/ceph.conf".into(), ..order(osd, log) };
            carry_out(dir.path(), &order).map(|mut it| LastWords::of(it.remove(0)))
        };
        let words = |words: &str| LastWords {
            start: "x, process ceph-osd, pid 9".into(),
            words: words.into(),
            ..LastWords::default()
        };
        assert_eq!(of(4, "/var/log/ceph/ceph-osd.4.log"), Ok(words("it ends")));
        for log in ["", "/var/log/ceph/ceph-osd.3.log"] {
            assert_eq!(of(3, log), Ok(LastWords { runs: true, ..LastWords::default() }));
        }
        for other in ["/etc/shadow", "/var/log/osd.log/../../../etc/shadow", "osd.log"] {
            assert!(of(3, other).is_err(), "{other}");
        }
        let put = Order { put: Some(Value::plain(Some("x".into()))), ..order(3, "") };
        assert!(carry_out(dir.path(), &put).is_err(), "nothing is put there");
    }

    #[test]
    fn only_a_new_start_that_said_so_has_ended() {
        let look = |runs, start: &str, ends| LastWords {
            runs,
            start: start.into(),
            ends,
            words: format!("words of {start}"),
        };
        let after = |looks: &[LastWords]| {
            let mut osd = Anew::new(look(true, "first", false));
            let words: Vec<bool> = looks.iter().map(|it| osd.failures(it.clone()).is_some()).collect();
            (osd.has_ended(), words)
        };
        let ended = look(false, "second", true);
        assert_eq!(after(&[ended.clone(), ended.clone(), ended.clone()]), (true, vec![true; 3]));
        assert!(!after(&[ended.clone(), ended.clone()]).0, "systemd may start it once more");
        let again = look(false, "third", true);
        assert!(!after(&[ended.clone(), ended.clone(), again]).0, "it was started once more");
        let not_begun = look(false, "first", true);
        assert_eq!(after(&vec![not_begun; 9]), (false, vec![false; 9]), "its volumes are made ready yet");
        assert!(!after(&vec![look(false, "second", false); 9]).0, "no process is seen, and no end was said");
        assert!(!after(&vec![look(true, "second", true); 9]).0, "a process of it runs");
        assert!(!after(&vec![look(false, "", false); 9]).0, "its log has no file");
    }
}
