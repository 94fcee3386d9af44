//! Crashes, faults and switches over thousands of seeds. `LOLIGO_SEEDS=n` runs the first n, `LOLIGO_SEED=n` only that one.

#![allow(clippy::print_stdout)]

use loligo_sim::seeds::{run_whole, seeds};

const SEEDS: u64 = 2_000;

/// Seeds beyond the default ones that found something: a write that waited for ever for room behind a core that was gone; a
/// version that was lost with the power and kept for an error that passed; a flush that held although a clean record was lost
/// with the cache; a superblock that was torn beside a rotten copy of it.
const FOUND: [u64; 13] = [
    25_624,
    3_001_029,
    3_007_472,
    2_539_595_704,
    2_777_165_157,
    4_302_764_501,
    6_336_591_766,
    6_540_456_451,
    6_595_889_551,
    6_802_887_086,
    7_095_889_826,
    10_779_990_768,
    11_454_208_833,
];

/// The marks that the default seeds must reach, for the claim to mean anything.
const PATHS: [&str; 49] = [
    "a cache found to be gone",
    "a void cache made anew",
    "cache filled",
    "clean data rotted",
    "clean stop",
    "cold majority",
    "core alone checked",
    "core fenced",
    "crash after a flush",
    "crash after idling",
    "crash in close",
    "crash in format",
    "crash in recovery",
    "crash while freezing",
    "crash while frozen",
    "crash while shrinking",
    "crash while stopping",
    "crash while the core was about to serve alone",
    "crash with requests under way",
    "damage refused",
    "device error in recovery",
    "engine: blocks filled",
    "engine: checkpoints",
    "engine: checksum errors repaired",
    "engine: evictions",
    "engine: groups written",
    "engine: large writes past the cache",
    "engine: pinned versions replaced",
    "fault: error",
    "fault: fenced",
    "fault: gone",
    "fault: lost write",
    "fault: misdirected write",
    "fault: torn write",
    "fenced by the array",
    "freeze given up",
    "frozen",
    "journal wrapped",
    "live mode switch",
    "mostly dirty at the end of a life",
    "recovery: clean blocks dropped",
    "recovery: older image entries",
    "recovery: records dropped",
    "several shards frozen",
    "share grew",
    "share shrank",
    "shrink given up",
    "the core could not serve alone",
    "the core went on alone",
];

#[test]
fn every_sector_reads_as_it_may_after_crashes_and_faults() {
    let mut seeds = seeds(SEEDS);
    if seeds.len() as u64 == SEEDS {
        seeds.extend(FOUND);
    }
    let (marks, failures) = run_whole(&seeds);
    println!("{} seeds: {marks}", seeds.len());
    assert!(
        failures.is_empty(),
        "{} of {} seeds failed:\n{}",
        failures.len(),
        seeds.len(),
        failures.join("\n")
    );
    if seeds.len() as u64 >= SEEDS {
        let missed: Vec<_> = PATHS.into_iter().filter(|p| marks.get(p) == 0).collect();
        assert!(missed.is_empty(), "never reached: {missed:?}");
        let (kept, starts) = (marks.get("recovery: image kept"), marks.get("recoveries"));
        assert!(
            kept * 6 > starts,
            "an image was kept at {kept} of {starts} starts: too few to mean anything"
        );
    }
}
