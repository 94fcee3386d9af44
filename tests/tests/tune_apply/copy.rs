//! The cluster's copy of a run: it counts with the witness that the run left, and opens no door.

use super::site::Site;
use loligo_block::crc32c;
use loligo_tests::lab::{good, refused};
use serde_json::{Value, json};

/// The name of a run that never was.
const PLANTED: &str = "20200101-000000-1";

/// A copy of one piece, as somebody with rights on keys of the cluster reads and writes it.
struct Copy<'a>(&'a Site);

impl Copy<'_> {
    fn get(&self, key: &str) -> String {
        let out = good(self.0.lab.sh(&format!("ceph config-key get loligo/tune/{key}")));
        String::from_utf8(out.stdout).expect("text")
    }

    fn set(&self, key: &str, text: &str) {
        let file = self.0.dir.path().join("piece");
        std::fs::write(&file, text).expect("a file");
        good(self.0.lab.sh(&format!("ceph config-key set loligo/tune/{key} -i {}", file.display())));
    }

    /// Writes a copy under the name of a run that never was, with the entries of another as `edit` has them.
    fn plant(&self, run: &str, edit: impl Fn(&mut Value)) {
        let state = self.get(&format!("{run}/state")).replace(run, PLANTED).replace("rolled-back", "applied");
        self.set(&format!("{PLANTED}/0000"), &edited(&self.get(&format!("{run}/0000")), edit));
        self.set(&format!("{PLANTED}/state"), &state);
    }
}

/// Lines of a journal with other entries, each with its checksum.
fn edited(lines: &str, edit: impl Fn(&mut Value)) -> String {
    let one = |line: &str| {
        let (_, text) = line.split_once(' ').expect("a checksum");
        let mut entry: Value = serde_json::from_str(text).expect("an entry");
        edit(&mut entry);
        let text = entry.to_string();
        format!("{:08x} {text}\n", crc32c(text.as_bytes()))
    };
    lines.lines().map(one).collect()
}

/// Without the journal a run is taken back by its copy alone, and only while that is what the run has written.
pub(super) fn a_copy_counts_with_its_witness(site: &Site, before: &str) {
    let copy = Copy(site);
    good(site.tune(&["apply", "--yes"]));
    let applied = site.dump();
    std::fs::remove_dir_all(site.dir.path().join("state")).expect("the journals go");
    let run = site.last_run()["run"].as_str().expect("a name").to_owned();
    let said = refused(&site.tune(&["rollback"]));
    assert!(said.contains(&format!("loligo tune rollback {run}")), "it is believed by name alone: {said}");

    let piece = copy.get(&format!("{run}/0000"));
    copy.set(&format!("{run}/0000"), &edited(&piece, |entry| set_before(entry, "osd_max_backfills", "77")));
    let said = refused(&site.tune(&["rollback", &run, "--force"]));
    assert!(said.contains("the copy was changed since"), "{said}");
    assert_eq!(site.dump(), applied);
    let drift = site.tune(&["watch", "--once"]);
    assert!(String::from_utf8_lossy(&drift.stderr).contains("is not looked at"), "{drift:?}");
    copy.set(&format!("{run}/0000"), &piece);
    good(site.tune(&["rollback", &run]));
    assert_eq!((site.dump().as_str(), site.witnesses()), (before, 0));
}

/// A copy that somebody planted writes nothing, and no door is opened by one whose witness is there.
pub(super) fn a_planted_copy_opens_no_door(site: &Site, before: &str) {
    let copy = Copy(site);
    let run = site.last_run()["run"].as_str().expect("a name").to_owned();
    copy.plant(&run, |_| ());
    let said = String::from_utf8_lossy(&site.tune(&["rollback", PLANTED]).stderr).into_owned();
    assert!(said.contains("is refused: it says that it is the run"), "{said}");

    copy.plant(&run, |entry| {
        if entry["head"].is_object() {
            entry["head"]["run"] = json!(PLANTED);
        }
        set_before(entry, "osd_max_backfills", "77");
        if entry["step"]["change"]["key"] == "osd_recovery_op_priority" {
            entry["step"]["change"]["key"] = json!("auth_client_required");
            entry["step"]["before"] = json!({"now": "none"});
        }
    });
    let said = refused(&site.tune(&["rollback", PLANTED, "--force"]));
    assert!(said.contains("is not believed") && said.contains("20200101_000000_1"), "{said}");
    assert_eq!(site.dump(), before);

    // Whoever may write a witness may set options.
    let digest = format!(
        "ceph config set mgr mgr/loligo_tune/20200101_000000_1 --force \
         $(ceph config-key get loligo/tune/{PLANTED}/0000 | sha256sum | cut -d' ' -f1)"
    );
    good(site.lab.sh(&digest));
    let back = site.json(&["rollback", PLANTED, "--force"]);
    assert!(back["back"]["left"].to_string().contains("auth_client_required of osd"), "{back}");
    let after = site.dump();
    assert!(after.contains("\"osd_max_backfills\"=\"77\"") && !after.contains("auth_"), "{after}");
    assert_eq!(site.witnesses(), 0);
    good(site.lab.sh("ceph config set osd osd_max_backfills 8"));
    assert_eq!(site.dump(), before);
    good(site.lab.sh(&format!("ceph config-key rm loligo/tune/{PLANTED}/state")));
}

fn set_before(entry: &mut Value, key: &str, value: &str) {
    if entry["step"]["change"]["key"] == key {
        entry["step"]["before"] = json!({"now": value});
    }
}
