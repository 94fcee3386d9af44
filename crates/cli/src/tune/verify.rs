//! `loligo tune verify`: does a change help? Interleaved runs on an image of its own say so.

use super::apply::{
    Common, Prepared, Terminal, changing, is_free, is_known, prepare, reaches_all, uncompared,
};
use super::arrives::Arriving;
use super::by_name::{by_name, change_something};
use super::from::{From, GoalArg, PurposeArgs, WorkloadArg};
use crate::outcome::refuse;
use crate::values;
use anyhow::{Context, Result};
use clap::ValueEnum;
use loligo_bench::bed::Place;
use loligo_bench::compare::{self, Ladder, Load, Options, Outcome};
use loligo_bench::fio::Rw;
use loligo_bench::rbd::Source;
use loligo_client::outcome::Ended;
use loligo_log::{out, say};
use loligo_tune::apply::{Apply, Choice, Chosen, Hands, Lock, RunKind, Step, choose, of_preset, steps};
use loligo_tune::facts::Facts;
use loligo_tune::plan::Plan;
use loligo_tune::rules::{Preset, Rules};
use loligo_tune::{counted, did_you_mean, is_or_are};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Compare a change with what is there now, by interleaved runs
///
/// Makes an image in the pool, writes it whole, and loads it by fio with what is there now and with the change, in blocks of four runs:
/// ABBA or BAAB, by lot. After four blocks it says how many pairs the wanted change needs, and how long that takes. The verdict is
/// by a block bootstrap at 99 %; the interval that is shown is of 95 %. A block does not count if the cluster was at work for itself,
/// if a run did not become even, or if the host took away more than 10 % of the processor time. In the end all is as it was before, and
/// the image is removed. A run that was killed is put back by 'loligo tune rollback'.
///
/// The change is what --rule names, or what --set says, or else all that --risk lets in.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  Do the limits of recovery help?
    loligo tune verify --rule OSD-09 --pool rbd --yes
  One option, 4K random writes at queue 16, until 3 % would be seen:
    loligo tune verify --set osd:bluestore_throttle_bytes=134217728 --pool rbd \\
        --rw randwrite --bs 4k --depth 16 --detect 3 --budget 90 --yes
  An article's default against its tuned arm, in a laboratory:
    loligo tune verify --preset article-bluestore --weaken --risk restart --pool rbd --yes \\
        --report article.html
  The gain of each rule of a plan, one added to the other:
    loligo tune verify --cumulative --risk restart --pool rbd --seconds 5 --budget 180 \\
        --report gains.html --yes
  Nothing against nothing, to see the noise:
    loligo tune verify --same --pool rbd --yes")]
pub(super) struct VerifyArgs {
    /// The change that this rule proposes (any number)
    #[arg(long = "rule", value_name = "RULE", conflicts_with_all = ["sets", "same", "preset"])]
    rules: Vec<String>,
    /// An option of Ceph, as osd:NAME=VALUE, osd/class:hdd:NAME=VALUE or client:NAME=VALUE (any number)
    #[arg(long = "set", value_name = "WHO:NAME=VALUE", conflicts_with_all = ["same", "preset"])]
    sets: Vec<String>,
    /// The settings of an article, as 'loligo tune presets' lists them, good or bad; for a laboratory, with --weaken
    #[arg(long, value_name = "NAME", conflicts_with = "same")]
    preset: Option<String>,
    /// Change nothing: both arms are alike
    #[arg(long)]
    same: bool,
    /// Add the rules one by one, or what --set says: each is compared with those before it, and all with none. Those that need a
    /// restart of OSDs come last
    #[arg(long, conflicts_with = "same")]
    cumulative: bool,
    /// The change may make availability, durability, recovery or security less, or stop work, while it is compared
    #[arg(long)]
    weaken: bool,
    #[command(flatten)]
    load: LoadArgs,
    /// The change that is to be seen, in percent
    #[arg(long, value_name = "PERCENT", default_value = "5")]
    detect: f64,
    /// Minutes that all runs may take
    #[arg(long, value_name = "MINUTES", default_value = "60")]
    budget: u64,
    /// Write a page with graphs (.html), or tables (.md); all runs as JSON beside it
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Bytes of the smallest image: one object.
const LEAST: u64 = 4 << 20;

/// The load of each run, and its place.
#[derive(Debug, clap::Args)]
pub(super) struct LoadArgs {
    /// The pool of the image
    #[arg(long, value_name = "POOL")]
    pool: String,
    /// Bytes of the image
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = values::size)]
    size: u64,
    /// Direction and order [default: by --workload]
    #[arg(long, value_enum)]
    rw: Option<RwArg>,
    /// Bytes of a request [default: 4k, of streams 512k]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    bs: Option<u64>,
    /// Requests in flight [default: 16, with --goal latency 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Option<u32>,
    /// Seconds of each run
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::seconds)]
    seconds: Duration,
    /// Seconds of load before each run, unmeasured
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = values::seconds)]
    ramp: Duration,
    /// The number that lots are drawn by [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Parent of the scratch folder [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RwArg {
    /// Reads in order
    Read,
    /// Writes in order
    Write,
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Random, 70 % reads
    Randrw,
}

