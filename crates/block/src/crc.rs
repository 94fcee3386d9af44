//! The one checksum of the product: CRC32C (Castagnoli), as in iSCSI, ext4 and BlueStore.
//!
//! Two implementations: folding over the widest carry-less multiply the processor has (90 ns for 4 KiB where that is
//! AVX-512, about half of the other's time), and the crc32 instruction three ways (or a table without it). The first
//! is trusted only after it has agreed with the second in this very process. It is left where the processor has no
//! carry-less multiply: it would look up a table then, also beside a crc32 instruction.

use std::sync::OnceLock;

/// The code that computes checksums on a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crc32cCode {
    /// Folding by carry-less multiplication.
    Folding,
    /// The crc32 instruction.
    Instruction,
    /// A table in memory.
    Table,
}

/// CRC32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if crc32c_code() == Crc32cCode::Folding { crc_fast::crc32_iscsi(bytes) } else { ::crc32c::crc32c(bytes) }
}

/// The code that [`crc32c()`] takes on this processor.
#[inline]
pub fn crc32c_code() -> Crc32cCode {
    static CODE: OnceLock<Crc32cCode> = OnceLock::new();
    *CODE.get_or_init(|| {
        let target = crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc32Iscsi);
        chosen(&target, has_instruction(), folding_agrees)
    })
}

/// The code to take where folding is built for `target`, as its crate names it.
fn chosen(target: &str, has_instruction: bool, folding_agrees: impl Fn() -> bool) -> Crc32cCode {
    if !target.starts_with("software") && folding_agrees() {
        Crc32cCode::Folding
    } else if has_instruction {
        Crc32cCode::Instruction
    } else {
        Crc32cCode::Table
    }
}

fn has_instruction() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("sse4.2");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("crc");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// CRC32C of what `crc` was computed of, followed by `bytes`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// Lengths that reach each of its loops and their remainders.
const PROBES: [usize; 13] = [0, 1, 15, 16, 64, 255, 256, 511, 1031, 4096, 4097, 16_384, 70_001];

fn folding_agrees() -> bool {
    let bytes: Vec<u8> = (0..70_002u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
    [0, 1].into_iter().all(|from| {
        let agrees = |b: &[u8]| crc_fast::crc32_iscsi(b) == ::crc32c::crc32c(b);
        PROBES.iter().all(|&n| agrees(&bytes[from..from + n]))
    })
}

#[cfg(test)]
mod tests {
    use super::{Crc32cCode, chosen};

    #[test]
    fn a_table_is_taken_only_without_the_instruction() {
        let code = |target, has_instruction, agrees| chosen(target, has_instruction, || agrees);
        assert_eq!(code("aarch64-neon-pmull-sha3", true, true), Crc32cCode::Folding);
        assert_eq!(code("aarch64-neon-pmull", true, false), Crc32cCode::Instruction);
        // Cores of ARM without the extension for cryptography, and Nehalem.
        assert_eq!(code("software-fallback-tables", true, true), Crc32cCode::Instruction);
        assert_eq!(code("software-fallback-tables", false, true), Crc32cCode::Table);
    }

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
