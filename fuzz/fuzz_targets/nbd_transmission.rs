//! NBD: what a client says once it is in.
#![no_main]

#[allow(dead_code, reason = "each target has its own")]
#[path = "../../crates/export/tests/export/entry.rs"]
mod entry;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| entry::fuzz_transmission(input));
