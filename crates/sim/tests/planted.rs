//! A simulator that finds nothing proves nothing: each rule of the design is broken once, and must be missed.

#![allow(clippy::print_stdout)]

use loligo_engine::Bug;
use loligo_sim::seeds::{WIDE, WORN, run_all};
use loligo_sim::{run_seed, run_without};

/// Within the seeds that the crash test runs by default.
const SEEDS: u64 = 2_000;

/// Within those of the wide test.
const WIDE_SEEDS: u64 = 150;

/// Within those of the worn test.
const WORN_SEEDS: u64 = 200;

/// Looks first at the seed that showed the bug when this was written, so that the others are run only if it no longer does.
fn is_caught(bug: Bug, shown_by: u64) {
    is_caught_in(bug, (shown_by..SEEDS).chain(0..shown_by).collect());
}

/// A bug counts as caught where the same run without it is right.
fn is_caught_in(bug: Bug, seeds: Vec<u64>) {
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
    is_caught(Bug::JournalOrderSwapped, 36);
}

#[test]
fn data_served_without_its_checksum_is_caught() {
    is_caught(Bug::CrcCheckDropped, 0);
}

#[test]
fn a_slot_reused_before_its_record_is_durable_is_caught() {
    is_caught(Bug::SlotReusedEarly, 1_435);
}

#[test]
fn blocks_marked_clean_before_the_core_is_flushed_are_caught() {
    is_caught(Bug::CleanBeforeCoreFlush, 0);
}

#[test]
fn records_taken_without_their_data_are_caught() {
    is_caught(Bug::RecordWithoutData, 0);
}

#[test]
fn a_stale_superblock_is_caught() {
    is_caught(Bug::StaleSuperblock, 0);
}

#[test]
fn a_core_write_without_its_intent_is_caught() {
    is_caught(Bug::CoreWriteWithoutIntent, 2);
}

#[test]
fn a_stale_journal_tail_replayed_after_a_second_crash_is_caught() {
    is_caught(Bug::StaleTailReplayed, 254);
}

#[test]
fn fua_answered_past_a_gap_in_the_journal_is_caught() {
    is_caught(Bug::FuaPastGap, 7);
}

#[test]
fn an_older_entry_left_in_place_by_a_restart_is_caught() {
    is_caught(Bug::OlderEntryKept, 529);
}

#[test]
fn a_newer_version_in_place_of_a_pinned_one_is_caught() {
    is_caught(Bug::NewestInsteadOfPinned, 15);
}

#[test]
fn changes_that_go_past_the_cache_to_a_frozen_core_are_caught() {
    is_caught(Bug::BypassWhileFrozen, 5);
}

#[test]
fn a_slot_of_a_pinned_version_that_is_reused_is_caught() {
    is_caught(Bug::PinnedSlotReused, 0);
}

#[test]
fn versions_destaged_before_they_are_durable_are_caught() {
    is_caught(Bug::DestagedBeforeDurable, 0);
}

#[test]
fn changes_answered_unwritten_in_a_fallback_are_caught() {
    is_caught(Bug::FallbackUnwritten, 7);
}

#[test]
fn changes_let_in_before_a_fallback_is_noted_are_caught() {
    is_caught(Bug::FallbackUnnoted, 1_773);
}

#[test]
fn a_share_that_shrinks_before_a_checkpoint_is_caught() {
    is_caught(Bug::ShrunkBeforeCheckpoint, 28);
}

#[test]
fn a_share_that_shrinks_while_its_slots_are_in_use_is_caught() {
    is_caught(Bug::ShrunkWhileLeaving, 633);
}

#[test]
fn a_fenced_device_that_is_taken_for_a_failed_one_is_caught() {
    is_caught(Bug::FencedTakenForFailed, 0);
}

#[test]
fn changes_made_again_without_their_payload_are_caught() {
    is_caught(Bug::ReplayedWithoutPayload, 0);
}

#[test]
fn a_bridged_read_without_a_fallback_is_caught() {
    is_caught_in(Bug::BridgedWithoutFallback, (WIDE..WIDE + WIDE_SEEDS).collect());
}

#[test]
fn engines_of_two_kinds_after_a_broken_exchange_are_caught() {
    is_caught_in(Bug::MixedEngines, (WIDE..WIDE + WIDE_SEEDS).collect());
}

#[test]
fn changes_past_a_jam_that_are_written_nowhere_are_caught() {
    is_caught_in(Bug::PassedByUnwritten, (WORN..WORN + WORN_SEEDS).collect());
}
