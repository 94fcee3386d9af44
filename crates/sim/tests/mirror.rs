//! Claims about a mirrored device in seeded worlds. A seed that fails is run again, with its course, by
//! `LOLIGO_SEED=n cargo test -p loligo-sim --test mirror`.

#![allow(clippy::print_stdout)]

mod sweep;

use loligo_block::mirror::Flaw;
use loligo_sim::mirror::{Scenario, run};
use sweep::Course;

/// Seeds by default; `LOLIGO_SEEDS=n` for others.
const SEEDS: u64 = 3000;

/// The marks that the fixed seeds must reach, for the claim to mean anything.
const PATHS: [&str; 14] = [
    "a clean stop",
    "a crash",
    "a leg is destroyed",
    "a power cut",
    "a takeover",
    "alone",
    "failed",
    "in step again",
    "join failed",
    "joining",
    "left",
    "opened on one leg",
    "refused",
    "the sound leg is destroyed",
];

#[test]
fn no_acknowledged_write_is_lost_and_nothing_stale_is_read() {
    sweep::holds(SEEDS, &PATHS, |seed| {
        let outcome = run(&Scenario { seed, flaws: Vec::new() });
        let violation = outcome.violation.map(|what| format!(": {what}"));
        Course { violation, marks: outcome.marks, log: outcome.log }
    });
}

/// Seeds by which a broken rule must show.
const CAUGHT_WITHIN: u64 = 4000;

#[test]
fn each_broken_rule_is_caught() {
    let flaws = [
        Flaw::AckBeforeMirror,
        Flaw::AckBeforeNote,
        Flaw::NoNote,
        Flaw::CopyUnderWrites,
        Flaw::JoinSkipsWrites,
        Flaw::JoinBesideLate,
        Flaw::NoStaleNote,
        Flaw::NoteUnflushed,
        Flaw::JoinedLegFirst,
        Flaw::ReadStale,
        Flaw::FlushOneLeg,
        Flaw::LocalAlwaysWins,
        Flaw::AloneUnasked,
        Flaw::CrashForgotten,
        Flaw::FenceIsLoss,
    ];
    let mut missed = Vec::new();
    for flaw in flaws {
        let caught = (0..CAUGHT_WITHIN).find_map(|seed| {
            let outcome = run(&Scenario { seed, flaws: vec![flaw] });
            outcome.violation.map(|violation| (seed, violation))
        });
        match caught {
            Some((seed, what)) => println!("{flaw:?}: seed {seed}, {what}"),
            None => missed.push(flaw),
        }
    }
    assert!(missed.is_empty(), "nothing catches that these are broken: {missed:?}");
}
