//! `loligo tune`: facts of a cluster and its hosts, and plans that rules make of them.

mod apply;
mod arrives;
mod by_name;
mod from;
mod given;
mod history;
mod measure;
mod of_lab;
mod partition;
mod rollback;
mod search;
mod text;
mod threads;
mod verify;
mod watch;

use crate::outcome::show;
use anyhow::{Result, bail};
use clap::Subcommand;
use from::{From, PurposeArgs, connect, gather, gather_from, read, this_host};
use given::Given;
use loligo_client::outcome::{Ended, Outcome};
use loligo_log::out;
use loligo_tune::did_you_mean;
use loligo_tune::plan::Plan;
use loligo_tune::rules::{Preset, Rules};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Inspect a cluster and its hosts, propose settings with reason and evidence, apply them and take them back
///
/// A missing fact makes a rule unknown. It is never guessed. 'facts', 'plan', 'explain' and 'history' change nothing, and so does
/// 'apply' without --yes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  See what could be better on this cluster and this host:
    loligo tune plan
  With the hosts of all OSDs, over ssh:
    loligo tune plan --host n1 --host n2 --host n3
  Gather now, and plan elsewhere:
    loligo tune facts --host n1 --json > facts.json
    loligo tune plan --facts facts.json
  Measure disks and OSDs once, and plan with those figures:
    loligo tune facts --measure --json > measured.json
    loligo tune plan --measured measured.json
  Read what a rule says, and why:
    loligo tune explain MEM-01
  Look at what would be done, do it, and take it back:
    loligo tune apply --rule OSD-09
    loligo tune apply --rule OSD-09 --yes
    loligo tune rollback
  See whether it helps, by interleaved runs on an image of its own:
    loligo tune verify --rule OSD-09 --pool rbd --yes")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Facts(FactsArgs),
    Plan(PlanArgs),
    Partition(partition::PartitionArgs),
    Explain(ExplainArgs),
    Presets(PresetsArgs),
    Apply(apply::ApplyArgs),
    Rollback(rollback::RollbackArgs),
    History(history::HistoryArgs),
    Verify(verify::VerifyArgs),
    Search(search::SearchArgs),
    Watch(watch::WatchArgs),
    Threads(threads::ThreadsArgs),
    #[command(hide = true)]
    OnHost(apply::OnHostArgs),
}

/// Gather facts of a cluster and of its hosts
///
/// Asks the monitors, the manager and each OSD, this host, and each --host over ssh. What could not be seen is listed with the reason.
#[derive(Debug, clap::Args)]
struct FactsArgs {
    #[command(flatten)]
    from: From,
    /// Gather facts of this host alone; other hosts are asked by this
    #[arg(long, conflicts_with_all = ["hosts", "anonymous", "no_cluster"])]
    this_host: bool,
    /// With --this-host: the address of an OSD elsewhere, to which packets of full length are sent
    #[arg(long = "probe", value_name = "ADDRESS", hide = true, requires = "this_host")]
    probes: Vec<IpAddr>,
    /// Leave out names of hosts, pools, images and clients, addresses and paths
    #[arg(long)]
    anonymous: bool,
    #[command(flatten)]
    measure: measure::MeasureArgs,
    /// Print JSON: the whole document
    #[arg(long)]
    json: bool,
}

/// Propose settings, those of the least risk first
///
/// Each proposal has its reason, evidence, expected effect and price, and the present value with its source. Advice that does harm is
/// never proposed: where somebody followed it, it is named. Leftovers of older advice are to be taken away.
#[derive(Debug, clap::Args)]
struct PlanArgs {
    #[command(flatten)]
    from: From,
    /// Use these facts, as 'loligo tune facts --json' wrote them; nobody is asked
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hosts", "no_cluster", "conf", "keyring", "measured"])]
    facts: Option<PathBuf>,
    #[command(flatten)]
    purpose: PurposeArgs,
    /// Show rules that propose nothing, too, and evidence
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON: the whole plan
    #[arg(long)]
    json: bool,
}

