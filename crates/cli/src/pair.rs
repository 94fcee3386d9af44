//! `loligo pair`: two controllers over one array.

use crate::outcome::{Json, show};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use loligo_agent::client::AgentClient;
use loligo_agent::config::PairConfig;
use loligo_agent::setup::{self, Done};
use loligo_agent::status::{HistoryEntry, Status};
use loligo_bench::pair::drill::{self, DrillOptions, NotReady, Stage};
use loligo_client::outcome::{Ended, Outcome};
use loligo_lab::interrupt::Interrupt;
use loligo_log::{flush_output, out, outln};
use loligo_pair::machine::{DROPPED, Notice, Order, RoleName};
use loligo_pair::plan::Side;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Two controllers over one array: when one dies, its partner fences it and starts its OSDs
///
/// Both controllers have the same file and run 'loligo pair run', as a and as b. A takeover happens only with a fence that was
/// read back from the array: the partner's writes are refused from then on, whatever becomes of it. Roles: STARTING, NORMAL,
/// RACE, DUAL (both controllers' units run here), GIVEBACK, FENCED (nothing runs here).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  On controller a, then on controller b:
    loligo pair setup --config /etc/loligo/pair.toml --as a
    loligo pair run --config /etc/loligo/pair.toml --as a
  See how it is, and give back what was taken over:
    loligo pair status --config /etc/loligo/pair.toml --as b
    loligo pair giveback --config /etc/loligo/pair.toml --as b")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

/// The pair and the side that is meant.
#[derive(Debug, clap::Args)]
struct Of {
    /// The pair's file, the same on both controllers
    #[arg(long, value_name = "FILE", default_value = "/etc/loligo/pair.toml")]
    config: PathBuf,
    /// The controller that is meant: a or b [default for what asks an agent: the one in this host's loligod]
    #[arg(long = "as", value_name = "SIDE")]
    side: Option<Side>,
}

impl Of {
    fn read(&self) -> Result<PairConfig> {
        PairConfig::read(&self.config)
            .map_err(|why| why.context(Ended::refused("the pair's file cannot be used".to_owned())))
    }

    fn side(&self) -> Result<Side> {
        self.side.context(Ended::with(Outcome::Usage, "which controller is this? Give --as a or --as b"))
    }

