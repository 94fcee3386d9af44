//! `loligo lab fail`, `mend` and `power`.

use crate::lab_place::Where;
use crate::outcome::{Json, show};
use crate::values;
use anyhow::{Context, Result};
use clap::{Args as Flags, Subcommand, ValueEnum};
use loligo_lab::fail::{self, Fault, Kind, Meant};
use loligo_lab::interrupt::Interrupt;
use loligo_log::{outln, say};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Word {
    /// A controller (n0a) loses its power: its links are down, every process is killed
    Controller,
    /// Both controllers of a node (n0) do
    Power,
    /// Both links of a controller (n0a) are cut; its processes live on
    Nic,
    /// The private link of a node (n0) is cut
    Link,
    /// All processes of a controller (n0a) stand still, or an array (n0, n0-mirror) does, until it is mended
    Freeze,
    /// The daemon of an OSD (0) is killed, wherever it runs
    Osd,
    /// A monitor (a) is killed
    Mon,
    /// The daemon of a controller's volumes (n0a) is killed
    Daemon,
    /// A LUN (osd0, vol-n0a, vol-n0a-mirror), or all of an array (n0, n0-mirror), answer with errors on both paths
    Disk,
    /// An array (n0, n0-mirror) loses its power, and has it again: at once, or after --for
    ArrayCycle,
}

impl From<Word> for Kind {
    fn from(word: Word) -> Kind {
        match word {
            Word::Controller => Kind::Controller,
            Word::Power => Kind::Power,
            Word::Nic => Kind::Nic,
            Word::Link => Kind::Link,
            Word::Freeze => Kind::Freeze,
            Word::Osd => Kind::Osd,
            Word::Mon => Kind::Mon,
            Word::Daemon => Kind::Daemon,
            Word::Disk => Kind::Disk,
            Word::ArrayCycle => Kind::ArrayCycle,
        }
    }
}

/// Make something of a lab fail
///
/// The fault stays until 'loligo lab mend', or for the time of --for; Ctrl-C mends it before. Prints the moment of
/// the deed, in milliseconds since 1970. Daemons of OSDs and monitors can be killed in every lab; the other kinds
/// need one that was brought up with --pairs.
#[derive(Debug, Flags)]
#[command(after_long_help = "Examples:
  A controller dies, and comes back:
    loligo lab fail controller n0a
    loligo lab mend n0a
  Both links of a controller are cut for 30 s:
    loligo lab fail nic n0a --for 30
  The array of a node is without power for 5 s:
    loligo lab fail array-cycle n0 --for 5
  The array of the mirrors of 'lab up --mirror' fails, or answers nothing:
    loligo lab fail disk n0-mirror
    loligo lab fail freeze n0-mirror --for 5")]
pub(crate) struct Fail {
    /// The kind of fault
    kind: Word,
    /// Its target: a controller, a node, an array, an OSD, a LUN or a monitor
    target: String,
    /// Mend it after so many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = values::seconds)]
    lasts: Option<Duration>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    json: Json,
}

/// Undo what 'loligo lab fail' and 'loligo lab power off' did
///
/// Exactly that is undone: links are up again, processes that stood still run, what was killed is started, and what
/// ended for errors of an array. Faults of one target, or all. With agents, they start the OSDs.
#[derive(Debug, Flags)]
pub(crate) struct Mend {
    /// A controller, a node, an array, an OSD, a LUN or a monitor [default: all]
    target: Option<String>,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    json: Json,
}

/// Switch a controller off and on, as the board beside it would
#[derive(Debug, Subcommand)]
pub(crate) enum Power {
    /// Cut its links, kill every process, and return once none is left
    Off(Controller),
    /// Undo that: links, monitor, and agent or OSD
    On(Controller),
    /// Print 'on' or 'off'
    Status(Status),
}

/// A controller
#[derive(Debug, Flags)]
pub(crate) struct Controller {
    /// Its name, as n0a
    name: String,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    json: Json,
}

/// A controller
#[derive(Debug, Flags)]
pub(crate) struct Status {
    /// Its name, as n0a
    name: String,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn program() -> Result<PathBuf> {
    std::env::current_exe().context("the path of this program")
}

/// Runs `loligo lab fail`.
pub(crate) fn fail(a: &Fail) -> Result<ExitCode> {
    let (dir, kind) = (a.place.dir(), Kind::from(a.kind));
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    let fault = fail::fail(&dir, kind, &a.target, a.lasts.is_some())?;
    let mut all = json!({ "kind": kind, "target": fault.target, "at_ms": fault.at_ms });
    let Some(lasts) = a.lasts else {
        a.json.done(all, || outln!("{kind} {} at {} ms", fault.target, fault.at_ms))?;
        return Ok(ExitCode::SUCCESS);
    };
    say!("{kind} {} at {} ms, for {} s", fault.target, fault.at_ms, lasts.as_secs());
    let waited = stop.sleep(lasts);
    fail::mend(&dir, Meant::One(fault.id), &program()?)?;
    let mended = fail::now_ms();
    waited?;
    all["mended_ms"] = json!(mended);
    a.json.done(all, || outln!("{kind} {} from {} to {mended} ms", fault.target, fault.at_ms))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `loligo lab mend`.
pub(crate) fn mend(a: &Mend) -> Result<ExitCode> {
    let meant = a.target.as_deref().map_or(Meant::All, Meant::Of);
    let mended = fail::mend(&a.place.dir(), meant, &program()?)?;
    let short = |fault: &Fault| json!({ "kind": fault.kind, "target": fault.target, "at_ms": fault.at_ms });
    let all = json!({ "mended": mended.iter().map(short).collect::<Vec<_>>() });
    a.json.done(all, || mended.iter().for_each(|fault| outln!("{} {}", fault.kind, fault.target)))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `loligo lab power`.
pub(crate) fn power(what: &Power) -> Result<ExitCode> {
    let name_and_power = |name: &str, power: &str| json!({ "controller": name, "power": power });
    match what {
        Power::Off(a) => {
            let fault = fail::switch_off(&a.place.dir(), &a.name)?;
            let mut all = name_and_power(&fault.target, "off");
            all["at_ms"] = json!(fault.at_ms);
            a.json.done(all, || ())?;
        }
        Power::On(a) => {
            fail::switch_on(&a.place.dir(), &a.name, &program()?)?;
            a.json.done(name_and_power(&a.name, "on"), || ())?;
        }
        Power::Status(a) => {
            let power = if fail::is_on(&a.place.dir(), &a.name)? { "on" } else { "off" };
            show(a.json, name_and_power(&a.name, power), || outln!("{power}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
