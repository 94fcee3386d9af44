//! `loligo bench crc`.

use crate::outcome::show;
use anyhow::Result;
use loligo_bench::crc;
use loligo_log::{out, outln};
use std::process::ExitCode;

/// Speed of checksums on this processor: CRC32C by each code, and the one in use
///
/// Each block of 4 KiB is checksummed when it is written and when it is read. Takes two seconds on one thread.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes of a block
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    block: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Measures.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let speeds = crc::run(a.block as usize);
    show(a.json, &speeds, || {
        out!("{}\n", speeds.table().text());
        for line in speeds.notes() {
            outln!("{line}");
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