impl LoadArgs {
    fn load(&self, purpose: PurposeArgs) -> Load {
        let is_stream = matches!(purpose.workload, WorkloadArg::RbdSeq);
        let rw = match (self.rw, purpose.workload) {
            (Some(RwArg::Read), _) => Rw::Read,
            (Some(RwArg::Write), _) | (None, WorkloadArg::RbdSeq) => Rw::Write,
            (Some(RwArg::Randread), _) => Rw::RandRead,
            (Some(RwArg::Randwrite), _) | (None, WorkloadArg::RbdRandom) => Rw::RandWrite,
            (Some(RwArg::Randrw), _) | (None, WorkloadArg::Mixed) => Rw::RandMix(70),
        };
        let depth = if matches!(purpose.goal, GoalArg::Latency) { 1 } else { 16 };
        let block = if is_stream { 512 << 10 } else { 4 << 10 };
        Load { rw, block: self.bs.unwrap_or(block), depth: self.depth.unwrap_or(depth) }
    }

    /// A comparison by this load, that is to see a change of `detect` percent within `budget` minutes.
    pub(super) fn options(
        &self,
        from: &From,
        purpose: PurposeArgs,
        detect: f64,
        budget: u64,
    ) -> Result<Options> {
        if self.seconds.is_zero() {
            return refuse("--seconds takes 1 or more");
        }
        if self.size < LEAST || self.bs.is_some_and(|bs| !(512..=self.size).contains(&bs)) {
            return refuse("--size takes 4m or more, and --bs 512 bytes to --size");
        }
        if !(0.1..=100.0).contains(&detect) {
            return refuse("--detect takes 0.1 to 100 percent");
        }
        let mut place = Place::here()?;
        place.verbose = false;
        if let Some(dir) = &self.dir {
            place.dir.clone_from(dir);
        }
        let id = from.name.strip_prefix("client.").unwrap_or(&from.name).to_owned();
        let source =
            Source::Given { conf: from.conf(), id, keyring: from.keyring.clone(), pool: self.pool.clone() };
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |it| it.as_secs());
        Ok(Options {
            place,
            source,
            load: self.load(purpose),
            time: self.seconds,
            ramp: self.ramp,
            detect: detect / 100.0,
            budget: Duration::from_secs(budget * 60),
            size: self.size,
            seed: self.seed.unwrap_or(seed),
        })
    }

    /// Refuses a pool that is not there.
    pub(super) fn has_pool(&self, facts: &Facts) -> Result<()> {
        if facts.pools.iter().any(|pool| pool.name == self.pool) {
            return Ok(());
        }
        let meant = did_you_mean(&self.pool, facts.pools.iter().map(|pool| &pool.name));
        refuse(format!("--pool {}: there is no such pool{meant}: 'ceph osd pool ls' lists them", self.pool))
    }

    /// The number that lots are drawn by, where the same command is to draw the same ones.
    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }

    /// What the cluster is to bear, in words.
    pub(super) fn words(&self, options: &Options) -> String {
        format!("the pool {} gets an image of {} bytes and {}", self.pool, self.size, options.load.words())
    }
}

