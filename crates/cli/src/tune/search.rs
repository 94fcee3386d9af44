//! `loligo tune search`: values of options that serve a load, by trials on a laboratory's cluster.

use super::apply::{Common, Prepared, Terminal, changing, is_free, prepare, reaches_all, uncompared};
use super::from::GoalArg;
use super::verify::LoadArgs;
use crate::outcome::refuse;
use anyhow::{Context, Result};
use loligo_bench::search::{self, Found, Limits, Record, Space};
use loligo_client::outcome::Ended;
use loligo_log::{out, say};
use loligo_tune::apply::{Apply, Chosen, Hands, Lock, RunKind, SEARCH, named, places};
use loligo_tune::rules::Rules;
use loligo_tune::{counted, is_or_are};
use std::path::PathBuf;

/// Search values of options that serve a load, on a laboratory's cluster
///
/// Tries values of a declared space, each beside the default. A Bayesian sampler (TPE) chooses the next ones by what was seen. The best
/// are tried again, and the best of those is compared with the default as 'loligo tune verify' does. In the end all is as before: nothing
/// is kept but the record and what it says. A record that was cut goes on with the same command.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "A space:
  version = 1
  [[option]]
  who = \"osd\"
  name = \"osd_client_message_cap\"
  from = 32
  to = 1024
  log = true
  [[option]]
  who = \"osd\"
  name = \"bluestore_prefer_deferred_size_hdd\"
  values = [\"0\", \"32768\", \"65536\", \"131072\"]

Examples:
  Forty trials of 10 s on a lab, and the best of them against the default:
    loligo tune search --space space.toml --record search.jsonl --trials 40 --pool rbd --lab --yes")]
pub(super) struct SearchArgs {
    /// The options, each with the values that it may have
    #[arg(long, value_name = "FILE")]
    space: PathBuf,
    /// Write each trial here, and go on by it
    #[arg(long, value_name = "FILE")]
    record: PathBuf,
    /// Trials
    #[arg(long, value_name = "N", default_value = "40", value_parser = clap::value_parser!(u16).range(1..=1000))]
    trials: u16,
    /// The 99th percentile may be so many times that of the default
    #[arg(long, value_name = "FACTOR", default_value = "1.2")]
    p99: f64,
    #[command(flatten)]
    load: LoadArgs,
    /// The change that the comparison at the end is to see, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5")]
    detect: f64,
    /// Minutes that the comparison may take
    #[arg(long, value_name = "MINUTES", default_value = "30")]
    budget: u64,
    /// This cluster is a laboratory's: no data of anybody suffers from bad values
    #[arg(long)]
    lab: bool,
    /// Values that are known to stop work may be tried
    #[arg(long)]
    weaken: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

impl SearchArgs {
    fn chosen(&self, space: &Space, hands: Hands<'_>, prepared: &Prepared) -> Result<Vec<Chosen>> {
        let one = |it: &search::SpaceOption| {
            let chosen =
                named(hands, &prepared.facts, SEARCH, [&it.who, &it.name], &it.choices.values(), self.weaken)
                    .map_err(Ended::refused)?;
            self.common.risk.affords(&it.name, chosen.risk)?;
            Ok(chosen)
        };
        space.options.iter().map(one).collect()
    }
}

pub(super) fn search(a: &SearchArgs) -> Result<()> {
    let text = std::fs::read_to_string(&a.space).with_context(|| a.space.display().to_string())?;
    let space = Space::read(&text)
        .map_err(|why| Ended::refused(format!("{} is no space: {why}", a.space.display())))?;
    if !a.lab {
        return refuse("bad values are tried as well: search on a laboratory's cluster, and say so by --lab");
    }
    let options = a.load.options(&a.common.from, a.common.purpose, a.detect, a.budget)?;
    let client = changing(&a.common.from)?;
    let lock = Lock::take(&client).map_err(Ended::refused)?;
    let prepared = prepare(&a.common.from, &a.common.with, &client, &Rules::new()?)?;
    let Prepared { facts, hosts, accepted, fsid } = &prepared;
    a.load.has_pool(facts)?;
    let hands = Hands { client: &client, hosts };
    let steps = places(hands, &a.chosen(&space, hands, &prepared)?).map_err(Ended::refused)?;
    let restarts = a.common.with.restarts(&client, hosts, facts, accepted);
    reaches_all(&restarts, facts, steps.iter().flat_map(|step| &step.restarts))?;
    if !a.common.yes {
        return refuse(format!(
            "nothing was changed. With --yes {}, and {} {} changed for each of {}",
            a.load.words(&options),
            counted(steps.len(), "option"),
            is_or_are(steps.len()),
            counted(a.trials.into(), "trial")
        ));
    }
    is_free(&client, &a.common.with, fsid)?;
    let mut options = options;
    let limits = Limits {
        trials: usize::from(a.trials),
        p99: a.p99,
        by_latency: matches!(a.common.purpose.goal, GoalArg::Latency),
    };
    let load = format!("{} on the cluster {fsid}", a.load.words(&options));
    let mut record = Record::open(&a.record, &space, &load, a.load.seed())?;
    options.seed = a.load.seed();
    let watch = Terminal(options.place.stop.clone());
    let purpose = a.common.purpose.purpose();
    let (head, path) = prepared.head(&client, &a.common.with, purpose, RunKind::Search)?;
    let apply = Apply { hands, lock: &lock, facts, restarts, watch: &watch };
    let found = apply
        .compare(head, &steps, &path, |sides| {
            search::run(&options, &space, limits, &client, sides, &mut record, &|words| say!("{words}"))
        })
        .map_err(uncompared)?;
    a.common.json.done(&found, || out!("{}", words(&space, &found)))
}

fn words(space: &Space, found: &Found) -> String {
    let mut text = format!("Trials that count: {}. The best:\n", found.trials);
    for (option, value) in space.options.iter().zip(&found.values) {
        text.push_str(&format!("  {}:{}={value}\n", option.who, option.name));
    }
    text + &found.verified.text()
}
