//! `loligo lab array`.

use anyhow::{Context, Result};
use clap::Args as Flags;
use loligo_lab::array::{Array, PathSpec};
use loligo_lab::interrupt::Interrupt;
use loligo_log::{flush_output, outln};
use loligo_pair::lun::Defects;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A defect of an array, as it was measured on real targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Defect {
    /// A preemption with abort misses the writes of a victim that did not hold the reservation
    AbortMissesRegistrants,
    /// A preemption by the holder says success and does nothing
    PreemptsWithoutEffect,
    /// Registrations are lost with the power
    ForgetsAtPowerCycle,
}

/// A model of an array that two controllers share: one file, and a mount for each controller's path
///
/// The file 'lun' on each mount is a LUN. It answers the reservation calls of a block device (IOC_PR_*). Neither
/// locks nor the page cache of one path are seen by another, as between two hosts. Runs until SIGTERM or Ctrl-C,
/// and prints the counters of each path at the end.
#[derive(Debug, Flags)]
#[command(after_long_help = "Examples:
  A LUN of 3 GiB with two paths:
    mkdir -p /run/a /run/b
    loligo lab array /data/lun --size 3g --path a=/run/a --path b=/run/b
  Keys, holder and counters:
    getfattr --only-values -n user.loligo.reservation /run/a/lun
    getfattr --only-values -n user.loligo.counters /run/a/lun
  Faults of a path: eio, lost, silent, and a delay of each write:
    setfattr -n user.loligo.fault -v '{\"delay_ms\": 300}' /run/a/lun
  The array loses its power, and has it again:
    setfattr -n user.loligo.power-cycle -v 1 /run/a/lun")]
pub(crate) struct Args {
    /// The file that holds the LUN's bytes
    file: PathBuf,
    /// Bytes of the file, if it is to be made
    #[arg(long, value_parser = crate::values::size)]
    size: Option<u64>,
    /// A controller's path: its name, and an empty folder to mount it on; give one for each controller
    #[arg(long = "path", value_name = "NAME=MOUNTPOINT", required = true)]
    paths: Vec<PathSpec>,
    /// A defect that the array is to have; may be given several times
    #[arg(long = "defect", value_name = "DEFECT")]
    defects: Vec<Defect>,
}

/// Runs the subcommand.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    let has = |defect| a.defects.contains(&defect);
    let defects = Defects {
        abort_misses_registrants: has(Defect::AbortMissesRegistrants),
        preempts_without_effect: has(Defect::PreemptsWithoutEffect),
        forgets_at_power_cycle: has(Defect::ForgetsAtPowerCycle),
    };
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    let array = Array::start(&a.file, a.size, &a.paths, defects)?;
    outln!("ready");
    flush_output();
    while stop.sleep(Duration::from_secs(3600)).is_ok() {}
    let counters = array.counters();
    drop(array);
    for (name, c) in &counters {
        outln!(
            "{name}: {} writes ended, {} refused, {} landed after a fence",
            c.written,
            c.rejected,
            c.landed
        );
    }
    Ok(ExitCode::SUCCESS)
}
