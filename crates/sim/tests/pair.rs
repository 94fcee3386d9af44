//! Claims about two controllers over one array, in seeded worlds. A seed that fails is run again, with its course, by
//! `LOLIGO_SEED=n cargo test -p loligo-sim --test pair`.

#![allow(clippy::print_stdout)]

mod sweep;

use loligo_pair::machine::Step;
use loligo_sim::pair::{Scenario, run};
use sweep::Course;

/// Seeds by default; `LOLIGO_SEEDS=n` for others.
const SEEDS: u64 = 2000;

/// The marks that the fixed seeds must reach, for the claim to mean anything.
const PATHS: [&str; 10] = [
    "a late write refused",
    "a race won",
    "down",
    "down, definitely dead",
    "fenced",
    "given back",
    "out",
    "power cut",
    "taken over",
    "trouble within a change",
];

#[test]
fn one_controller_at_a_time_writes_a_lun() {
    sweep::holds(SEEDS, &PATHS, |seed| {
        let outcome = run(&Scenario { seed, ..Scenario::default() });
        let violation = outcome.violation.map(|v| format!(", at {} ms: {}", v.at, v.what));
        Course { violation, marks: outcome.marks, log: outcome.log }
    });
}

/// Seeds within which a step left out must show.
const CAUGHT_WITHIN: u64 = 4000;

/// The first seed from `first` on that catches steps left out.
fn caught(steps: &[Step], first: u64) -> Option<(u64, String)> {
    (first..first + CAUGHT_WITHIN).find_map(|seed| {
        let outcome = run(&Scenario { seed, omitted: steps.to_vec(), ..Scenario::default() });
        outcome.violation.map(|violation| (seed, violation.what))
    })
}

#[test]
fn each_step_left_out_is_caught() {
    // Each with a seed from which on it shows soon: other steps stand in for some of them in most worlds.
    let steps: [(&[Step], u64); 16] = [
        (&[Step::Fence], 500),
        (&[Step::Abort], 0),
        (&[Step::ReadBack], 5900),
        (&[Step::Race], 0),
        (&[Step::Monitor], 190),
        (&[Step::SteadyMonitor], 190),
        (&[Step::SecondEvidence], 7300),
        (&[Step::Speaks], 0),
        (&[Step::Down], 0),
        (&[Step::Death], 0),
        // What comes late is not sent, so that the look before it shows only where both are left out.
        (&[Step::Owner, Step::InTime], 500),
        (&[Step::Backoff], 3900),
        (&[Step::Adopt], 0),
        (&[Step::FencedAtStart], 0),
        (&[Step::EndWhenFenced], 0),
        (&[Step::Giveback], 0),
    ];
    let mut missed = Vec::new();
    for (step, first) in steps {
        match caught(step, first) {
            Some((seed, what)) => println!("{step:?}: seed {seed}, {what}"),
            None => missed.push(step),
        }
    }
    assert!(missed.is_empty(), "nothing catches that these are left out: {missed:?}");
}

/// Seeds of worlds whose calls hang, and the first from which on a command that is sent late shows soon.
const HANGS: u64 = 500;
const LATE_FROM: u64 = 2900;

fn hanging(seed: u64, omitted: &[Step]) -> Course {
    let outcome = run(&Scenario { seed, omitted: omitted.to_vec(), hangs: true, ..Scenario::default() });
    let violation = outcome.violation.map(|v| format!(", at {} ms: {}", v.at, v.what));
    Course { violation, marks: outcome.marks, log: outcome.log }
}

#[test]
fn calls_that_hang_do_nothing_that_is_not_true_any_more() {
    sweep::holds(HANGS, &["a call hangs", "a call beside one that hangs"], |seed| hanging(seed, &[]));
}

#[test]
fn a_command_that_is_sent_late_is_caught() {
    let seeds = LATE_FROM..LATE_FROM + CAUGHT_WITHIN;
    let caught = seeds.into_iter().find_map(|seed| Some((seed, hanging(seed, &[Step::InTime]).violation?)));
    println!("InTime: {caught:?}");
    assert!(caught.is_some(), "nothing catches it");
}

#[test]
fn without_fence_and_look_two_write_one_lun() {
    let omitted = vec![Step::Fence, Step::Owner, Step::Down];
    let shown = (0..CAUGHT_WITHIN).find_map(|seed| {
        let outcome = run(&Scenario { seed, omitted: omitted.clone(), ..Scenario::default() });
        outcome
            .violation
            .filter(|v| v.what.contains("two processes may write") || v.what.contains("lands on"))
    });
    assert!(shown.is_some(), "no seed shows it");
}