/// Print a rule: when it holds, what it sets, why, and what it is worth on each release
#[derive(Debug, clap::Args)]
struct ExplainArgs {
    /// The rule, as MEM-01; without one all are listed
    #[arg(value_name = "RULE")]
    rule: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Print settings of articles as they stand there, each with the rule that judges it
///
/// They are to be compared by 'loligo tune verify --preset', and are never applied.
#[derive(Debug, clap::Args)]
struct PresetsArgs {
    /// The preset; without one all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Command {
    /// The options that commands of its messages need as well.
    fn given(&self) -> Given {
        match self {
            Command::Facts(a) => Given::new(&a.from),
            Command::Plan(a) => Given::new(&a.from),
            Command::Partition(a) => Given::new(&a.from),
            Command::Apply(apply::ApplyArgs { common, .. })
            | Command::Verify(verify::VerifyArgs { common, .. })
            | Command::Search(search::SearchArgs { common, .. }) => common.given(),
            Command::Rollback(a) => a.given(),
            Command::History(a) => Given::new(&a.from).with_state(a.state.as_deref()),
            Command::Watch(a) => Given::new(&a.from).with_state(a.state.as_deref()),
            Command::Explain(_) | Command::Presets(_) | Command::Threads(_) | Command::OnHost(_) => {
                Given::default()
            }
        }
    }
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let given = args.command.given();
    run_one(args.command).map_err(|why| given.complete_error(why))
}

fn run_one(command: Command) -> Result<ExitCode> {
    match command {
        Command::Facts(a) => facts(&a),
        Command::Plan(a) => plan(&a),
        Command::Partition(a) => partition::partition(&a),
        Command::Explain(a) => explain(&a),
        Command::Presets(a) => presets(&a),
        Command::Apply(a) => apply::apply(&a),
        Command::Rollback(a) => rollback::rollback(&a),
        Command::History(a) => history::history(&a),
        Command::Verify(a) => verify::verify(&a),
        Command::Search(a) => search::search(&a),
        Command::Watch(a) => return watch::watch(&a),
        Command::Threads(a) => threads::threads(&a),
        Command::OnHost(a) => apply::on_host(&a),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn facts(a: &FactsArgs) -> Result<()> {
    if a.this_host {
        let mut report = this_host(&a.from, &a.probes);
        if a.measure.measure {
            measure::this(&a.measure, &mut report)?;
        }
        return show(a.json, &report, || out!("{}", text::report(&report)));
    }
    let client = if a.from.no_cluster { None } else { Some(connect(&a.from)?) };
    let (mut facts, remotes) = gather_from(&a.from, client.as_ref(), &Rules::new()?)?;
    if a.measure.measure {
        measure::all(&a.measure, &a.from, &mut facts, &remotes)?;
    }
    let facts = if a.anonymous { facts.anonymous() } else { facts };
    show(a.json, &facts, || out!("{}", text::facts(&facts)))
}

fn plan(a: &PlanArgs) -> Result<()> {
    let rules = Rules::new()?;
    let facts = match &a.facts {
        Some(path) => read(path)?,
        None => gather(&a.from, &rules)?,
    };
    let plan = Plan::new(&rules, &facts, a.purpose.purpose())?;
    show(a.json, &plan, || out!("{}", text::plan(&plan, &facts, a.verbose)))
}

fn explain(a: &ExplainArgs) -> Result<()> {
    let rules = Rules::new()?;
    let Some(id) = &a.rule else {
        let all: Vec<_> = rules.iter().map(|it| &it.rule).collect();
        return show(a.json, &all, || out!("{}", text::list(&all)));
    };
    let Some(rule) = rules.find(id).map(|it| &it.rule) else {
        bail!(Ended::with(
            Outcome::Usage,
            format!(
                "there is no rule {id}{}: 'loligo tune explain' lists them",
                did_you_mean(id, rules.iter().map(|it| &it.rule.id))
            )
        ));
    };
    show(a.json, rule, || out!("{}", text::rule(rule)))
}

fn presets(a: &PresetsArgs) -> Result<()> {
    let all = {
        let rules = Rules::new()?;
        Preset::all(|id| rules.find(id).is_some())?
    };
    let Some(name) = &a.name else {
        return show(a.json, &all, || all.iter().for_each(|it| out!("{:<18} {}\n", it.name, it.title)));
    };
    let Some(preset) = all.iter().find(|it| it.name == *name) else {
        let meant = did_you_mean(name, all.iter().map(|it| &it.name));
        let why = format!("there is no preset {name}{meant}: 'loligo tune presets' lists them");
        bail!(Ended::with(Outcome::Usage, why));
    };
    show(a.json, preset, || out!("{}", text::preset(preset)))
}
