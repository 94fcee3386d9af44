//! Each option that a rule sets on OSDs is set by `loligo tune apply --set`, seen in every OSD, and put back.

use loligo_tests::lab::{Lab, good, until};
use loligo_tests::server::program;
use loligo_tests::skip::{cluster, is_long, skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

struct Site {
    lab: Lab,
    dir: tempfile::TempDir,
}

/// An option, the price of a change, and a value that is not its default.
struct Setting {
    key: String,
    is_late: bool,
    value: String,
}

impl Site {
    fn tune(&self, args: &[String]) -> Command {
        let mut command = Command::new(program());
        command.arg("tune").args(args).arg("--json");
        if args[0] != "explain" {
            command.arg("--conf").arg(self.lab.dir.join("ceph.conf"));
        }
        if ["apply", "rollback"].contains(&args[0].as_str()) {
            let dir = self.lab.dir.display();
            let program = program().display();
            let restart =
                format!("{program} lab fail osd {{id}} --dir {dir} >&2; {program} lab mend --dir {dir} >&2");
            command.arg("--state").arg(self.dir.path().join("state"));
            command.args(["--restart-with", &restart, "--patience", "180"]);
        }
        command.stdin(Stdio::null());
        command
    }

    fn json(&self, args: &[&str]) -> Value {
        let args: Vec<String> = args.iter().map(|&it| it.to_owned()).collect();
        let out = good(self.tune(&args).output().expect("it runs"));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    fn ceph(&self, command: &str) -> Value {
        let out = good(self.lab.sh(&format!("ceph {command} --format json")));
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    /// Options that rules set on OSDs, and that act at once or after a restart on this release.
    fn settings(&self, release: &str, has_liburing: bool) -> Vec<Setting> {
        let rules = self.json(&["explain"]);
        let of = |rule: &Value, list: &str| rule[list].as_array().cloned().unwrap_or_default();
        let mut all: BTreeMap<String, (bool, Option<String>)> = BTreeMap::new();
        for rule in rules.as_array().expect("rules") {
            let options = of(rule, "option");
            for set in of(rule, "set").iter().filter(|it| it["target"] == "config") {
                let (who, key) =
                    (set["who"].as_str().unwrap_or_default(), set["key"].as_str().unwrap_or_default());
                let option = options.iter().find(|it| it["name"] == key);
                let acts = option.and_then(|it| it["acts"][release].as_str()).unwrap_or_default();
                let is_of_osds = who.starts_with("osd") || ["*", "global"].contains(&who);
                if is_of_osds && ["live", "restart"].contains(&acts) {
                    let text = set["value"].as_str().and_then(|it| it.strip_prefix('"')?.strip_suffix('"'));
                    let entry = all.entry(key.to_owned()).or_insert((acts == "restart", None));
                    entry.1 = text.map(str::to_owned).or(entry.1.take());
                }
            }
        }
        let with_value = |(key, (is_late, text)): (String, (bool, Option<String>))| {
            let value = other(&self.ceph(&format!("config help {key}")), text.as_deref());
            value.map(|value| Setting { key, is_late, value })
        };
        // OSDs end as they start with a library that the build lacks, and with huge pages that the host did not set aside. Rules ask
        // for both.
        all.retain(|key, _| !key.contains("_huge_") && (has_liburing || !key.starts_with("bdev_ioring")));
        all.into_iter().filter_map(with_value).collect()
    }

    /// Sets them by one run; those that had no effect.
    fn set(&self, all: &[&Setting]) -> Vec<String> {
        let mut left: Vec<&Setting> = all.to_vec();
        let mut failed = Vec::new();
        while !left.is_empty() {
            until("all is clean", Duration::from_secs(60), || {
                let states = self.ceph("pg stat")["pg_summary"]["num_pg_by_state"].clone();
                states.as_array().is_some_and(|all| all.len() == 1 && all[0]["name"] == "active+clean")
            });
            let sets =
                left.iter().flat_map(|it| ["--set".to_owned(), format!("osd:{}={}", it.key, it.value)]);
            let head = ["apply", "--risk", "restart", "--yes"].map(str::to_owned);
            let out = self.tune(&head.into_iter().chain(sets).collect::<Vec<_>>()).output().expect("it runs");
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            if out.status.success() {
                let done: Value = serde_json::from_slice(&out.stdout).expect("JSON");
                let seen = done["seen"].as_object().map_or(0, serde_json::Map::len);
                let acting = done["seen"].to_string().matches("\"acts\"").count();
                assert_eq!((seen, acting), (left.len(), left.len()), "{done}");
                break;
            }
            let is_named = |it: &&Setting| said.lines().last().is_some_and(|line| line.contains(&it.key));
            let at = left.iter().rposition(is_named).unwrap_or_else(|| panic!("{said}"));
            let one = left.remove(at);
            let why = said.lines().last().unwrap_or_default();
            failed.push(format!("{}={}: {why}", one.key, one.value));
            // A value that is refused at once has begun no run, and the last one is another.
            if said.contains("stopped after") {
                self.json(&["rollback"]);
            }
        }
        failed
    }
}

/// A value that is not the default of an option, by its type and its limits; of texts, that of a rule.
fn other(help: &Value, of_rule: Option<&str>) -> Option<String> {
    let number = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.parse::<f64>().ok()
    };
    let default = match &help["daemon_default"] {
        Value::String(text) if text.is_empty() => &help["default"],
        set => set,
    };
    match help["type"].as_str()? {
        "bool" => {
            let is_on = default == &Value::Bool(true) || default == "true";
            Some((!is_on).to_string())
        }
        // The cluster keeps six decimals.
        "float" => Some(number(default).filter(|it| *it > 0.0).map_or(0.5, |it| it * 1.5))
            .map(|it| ((it * 1e6).round() / 1e6).to_string())
            .filter(|it| {
                number(&help["max"]).is_none_or(|most| it.parse::<f64>().is_ok_and(|is| is <= most))
            }),
        "int" | "uint" | "size" => {
            // Nothing is "as the program thinks best": a size that serves.
            let least = if help["type"] == "size" { f64::from(64 << 20) } else { 1.0 };
            let is = number(default).filter(|it| *it > 0.0).map_or(least, |it| it * 2.0);
            let most = number(&help["max"]).filter(|it| *it > 0.0);
            Some(format!("{:.0}", most.map_or(is, |most| is.min(most))))
        }
        _ => {
            let names = help["enum_values"].as_array().or(help["enum_allowed"].as_array());
            let names = names.into_iter().flatten().filter_map(Value::as_str);
            let mut all = names.filter(|it| !it.contains("debug")).chain(of_rule);
            all.find(|it| default != *it).map(str::to_owned)
        }
    }
}

#[test]
fn all_options_of_rules_are_seen_to_act_and_put_back() {
    if !is_long() {
        return skip("each option of rules", "it takes ten minutes: LOLIGO_LONG=1");
    }
    if !cluster("each option of rules") {
        return;
    }
    let site = Site { lab: Lab::new("acts"), dir: tempfile::tempdir().expect("a folder") };
    good(site.lab.up(&["--osds", "3", "--replicas", "3", "--osd-size", "5g"]));
    // An OSD that measures itself as it starts sets what it finds for itself alone, before what is set for all.
    good(site.lab.sh("ceph config set global osd_mclock_skip_benchmark true"));
    let facts = site.json(&["facts"]);
    let release = facts["cluster"]["release"].to_string();
    let all = site.settings(&release, facts["osds"][0]["liburing"] == true);
    assert!(all.len() >= 45, "{} options", all.len());
    // mClock rewrites limits of recovery as they are set; its own options count under it alone.
    let all: Vec<Setting> = all.into_iter().filter(|it| it.key != "osd_op_queue").collect();
    let (of_mclock, others): (Vec<&Setting>, Vec<&Setting>) =
        all.iter().partition(|it| it.key.starts_with("osd_mclock"));
    let before = site.ceph("config dump");
    let queue = |name: &str| Setting { key: "osd_op_queue".into(), is_late: true, value: name.into() };
    let wpq = queue("wpq");
    let mclock = queue("mclock_scheduler");
    // The other profiles take its options away as they are set.
    let custom = Setting { key: "osd_mclock_profile".into(), is_late: false, value: "custom".into() };
    let of_mclock: Vec<&Setting> = of_mclock.into_iter().filter(|it| it.key != custom.key).collect();
    let (mut failed, mut count) = (Vec::new(), 0);
    for (queue, profile, options) in [(&wpq, None, others), (&mclock, Some(&custom), of_mclock)] {
        // It acts once OSDs have started with it, and decides which others act.
        let is_default = (queue.value == "wpq") == (release == "16");
        let first: Vec<&Setting> = [queue].into_iter().filter(|_| !is_default).chain(profile).collect();
        for one in &first {
            failed.extend(site.set(&[one]));
        }
        failed.extend(site.set(&options));
        count += first.len() + options.len();
        for _ in 0..=first.len() {
            site.json(&["rollback"]);
        }
        assert_eq!(site.ceph("config dump"), before);
    }
    let late = all.iter().filter(|it| it.is_late).count();
    println!("release {release}: {} of {count} options act ({late} after a restart)", count - failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
    good(site.lab.run("down", &[]));
}
