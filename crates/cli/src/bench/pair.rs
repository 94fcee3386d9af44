//! `loligo bench pair`, and the client that its failures start.

use anyhow::{Result, bail};
use loligo_bench::bed::Place;
use loligo_bench::interrupt::exit_code;
use loligo_bench::pair::client::{self, Load};
use loligo_bench::pair::{self, Options, outcome, write};
use loligo_bench::table::Table;
use loligo_lab::config::LabConfig;
use loligo_log::{out, outln, say};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// The write path of pairs of controllers, or with --failures their failures, on real clusters
///
/// The write path: brings up a lab of pairs. Native is librbd with rbd_cache=false on an image of three copies. Fast ack is a
/// volume of a pair in write-back mode over such an image. Its cache lies on the pair's array, and each write is answered once
/// it is durable there. Both clients are fio on the lab's client host, and the two alternate. The cache is flushed before
/// native runs. Before runs of fast ack so much is dirty that destaging runs beside them. In 'sustained' the cache is as full
/// as it gets. With --mirror a third arm runs in figure 5: a volume whose cache has a mirror on a second array. Missed goals are
/// printed as MISS and are no error. All sizes of one figure take about 20 minutes.
///
/// Failures: brings up a lab of pairs and makes each fault several times. Start state: all roles NORMAL, all placement groups
/// active and clean. The client writes and reads 4 KiB at fixed times, 30 % reads, by librbd on an image of three copies and on one
/// of two, and by NBD on the volume of the controller that fails. Each read is compared with the last acknowledged write and those under way, and at the end every block that was
/// written is read back. The longest operation counts from when it was due. Exit status 1: a run lost data, read it wrong, had
/// a late write land, left a store that fsck finds damaged, or was not played to its end. A target that was missed is printed as MISSED and is no error.
/// Takes about 90 minutes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Rows of --failures:
  controller   a controller loses its power           link         the link between two controllers is cut, 20 s
  stock        the same without agents, back at 45 s  freeze       a controller stands still, 60 s, and goes on
  osd          the process of an OSD is killed        power        both controllers lose their power, back at 40 s
  disk         a LUN answers with errors, 20 s        giveback     taken over by order, and given back
  disk-volume  the LUN of a volume's cache answers    array-cycle  an array loses its power, and has it again
               with errors, 20 s
  nic          both links of a controller are cut, its processes live on, 20 s
  mirror       the array of the mirror of a volume's cache answers nothing, 10 s
  mirror-cache the LUN of a mirrored volume's cache answers with errors, 10 s

In nic, freeze and giveback nobody can cut the partner's power: the reservation alone holds.

Examples:
  The latency of all sizes, and of two of them over links of 1 Gbit/s:
    loligo bench pair --figures 5 --dir /data --report latency.md
    loligo bench pair --figures 5 --sizes 4k,1m --link unlimited,1g
  The price of a mirror, and the loss of an array:
    loligo bench pair --mirror --figures 5 --dir /data --report mirror.md
    loligo bench pair --failures --rows mirror,mirror-cache --dir /data --report mirror-lost.md
  Failures:
    loligo bench pair --failures --runs 5 --dir /data --report pair.md")]
pub(crate) struct Args {
    /// Make faults, instead of measuring writes
    #[arg(long)]
    failures: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    write: write::Options,
    /// Parent of the labs' folders [default: /var/tmp]
    #[arg(long, value_name = "DIR", default_value = "/var/tmp", hide_default_value = true)]
    dir: PathBuf,
    /// Write the tables as Markdown, and all runs as JSON beside them, with the extension json. Of a run that is cut there is what
    /// it had by then
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Read and write images and volumes until standard input says 'stop' or ends, and print what was seen
#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    load: Load,
}

/// Plays the rows.
pub(crate) fn run(a: &Args) -> Result<ExitCode> {
    match play(a) {
        Ok(true) => Ok(ExitCode::FAILURE),
        Ok(false) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            say!("error: {error:#}");
            Ok(ExitCode::from(exit_code(&error) as u8))
        }
    }
}

/// True if a run did harm, or failed.
fn play(a: &Args) -> Result<bool> {
    let folder = a.report.as_ref().and_then(|path| path.parent());
    if let Some(folder) = folder.filter(|p| !p.as_os_str().is_empty() && !p.is_dir()) {
        bail!("the report's folder {} is not there: make it, or give another --report", folder.display());
    }
    let place = Place { dir: a.dir.clone(), ..Place::here()? };
    if a.failures { failures(a, &place) } else { writes(a, &place).map(|()| false) }
}

/// True if a run did harm, or failed.
fn failures(a: &Args, place: &Place) -> Result<bool> {
    let write = |outcome: &outcome::Outcome| report(a, outcome, outcome.markdown());
    let outcome = pair::run(place, &a.options, write)?;
    show(a, &outcome, &[outcome.table(), outcome.times()], outcome.notes())?;
    Ok(outcome.has_failed())
}

fn writes(a: &Args, place: &Place) -> Result<()> {
    let set = a.options.set.iter().cloned().collect();
    let mons = Some(a.options.mons.unwrap_or(1));
    let lab = LabConfig { pairs: a.options.pairs, mons, set, ..LabConfig::default() };
    let write = |outcome: &write::Outcome| report(a, outcome, outcome.markdown());
    let outcome = write::run(place, &a.write, lab, write)?;
    let tables: Vec<Table> = std::iter::once(outcome.table()).chain(outcome.mirror_table()).collect();
    show(a, &outcome, &tables, outcome.notes())
}

/// Written again and again: an interrupt leaves the report of what was before.
fn report(a: &Args, outcome: &impl Serialize, page: String) -> Result<()> {
    if let Some(path) = &a.report {
        std::fs::write(path, page)?;
        std::fs::write(path.with_extension("json"), serde_json::to_string_pretty(outcome)?)?;
    }
    Ok(())
}

fn show(a: &Args, outcome: &impl Serialize, tables: &[Table], notes: Vec<String>) -> Result<()> {
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(outcome)?);
    } else {
        tables.iter().for_each(|table| out!("{}\n\n", table.text()));
        notes.iter().for_each(|line| outln!("{line}"));
    }
    Ok(())
}

/// Runs the client.
pub(crate) fn run_client(a: &ClientArgs) -> Result<ExitCode> {
    client::serve(&a.load)?;
    Ok(ExitCode::SUCCESS)
}
