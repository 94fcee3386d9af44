//! The process of an OSD that does not come up, and the last words of its log: asked of its host.

use super::on_host::{Found, Order};
use crate::rules::Target;
use std::path::PathBuf;

/// What a host says of an OSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastWords {
    /// A process of it runs.
    pub(super) runs: bool,
    /// Failures since its last start, in one line; empty: its log tells of none, or it has no file.
    pub(super) words: String,
}

impl LastWords {
    /// The answer to [`order`].
    pub(super) fn of(found: Found) -> LastWords {
        LastWords { runs: found.value.now.is_some(), words: found.seen.unwrap_or_default() }
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
        ]);
        let of = |osd, log: &str| {
            carry_out(dir.path(), &order(osd, log)).map(|mut it| LastWords::of(it.remove(0)))
        };
        let ended = LastWords { runs: false, words: "it ends".into() };
        assert_eq!(of(4, "/var/log/ceph/ceph-osd.4.log"), Ok(ended));
        assert_eq!(of(3, ""), Ok(LastWords { runs: true, words: String::new() }));
        assert_eq!(of(3, "/var/log/ceph/ceph-osd.3.log"), Ok(LastWords { runs: true, words: String::new() }));
        for other in ["/etc/shadow", "/var/log/osd.log/../../../etc/shadow", "osd.log"] {
            assert!(of(3, other).is_err(), "{other}");
        }
        let put = Order { put: Some(Value::plain(Some("x".into()))), ..order(3, "") };
        assert!(carry_out(dir.path(), &put).is_err(), "nothing is put there");
    }
}
