//! Keys of `loligo tune`: the documented caps are enough on a real cluster, and a refusal for want of others names them.

use loligo_tests::lab::{Lab, good};
use loligo_tests::server::program;
use loligo_tests::skip::cluster;
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Caps as docs/tuning.md has them.
const LOOK: &str = "mon 'allow r' mgr 'allow r' osd 'allow *'";
const CHANGE: &str = "mon 'allow rw, allow service config-key rw' mgr 'allow rw' osd 'allow *'";

struct Site {
    lab: Lab,
    dir: tempfile::TempDir,
}

impl Site {
    /// `loligo tune ARGS` as `client`, with its key alone.
    fn tune(&self, client: &str, args: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.arg("tune").args(args).arg("--conf").arg(self.lab.dir.join("ceph.conf"));
        command.args(["--name", &format!("client.{client}"), "--keyring"]);
        command.arg(self.dir.path().join(client));
        if ["apply", "rollback"].contains(&args[0]) {
            command.arg("--state").arg(self.dir.path().join("state"));
        }
        command.stdin(Stdio::null()).output().expect("the program runs")
    }

    fn json(&self, client: &str, args: &[&str]) -> Value {
        let out = good(self.tune(client, &[args, &["--json"]].concat()));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    fn key(&self, client: &str, caps: &str) {
        let file = self.dir.path().join(client).display().to_string();
        good(self.lab.sh(&format!("ceph auth get-or-create client.{client} {caps} -o {file}")));
    }

    fn is_set(&self) -> bool {
        let dump = good(self.lab.sh("ceph config dump")).stdout;
        String::from_utf8_lossy(&dump).contains("filestore_queue_max_ops")
    }
}

#[test]
fn documented_caps_are_enough_and_missing_ones_are_named() {
    if !cluster("keys of the tuner") {
        return;
    }
    let page = std::fs::read_to_string(loligo_tests::tidy::root().join("docs/tuning.md")).expect("a page");
    assert!(page.contains(LOOK) && page.contains(CHANGE), "the page has other caps");
    let site = Site { lab: Lab::new("keys"), dir: tempfile::tempdir().expect("a folder") };
    good(site.lab.up(&["--osds", "2", "--replicas", "2", "--osd-size", "3g"]));
    for (client, caps) in
        [("all", "mon 'allow *' mgr 'allow *' osd 'allow *'"), ("look", LOOK), ("change", CHANGE)]
    {
        site.key(client, caps);
    }
    site.key("blind", "mon 'allow r'");
    good(site.lab.sh("ceph config set osd filestore_queue_max_ops 100; rbd create rbd/a --size 1G"));

    // A client that looks sees as much as one that may do everything.
    let [all, look] = ["all", "look"].map(|client| site.json(client, &["facts"]));
    assert_eq!(look["unseen"], all["unseen"]);
    assert_eq!(look["images"], all["images"]);
    assert_eq!(look["osds"][0]["backfills_max"], 1);
    let blind = site.json("blind", &["facts"]);
    let words = blind["unseen"].to_string();
    assert!(words.contains("ceph auth caps client.blind") && words.contains("osd 'allow *'"), "{words}");
    let plan = site.json("look", &["plan"]).to_string();
    assert!(plan.contains("filestore_queue_max_ops"), "{plan}");

    // It changes nothing.
    let apply = ["apply", "--rule", "KV-36", "--yes"];
    let refused = site.tune("look", &apply);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && words.contains("ceph auth caps client.look mon 'allow rw, "),
        "{words}"
    );
    assert!(site.is_set());

    good(site.tune("change", &apply));
    assert!(!site.is_set());
    let again = good(site.tune("change", &apply)).stdout;
    let words = String::from_utf8_lossy(&again).into_owned();
    assert!(words.contains("KV-36 is so already") && words.contains("is not set"), "{words}");
    good(site.tune("change", &["rollback"]));
    assert!(site.is_set());
    good(site.lab.run("down", &[]));
}
