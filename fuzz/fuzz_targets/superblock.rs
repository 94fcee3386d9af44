//! Superblocks: the input is what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{differing, fuzz_superblock, superblock};

fuzz_target!(|input: &[u8]| {
    fuzz_superblock(differing(&superblock(), input));
});
