//! Labels of a mirror's legs: the input is what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{differing, fuzz_mirror_label, mirror_label};

fuzz_target!(|input: &[u8]| {
    fuzz_mirror_label(differing(&mirror_label(), input));
});
