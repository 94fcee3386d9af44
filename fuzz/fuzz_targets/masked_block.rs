//! First blocks of cores whose content begins at byte 0: the input is what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{differing, fuzz_masked_block, masked_block};

fuzz_target!(|input: &[u8]| {
    fuzz_masked_block(differing(&masked_block(), input));
});
