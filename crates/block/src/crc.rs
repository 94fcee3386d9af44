//! The one checksum of the product: CRC32C (Castagnoli), as in iSCSI, ext4 and BlueStore.
//!
//! Two implementations: folding over the widest carry-less multiply the processor has (90 ns for 4 KiB where that is
//! AVX-512, about half of the other's time), and the crc32 instruction three ways (or a table without it). The first
//! is trusted only after it has agreed with the second in this very process.

use std::sync::OnceLock;

/// CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if folding_agrees() { crc_fast::crc32_iscsi(bytes) } else { ::crc32c::crc32c(bytes) }
}

/// CRC32C of what `crc` was computed of, followed by `bytes`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// Lengths that reach each of its loops and their remainders.
const PROBES: [usize; 13] = [0, 1, 15, 16, 64, 255, 256, 511, 1031, 4096, 4097, 16_384, 70_001];

#[inline]
fn folding_agrees() -> bool {
    static AGREES: OnceLock<bool> = OnceLock::new();
    *AGREES.get_or_init(|| {
        let bytes: Vec<u8> = (0..70_002u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
        [0, 1].into_iter().all(|from| {
            let agrees = |b: &[u8]| crc_fast::crc32_iscsi(b) == ::crc32c::crc32c(b);
            PROBES.iter().all(|&n| agrees(&bytes[from..from + n]))
        })
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_the_check_value_of_rfc_3720() {
        assert_eq!(super::crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(super::crc32c(&[0; 32]), 0x8A91_36AA);
    }

    #[test]
    fn both_ways_to_compute_it_agree_at_every_length_and_address() {
        assert!(super::folding_agrees());
        let bytes: Vec<u8> = (0..9000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for n in (0..2100).chain([4095, 4096, 4097, 8192, 8900]) {
            let part = &bytes[n % 67..n % 67 + n];
            assert_eq!(super::crc32c(part), super::crc32c_append(0, part), "{n} bytes");
        }
    }
}
