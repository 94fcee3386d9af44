//! Inspecting and opening a whole cache: the input says where its metadata is damaged, and how.
#![no_main]

use libfuzzer_sys::fuzz_target;
use loligo_tests::decoders::UsedCache;
use std::cell::RefCell;

thread_local!(static CACHE: RefCell<UsedCache> = RefCell::new(UsedCache::new()));

fuzz_target!(|input: &[u8]| {
    CACHE.with_borrow_mut(|cache| cache.fuzz(input));
});
