//! Tables of pools: the input is what differs from a good one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::{differing, fuzz_pool_table, pool_table};
use std::sync::LazyLock;

static GOOD: LazyLock<(Vec<u8>, loligo_format::pool::PoolSuper)> = LazyLock::new(pool_table);

fuzz_target!(|input: &[u8]| {
    fuzz_pool_table(&differing(&GOOD.0, input), &GOOD.1);
});
