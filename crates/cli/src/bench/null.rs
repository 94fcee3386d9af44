//! `loligo bench null`: the target that `loligo bench block` compares with, in a process of its own.

use anyhow::Result;
use loligo_bench::interrupt::Interrupt;
use loligo_export::ExportSpec;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serve a target that answers at once and keeps nothing, until SIGTERM
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// fuse:MOUNTPOINT or block:NAME
    #[arg(long)]
    listen: ExportSpec,
    /// Its size
    #[arg(long, value_parser = loligo_block::parse_size)]
    size: u64,
    /// Where the file under a block device is mounted
    #[arg(long)]
    folder: PathBuf,
}

/// Serves.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let stop = Interrupt::on_signals()?;
    loligo_bench::null::serve(&a.listen, &a.folder, a.size, &stop)?;
    Ok(ExitCode::SUCCESS)
}
