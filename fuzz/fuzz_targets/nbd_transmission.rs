//! NBD: what a client says once it is in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_export::nbd::fuzz::fuzz_transmission;

fuzz_target!(|input: &[u8]| fuzz_transmission(input));
