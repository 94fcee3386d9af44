//! A sweep over seeded worlds: nothing may go wrong in any, and together they must have gone through all that is claimed of.

use loligo_sim::seeds::seeds;
use std::collections::BTreeMap;

/// The result of one seed, for a sweep.
pub struct Course {
    /// The first thing that must not happen and did.
    pub violation: Option<String>,
    /// The number of times that something happened.
    pub marks: BTreeMap<&'static str, u64>,
    /// The course of the run.
    pub log: Vec<String>,
}

/// Runs `count` seeds, or those that the environment says. A single one shows its course.
pub fn holds(count: u64, paths: &[&str], run: impl Fn(u64) -> Course) {
    let all = seeds(count);
    let mut marks: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failures = Vec::new();
    for seed in &all {
        let course = run(*seed);
        for (name, times) in &course.marks {
            *marks.entry(name).or_default() += times;
        }
        if all.len() == 1 {
            println!("{}", course.log.join("\n"));
        }
        if let Some(violation) = course.violation {
            failures.push(format!("seed {seed}{violation}"));
        }
    }
    println!("{} seeds: {marks:?}", all.len());
    assert!(
        failures.is_empty(),
        "{} of {} seeds failed:\n{}",
        failures.len(),
        all.len(),
        failures.join("\n")
    );
    if all.len() as u64 >= count {
        let missed: Vec<_> = paths.iter().filter(|path| !marks.contains_key(**path)).collect();
        assert!(missed.is_empty(), "never reached: {missed:?}");
    }
}
