//! `loligo bench pair`, and the client that it starts.

use anyhow::{Result, bail};
use loligo_bench::bed::Place;
use loligo_bench::interrupt::exit_code;
use loligo_bench::pair::client::{self, Load};
use loligo_bench::pair::outcome::Outcome;
use loligo_bench::pair::{self, Options};
use loligo_log::{out, outln, say};
use std::path::PathBuf;
use std::process::ExitCode;

/// Failures of pairs of controllers on real clusters, under a client that checks what it reads
///
/// Brings up a lab of pairs and makes each fault several times. Start state: all roles NORMAL, all placement groups
/// active and clean. The client writes and reads 4 KiB at fixed times, 30 % reads, by librbd on an image of three copies and on one
/// of two, and by NBD on the volume of the controller that fails. Each read is compared with the last acknowledged write and those under way, and at the end every block that was
/// written is read back. The longest operation counts from when it was due. Exit status 1: a run lost data, read it wrong, had
/// a late write land, left a store that fsck finds damaged, or was not played to its end. A target that was missed is printed as MISSED and is no error.
/// Takes about 90 minutes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Rows:
  controller   a controller loses its power           link         the link between two controllers is cut, 20 s
  stock        the same without agents, back at 45 s  freeze       a controller stands still, 60 s, and goes on
  osd          the process of an OSD is killed        power        both controllers lose their power, back at 40 s
  disk         a LUN answers with errors, 20 s        giveback     taken over by order, and given back
  disk-volume  the LUN of a volume's cache answers    array-cycle  an array loses its power, and has it again
               with errors, 20 s
  nic          both links of a controller are cut, its processes live on, 20 s

In nic, freeze and giveback nobody can cut the partner's power: the reservation alone holds.

Example:
  loligo bench pair --failures --runs 5 --dir /data --report pair.md")]
pub(crate) struct Args {
    /// Make faults (the only experiment so far)
    #[arg(long, required = true)]
    failures: bool,
    #[command(flatten)]
    options: Options,
    /// Parent of the labs' folders [default: /var/tmp]
    #[arg(long, value_name = "DIR", default_value = "/var/tmp", hide_default_value = true)]
    dir: PathBuf,
    /// Write the tables as Markdown, and all runs as JSON beside them, with the extension json
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
    // After each row: an interrupt leaves the report of those before.
    let write = |outcome: &Outcome| -> Result<()> {
        if let Some(path) = &a.report {
            std::fs::write(path, outcome.markdown())?;
            std::fs::write(path.with_extension("json"), serde_json::to_string_pretty(outcome)?)?;
        }
        Ok(())
    };
    let outcome = pair::run(&place, &a.options, write)?;
    if a.json {
        out!("{}\n", serde_json::to_string_pretty(&outcome)?);
    } else {
        out!("{}\n\n{}\n", outcome.table().text(), outcome.times().text());
        outcome.notes().iter().for_each(|line| outln!("{line}"));
    }
    Ok(outcome.has_failed())
}

/// Runs the client.
pub(crate) fn run_client(a: &ClientArgs) -> Result<ExitCode> {
    client::serve(&a.load)?;
    Ok(ExitCode::SUCCESS)
}
