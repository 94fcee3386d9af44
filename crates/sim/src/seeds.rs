//! The seeds that a test runs: those of the environment, or its own.

use crate::marks::Marks;
use crate::{Failure, Summary, run_seed};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number in the environment's `key`, if it is there.
///
/// # Panics
/// If it is no number: fewer seeds than were asked for would look like all of them.
fn number(key: &str) -> Option<u64> {
    let text = std::env::var(key).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{key}={text} is no number")))
}

/// The seeds to run: `LOLIGO_SEED=n` for that one, `LOLIGO_SEEDS=n` for the first n, `default` otherwise.
///
/// # Panics
/// If one of them is no number.
pub fn seeds(default: u64) -> Vec<u64> {
    match (number("LOLIGO_SEED"), number("LOLIGO_SEEDS")) {
        (Some(one), _) => vec![one],
        (None, many) => (0..many.unwrap_or(default)).collect(),
    }
}

/// Seeds that no run had before: from `LOLIGO_FRESH=n` on, as many as `LOLIGO_SEEDS` says or `default`, and where they begin.
/// Of every five one is wide and one is worn. Nothing where the environment names none: chance comes from outside.
///
/// # Panics
/// If one of them is no number.
pub fn fresh(default: u64) -> Option<(u64, Vec<u64>)> {
    let start = number("LOLIGO_FRESH")?;
    let of = |n: u64| n + [WIDE, WORN, 0, 0, 0][(n % 5) as usize];
    let count = number("LOLIGO_SEEDS").unwrap_or(default);
    Some((start, (start..start + count).map(of).collect()))
}

/// Seeds from here on are wide: their worlds have what [`Config::widen`](crate::config::Config::widen) adds.
pub const WIDE: u64 = 1 << 32;

/// Wide seeds from here on are worn: their worlds have what [`Config::wear`](crate::config::Config::wear) adds too.
pub const WORN: u64 = 1 << 33;

/// Runs all `seeds` with no bug planted. The marks of those that held, and why the others did not.
pub fn run_whole(seeds: &[u64]) -> (Marks, Vec<String>) {
    let (mut marks, mut failures) = (Marks::default(), Vec::new());
    for outcome in run_all(seeds, |seed| run_seed(seed, None), |_| false) {
        match outcome {
            Ok(s) => marks.merge(&s.marks),
            Err(f) => failures.push(f.to_string()),
        }
    }
    (marks, failures)
}

/// Runs `seeds` on every processor, in order of their numbers, until `enough` says so; outcomes are in order of the
/// seeds.
pub fn run_all(
    seeds: &[u64],
    run: impl Fn(u64) -> Result<Summary, Failure> + Sync,
    enough: impl Fn(&Result<Summary, Failure>) -> bool + Sync,
) -> Vec<Result<Summary, Failure>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(*seed);
                    if enough(&outcome) {
                        next.store(seeds.len(), Ordering::Relaxed);
                    }
                    let mut all = outcomes.lock().unwrap_or_else(|e| e.into_inner());
                    all.push((*seed, outcome));
                }
            });
        }
    });
    let mut all = outcomes.into_inner().unwrap_or_else(|e| e.into_inner());
    all.sort_by_key(|(seed, _)| *seed);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}
