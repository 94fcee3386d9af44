//! Claims about pairs of controllers: real clusters, faults made by the lab, and a client that checks what it reads.

#![allow(clippy::print_stdout)]

use loligo_tests::server::program;
use loligo_tests::skip::{self, at_length, installed, skip};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::process::{Command, Stdio};

/// One small machine plays one fault at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Nothing where a lab of pairs cannot be.
fn alone(what: &str) -> Option<MutexGuard<'static, ()>> {
    skip::pairs(what, &[]).then(|| ALONE.lock())
}

/// Plays rows: the outcome.
fn play(args: &[&str]) -> Value {
    measure(&[&["--failures"], args].concat())
}

/// Runs the experiment with these arguments: the outcome.
fn measure(args: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program());
    command.args(["bench", "pair", "--json", "--dir"]).arg(dir.path()).args(args);
    let out = command.stdin(Stdio::null()).output().expect("the program runs");
    let said = String::from_utf8_lossy(&out.stderr);
    println!("{said}");
    let outcome = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("no JSON ({e}): {said}"));
    assert!(out.status.success(), "a run did harm, or failed: {said}\n{outcome:#}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0, "a lab is left");
    outcome
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Nothing was lost, read wrong or refused, each write landed before its fence, and roles went as they should.
fn unharmed(outcome: &Value, rows: usize) {
    let runs = outcome["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), rows);
    for run in runs {
        let name = format!("{} on {}", run["row"], run["target"]);
        assert_eq!(run["failed"], Value::Null, "{name}: {run:#}");
        assert_eq!(number(&run["landed"]), 0, "{name}: late writes landed");
        let all = run["counts"].as_array().expect("counts");
        for (at, counts) in all.iter().enumerate() {
            // The volume is the last of those that are written to.
            let may_fail = run["row"] == "disk-volume" && at + 1 == all.len();
            for what in ["errors", "stuck", "stale", "wrong", "lost"] {
                if what == "errors" && may_fail {
                    assert!(number(&counts[what]) > 0, "{name}: the array's errors did not come through");
                    continue;
                }
                assert_eq!(number(&counts[what]), 0, "{name}: {what}: {run:#}");
            }
            assert!(
                number(&counts["writes"]) > 100 && number(&counts["read_back"]) > 500,
                "{name}: {counts}"
            );
        }
    }
    for row in outcome["rows"].as_array().expect("rows") {
        assert_eq!(row["unexpected"], Value::Array(Vec::new()), "{}", row["row"]);
    }
}

fn rejected(outcome: &Value, row: &str) -> u64 {
    let run = outcome["runs"].as_array().expect("runs").iter().find(|run| run["row"] == row);
    number(&run.unwrap_or_else(|| panic!("no run of {row}"))["rejected"])
}

#[test]
fn faults_lose_nothing_and_late_writes_are_rejected() {
    let Some(_alone) = alone("failures of pairs") else { return };
    let rows = "controller,nic,freeze,giveback";
    let outcome = play(&["--pairs", "2", "--runs", "1", "--freeze", "10", "--fsck", "off", "--rows", rows]);
    unharmed(&outcome, 4);
    assert!(rejected(&outcome, "nic") > 0 && rejected(&outcome, "freeze") > 0, "the fence was not tried");
    for run in outcome["runs"].as_array().expect("runs") {
        assert_eq!(number(&run["takeovers"]), 1, "{}", run["row"]);
        assert!(run["given_back"].as_f64().is_some_and(|at| at > 0.0), "{} was not given back", run["row"]);
    }
}

#[test]
fn writes_are_answered_durably_on_the_array() {
    let what = "the write path of pairs";
    if !at_length(what) {
        return;
    }
    if !installed("fio") {
        return skip(what, "fio is missing: apt-get install fio");
    }
    let Some(_alone) = alone(what) else { return };
    let load = ["--figures", "5,sustained", "--sizes", "4k", "--patterns", "rand", "--link", "1g"];
    let small =
        ["--rounds", "1", "--seconds", "1", "--settle", "1", "--image-size", "256m", "--cache-size", "64m"];
    let outcome = measure(&[&load[..], &small].concat());
    let points = outcome["points"].as_array().expect("points");
    let figures: Vec<&Value> = points.iter().map(|point| &point["point"]["figure"]).collect();
    assert_eq!(figures, ["5", "sustained"]);
    for point in points {
        let run = &point["runs"][0];
        let counted = &run["counted"];
        assert!(number(&counted["acks"]) > 0 && run["native"]["iops"].as_f64() > Some(0.0), "{run}");
        assert!(number(&counted["flushes"]) > 0 && number(&counted["destaged_bytes"]) > 0, "{counted}");
    }
    let alone = &points[0]["runs"][0]["counted"];
    assert!(number(&alone["flushes"]) >= number(&alone["acks"]), "an answer without a flush: {alone}");
    let dirty = points[1]["runs"][0]["counted"]["dirty"][0].as_f64();
    assert!(dirty > Some(0.2), "the journal was not filled: {dirty:?}");
}

#[test]
fn all_faults_lose_nothing_on_three_pairs() {
    if !at_length("all failures of pairs") {
        return;
    }
    let Some(_alone) = alone("all failures of pairs") else { return };
    let outcome = play(&["--runs", "2"]);
    unharmed(&outcome, 22);
    let clean = outcome["fsck"].as_array().expect("checks of stores").iter();
    assert!(
        clean.clone().count() >= 10 && clean.clone().all(|f| f["said"] == "fsck success"),
        "{}",
        outcome["fsck"]
    );
}
