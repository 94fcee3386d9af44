//! Checkpoint directories: four bytes that change the number of pages, then what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{PAGES, differing, directory, fuzz_directory};

fuzz_target!(|input: &[u8]| {
    if let Some((pages, input)) = input.split_first_chunk() {
        fuzz_directory(&differing(&directory().0, input), PAGES ^ u32::from_le_bytes(*pages));
    }
});