    fn agent(&self) -> Result<AgentClient> {
        match self.side {
            Some(side) => AgentClient::at(&self.read()?.socket(side)),
            None => AgentClient::of_daemon(),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the agent of a controller
    ///
    /// Prints 'ready' once it serves its socket. It ends with SIGTERM or Ctrl-C; the OSDs go on then, and the next agent finds
    /// them.
    Run {
        #[command(flatten)]
        of: Of,
    },
    /// Make this controller one of a pair
    ///
    /// Registers its key on all LUNs and reserves its own. Gives the cluster what a pair needs: a CRUSH chassis with a host for
    /// each controller, the rule 'dual' which puts no two copies into one chassis, and options without which a takeover moves data
    /// or waits: --dry-run shows them. Pools use the rule once you say so.
    ///
    /// To be run once on each controller, before its agent. The second of them proves that the array refuses a write of a
    /// controller that is not registered. A LUN with a stranger's key is refused.
    Setup {
        #[command(flatten)]
        of: Of,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Take this controller's registrations away, and set the options back; OSDs keep their place in the CRUSH map
        #[arg(long)]
        undo: bool,
        /// Leave this option of the cluster as it is (repeatable); give it on both controllers
        #[arg(long, value_name = "OPTION", conflicts_with = "undo")]
        leave: Vec<String>,
        #[command(flatten)]
        json: Json,
    },
    /// Show how a controller sees the pair
    Status {
        #[command(flatten)]
        of: Of,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what happened: changes of role, alarms, steps
    History {
        #[command(flatten)]
        of: Of,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take the partner's units over, although it may be well
    Takeover {
        #[command(flatten)]
        of: Of,
        /// Seconds to wait until it is over
        #[arg(long, default_value_t = 60)]
        wait: u64,
        #[command(flatten)]
        json: Json,
    },
    /// Have something fail under a client that checks what it reads, and give everything back
    ///
    /// Makes an image in the pool, writes and reads it at fixed times, and reads all of it back at the end. A takeover is ordered
    /// and given back; an OSD or a volume of this controller is ended at once, and its agent starts it again. Prints how long
    /// that took, and the longest operations. Nothing is done unless both controllers are NORMAL with their own units and
    /// every placement group is active and clean. Runs on a controller, beside its agent. Exit status 1: something was lost, stale or refused.
    Drill {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        options: DrillOptions,
        #[command(flatten)]
        json: Json,
    },
    /// Give the partner's units back to it
    Giveback {
        #[command(flatten)]
        of: Of,
        /// Seconds to wait until it is over
        #[arg(long, default_value_t = 60)]
        wait: u64,
        #[command(flatten)]
        json: Json,
    },
}

/// Runs the subcommand.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Run { of } => {
            let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
            // Nobody who decides waits for the reader of the log.
            loligo_log::begin_service().context("starting the thread of the log")?;
            loligo_agent::run::run(of.read()?, of.side()?, &stop, |_| {
                outln!("ready");
                flush_output();
            })?;
        }
        Command::Setup { of, dry_run, undo, leave, json } => set_up(&of, dry_run, undo, &leave, json)?,
        Command::Status { of, json } => {
            let status = of.agent()?.status()?;
            show(json, &status, || print_status(&status))?;
        }
        Command::History { of, json } => {
            let entries = of.agent()?.history()?;
            show(json, json!({ "entries": entries }), || entries.iter().for_each(print_entry))?;
        }
        Command::Drill { of, options, json } => return drill(&of, &options, json),
        Command::Takeover { of, wait, json } => order(&of, Order::Takeover, wait, json)?,
        Command::Giveback { of, wait, json } => order(&of, Order::Giveback, wait, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn set_up(of: &Of, dry_run: bool, undo: bool, leave: &[String], json: Json) -> Result<()> {
    let config = of.read()?;
    let done = match undo {
        true => setup::unregister(&config, of.side()?, dry_run)?,
        false => setup::register(&config, of.side()?, leave, dry_run)?,
    };
    let words = || {
        let would = if dry_run { "would be: " } else { "" };
        for Done { lun, what } in &done {
            outln!("{lun}: {would}{what}");
        }
        if done.is_empty() {
            outln!("nothing is to be done");
        }
    };
    json.done(json!({ "done": done, "dry_run": dry_run }), words)
}

fn drill(of: &Of, options: &DrillOptions, json: Json) -> Result<ExitCode> {
    let (config, agent) = (of.read()?, of.agent()?);
    let stop = Interrupt::on_signals().context("catching Ctrl-C")?;
    let program = std::env::current_exe().context("the path of this program")?;
    let status = agent.status()?;
    if status.pair != config.pair {
        bail!(Ended::refused(format!(
            "{} is of the pair {}, and the agent of {}: name its file by --config",
            of.config.display(),
            config.pair,
            status.pair
        )));
    }
    let stage = Stage { config: &config, side: status.side, agent: &agent, program, stop: &stop };
    let outcome = drill::drill(&stage, options).map_err(|why| match why.downcast_ref::<NotReady>() {
        Some(refusal) => Ended::refused(refusal.to_string()).into(),
        None => why,
    })?;
    json.done(&outcome, || {
        out!("{}\n", outcome.table().text());
        outcome.client_errors.iter().for_each(|error| outln!("error of the client: {error}"));
    })?;
    Ok(if outcome.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Gives an order, and waits until the role says that it was carried out, or refused.
fn order(of: &Of, order: Order, wait: u64, json: Json) -> Result<()> {
    let agent = of.agent()?;
    let to = match order {
        Order::Takeover => RoleName::Dual,
        Order::Giveback => RoleName::Normal,
    };
    let known = agent.history()?.pop();
    agent.order(order)?;
    let end = Instant::now() + Duration::from_secs(wait);
    loop {
        let status = agent.status()?;
        if status.is_settled_as(to) {
            return json.done(&status, || print_status(&status));
        }
        let history = agent.history()?;
        // The oldest entries go, and the numbers of the others with them.
        let new = history.iter().rev().take_while(|entry| Some(*entry) != known.as_ref());
        let failed = new.filter_map(|entry| failure(order, &entry.notice)).next();
        if let Some(why) = failed {
            bail!(Ended::refused(why));
        }
        if Instant::now() > end {
            return json.begun(&status, || print_status(&status));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The reason why an order failed, if `notice` says that. Alarms may be of something else.
fn failure(order: Order, notice: &Notice) -> Option<String> {
    let fails = match (order, notice) {
        (_, Notice::Role { to: RoleName::Fenced, .. }) => true,
        (Order::Takeover, Notice::Role { from, to, .. }) => {
            (*from, *to) == (RoleName::Race, RoleName::Normal)
        }
        (Order::Giveback, Notice::Role { from, to, .. }) => {
            (*from, *to) == (RoleName::Giveback, RoleName::Dual)
        }
        (_, Notice::Step(_) | Notice::Alarm(_)) => false,
    };
    match notice {
        Notice::Role { why, .. } if fails => Some(why.clone()),
        Notice::Step(why) if why.starts_with(DROPPED) => Some(why.clone()),
        _ => None,
    }
}

fn print_status(status: &Status) {
    outln!("pair {}, controller {}: {} ({})", status.pair, status.side, status.role, status.why);
    match status.monitor_age_ms {
        Some(age) => outln!("  a monitor answered {age} ms ago"),
        None => outln!("  no monitor has answered"),
    }
    match &status.partner {
        Some(partner) => {
            let heard = if partner.heard { "heard" } else { "silent" };
            let stopped = if partner.stopped { ", nothing runs there" } else { "" };
            outln!("  partner {}: {heard}, {}{stopped}", status.side.other(), partner.role);
        }
        None => outln!("  partner {}: never heard", status.side.other()),
    }
    for unit in &status.units {
        outln!("  {} (of {}): {}", unit.name, unit.home, unit.state);
    }
    for lun in &status.luns {
        let sides: Vec<String> = lun.registered.iter().map(ToString::to_string).collect();
        let holder = lun.holder.map_or_else(|| "nobody".to_owned(), |side| side.to_string());
        let strangers = if lun.strangers.is_empty() { "" } else { ", and strangers" };
        outln!("  LUN {}: registered {}{strangers}; held by {holder}", lun.name, sides.join(" and "));
    }
}

fn print_entry(entry: &HistoryEntry) {
    let at = std::time::UNIX_EPOCH + Duration::from_millis(entry.at_ms);
    let at = humantime::format_rfc3339_millis(at);
    match &entry.notice {
        Notice::Role { from, to, why } => outln!("{at}  {from} -> {to}: {why}"),
        Notice::Alarm(text) => outln!("{at}  ALARM: {text}"),
        Notice::Step(text) => outln!("{at}  {text}"),
    }
}
