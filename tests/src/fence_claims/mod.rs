//! Claims about the fence over two paths to one LUN: the same for the model of an array and for real targets.
//!
//! A [`Target`] says where the paths are and how writes are made slow. [`CLAIMS`] has every claim; each begins with a LUN that
//! nobody is registered with.

mod holder;
mod owner;
mod raw;
mod side;
mod target;
mod victim;

pub use target::{Delay, IfPartnerHolds, Target};

use anyhow::{Context, Result};
use std::time::Instant;

/// A claim. What it measures it prints.
pub type Claim = fn(&Target<'_>) -> Result<()>;

/// The claims by their names.
pub const CLAIMS: [(&str, Claim); 17] = [
    ("a fenced side writes no more", victim::writes_no_more),
    ("a fence waits for the owner's write", holder::fence_waits),
    ("writers at depth are still after a fence", holder::writers_are_still),
    ("after a plain preemption a write lands late", holder::plain_preemption_is_no_fence),
    ("a partner that holds cannot fence", holder::partner_that_holds),
    ("a race alone drains nothing", holder::race_does_not_drain),
    ("keys count for nothing while a call waits", holder::keys_come_before_the_answer),
    ("a race has one winner", owner::race_has_one_winner),
    ("races at the same moment have one winner each", owner::races_at_once),
    ("without a holder a take is no fence", owner::take_without_holder),
    ("an owner is confirmed in normal times", owner::normal_times),
    ("a giveback leaves no key", owner::giveback),
    ("both ways of reading agree", owner::readings_agree),
    ("a victim that registers again writes again", victim::registers_again),
    ("a path without registration writes nothing", victim::unregistered_path),
    ("what a fenced side wrote to its page cache is lost", victim::page_cache),
    ("exclusive access bars reads too", victim::exclusive_access),
];

/// Runs every claim on `target` and prints each.
///
/// # Errors
/// If one does not hold. The others are run all the same.
pub fn run(target: &Target<'_>) -> Result<()> {
    let mut failed = Vec::new();
    for (name, claim) in CLAIMS {
        let begun = Instant::now();
        match claim(target).context(name) {
            Ok(()) => println!("ok: {name} ({:.1} s)", begun.elapsed().as_secs_f64()),
            Err(why) => {
                println!("FAILED: {why:#}");
                failed.push(name);
            }
        }
    }
    anyhow::ensure!(
        failed.is_empty(),
        "{} of {} claims do not hold: {}",
        failed.len(),
        CLAIMS.len(),
        failed.join("; ")
    );
    Ok(())
}
