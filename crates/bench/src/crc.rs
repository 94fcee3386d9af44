//! The checksum of a block by each code that there is for it: the one in use, and the gain over a table in memory.

use crate::drive::cpu_seconds;
use crate::table::Table;
use crate::units;
use loligo_block::{Crc32cCode, crc32c_code};
use serde::Serialize;
use std::hint::black_box;

/// Length of one measurement of one code, seconds of the thread's own time.
const EACH: f64 = 0.05;
/// Interleaved measurements of each code; the fastest counts, since all else only takes time away.
const ROUNDS: usize = 9;

static TABLE: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

/// One code.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Code {
    /// Its name.
    pub name: &'static str,
    /// Nanoseconds of processor time that a block takes.
    pub block_ns: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Its speed over the table's.
    pub to_table: f64,
}

/// The speeds of all codes on one thread.
#[derive(Debug, Clone, Serialize)]
pub struct Speeds {
    /// Bytes of a block.
    pub block: usize,
    /// The code that the program takes here.
    pub in_use: &'static str,
    /// The instructions that folding takes here.
    pub folding: String,
    /// True where the processor says that software plays it.
    pub emulated: bool,
    /// The codes.
    pub codes: Vec<Code>,
}

impl Speeds {
    /// The same as a table.
    pub fn table(&self) -> Table {
        let of_block = units::bytes(self.block as f64);
        let head = ["CRC32C by", of_block.as_str(), "a second", "to a table"];
        Table::of(head, &self.codes, |code| {
            [
                code.name.to_owned(),
                units::time(code.block_ns),
                units::bytes(code.bytes_per_second),
                format!("{:.1}x", code.to_table),
            ]
        })
    }

    /// Lines to be read with the table.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!("In use: {} ({}).", self.in_use, self.folding)];
        if self.emulated {
            notes.push(
                "This processor is emulated: none of these figures is comparable with a real one's."
                    .to_owned(),
            );
        }
        notes
    }
}

/// A code of CRC32C.
type Checksum = fn(&[u8]) -> u32;

/// Measures the codes on blocks of `block` bytes, one after the other, on this thread.
pub fn run(block: usize) -> Speeds {
    let bytes: Vec<u8> = (0..block as u32).map(|i| (i.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
    let codes: [(&str, Checksum); 3] = [
        (name(Crc32cCode::Folding), crc_fast::crc32_iscsi),
        (name(Crc32cCode::Instruction), crc32c::crc32c),
        (name(Crc32cCode::Table), |bytes| TABLE.checksum(bytes)),
    ];
    let mut seen = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        for ((_, code), seen) in codes.iter().zip(&mut seen) {
            *seen = seen.min(nanoseconds(*code, &bytes));
        }
    }
    let codes = codes.iter().zip(seen).map(|((name, _), ns)| Code {
        name,
        block_ns: ns,
        bytes_per_second: block as f64 * 1e9 / ns,
        to_table: seen[2] / ns,
    });
    Speeds {
        block,
        in_use: name(crc32c_code()),
        folding: crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc32Iscsi),
        emulated: is_emulated(),
        codes: codes.collect(),
    }
}

fn name(code: Crc32cCode) -> &'static str {
    match code {
        Crc32cCode::Folding => "folding",
        Crc32cCode::Instruction => "crc32 instruction",
        Crc32cCode::Table => "table",
    }
}

/// Nanoseconds of processor time that `code` takes for `bytes`.
fn nanoseconds(code: Checksum, bytes: &[u8]) -> f64 {
    let (began, mut blocks) = (cpu_seconds(), 0u32);
    while cpu_seconds() - began < EACH {
        for _ in 0..16 {
            black_box(code(black_box(bytes)));
        }
        blocks += 16;
    }
    (cpu_seconds() - began) * 1e9 / f64::from(blocks)
}

/// True if the processor says that it is QEMU's own code.
fn is_emulated() -> bool {
    #[cfg(target_arch = "x86_64")]
    let said = {
        let hypervisor = raw_cpuid::CpuId::new().get_hypervisor_info();
        hypervisor.is_some_and(|it| it.identify() == raw_cpuid::Hypervisor::QEMU)
    };
    #[cfg(not(target_arch = "x86_64"))]
    let said = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| !has_maker(&text));
    said
}

/// True if `cpuinfo` has an implementer that is one: ARM keeps 0x00 for software, and an emulated program sees another machine's.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn has_maker(cpuinfo: &str) -> bool {
    let mut implementers = cpuinfo.lines().filter(|line| line.starts_with("CPU implementer"));
    implementers.any(|line| line.split_once(':').is_some_and(|(_, it)| it.trim() != "0x00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_same_checksum() {
        let bytes: Vec<u8> = (0..9000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for part in [&bytes[..4096], &bytes[1..8192], &bytes[..9]] {
            assert_eq!(TABLE.checksum(part), loligo_block::crc32c(part));
            assert_eq!(crc32c::crc32c(part), crc_fast::crc32_iscsi(part));
            assert_eq!(TABLE.checksum(part), crc32c::crc32c(part));
        }
    }

    #[test]
    fn speeds_name_the_code_that_is_in_use() {
        let speeds = run(4096);
        assert!(speeds.codes.iter().any(|code| code.name == speeds.in_use), "{speeds:?}");
        assert!(speeds.codes.iter().all(|code| code.block_ns > 0.0 && code.to_table > 0.0), "{speeds:?}");
        assert!((speeds.codes[2].to_table - 1.0).abs() < 1e-9, "{speeds:?}");
        let emulated = Speeds { emulated: true, ..speeds };
        assert!(emulated.notes()[1].contains("none of these figures is comparable"));
    }

    #[test]
    fn an_emulated_processor_of_arm_is_known_by_its_maker() {
        assert!(!has_maker("processor\t: 0\nCPU implementer\t: 0x00\nCPU architecture: 8\n"));
        assert!(has_maker("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n"));
        assert!(!has_maker("vendor_id\t: GenuineIntel\n"));
    }
}
