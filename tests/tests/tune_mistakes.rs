//! Mistakes of articles from the time of Ceph 16, on 18 and later: `loligo tune` finds each on a real cluster, takes it away, and puts
//! it back to the byte.

use loligo_tests::lab::{Lab, good};
use loligo_tests::server::program;
use loligo_tests::skip::{cluster, is_long, skip};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Values of the file: limits of recovery (mistake 1), a share of mClock in I/O a second (8), an hour that is none (9).
const FILE: [&str; 4] = [
    "osd.osd_max_backfills=8",
    "osd.osd_recovery_max_active=20",
    "osd.osd_mclock_scheduler_client_res=500",
    "osd.osd_scrub_end_hour=24",
];

/// Values of the database: limits in sections that OSDs do not clear (2), discard (4), all of RocksDB's options (5), shards (6), scrubs
/// (9), sleeps (10).
const DATABASE: &str = "
    class=$(ceph osd crush get-device-class osd.0)
    ceph config set osd/class:$class osd_recovery_max_active 20
    ceph config set global osd_max_backfills 9
    ceph config set osd bdev_enable_discard true
    ceph config set osd bluestore_rocksdb_options compression=kNoCompression,max_write_buffer_number=32,write_buffer_size=67108864
    ceph config set osd osd_op_num_shards 8
    ceph config set osd osd_op_num_threads_per_shard 2
    ceph config set osd osd_scrub_load_threshold 0.5
    ceph config set osd osd_max_scrubs 1
    ceph config set osd osd_recovery_sleep_hdd 0.1
    ceph config set osd osd_scrub_sleep 0.1
    ceph config set osd osd_snap_trim_sleep 2";

/// The rules that find them. Mistakes 3 and 7 have tests of their own.
const RULES: [(&str, &[u8]); 9] = [
    ("OSD-18", &[1, 2]),
    ("OSD-20", &[8]),
    ("OSD-11", &[9]),
    ("OSD-33", &[9]),
    ("OSD-34", &[9]),
    ("KV-18", &[4]),
    ("KV-27", &[5]),
    ("OSD-28", &[6]),
    ("OSD-23", &[10]),
];

/// A release with mClock, or nothing.
fn release(name: &str) -> Option<u32> {
    if !cluster(name) {
        return None;
    }
    let said = Command::new("ceph").arg("--version").output().expect("ceph runs");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = said.strip_prefix("ceph version ").and_then(|it| it.split('.').next()?.parse().ok());
    let number: u32 = number.unwrap_or_else(|| panic!("{said}"));
    if number < 18 {
        skip(name, &format!("Ceph {number} has no mClock by default: scripts/test-releases.sh"));
        return None;
    }
    Some(number)
}

struct Site {
    lab: Lab,
    state: tempfile::TempDir,
}

impl Site {
    fn tune(&self, args: &[&str]) -> Output {
        let dir = self.lab.dir.display();
        let program = program();
        let restart = format!(
            "{0} lab fail osd {{id}} --dir {dir} >&2 && sleep 1 && {0} lab mend --dir {dir} >&2",
            program.display()
        );
        let mut command = Command::new(program);
        command.arg("tune").args(args).arg("--conf").arg(self.lab.dir.join("ceph.conf")).stdin(Stdio::null());
        if args[0] != "plan" {
            command
                .args(["--restart-with", &restart, "--patience", "180"])
                .arg("--state")
                .arg(self.state.path());
        }
        command.output().expect("the program runs")
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&good(self.tune(&[args, &["--json"]].concat())).stdout).expect("JSON")
    }

    /// Rules that propose something.
    fn proposed(&self) -> Vec<String> {
        let plan = self.json(&["plan"]);
        let all = plan["proposals"].as_array().expect("proposals").iter();
        all.map(|it| it["rule"].as_str().expect("a name").to_owned()).collect()
    }

    fn dump(&self) -> String {
        let out = good(self.lab.sh("ceph config dump --format json"));
        let all: Vec<Value> = serde_json::from_slice(&out.stdout).expect("a list");
        let mut all: Vec<String> = all
            .iter()
            .map(|it| format!("{} {} {}={}", it["section"], it["mask"], it["name"], it["value"]))
            .collect();
        all.sort();
        all.join("\n")
    }

    fn conf(&self) -> String {
        std::fs::read_to_string(self.lab.dir.join("ceph.conf")).expect("a file")
    }

    fn backfills(&self) -> Vec<i64> {
        let admits = |osd: i64| {
            let out = good(self.lab.sh(&format!("ceph tell osd.{osd} dump_recovery_reservations")));
            let said: Value = serde_json::from_slice(&out.stdout).expect("JSON");
            said["local_reservations"]["max_allowed"].as_i64().expect("a number")
        };
        (0..3).map(admits).collect()
    }
}

