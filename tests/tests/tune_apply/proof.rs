//! A change is proved or refuted by runs of both sides.

use super::by_name;
use super::site::{Site, cut_after};
use loligo_tests::lab::{good, refused};
use loligo_tests::skip::{installed, is_long, skip};
use serde_json::{Value, json};

#[test]
fn a_planted_effect_is_seen_and_all_is_as_before() {
    if !installed("fio") {
        return skip("verify", "fio is missing: apt-get install fio");
    }
    let Some(site) = Site::new("tune-verify") else { return };
    let before = site.dump();
    let common =
        ["--pool", "rbd", "--size", "64m", "--seconds", "1", "--ramp", "0", "--depth", "4", "--detect", "60"];
    let verify = |more: &[&'static str]| [&["verify"], &common[..], more].concat();
    let said = refused(&site.tune(&verify(&["--set", "client:rbd_qos_write_iops_limit=50"])));
    assert!(said.contains("--yes"), "{said}");
    let said = refused(&site.tune(&verify(&["--set", "osd:no_such_option=1", "--yes"])));
    assert!(said.contains("no_such_option"), "{said}");
    let said = refused(&site.tune(&verify(&["--set", "osd_max_backfills=1", "--yes"])));
    assert!(said.contains("WHO:NAME=VALUE"), "{said}");
    let said = refused(&site.tune(&verify(&["--set", "osd:osd_max_backfills=many", "--yes"])));
    assert!(said.contains("it takes a whole number"), "{said}");
    by_name::values_that_serve_nobody_are_refused(&site);
    a_refused_value_leaves_nothing_to_take_back(&site);
    assert_eq!(site.dump(), before);

    if !is_long() {
        return;
    }
    let report = site.dir.path().join("report.html");
    let limit = ["--set", "client:rbd_qos_write_iops_limit=50", "--yes"];
    let with_report = [&verify(&limit)[..], &["--report", report.to_str().expect("a path")]].concat();
    let seen = site.json(&with_report);
    let iops = &seen["metrics"][0];
    assert!(iops["effect"]["is_seen"] == true && iops["effect"]["ratio"].as_f64() < Some(0.5), "{iops}");
    assert!(iops["second"].as_f64() < Some(70.0), "the second arm has its limit: {iops}");
    assert!(seen["power"]["pairs_needed"].as_u64() >= Some(16), "{}", seen["power"]);
    let orders: Vec<bool> =
        seen["blocks"].as_array().expect("blocks").iter().map(|it| it["runs"][0]["arm"] == 1).collect();
    assert!(orders.contains(&true) && orders.contains(&false), "the order is by lot: {orders:?}");
    assert!(std::fs::read_to_string(&report).expect("a page").contains("Verdict"));
    assert_eq!(site.dump(), before);
    let images = good(site.lab.sh("rbd ls rbd"));
    assert!(images.stdout.is_empty(), "the image is left: {}", String::from_utf8_lossy(&images.stdout));

    // One that is killed leaves one arm in place until it is taken back.
    assert!(cut_after(&site, &verify(&limit), 6), "it was over too soon");
    assert_eq!((&site.last_run()["state"], &site.last_run()["kind"]), (&json!("applying"), &json!("verify")));
    let back = String::from_utf8_lossy(&good(site.tune(&["rollback"])).stdout).into_owned();
    assert_eq!(site.dump(), before);
    let (_, mend) = back.split_once("'rbd rm ").expect("its image is named");
    good(site.lab.sh(&format!("rbd rm {}", mend.split('\'').next().expect("a name"))));
    assert!(good(site.lab.sh("rbd ls rbd")).stdout.is_empty(), "the image was not that one");
}

/// Of a value that the monitors refuse, and of one that a file goes before, no run is left that somebody would have to take back.
fn a_refused_value_leaves_nothing_to_take_back(site: &Site) {
    let before = site.dump();
    let said = refused(&site.tune(&["apply", "--set", "osd:osd_op_queue_mclock_is_no_option=1", "--yes"]));
    assert!(said.contains("this release has no option"), "{said}");
    let said = refused(&site.tune(&["apply", "--set", "osd:debug_osd=100/5", "--yes"]));
    assert!(said.contains("nothing was changed"), "{said}");
    assert_eq!(site.last_run()["state"], "rolled-back");
    // The lab's file has it.
    let said = refused(&site.tune(&[
        "apply",
        "--set",
        "osd:bluestore_cache_size=1073741824",
        "--risk",
        "restart",
        "--yes",
    ]));
    assert!(said.contains("nothing was changed: osd.") && said.contains("by its file"), "{said}");
    assert!(refused(&site.tune(&["rollback"])).contains("there is no run"));
    assert_eq!(site.dump(), before);
    two_runs_at_one_place_are_taken_back_in_their_order(site);
}

fn two_runs_at_one_place_are_taken_back_in_their_order(site: &Site) {
    let before = site.dump();
    let set = |value: &str| {
        good(site.tune(&["apply", "--yes", "--set", &format!("osd:osd_max_scrubs={value}")]));
        site.last_run()["run"].as_str().expect("a name").to_owned()
    };
    let (first, second) = (set("2"), set("3"));
    let said = refused(&site.tune(&["rollback", &first]));
    assert!(said.contains(&format!("the later run {second}")) && said.contains("osd_max_scrubs"), "{said}");
    good(site.tune(&["rollback"]));
    good(site.tune(&["rollback"]));
    assert_eq!(site.dump(), before);
    let said = refused(&site.tune(&["apply", "--yes", "--set", "osd:osd max scrubs=3"]));
    assert!(said.contains("spelt osd_max_scrubs"), "{said}");
}

/// Twenty comparisons of nothing with nothing, and twenty of a real effect of about ten percent: single reads of modelled disks take 8.5
/// ms, and a fifth of them 4.9 ms more.
#[test]
fn twenty_of_nothing_and_twenty_of_ten_percent() {
    if !is_long() {
        return skip("the error rates of verify", "it takes an hour and a half: LOLIGO_LONG=1");
    }
    let Some(site) = Site::on("tune-rates", "hdd") else { return };
    let common = ["verify", "--pool", "rbd", "--size", "256m", "--rw", "randread", "--depth", "1"];
    let run = |more: &[&str]| {
        let length = ["--seconds", "2", "--ramp", "0", "--detect", "8", "--budget", "10", "--yes"];
        site.json(&[&common[..], &length, more].concat())
    };
    let words = |seen: &Value| {
        let (effect, first) = (&seen["metrics"][0]["effect"], &seen["metrics"][0]["first"]);
        let pairs = seen["blocks"].as_array().expect("blocks").len() * 2;
        let of = |key: &str| effect[key].as_f64().expect("a number");
        let [ratio, low, high] = ["ratio", "low", "high"].map(of);
        let is_seen = effect["is_seen"] == true;
        let text = format!("{ratio:.3} ({low:.3}-{high:.3}) by {pairs} pairs, seen: {is_seen}");
        (text, is_seen, ratio, first.as_f64().expect("a rate"))
    };
    let slow = [
        "osd:osd_debug_inject_dispatch_delay_probability=0.2",
        "osd:osd_debug_inject_dispatch_delay_duration=0.0011",
    ];
    let (mut quiet, mut found) = (0, 0);
    for round in 1..=20 {
        let (same, is_seen, _, rate) = words(&run(&["--same"]));
        quiet += usize::from(!is_seen);
        let (slowed, is_found, ratio, _) = words(&run(&["--set", slow[0], "--set", slow[1]]));
        found += usize::from(is_found && ratio < 1.0);
        println!("round {round}: {rate:.0} IOPS; same {same}; slowed {slowed}");
    }
    println!("{quiet} of 20 without effect, {found} of 20 found");
    assert!(quiet >= 19 && found >= 19, "{quiet} and {found}");
}

#[test]
fn a_search_finds_a_limit_that_slows_and_goes_on_after_a_cut() {
    if !is_long() {
        return skip("a search", "it takes five minutes: LOLIGO_LONG=1");
    }
    let Some(site) = Site::new("tune-search") else { return };
    let before = site.dump();
    let (space, record) = (site.dir.path().join("space.toml"), site.dir.path().join("record.jsonl"));
    let text = "version = 1\n[[option]]\nwho = \"client\"\nname = \"rbd_qos_write_iops_limit\"\n\
                values = [\"20\", \"40\", \"80\", \"0\"]\n\
                [[option]]\nwho = \"osd\"\nname = \"osd_client_message_cap\"\nfrom = 64\nto = 512\nlog = true\n\
                [[option]]\nwho = \"osd\"\nname = \"debug_osd\"\nvalues = [\"1/5\", \"1/10\", \"2/5\", \"100/5\"]\n";
    std::fs::write(&space, text).expect("a file");
    let (space, record) = (space.display().to_string(), record.display().to_string());
    let args = [
        "search",
        "--space",
        &space,
        "--record",
        &record,
        "--trials",
        "24",
        "--pool",
        "rbd",
        "--size",
        "64m",
        "--seconds",
        "1",
        "--ramp",
        "0",
        "--depth",
        "4",
        "--detect",
        "50",
        "--p99",
        "10",
        "--yes",
    ];
    let said = refused(&site.tune(&args));
    assert!(said.contains("--lab"), "{said}");
    let args = [&args[..], &["--lab"]].concat();
    assert!(cut_after(&site, &args, 6), "it was over too soon");
    good(site.tune(&["rollback"]));
    assert_eq!(site.dump(), before);
    let had = std::fs::read_to_string(&record).expect("a record").lines().count();
    assert!(had > 2, "{had}");
    let found = site.json(&args);
    assert_eq!(found["values"][0], "0", "no limit is the best of these: {found}");
    let all = std::fs::read_to_string(&record).expect("a record");
    assert_eq!(all.lines().count(), 25, "{all}");
    assert!(
        found["values"][2] != "100/5" && all.contains("100/5"),
        "what the cluster refuses ends no search: {all}"
    );
    assert_eq!(site.dump(), before);
}
