//! Worlds with bad sectors, tables in which everything collides, and large requests. A seed that fails is run again by
//! `LOLIGO_SEED=n cargo test -p loligo-sim --test crash`.

#![allow(clippy::print_stdout)]

use loligo_sim::seeds::{WIDE, run_whole};

const SEEDS: u64 = 150;

/// The marks that the fixed seeds must reach, for the claim to mean anything.
const PATHS: [&str; 17] = [
    "a change that broke off",
    "a detach taken back",
    "a pause given up",
    "a wiped cache made anew",
    "an attach taken back",
    "attached",
    "crash while a cache came or went",
    "crash while a cache was made",
    "detached",
    "every request fails",
    "several shards exchanged",
    "started bare",
    "a sector of the core went bad",
    "a slot went bad",
    "engine: checksum errors repaired",
    "failed over a lost sector",
    "one beneath the cache went bad",
];

#[test]
fn only_sectors_that_are_truly_lost_fail() {
    let seeds: Vec<u64> = (WIDE..WIDE + SEEDS).collect();
    let (marks, failures) = run_whole(&seeds);
    println!("{SEEDS} seeds: {marks}");
    assert!(failures.is_empty(), "{} of {SEEDS} seeds failed:\n{}", failures.len(), failures.join("\n"));
    let missed: Vec<_> = PATHS.into_iter().filter(|p| marks.get(p) == 0).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}
