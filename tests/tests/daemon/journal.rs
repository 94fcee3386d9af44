//! A real journald takes the daemon's lines with their priority, and costs no volume when it goes.

use crate::site::Site;
use loligo_tests::server::program;
use loligo_tests::skip::{installed, root, skip};
use std::process::Command;

const JOURNALD: &str = "/lib/systemd/systemd-journald";

/// A journald in a mount namespace of its own, the daemon on its stream, and journald's end before the daemon's.
const SCRIPT: &str = r#"
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal || exit 9
"$JOURNALD" 2>/dev/null & journald=$!
trap 'kill -9 $journald $daemon 2>/dev/null' EXIT
until [ -S /run/systemd/journal/stdout ]; do kill -0 $journald || exit 9; sleep 0.1; done
systemd-cat -t loligod --level-prefix=true sh -c \
    'JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2); export JOURNAL_STREAM; exec "$0" daemon --config "$1"' \
    "$PROGRAM" "$CONFIG" & daemon=$!
until "$PROGRAM" volume list 2>/dev/null | grep -q serving; do kill -0 $daemon || exit 8; sleep 0.1; done
"$PROGRAM" volume restart a || exit 7
journalctl --sync 2>/dev/null; sleep 1
journalctl --directory=/run/log/journal -t loligod -o json --output-fields=PRIORITY,MESSAGE --no-pager
kill -9 $journald; wait $journald 2>/dev/null
"$PROGRAM" volume restart a || exit 6
kill -TERM $daemon; wait $daemon
echo "ended with $?"
"#;

#[test]
fn journald_takes_priorities_and_may_go() {
    const WHAT: &str = "a real journald";
    if !root()
        || !std::path::Path::new(JOURNALD).exists()
        || !std::path::Path::new("/etc/machine-id").exists()
    {
        return skip(WHAT, "needs root, systemd-journald and a machine-id");
    }
    if !["systemd-cat", "journalctl", "unshare"].iter().all(|p| installed(p)) {
        return skip(WHAT, "needs systemd-cat, journalctl and unshare");
    }
    let site = Site::new(&["a"]);
    site.configure(&(site.section("a") + &site.section("c").replace("c.core", "nothing/c.core")));
    let out = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT])
        .env("JOURNALD", JOURNALD)
        .env("PROGRAM", program())
        .env("CONFIG", site.path("loligod.toml"))
        .env("LOLIGO_RUNTIME_DIR", site.dir.path())
        .output()
        .expect("it runs");
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if out.status.code() == Some(9) {
        return skip(WHAT, "no journald can be started here");
    }
    let entries: Vec<serde_json::Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let has = |priority: &str, words: &str| {
        let is = |e: &serde_json::Value| {
            e["PRIORITY"] == priority && e["MESSAGE"].as_str().is_some_and(|m| m.contains(words))
        };
        assert!(entries.iter().any(is), "no '{words}' of priority {priority}: {said}");
    };
    has("6", "a: serving");
    has("6", "c: waiting: ");
    assert!(entries.iter().all(|e| !e["MESSAGE"].as_str().unwrap_or("<").starts_with('<')), "{said}");
    assert!(said.contains("ended with 0"), "{said}");
}