impl VerifyArgs {
    /// The change, and the names of both arms.
    fn chosen(
        &self,
        hands: Hands<'_>,
        prepared: &Prepared,
        rules: &Rules,
    ) -> Result<(Vec<Chosen>, [String; 2])> {
        let arms = |second: String| ["before".to_owned(), second];
        if self.same {
            return Ok((Vec::new(), arms("the same".to_owned())));
        }
        if !self.sets.is_empty() {
            let chosen = by_name(&self.sets, (self.common.risk, self.weaken), hands, &prepared.facts)?;
            change_something(&chosen, &self.sets, hands, &prepared.facts)?;
            return Ok((chosen, arms("changed".to_owned())));
        }
        if let Some(name) = &self.preset {
            return Ok((self.of_preset(name, prepared, rules)?, ["default", "tuned"].map(str::to_owned)));
        }
        let plan = Plan::new(rules, &prepared.facts, self.common.purpose.purpose())?;
        is_known(rules, &self.rules)?;
        let choice = Choice { rules: self.rules.clone(), risk: self.common.risk.risk(), weaken: self.weaken };
        let (chosen, by_hand) =
            choose(&plan, &prepared.facts, &choice).map_err(|why| Ended::refused(why.to_string()))?;
        for it in by_hand {
            say!("not compared: {} {}: {}", it.rule, it.change.key, it.why);
        }
        if chosen.is_empty() {
            return refuse(
                "no rule proposes anything that is applied here: 'loligo tune plan' says more, and --same measures the noise",
            );
        }
        Ok((chosen, arms("planned".to_owned())))
    }

    /// The number of steps that each arm but the first has, and the names of all.
    fn ladder(&self, steps: &[Step], arms: [String; 2]) -> (Vec<usize>, Vec<String>) {
        if !self.cumulative || steps.is_empty() {
            return (vec![steps.len()], arms.to_vec());
        }
        let name =
            |step: &Step| if self.sets.is_empty() { step.rule.clone() } else { step.change.key.clone() };
        let [first, _] = arms;
        let (mut counts, mut names): (Vec<usize>, _) = (Vec::new(), vec![first]);
        for (step, count) in steps.iter().zip(1..) {
            match counts.last_mut().filter(|_| names.last() == Some(&name(step))) {
                Some(last) => *last = count,
                None => {
                    counts.push(count);
                    names.push(name(step));
                }
            }
        }
        (counts, names)
    }

    fn of_preset(&self, name: &str, prepared: &Prepared, rules: &Rules) -> Result<Vec<Chosen>> {
        let all = Preset::all(|id| rules.find(id).is_some())?;
        let Some(preset) = all.iter().find(|it| it.name == name) else {
            let names: Vec<&str> = all.iter().map(|it| it.name.as_str()).collect();
            let meant = did_you_mean(name, &names);
            return refuse(format!("there is no preset {name}{meant}: {}", names.join(", ")));
        };
        if !self.weaken {
            return refuse(format!(
                "the preset {name} has settings that rules refuse ('loligo tune presets {name}'): compare it on a laboratory's cluster, with --weaken"
            ));
        }
        let (chosen, by_hand) = of_preset(preset, &prepared.facts);
        for it in by_hand {
            say!("not compared: {} {}: {}", it.rule, it.change.key, it.why);
        }
        for it in &chosen {
            self.common.risk.affords(&it.change.key, it.risk)?;
        }
        Ok(chosen)
    }
}

