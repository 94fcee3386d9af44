//! The last line of `make test` is right: what was skipped is not called passed, and what crashed is not
//! forgotten. Failed tests are named again right before it.

use std::io::Write;
use std::process::{Command, Stdio};

/// The words of the script `name` about `output`, and whether it ends well.
fn awk(name: &str, settings: &[&str], output: &str) -> (String, bool) {
    let script = loligo_tests::tidy::root().join("scripts").join(name);
    let mut awk = Command::new("awk")
        .args(settings.iter().flat_map(|s| ["-v", s]))
        .arg("-f")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("awk is part of every Debian");
    awk.stdin.take().expect("piped").write_all(output.as_bytes()).expect("awk reads");
    let out = awk.wait_with_output().expect("awk ends");
    (String::from_utf8_lossy(&out.stdout).trim().to_owned(), out.status.success())
}

/// The counter's words about `output`, and whether it calls it a success.
fn tally(output: &str) -> (String, bool) {
    awk("tally.awk", &[], output)
}

const GOOD: &str = "
running 3 tests
test a ... ok

successes:

---- a stdout ----
SKIP: fio is not installed
SKIP a: twice in one test

---- b stdout ----
the word SKIP inside a line is none

successes:
    a
    b

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

#[test]
fn tests_that_skipped_or_were_ignored_are_not_called_passed() {
    assert_eq!(tally(GOOD), ("6 passed, 0 failed, 2 skipped".into(), true));
}

#[test]
fn a_step_that_cannot_be_taken_is_counted_as_skipped() {
    let step = "SKIPPED STEP: aarch64: no compiler for it\n";
    assert_eq!(tally(&format!("{GOOD}{step}")), ("6 passed, 0 failed, 3 skipped".into(), true));
}

#[test]
fn failures_are_counted_and_a_skip_in_a_failed_test_is_one() {
    let bad = "
failures:

---- c stdout ----
SKIP: half of it

failures:
    c

test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
error: test failed, to rerun pass `-p x --test y`
";
    assert_eq!(tally(&format!("{GOOD}{bad}")), ("9 passed, 1 failed, 2 skipped".into(), false));
}

#[test]
fn failed_tests_words_are_said_again_cut_in_the_middle() {
    let bad = "
failures:

---- c stdout ----
first
second
third
fourth
last

---- d stdout ----
alone


failures:
    c
    d

test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
    let (said, _) = awk("failures.awk", &["first=1", "last=2"], &format!("{GOOD}{bad}{GOOD}"));
    assert_eq!(said, "== what c said\nfirst\n   (3 lines left out)\nlast\n\n== what d said\nalone");
}

#[test]
fn frames_of_a_backtrace_do_not_hide_what_a_failed_test_said() {
    let frames =
        "   0: core::panicking::panic_fmt\n             at /rustc/5980/library/core/src/panicking.rs:80:14\n";
    let bad =
        format!("failures:\n\n---- c stdout ----\nseed 7 failed\n{frames}{frames}\nfailures:\n    c\n\n");
    let (said, _) = awk("failures.awk", &["first=1", "last=1"], &bad);
    assert_eq!(said, "== what c said\nseed 7 failed");
}

#[test]
fn a_program_that_crashed_and_a_failed_step_count_as_failures() {
    let crash = "error: test failed, to rerun pass `-p x --test y`\nFAILED STEP: clippy\n";
    assert_eq!(tally(&format!("{GOOD}{crash}")), ("6 passed, 2 failed, 2 skipped".into(), false));
}

#[test]
fn no_test_at_all_is_no_success() {
    assert!(!tally("").1);
}

#[test]
fn only_a_test_that_was_refused_a_ring_is_taken_for_skipped() {
    let ran = |others: &str, result: &str, word: &str| {
        format!(
            "running 3 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nio_uring is not allowed here\n\n\
             {others}failures:\n    b\n\ntest result: {result}; 0 ignored; 0 measured; 0 filtered out\n{word}"
        )
    };
    let rerun = "error: test failed, to rerun pass `--lib`\n";
    let (kept, _) = awk("ringless.awk", &[], &ran("", "FAILED. 2 passed; 1 failed", rerun));
    assert_eq!(tally(&kept), ("2 passed, 0 failed, 1 skipped".into(), true), "{kept}");
    let other = "---- c stdout ----\nit is wrong\n\n";
    let (kept, _) = awk("ringless.awk", &[], &ran(other, "FAILED. 1 passed; 2 failed", rerun));
    assert_eq!(tally(&kept), ("1 passed, 1 failed, 1 skipped".into(), false), "{kept}");
    assert!(kept.contains("it is wrong"), "{kept}");
}