#[test]
fn mistakes_of_old_articles_are_found_and_removed() {
    let Some(number) = release("mistakes of old articles") else { return };
    let site = Site { lab: Lab::new("mistakes"), state: tempfile::tempdir().expect("a folder") };
    let mut up = vec!["--osds", "3", "--replicas", "3", "--osd-size", "5g"];
    up.extend(FILE.iter().flat_map(|set| ["--set", *set]));
    good(site.lab.up(&up));
    good(site.lab.sh(DATABASE));
    if number < 19 {
        // 18 does not know the name, and discards in the commit path; 20 takes it for one thread, which is no mistake.
        good(site.lab.sh("ceph config set osd bdev_async_discard true --force"));
    }
    let (conf, dump) = (site.conf(), site.dump());
    assert_eq!(site.backfills(), [8, 8, 8], "the file's limit acts under mClock");

    let proposed = site.proposed();
    let found = RULES.iter().filter(|(rule, _)| proposed.iter().any(|it| it == rule));
    let mut mistakes: Vec<u8> = found.flat_map(|(_, mistakes)| mistakes.iter().copied()).collect();
    mistakes.sort_unstable();
    mistakes.dedup();
    println!("Ceph {number}: found {mistakes:?} by {proposed:?}");
    assert_eq!(mistakes, [1, 2, 4, 5, 6, 8, 9, 10], "{proposed:?}");

    let mut apply = vec!["apply", "--risk", "restart", "--yes"];
    let named: Vec<&str> =
        RULES.iter().map(|(rule, _)| *rule).filter(|rule| proposed.iter().any(|it| it == rule)).collect();
    apply.extend(named.iter().flat_map(|rule| ["--rule", *rule]));
    let done = site.json(&apply);
    println!("{} steps", done["steps"].as_array().map_or(0, Vec::len));
    assert_eq!(site.backfills(), [1, 1, 1]);
    let left = site.proposed();
    assert!(!named.iter().any(|rule| left.iter().any(|it| it == rule)), "left: {left:?}");
    for key in ["sleep", "backfills", "max_active", "shards", "rocksdb", "discard", "scrub"] {
        assert!(!site.dump().contains(key), "{key}: {}", site.dump());
    }
    good(site.tune(&["rollback"]));
    assert_eq!((site.conf(), site.dump()), (conf, dump));
    assert_eq!(site.backfills(), [8, 8, 8]);
}

