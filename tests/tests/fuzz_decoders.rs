//! Every decoder of bytes on disk, fed damage. None may panic, whatever it is given; and none may take damaged bytes for
//! good ones. `FUZZ_S` seconds each (10 without it), `FUZZ_SEED` repeats a run.

#![allow(clippy::print_stdout)]

use loligo_tests::decoders::{self, PAGES, SLOTS, UsedCache};
use loligo_tests::fuzz::{Dice, budget, for_a_while};
use std::cell::Cell;

/// Damage gets past a checksum of 32 bits once in some four thousand million times, and a hundred million are tried every day: who takes more than this
/// many of `tried` does not look at it.
fn by_chance(tried: u64) -> u64 {
    2 + (tried >> 30)
}

/// Damages `good`: never taken as it is; the mended inputs reach behind the checksum.
fn fuzz(name: &str, good: &[u8], takes: impl Fn(&[u8]) -> bool, run: impl Fn(Vec<u8>) -> bool) {
    assert!(takes(good), "the good {name} is taken");
    let mut dice = Dice::from_env(name);
    let (mut taken, mut slipped) = (0u64, 0u64);
    let n = for_a_while(budget(), || {
        let mut bytes = good.to_vec();
        dice.damage(&mut bytes);
        slipped += u64::from(bytes != good && bytes.len() == good.len() && takes(&bytes));
        taken += u64::from(run(bytes));
    });
    assert!(slipped <= by_chance(n), "damage was taken for a {name} {slipped} times in {n}");
    println!("{name}: {n} inputs, {taken} taken once their checksum was mended");
    assert!(taken > 0 && taken < n, "the mended inputs reach behind the checksum");
}

#[test]
fn damaged_superblocks_are_refused_and_never_panic() {
    fuzz("superblock", &decoders::superblock(), decoders::takes_superblock, decoders::fuzz_superblock);
}

#[test]
fn damaged_first_blocks_of_veiled_cores_never_panic() {
    let good = decoders::masked_block();
    fuzz("masked block", &good, decoders::takes_masked_block, decoders::fuzz_masked_block);
}

#[test]
fn damaged_labels_of_mirrors_are_refused_and_never_panic() {
    let good = decoders::mirror_label();
    fuzz("label of a mirror", &good, decoders::takes_mirror_label, decoders::fuzz_mirror_label);
}

#[test]
fn damaged_pool_superblocks_are_refused_and_never_panic() {
    let good = decoders::pool_superblock();
    fuzz("pool superblock", &good, decoders::takes_pool_superblock, decoders::fuzz_pool_superblock);
}

#[test]
fn damaged_pool_tables_are_refused_or_consistent() {
    let (good, superblock) = decoders::pool_table();
    assert!(decoders::fuzz_pool_table(&good, &superblock), "the good table is taken");
    let mut dice = Dice::from_env("pool table");
    let mut taken = 0u64;
    let n = for_a_while(budget(), || {
        let mut bytes = good.clone();
        dice.damage(&mut bytes);
        taken += u64::from(decoders::fuzz_pool_table(&bytes, &superblock));
    });
    println!("pool table: {n} inputs, {taken} taken: its checksum stands in the superblock");
    assert!(taken < n);
}

#[test]
fn damaged_roots_are_refused_and_never_panic() {
    fuzz("root", &decoders::root(), decoders::takes_root, decoders::fuzz_root);
}

#[test]
fn damaged_frames_are_refused_and_never_panic() {
    let good = decoders::frame();
    // Also of another length.
    let slipped = Cell::new(0u64);
    fuzz("frame", &good, decoders::takes_frame, |bytes| {
        slipped.set(slipped.get() + u64::from(bytes != good && decoders::takes_frame(&bytes)));
        decoders::fuzz_frame(bytes)
    });
    assert!(slipped.get() <= by_chance(0), "damage was taken for a frame {} times", slipped.get());
}

