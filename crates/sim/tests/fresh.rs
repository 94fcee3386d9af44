//! Seeds that no run had before, drawn outside: `LOLIGO_FRESH=n` names the first. One that fails is run again by
//! `LOLIGO_SEED=n cargo test -p loligo-sim --test crash`; once its fault is mended it joins `FOUND` there.

#![allow(clippy::print_stdout)]

use loligo_sim::run_seed;
use loligo_sim::seeds::{fresh, run_all};

const SEEDS: u64 = 200;

#[test]
fn fresh_seeds_hold_as_the_fixed_ones_do() {
    let Some((start, seeds)) = fresh(SEEDS) else {
        println!("no fresh seeds: LOLIGO_FRESH names none");
        return;
    };
    println!(
        "{} fresh seeds; again: LOLIGO_FRESH={start} cargo test -p loligo-sim --test fresh",
        seeds.len()
    );
    let outcomes = run_all(&seeds, |seed| run_seed(seed, None), |_| false);
    let failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).map(|f| f.to_string()).collect();
    assert!(
        failures.is_empty(),
        "{} of {} fresh seeds failed; each is run again by itself with `LOLIGO_SEED=n cargo test -p loligo-sim --test crash`:\n{}",
        failures.len(),
        seeds.len(),
        failures.join("\n")
    );
}
