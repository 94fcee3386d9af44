//! Journal frames and their records: the input is what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{differing, frame, fuzz_frame};

fuzz_target!(|input: &[u8]| {
    fuzz_frame(differing(&frame(), input));
});