#[test]
fn damaged_directories_are_refused_and_never_panic() {
    let (good, crc) = decoders::directory();
    let mut dice = Dice::from_env("directory");
    let (mut taken, mut slipped) = (0u64, 0u64);
    let n = for_a_while(budget(), || {
        let mut bytes = good.clone();
        dice.damage(&mut bytes);
        slipped += u64::from(bytes != good && decoders::takes_directory(&bytes, PAGES, crc));
        let pages = if dice.below(4) == 0 { dice.draw() as u32 } else { PAGES };
        taken += u64::from(decoders::fuzz_directory(&bytes, pages));
    });
    assert!(slipped <= by_chance(n), "damage was taken for a directory {slipped} times in {n}");
    println!("directory: {n} inputs, {taken} taken once their checksum was mended");
    assert!(taken > 0 && taken < n);
}

#[test]
fn damaged_pages_are_refused_and_never_panic() {
    let (good, crc) = decoders::page();
    let mut dice = Dice::from_env("page");
    let (mut taken, mut slipped) = (0u64, 0u64);
    let n = for_a_while(budget(), || {
        let mut bytes = good.clone();
        dice.damage(&mut bytes);
        slipped += u64::from(bytes != good && decoders::takes_page(&bytes, SLOTS, crc));
        let slots = if dice.below(4) == 0 { dice.draw() as u32 } else { SLOTS };
        taken += u64::from(decoders::fuzz_page(&bytes, slots));
    });
    assert!(slipped <= by_chance(n), "damage was taken for a page {slipped} times in {n}");
    println!("page: {n} inputs, {taken} taken once their checksum was mended");
    assert!(taken > 0 && taken < n);
}

/// Opening and inspecting a cache whose metadata is damaged ends in an answer.
#[test]
fn a_damaged_cache_opens_or_is_refused_and_never_panics() {
    let mut cache = UsedCache::new();
    let opened = cache.open_good();
    assert_eq!((opened.report.frames, opened.dirty_blocks()), (20, 160), "the frames are replayed");
    let mut dice = Dice::from_env("whole cache");
    let (mut opens, mut refused) = (0u64, 0u64);
    let n = for_a_while(budget(), || {
        cache.restore();
        for _ in 0..=dice.below(3) {
            let (place, mended) = (dice.below(cache.places()), dice.below(4) > 0);
            cache.damage(place, mended, |bytes| dice.damage(bytes));
        }
        if cache.try_open(dice.below(2) == 0) {
            opens += 1;
        } else {
            refused += 1;
        }
    });
    println!("whole cache: {n} inputs, {opens} opened, {refused} refused");
    assert!(opens > 0 && refused > 0);
}

/// A case that dice meet once in an hour: a number that is as large as can be, under a checksum that is right.
#[test]
fn no_number_is_too_large_for_a_cache_to_be_opened_or_refused() {
    let mut cache = UsedCache::new();
    let (mut opens, mut refused) = (0u64, 0u64);
    for place in 0..cache.places() {
        for at in (0..1024).step_by(8) {
            for number in
                [u64::MAX, u64::MAX >> 1, u64::MAX / 4, u64::MAX / 4096, (1 << 51) - 1, u64::MAX << 32]
            {
                cache.restore();
                cache.damage(place, true, |bytes| {
                    if let Some(word) = bytes.get_mut(at..at + 8) {
                        word.copy_from_slice(&number.to_le_bytes());
                    }
                });
                for force in [false, true] {
                    *if cache.try_open(force) { &mut opens } else { &mut refused } += 1;
                }
            }
        }
    }
    println!("numbers: {opens} opened, {refused} refused");
    assert!(opens > 0 && refused > 0);
}

#[test]
fn the_bytes_of_a_fuzzer_damage_a_cache_as_they_say() {
    let mut cache = UsedCache::new();
    assert!(cache.fuzz(&[]), "no damage");
    assert!(cache.fuzz(&[0, 0, 100, 0, 1, 1]), "one superblock is enough");
    assert!(!cache.fuzz(&[0, 0, 100, 0, 1, 1, 1, 100, 0, 1, 1]), "both are not");
    assert!(cache.fuzz(&[0]), "and it is put back");
}
