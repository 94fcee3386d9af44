//! `loligo tune facts --measure`: facts that load what they look at.

use super::from::{From, this_host};
use crate::outcome::refuse;
use anyhow::{Context, Result};
use loligo_ceph::commands::CommandClient;
use loligo_client::outcome::Ended;
use loligo_lab::interrupt::Interrupt;
use loligo_log::say;
use loligo_tune::apply::Health;
use loligo_tune::facts::{Facts, Unseen};
use loligo_tune::gather::HostReport;
use loligo_tune::gather::remote::Remote;
use loligo_tune::measure::{self, Bench};
use loligo_tune::{counted, is_or_are};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, IsTerminal as _};

/// The time that reads of one disk take at most, seconds.
const SECONDS_OF_A_DISK: u64 = 5;

/// The measurements that are asked for.
#[derive(Debug, clap::Args)]
pub(super) struct MeasureArgs {
    /// Measure, too: random reads of disks with OSDs, and the benchmark of OSDs that mClock makes
    ///
    /// Disks are read for five seconds each, and nothing is written to them. OSDs write some GiB and remove them again, one after the
    /// other, on a cluster without a complaint. It is said beforehand how long that takes.
    #[arg(long)]
    pub(super) measure: bool,
    /// Measure without a question
    #[arg(long, requires = "measure")]
    yes: bool,
    /// Measure this OSD alone (any number)
    #[arg(long = "osd", value_name = "ID", requires = "measure")]
    osds: Vec<i64>,
    /// Measure OSDs beside this check of 'ceph health' (any number)
    #[arg(long = "accept", value_name = "CHECK", requires = "measure")]
    accepted: Vec<String>,
}

/// Measures disks of this host alone.
pub(super) fn this(args: &MeasureArgs, report: &mut HostReport) -> Result<()> {
    let names = measure::to_measure(report);
    ask(args, &price(names.len(), 0))?;
    measure::disks(report, &names);
    Ok(())
}

/// Measures disks of all hosts that were asked, and OSDs of the cluster; what was seen is entered into `facts`.
pub(super) fn all(
    args: &MeasureArgs,
    from: &From,
    facts: &mut Facts,
    remotes: &BTreeMap<String, Remote>,
) -> Result<()> {
    if from.root != std::path::Path::new("/") {
        return refuse("a recorded tree has no disks to measure: leave out --root, or --measure");
    }
    let mut report = this_host(from, &[]);
    let names = measure::to_measure(&report);
    let elsewhere =
        facts.disks.iter().filter(|disk| remotes.contains_key(&disk.host) && !disk.osds.is_empty());
    let is_meant = |id: i64| args.osds.is_empty() || args.osds.contains(&id);
    let meant = facts.osds.iter().filter(|osd| osd.up && osd.r#in && is_meant(osd.id));
    let osds: Vec<i64> = meant.map(|osd| osd.id).collect();
    if let Some(id) = args.osds.iter().find(|id| !osds.contains(id)) {
        return refuse(format!("osd.{id} is not up and in: 'ceph osd tree' shows those that are"));
    }
    let accepted: BTreeSet<String> = args.accepted.iter().cloned().collect();
    let client = if osds.is_empty() { None } else { Some(connect(from, &accepted)?) };
    ask(args, &price(names.len() + elsewhere.count(), osds.len()))?;
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    measure::disks(&mut report, &names);
    enter(facts, report);
    for (host, remote) in remotes {
        stop.check()?;
        say!("measuring disks of {host}");
        match remote.ask_measured() {
            Ok(report) => enter(facts, report),
            Err(why) => facts.unseen.push(Unseen { what: format!("reads of disks of {host}"), why }),
        }
    }
    for (id, client) in osds.into_iter().zip(client.iter().cycle()) {
        stop.check()?;
        say!("measuring osd.{id}");
        let Some(osd) = facts.osds.iter_mut().find(|osd| osd.id == id) else { continue };
        match measure::osd(client, id as u32, &accepted, &|| stop.check().map_err(|why| why.to_string())) {
            Ok(measured) => osd.measured = Some(measured),
            Err(why) => {
                // One that gave no answer in time may write yet: a second one would be loaded beside it.
                let why = format!("{why}; OSDs after it are not measured");
                facts.unseen.push(Unseen { what: format!("the benchmark of osd.{id}"), why });
                stop.check()?;
                break;
            }
        }
    }
    Ok(())
}

/// A client that waits for benchmarks, on a cluster that may be loaded.
fn connect(from: &From, accepted: &BTreeSet<String>) -> Result<CommandClient> {
    let conf = from.conf();
    let client = CommandClient::connect_to_measure(&conf, &from.name, from.keyring.as_deref())
        .map_err(|why| Ended::refused(format!("the cluster of {} cannot be asked: {why}", conf.display())))?;
    if let Some(why) = Health::ask(&client).map_err(Ended::refused)?.complaint(accepted) {
        return refuse(format!(
            "the cluster complains, and is not loaded: {why}. Mend it, or add --accept with the name of the check"
        ));
    }
    Ok(client)
}

fn price(disks: usize, osds: usize) -> String {
    let seconds = SECONDS_OF_A_DISK * disks as u64 + Bench::seconds_of_an_osd() * osds as u64;
    let written = Bench::GIB_OF_AN_OSD * osds as f64;
    format!(
        "{} {} read, and {} {} {written:.1} GiB, one after the other, with empty caches: {} at most",
        counted(disks, "disk"),
        is_or_are(disks),
        counted(osds, "OSD"),
        if osds == 1 { "writes" } else { "write" },
        counted(seconds.div_ceil(60) as usize, "minute")
    )
}

fn ask(args: &MeasureArgs, price: &str) -> Result<()> {
    say!("{price}");
    if args.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return refuse("nobody is there to be asked: add --yes to measure");
    }
    say!("Measure? [y/N]");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("reading the answer")?;
    if ["y", "yes"].contains(&line.trim()) { Ok(()) } else { refuse("nothing is measured") }
}

/// Enters what was measured on a host.
fn enter(facts: &mut Facts, report: HostReport) {
    for disk in report.disks.into_iter().filter(|disk| disk.measured_read_us.is_some()) {
        let is_it = |it: &&mut loligo_tune::facts::Disk| it.name == disk.name && it.host == disk.host;
        if let Some(known) = facts.disks.iter_mut().find(is_it) {
            (known.measured_read_us, known.measured_rotational) =
                (disk.measured_read_us, disk.measured_rotational);
        }
    }
    facts.unseen.extend(report.unseen.into_iter().filter(|it| it.what.starts_with("reads of ")));
}
