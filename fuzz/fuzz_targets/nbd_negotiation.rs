//! NBD: what a client says before it enters an export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_export::nbd::fuzz::fuzz_negotiation;

fuzz_target!(|input: &[u8]| fuzz_negotiation(input));
