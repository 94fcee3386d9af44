//! Superblocks of pools: the input is what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{differing, fuzz_pool_superblock, pool_superblock};

fuzz_target!(|input: &[u8]| {
    fuzz_pool_superblock(differing(&pool_superblock(), input));
});