#[test]
fn reservers_with_a_number_that_nobody_set_are_mended() {
    if !is_long() {
        return skip("reservers with a number that nobody set", "it takes a minute: LOLIGO_LONG=1");
    }
    let Some(number) = release("reservers with a number that nobody set") else { return };
    let site = Site { lab: Lab::new("reservers"), state: tempfile::tempdir().expect("a folder") };
    good(site.lab.up(&["--osds", "3", "--replicas", "3", "--osd-size", "5g"]));
    // The override goes first, and the value after it: the wrong order.
    good(site.lab.sh("ceph config set osd osd_mclock_override_recovery_settings true; sleep 2; \
         ceph config set osd osd_max_backfills 8; sleep 2; \
         ceph config rm osd osd_mclock_override_recovery_settings; sleep 2; \
         ceph config rm osd osd_max_backfills; sleep 2"));
    println!("Ceph {number}: reservers admit {:?}", site.backfills());
    assert_eq!(site.backfills(), [8, 8, 8]);
    assert!(site.proposed().contains(&"OSD-31".to_owned()), "{:?}", site.proposed());
    let done = site.json(&["apply", "--rule", "OSD-31", "--risk", "restart", "--yes"]);
    assert!(done["seen"].to_string().contains("the reservers of osd.2 admit 1"), "{done}");
    assert_eq!(site.backfills(), [1, 1, 1]);

    // Both are removed in the right order, and come back in the other.
    good(site.lab.sh("ceph config set osd osd_mclock_override_recovery_settings true; sleep 2; \
         ceph config set osd osd_max_backfills 8; sleep 2"));
    let dump = site.dump();
    good(site.tune(&["apply", "--rule", "OSD-19", "--yes"]));
    assert_eq!(site.backfills(), [1, 1, 1]);
    good(site.tune(&["rollback"]));
    assert_eq!((site.dump(), site.backfills()), (dump, vec![8, 8, 8]));
}

#[test]
fn a_disk_behind_a_cache_gets_the_capacity_that_it_has() {
    let Some(number) = release("the capacity of a disk behind a cache") else { return };
    let site = Site { lab: Lab::new("cached"), state: tempfile::tempdir().expect("a folder") };
    good(site.lab.up(&["--osds", "2", "--replicas", "2", "--osd-size", "3g", "--cache", "256m"]));
    let dump = site.dump();
    // The figure of a bare disk, and not of what the OSD stands on (mistake 7).
    let runs = |key: &str| {
        let out = good(site.lab.sh(&format!("ceph tell osd.0 config get {key}")));
        let said: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        said[key].as_str().and_then(|it| it.parse::<f64>().ok()).expect("a number")
    };
    let both = || (runs("osd_mclock_max_capacity_iops_hdd"), runs("osd_mclock_max_sequential_bandwidth_hdd"));
    let bare = both();
    assert_eq!(bare.0, 315.0);
    assert!(!site.proposed().contains(&"CAS-10".to_owned()), "nobody measured");

    let measured = site.state.path().join("measured.json");
    let conf = site.lab.dir.join("ceph.conf");
    let mut command = Command::new(program());
    command.args(["tune", "facts", "--measure", "--osd", "0", "--yes", "--json", "--conf"]).arg(conf);
    std::fs::write(&measured, good(command.output().expect("the program runs")).stdout).expect("a file");
    let facts: Value = serde_json::from_slice(&std::fs::read(&measured).expect("a file")).expect("JSON");
    let osd = &facts["osds"][0];
    println!("Ceph {number}: {} behind {}", osd["measured"], osd["cache"]);
    assert!(
        osd["cache"]["kind"] == "loligo" && osd["measured"]["iops"].as_f64() > Some(315.0 * 1.5),
        "{osd}"
    );

    let given = ["--measured", measured.to_str().expect("a path")];
    let done = site.json(&[&["apply", "--rule", "CAS-10", "--yes"], &given[..]].concat());
    assert_eq!(done["steps"].as_array().map(Vec::len), Some(3), "{done}");
    let (iops, bandwidth) = both();
    assert!(iops > 315.0 && iops <= 1260.0 && bandwidth != bare.1, "{iops} {bandwidth}");
    let plan = site.json(&[&["plan"], &given[..]].concat());
    assert!(!plan["proposals"].to_string().contains("CAS-10"), "{}", plan["proposals"]);
    good(site.tune(&["rollback"]));
    assert_eq!((site.dump(), both()), (dump, bare));
}