pub(super) fn verify(a: &VerifyArgs) -> Result<()> {
    has_place(a)?;
    let options = a.load.options(&a.common.from, a.common.purpose, a.detect, a.budget)?;
    let client = changing(&a.common.from)?;
    let lock = Lock::take(&client).map_err(Ended::refused)?;
    let rules = Rules::new()?;
    let prepared = prepare(&a.common.from, &a.common.with, &client, &rules)?;
    let Prepared { facts, hosts, accepted, fsid } = &prepared;
    a.load.has_pool(facts)?;
    let hands = Hands { client: &client, hosts };
    let (chosen, arms) = a.chosen(hands, &prepared, &rules)?;
    // An article's host may have what this one has not.
    let chosen = chosen.into_iter().filter(|it| match a.preset.as_ref().map(|_| hands.look(&it.change)) {
        Some(Err(why)) => {
            say!("not compared: {} {}: {why}", it.rule, it.change.key);
            false
        }
        _ => true,
    });
    let mut chosen: Vec<Chosen> = chosen.collect();
    if a.cumulative {
        chosen.sort_by_key(|it| !it.restarts.is_empty());
    }
    let steps = steps(hands, &chosen).map_err(Ended::refused)?;
    if steps.is_empty() && !a.same {
        return refuse("all of this is so already: there is nothing to compare");
    }
    let restarts = a.common.with.restarts(&client, hosts, facts, accepted);
    reaches_all(&restarts, facts, steps.iter().flat_map(|step| &step.restarts))?;
    for step in &steps {
        say!(
            "compared: {} is {}, and {}",
            step.place(),
            step.before.words(),
            step.change.value.as_deref().unwrap_or("nothing")
        );
    }
    let (counts, names) = a.ladder(&steps, arms);
    if !a.common.yes {
        return refuse(format!(
            "nothing was changed. With --yes {}, and {} {} changed back and forth",
            a.load.words(&options),
            counted(steps.len(), "value"),
            is_or_are(steps.len())
        ));
    }
    is_free(&client, &a.common.with, fsid)?;
    let watch = Terminal(options.place.stop.clone());
    let purpose = a.common.purpose.purpose();
    let (head, path) = prepared.head(&client, &a.common.with, purpose, RunKind::Verify)?;
    let apply = Apply { hands, lock: &lock, facts, restarts, watch: &watch };
    let outcome = apply
        .compare(head, &steps, &path, |sides| {
            let image = compare::image_of(&std::process::id().to_string());
            let place = [a.load.pool.as_str(), image.as_str()];
            let ladder = Ladder::new(sides, &counts);
            let mut arms = Arriving::new(ladder, &steps, &a.common.from, place);
            compare::run(&options, &client, &mut arms, &names, &|words| say!("{words}"))
        })
        .map_err(uncompared)?;
    if outcome.is_cut {
        // Of JSON there is one object, and it says that this was interrupted: the page has the runs.
        for line in outcome.text().lines() {
            say!("{line}");
        }
        write(a, &outcome)?;
        if let Some(path) = &a.report {
            say!("{} has what was measured until then", path.display());
        }
        options.place.stop.check()?;
    }
    // What was measured is said first: a page that cannot be written takes nothing away.
    a.common.json.done(&outcome, || out!("{}", outcome.text()))?;
    write(a, &outcome)
}

/// Refuses a page that could not be written after all was measured.
fn has_place(a: &VerifyArgs) -> Result<()> {
    let Some(path) = &a.report else { return Ok(()) };
    if !path.extension().is_some_and(|it| it == "html" || it == "md") {
        return refuse(format!("--report {}: its name ends with .html or .md", path.display()));
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !dir.is_dir() {
        return refuse(format!("--report {}: there is no folder {}", path.display(), dir.display()));
    }
    Ok(())
}

fn write(a: &VerifyArgs, outcome: &Outcome) -> Result<()> {
    let Some(path) = &a.report else { return Ok(()) };
    match path.extension().and_then(|it| it.to_str()) {
        Some("html") => outcome.report().write(path)?,
        _ => std::fs::write(path, outcome.markdown()).with_context(|| path.display().to_string())?,
    }
    let json = path.with_extension("json");
    std::fs::write(&json, serde_json::to_vec_pretty(outcome)?).with_context(|| json.display().to_string())
}
