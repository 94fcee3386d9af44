//! `loligo lab array`.

use anyhow::{Context, Result};
use clap::{Args as Flags, ValueEnum};
use loligo_lab::array::{Array, LUN, LunSpec, PathSpec};
use loligo_lab::interrupt::Interrupt;
use loligo_log::{flush_output, outln, say};
use loligo_pair::lun::Defects;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Between two notes of the counters: an array that is killed loses what it counted since.
const REMEMBERED: Duration = Duration::from_secs(1);

/// A defect of an array. The first three were measured on real targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Defect {
    /// A preemption with abort misses the writes of a victim that did not hold the reservation
    AbortMissesRegistrants,
    /// A preemption by the holder says success and does nothing
    PreemptsWithoutEffect,
    /// Registrations are lost with the power
    ForgetsAtPowerCycle,
    /// No write is refused, whoever is registered
    RefusesNoWrite,
}

impl Defect {
    /// Its name, as it is typed.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A model of an array that two controllers share: LUNs in files, and a mount for each controller's path
///
/// A file on each mount is a LUN: 'lun', or as --lun names it. It answers the reservation calls of a block device
/// (IOC_PR_*). Neither locks nor the page cache of one path are seen by another, as between two hosts.
/// Registrations and counters outlive the process, in FILE.pr beside the bytes. Runs until SIGTERM or Ctrl-C, and
/// prints the counters of each path at the end.
#[derive(Debug, Flags)]
#[command(after_long_help = "Examples:
  A LUN of 3 GiB with two paths:
    mkdir -p /run/a /run/b
    loligo lab array /data/lun --size 3g --path a=/run/a --path b=/run/b
  Two LUNs:
    loligo lab array --lun osd0=/data/osd0:3g --lun osd1=/data/osd1:3g --path a=/run/a --path b=/run/b
  Keys, holder and counters:
    getfattr --only-values -n user.loligo.reservation /run/a/lun
    getfattr --only-values -n user.loligo.counters /run/a/lun
  Faults of a path to a LUN: eio, lost, silent, torn, and a delay of each write:
    setfattr -n user.loligo.fault -v '{\"delay_ms\": 300}' /run/a/lun
  The array loses its power, and has it again:
    setfattr -n user.loligo.power-cycle -v 1 /run/a/lun")]
pub(crate) struct Args {
    /// The file that holds the bytes of the one LUN
    #[arg(required_unless_present = "luns", conflicts_with = "luns")]
    file: Option<PathBuf>,
    /// Bytes of the file, if it is to be made
    #[arg(long, value_parser = crate::values::size, requires = "file")]
    size: Option<u64>,
    /// A LUN: its name, the file that holds its bytes, and their number if it is to be made; may be given
    /// several times
    #[arg(long = "lun", value_name = "NAME=FILE[:SIZE]")]
    luns: Vec<LunSpec>,
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
        refuses_no_write: has(Defect::RefusesNoWrite),
    };
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    let one = a.file.iter().map(|file| LunSpec { name: LUN.to_owned(), backing: file.clone(), size: a.size });
    let luns: Vec<LunSpec> = one.chain(a.luns.iter().cloned()).collect();
    let array = Array::start(&luns, &a.paths, defects)?;
    outln!("ready");
    flush_output();
    while stop.sleep(REMEMBERED).is_ok() {
        if let Err(why) = array.remember() {
            say!("{why:#}");
        }
    }
    let counters = array.counters();
    let remembered = array.remember();
    drop(array);
    for (lun, paths) in &counters {
        let lun = if a.luns.is_empty() { String::new() } else { format!("{lun} by ") };
        for (name, c) in paths {
            outln!(
                "{lun}{name}: {} writes ended, {} refused, {} landed after a fence",
                c.written,
                c.rejected,
                c.landed
            );
        }
    }
    remembered?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_lab_knows_the_defects_by_the_same_names() {
        let typed: Vec<String> = Defect::value_variants().iter().map(|defect| defect.name()).collect();
        assert_eq!(typed, loligo_lab::config::ARRAY_DEFECTS);
    }
}
