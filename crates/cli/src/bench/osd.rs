//! `loligo bench osd`.

use super::{Shown, ended};
use anyhow::Result;
use loligo_bench::osd::{Options, run as measure};
use std::process::ExitCode;

/// OSDs on modelled disks, bare and behind caches, on real clusters: the published experiment, alternated
///
/// Brings up a lab of bare OSDs, one of OSDs behind caches of a quarter of their data, one behind caches that hold all of it and
/// one of OSDs on files, which shows what Ceph can do on this machine at most; all with the same settings of BlueStore, which are
/// printed. Clients are fio with librbd and rbd_cache=false. Marks that are missed are printed as MISS and are no error. Takes about
/// 70 minutes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Loads:
  full        4K random write past a full cache, with the course of the dirty share
  sequential  512K sequential read and write through caches of a quarter of the data
  scans       what a hot part of the image hits after a deep scrub, a compaction and a backfill of
              everything, of what it hit before
  room        4K random read that always hits, random write into a clean cache, 70/30; also on OSDs
              on files

Example:
  loligo bench osd --rounds 5 --seconds 10 --report osd.html --dir /data")]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    shown: Shown,
}

/// Measures.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    ended(a.shown.place().and_then(|place| a.shown.show(&measure(&place, &a.options)?)))
}
