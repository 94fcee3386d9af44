//! Index pages: four bytes that change the number of slots, then what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{SLOTS, differing, fuzz_page, page};

fuzz_target!(|input: &[u8]| {
    if let Some((slots, input)) = input.split_first_chunk() {
        fuzz_page(&differing(&page().0, input), SLOTS ^ u32::from_le_bytes(*slots));
    }
});
