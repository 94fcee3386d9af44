//! The one hash of cache keys: cheap, fixed, the same on every host.

/// Mixes a key into 64 well spread bits (the finaliser of MurmurHash3 with Stafford's constants, variant 13).
#[inline]
pub fn mix(key: u64) -> u64 {
    let mut h = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// Maps the upper half of a hash to `0..n`.
#[inline]
pub fn below(hash: u64, n: usize) -> usize {
    (((hash >> 32) * n as u64) >> 32) as usize
}
