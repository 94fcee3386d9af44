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

/// Seeds by which a step left out must show.
const CAUGHT_WITHIN: u64 = 4000;

/// The first seed that catches steps left out.
fn caught(steps: &[Step]) -> Option<(u64, String)> {
    (0..CAUGHT_WITHIN).find_map(|seed| {
        let outcome = run(&Scenario { seed, omitted: steps.to_vec(), ..Scenario::default() });
        outcome.violation.map(|violation| (seed, violation.what))
    })
}

#[test]
fn each_step_left_out_is_caught() {
    let steps = [
        Step::Fence,
        Step::Abort,
        Step::ReadBack,
        Step::Race,
        Step::Monitor,
        Step::SteadyMonitor,
        Step::SecondEvidence,
        Step::Speaks,
        Step::Down,
        Step::Death,
        Step::Owner,
        Step::Backoff,
        Step::Adopt,
        Step::FencedAtStart,
        Step::EndWhenFenced,
        Step::Giveback,
    ];
    let mut missed = Vec::new();
    for step in steps {
        match caught(&[step]) {
            Some((seed, what)) => println!("{step:?}: seed {seed}, {what}"),
            None => missed.push(step),
        }
    }
    assert!(missed.is_empty(), "nothing catches that these are left out: {missed:?}");
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
