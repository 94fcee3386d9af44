//! Claims about two controllers over one array, in seeded worlds. A seed that fails is run again, with its course, by
//! `LOLIGO_SEED=n cargo test -p loligo-sim --test pair`.

#![allow(clippy::print_stdout)]

use loligo_sim::pair::{Scenario, run};
use loligo_sim::seeds::seeds;
use std::collections::BTreeMap;

/// Seeds by default; `LOLIGO_SEEDS=n` for others.
const SEEDS: u64 = 2000;

#[test]
fn one_controller_at_a_time_writes_a_lun() {
    let all = seeds(SEEDS);
    let mut marks: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    for seed in &all {
        let outcome = run(&Scenario { seed: *seed, ..Scenario::default() });
        for (name, times) in &outcome.marks {
            *marks.entry(name).or_default() += times;
        }
        if all.len() == 1 {
            println!("{}", outcome.log.join("\n"));
        }
        if let Some(violation) = outcome.violation {
            failures.push(format!("seed {seed}, at {} ms: {}", violation.at, violation.what));
        }
    }
    println!("{} seeds: {marks:?}", all.len());
    assert!(failures.is_empty(), "{} of {} seeds failed:\n{}", failures.len(), all.len(), failures.join("\n"));
}
