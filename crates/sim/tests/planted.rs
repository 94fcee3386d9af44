//! A simulator that finds nothing proves nothing: each rule of the design is broken once, and must be missed.

#![allow(clippy::print_stdout)]

use loligo_cache::Bug;
use loligo_sim::seeds::{WIDE, run_all};
use loligo_sim::{run_seed, run_without};
use std::ops::Range;

/// Within the seeds that the crash test runs by default.
const SEEDS: u64 = 2_000;

/// Within those of the wide test.
const WIDE_SEEDS: u64 = 150;

fn is_caught(bug: Bug) {
    is_caught_in(bug, 0..SEEDS);
}

/// A bug counts as caught where the same run without it is right.
fn is_caught_in(bug: Bug, seeds: Range<u64>) {
    let seeds: Vec<u64> = seeds.collect();
    let outcomes = run_all(&seeds, |seed| run_seed(seed, Some(bug)), Result::is_err);
    let Some(f) = outcomes.iter().find_map(|o| o.as_ref().err()) else {
        panic!("{bug:?} went unnoticed in {} seeds", seeds.len());
    };
    println!("{bug:?} after {} runs: {f}", outcomes.len());
    if let Err(other) = run_without(f.seed, bug) {
        panic!("{bug:?}: the same run is wrong without it: {other}");
    }
}

#[test]
fn journal_frames_that_take_effect_out_of_order_are_caught() {
    is_caught(Bug::JournalOrderSwapped);
}

#[test]
fn data_served_without_its_checksum_is_caught() {
    is_caught(Bug::CrcCheckDropped);
}

#[test]
fn a_slot_reused_before_its_record_is_durable_is_caught() {
    is_caught(Bug::SlotReusedEarly);
}

#[test]
fn blocks_marked_clean_before_the_core_is_flushed_are_caught() {
    is_caught(Bug::CleanBeforeCoreFlush);
}

#[test]
fn records_taken_without_their_data_are_caught() {
    is_caught(Bug::RecordWithoutData);
}

#[test]
fn a_stale_superblock_is_caught() {
    is_caught(Bug::StaleSuperblock);
}

#[test]
fn a_core_write_without_its_intent_is_caught() {
    is_caught(Bug::CoreWriteWithoutIntent);
}

#[test]
fn a_stale_journal_tail_replayed_after_a_second_crash_is_caught() {
    is_caught(Bug::StaleTailReplayed);
}

#[test]
fn fua_answered_past_a_gap_in_the_journal_is_caught() {
    is_caught(Bug::FuaPastGap);
}

#[test]
fn an_older_entry_of_the_image_that_a_restart_leaves_in_place_is_caught() {
    is_caught(Bug::OlderEntryKept);
}

#[test]
fn a_newer_version_in_place_of_one_that_a_freeze_has_pinned_is_caught() {
    is_caught(Bug::NewestInsteadOfPinned);
}

#[test]
fn changes_that_go_past_the_cache_to_a_frozen_core_are_caught() {
    is_caught(Bug::BypassWhileFrozen);
}

#[test]
fn a_slot_of_a_pinned_version_that_is_reused_is_caught() {
    is_caught(Bug::PinnedSlotReused);
}

#[test]
fn versions_destaged_before_they_are_durable_on_the_cache_are_caught() {
    is_caught(Bug::DestagedBeforeDurable);
}

#[test]
fn changes_answered_before_the_core_has_them_when_the_cache_is_gone_are_caught() {
    is_caught(Bug::ForsakenUnwritten);
}

#[test]
fn changes_that_reach_the_core_before_it_is_noted_that_the_cache_is_void_are_caught() {
    is_caught(Bug::ForsakenUnnoted);
}

#[test]
fn a_share_that_shrinks_before_a_checkpoint_forgets_what_it_gives_away_is_caught() {
    is_caught(Bug::VacatedBeforeCheckpoint);
}

#[test]
fn a_share_that_shrinks_while_what_it_gives_away_is_in_use_is_caught() {
    is_caught(Bug::VacatedWhileLeaving);
}

#[test]
fn changes_made_again_without_their_payload_are_caught() {
    is_caught(Bug::ReplayedWithoutPayload);
}

#[test]
fn a_bridged_read_without_a_fallback_is_caught() {
    is_caught_in(Bug::BridgedWithoutFallback, WIDE..WIDE + WIDE_SEEDS);
}
