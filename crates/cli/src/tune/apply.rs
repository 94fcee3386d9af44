//! `loligo tune apply`: changes of a plan are made.

use super::by_name::by_name;
use super::from::{From, PurposeArgs, RiskArg, connect, gather_from};
use super::given::Given;
use super::of_lab::restart_command;
use super::text;
use crate::outcome::{Json, refuse, show};
use crate::values;
use anyhow::{Context, Result, anyhow, bail};
use clap::ArgGroup;
use loligo_ceph::commands::CommandClient;
use loligo_client::outcome::{Ended, Outcome};
use loligo_lab::interrupt::Interrupt;
use loligo_log::{out, say};
use loligo_tune::apply::shared::{self, State};
use loligo_tune::apply::{
    Apply, ByHand, Choice, Hands, Head, Health, Hosts, Journal, Lock, MAGIC, Order, Restarts, Run, RunKind,
    Step, Uncompared, VERSION, Watch, Way, carry_out, choose, now, overridden, steps,
};
use loligo_tune::facts::Facts;
use loligo_tune::gather;
use loligo_tune::plan::{Plan, Purpose, already};
use loligo_tune::rules::{Rules, Target};
use loligo_tune::{counted, did_you_mean};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// The newest release whose options the rules know.
const NEWEST: i64 = 20;
/// Bytes of an order that another host takes.
const LONGEST_ORDER: u64 = 1 << 20;

/// Make changes of a plan, and see that each acts
///
/// Without --yes nothing is changed: it prints each step with the value that is there now. With --yes the values that are there now are
/// written down first, on this host and in the cluster. Each change is made, and its effect is looked at in the daemons. The run stops
/// at the first change without effect and at the first new complaint of the cluster. Changes that OSDs read as they start come last;
/// then OSDs restart one by one, each once the others have all data.
///
/// A change that this program cannot take back is left to a person, and listed.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("named").args(["rules", "sets"]))]
#[command(after_long_help = "Examples:
  Look at what acts at once, and do it:
    loligo tune apply
    loligo tune apply --yes
  An option that a search found, seen to act, and taken back by 'rollback':
    loligo tune apply --set osd:bluestore_throttle_bytes=134217728 --yes
  One rule that needs a restart of OSDs, on three hosts:
    loligo tune apply --rule KV-27 --risk restart --host n1 --host n2 --host n3 --yes

Files:
  /var/lib/loligo/tune/FSID/RUN.journal    what was there, and what was done (--state)
  /etc/sysctl.d/99-zz-loligo-tune.conf, /etc/tmpfiles.d/zz-loligo-tune.conf
                                           values of the kernel that are to outlive a boot")]
pub(super) struct ApplyArgs {
    /// Apply this rule alone (any number) [default: all that --risk lets in]
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// Set this option of Ceph instead of what rules say, as osd:NAME=VALUE, osd/class:hdd:NAME=VALUE or client:NAME=VALUE (any number)
    #[arg(long = "set", value_name = "WHO:NAME=VALUE", conflicts_with = "rules")]
    sets: Vec<String>,
    /// Rules named with --rule may make availability, durability, recovery or security less, and values of --set may stop work
    #[arg(long, requires = "named")]
    weaken: bool,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Carry out what another host orders: an order as JSON on standard input
#[derive(Debug, clap::Args)]
pub(super) struct OnHostArgs {
    /// The folder of this host's files
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

/// The arguments that commands which change a cluster have in common.
#[derive(Debug, clap::Args)]
pub(super) struct Common {
    #[command(flatten)]
    pub(super) from: From,
    #[command(flatten)]
    pub(super) purpose: PurposeArgs,
    /// The greatest price
    #[arg(long, value_enum, default_value = "online")]
    pub(super) risk: RiskArg,
    /// Do it: the cluster is changed
    #[arg(long)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) with: With,
    #[command(flatten)]
    pub(super) json: Json,
}

impl Common {
    /// The options that commands of messages need as well.
    pub(super) fn given(&self) -> Given {
        self.with.lead(Given::new(&self.from))
    }
}

/// The ways and places of a run.
#[derive(Debug, clap::Args)]
pub(super) struct With {
    /// Restart OSDs by this command of the shell, with {id} and {host}; else the orchestrator does it, or the lab whose file --conf is, or
    /// systemctl on the OSD's host
    #[arg(long, value_name = "COMMAND")]
    restart_with: Option<String>,
    /// Go on beside this check of 'ceph health' (any number)
    #[arg(long = "accept", value_name = "CHECK")]
    pub(super) accepted: Vec<String>,
    /// The time that the cluster has to become clean after each restart
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = values::seconds)]
    patience: Duration,
    /// The folder of journals [default: $LOLIGO_STATE_DIR/tune or /var/lib/loligo/tune]
    #[arg(long, value_name = "FOLDER")]
    pub(super) state: Option<PathBuf>,
    /// Ceph's file on each --host
    #[arg(long, value_name = "FILE", default_value = "/etc/ceph/ceph.conf")]
    pub(super) remote_conf: PathBuf,
}

/// Progress goes to standard error, and Ctrl-C stops before the next step.
#[derive(Debug)]
pub(super) struct Terminal(pub(super) Interrupt);

impl Watch for Terminal {
    fn say(&self, words: &str) {
        say!("{words}");
    }

    fn is_interrupted(&self) -> bool {
        self.0.check().is_err()
    }
}

pub(super) fn said(why: impl Into<String>) -> anyhow::Error {
    anyhow!(why.into())
}

fn folder(state: Option<&PathBuf>) -> PathBuf {
    let of = |base: std::ffi::OsString| PathBuf::from(base).join("tune");
    let state = state.cloned().or_else(|| std::env::var_os("LOLIGO_STATE_DIR").map(of));
    state.unwrap_or_else(|| PathBuf::from("/var/lib/loligo/tune"))
}

/// The journal of a run. Names of runs are those that this program gives.
pub(super) fn journal(state: Option<&PathBuf>, fsid: &str, run: &str) -> Result<PathBuf> {
    if !run.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') || run.is_empty() {
        bail!(Ended::with(Outcome::Usage, format!("'{run}' is no run: 'loligo tune history' lists them")));
    }
    Ok(folder(state).join(fsid).join(format!("{run}.journal")))
}

impl With {
    /// The options of a command, with those of a run.
    pub(super) fn lead(&self, given: Given) -> Given {
        given
            .with_state(self.state.as_deref())
            .with_run(&self.remote_conf, self.restart_with.as_ref())
            .with_health(&self.accepted, self.patience.as_secs())
    }

    fn way(&self, facts: &Facts, hosts: &Hosts) -> Way {
        let given = self.restart_with.clone();
        match given.or_else(|| restart_command(&hosts.conf, facts.cluster.fsid.as_deref())) {
            Some(command) => Way::Command(command),
            None if facts.cluster.orchestrator.as_deref() == Some("cephadm") => Way::Orchestrator,
            None => Way::Systemd,
        }
    }

    pub(super) fn restarts<'a>(
        &self,
        client: &'a CommandClient,
        hosts: &'a Hosts,
        facts: &Facts,
        accepted: &'a BTreeSet<String>,
    ) -> Restarts<'a> {
        Restarts { client, hosts, way: self.way(facts, hosts), accepted, patience: self.patience }
    }
}

pub(super) fn hosts(
    from: &From,
    remote_conf: &std::path::Path,
    remote: BTreeMap<String, gather::remote::Remote>,
) -> Hosts {
    Hosts {
        here: gather::host_name(&from.root).unwrap_or_default(),
        root: from.root.clone(),
        conf: from.conf(),
        remote_conf: remote_conf.to_owned(),
        remote,
    }
}

/// The name of a run: its moment, and the process.
pub(super) fn name(at: u64) -> String {
    let moment = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(at)).to_string();
    let moment: String = moment.chars().filter(char::is_ascii_digit).collect();
    format!("{}-{}-{}", &moment[..8], &moment[8..], std::process::id())
}

/// Refuses where a run could not be made safely.
pub(super) fn is_fit(facts: &Facts, health: &Health, accepted: &BTreeSet<String>) -> Result<String> {
    let cluster = &facts.cluster;
    let Some(fsid) = &cluster.fsid else {
        return refuse("the cluster does not say its id: 'ceph status' says more");
    };
    match cluster.release {
        Some(release) if release <= NEWEST => {}
        Some(release) => {
            return refuse(format!(
                "the rules know releases up to {NEWEST}, and this cluster has {release}: install a newer version of this program"
            ));
        }
        None => return refuse("the cluster does not say its release: 'ceph versions' says more"),
    }
    if cluster.mixed == Some(true) {
        return refuse(
            "daemons of several versions run ('ceph versions'), and options of one may not act in another: finish the upgrade first",
        );
    }
    if let Some(why) = health.complaint(accepted) {
        return refuse(format!(
            "the cluster complains, and a change would hide in that: {why}. Mend it ('ceph health detail'), or give --accept \
             CHECK for each check that may stay"
        ));
    }
    Ok(fsid.clone())
}

/// Refuses while a run is cut. The lock is held: nobody is at work on it.
pub(super) fn is_free(client: &CommandClient, args: &With, fsid: &str) -> Result<()> {
    let states = shared::states(client).map_err(said)?;
    for it in states.iter().filter(|it| it.state == "stopped") {
        say!(
            "the run {0} of {1} stopped in the middle, and its values are left: 'loligo tune rollback {0}' takes them back",
            it.run,
            it.host
        );
    }
    for mut state in states.into_iter().filter(State::is_cut) {
        // A run that ended as the cluster could not be told. Another host may have begun to take it back since.
        let known = Journal::open(&journal(args.state.as_ref(), fsid, &state.run)?);
        let known = known.ok().and_then(|(_, entries)| Run::of(&entries));
        let known = known.filter(|run| run.is_of(fsid, &state.run).is_ok());
        let is_over = |run: &Run| run.rolled_back.is_some() || (state.state == "applying" && !run.is_cut());
        if let Some(run) = known.filter(is_over) {
            state.state = run.state().to_owned();
            shared::tell(client, &state).map_err(said)?;
            continue;
        }
        return refuse(format!(
            "the run {0} of {1} was cut in the middle: take it back first, by 'loligo tune rollback {0}'. Where a place of it is gone, \
             --force closes it",
            state.run, state.host
        ));
    }
    Ok(())
}

/// A cluster that is to be changed, looked at under the lock.
pub(super) struct Prepared {
    pub(super) facts: Facts,
    pub(super) hosts: Hosts,
    pub(super) accepted: BTreeSet<String>,
    pub(super) fsid: String,
}

/// Looks at everything; refuses where a run could not be made safely.
pub(super) fn prepare(from: &From, with: &With, client: &CommandClient, rules: &Rules) -> Result<Prepared> {
    let (facts, remotes) = gather_from(from, Some(client), rules)?;
    let hosts = hosts(from, &with.remote_conf, remotes);
    let accepted: BTreeSet<String> = with.accepted.iter().cloned().collect();
    let fsid = is_fit(&facts, &Health::ask(client).map_err(said)?, &accepted)?;
    Ok(Prepared { facts, hosts, accepted, fsid })
}

impl Prepared {
    /// The head of a run that begins now, and the path of its journal. It is later than all runs that the cluster knows, whatever the
    /// clocks of their hosts said: they are taken back in this order.
    pub(super) fn head(
        &self,
        client: &CommandClient,
        with: &With,
        purpose: Purpose,
        kind: RunKind,
    ) -> Result<(Head, PathBuf)> {
        let last = shared::states(client).map_err(said)?.last().map_or(0, |state| state.at);
        let at = now().max(last + 1);
        let head = Head {
            magic: MAGIC.to_owned(),
            version: VERSION,
            run: name(at),
            fsid: self.fsid.clone(),
            host: self.hosts.here.clone(),
            at,
            purpose,
            kind: Some(kind),
        };
        let path = journal(with.state.as_ref(), &self.fsid, &head.run)?;
        Ok((head, path))
    }
}

/// The client of a command that changes a cluster.
pub(super) fn changing(from: &From) -> Result<CommandClient> {
    if from.no_cluster {
        return refuse("nothing is changed without a cluster: leave out --no-cluster");
    }
    connect(from)
}

pub(super) fn apply(a: &ApplyArgs) -> Result<()> {
    let client = changing(&a.common.from)?;
    // What is planned under the lock stays true until it is done.
    let lock = a.common.yes.then(|| Lock::take(&client).map_err(Ended::refused)).transpose()?;
    let rules = Rules::new()?;
    let prepared = prepare(&a.common.from, &a.common.with, &client, &rules)?;
    let Prepared { facts, hosts, accepted, fsid } = &prepared;
    let purpose = a.common.purpose.purpose();
    is_known(&rules, &a.rules)?;
    let hands = Hands { client: &client, hosts };
    let (so, named) = split(&rules, hands, facts, purpose, &a.rules)?;
    if named.is_empty() && !so.is_empty() {
        let what = json!({"steps": [], "by_hand": [], "already": so, "done": false});
        return a.common.json.done(what, || out!("{}", text::so_already(&so)));
    }
    let (chosen, by_hand) = if a.sets.is_empty() {
        let plan = Plan::new(&rules, facts, purpose)?;
        let choice = Choice { rules: named, risk: a.common.risk.risk(), weaken: a.weaken };
        choose(&plan, facts, &choice).map_err(|why| Ended::refused(why.to_string()))?
    } else {
        (by_name(&a.sets, (a.common.risk, a.weaken), hands, facts)?, Vec::new())
    };
    let steps = steps(hands, &chosen).map_err(Ended::refused)?;
    let (steps, vain) = a.without_vain(hands, facts, steps)?;
    let by_hand = [by_hand, vain].concat();
    let restarts = a.common.with.restarts(&client, hosts, facts, accepted);
    reaches_all(&restarts, facts, steps.iter().flat_map(|step| &step.restarts))?;
    let Some(lock) = lock.filter(|_| !steps.is_empty()) else {
        let what = json!({"steps": steps, "by_hand": by_hand, "done": false});
        return a.common.json.done(what, || out!("{}", text::dry(&steps, &by_hand)));
    };
    is_free(&client, &a.common.with, fsid)?;
    let watch = Terminal(Interrupt::on_signals().context("catching Ctrl-C")?);
    let (head, path) = prepared.head(&client, &a.common.with, purpose, RunKind::Apply)?;
    let run = head.run.clone();
    let ended = Apply { hands, lock: &lock, facts, restarts, watch: &watch }
        .run(head, &steps, &path)
        .map_err(|why| Ended::refused(format!("nothing was changed: {why}")))?;
    if let Some(why) = ended.why {
        if ended.run.rolled_back.is_some() {
            return refuse(format!("nothing was changed: {why}"));
        }
        let begun = ended.run.begun.len();
        bail!(
            "stopped after {} of {}: {why}. Take {begun} back by 'loligo tune rollback {run}'",
            ended.run.done.len(),
            counted(steps.len(), "step")
        );
    }
    let what = json!({"run": run, "steps": steps, "seen": ended.run.done, "by_hand": by_hand, "done": true});
    let words = || a.common.given().complete(&text::applied(&ended.run, &by_hand));
    a.common.json.done(what, || out!("{}", words()))
}

impl ApplyArgs {
    /// Leaves steps out whose values would not act, for a person. One that was named is refused.
    fn without_vain(
        &self,
        hands: Hands<'_>,
        facts: &Facts,
        steps: Vec<Step>,
    ) -> Result<(Vec<Step>, Vec<ByHand>)> {
        let vain = overridden(hands, facts, &steps).map_err(said)?;
        if let Some(why) = vain.values().next().filter(|_| !self.rules.is_empty() || !self.sets.is_empty()) {
            return refuse(format!("nothing was changed: {why}"));
        }
        let (mut left, mut by_hand) = (Vec::new(), Vec::new());
        for step in steps {
            match vain.get(&step.number) {
                Some(why) => by_hand.push(ByHand { rule: step.rule, change: step.change, why: why.clone() }),
                None => left.push(Step { number: left.len() as u32 + 1, ..step }),
            }
        }
        Ok((left, by_hand))
    }
}

/// Rules with the places that are as they say.
type Standing = BTreeMap<String, Vec<String>>;

/// Rules that are so already, and those that are left.
fn split(
    rules: &Rules,
    hands: Hands<'_>,
    facts: &Facts,
    purpose: Purpose,
    named: &[String],
) -> Result<(Standing, Vec<String>)> {
    let look = |target: Target, who: &str, key: &str| hands.seen(target, who, key);
    let (mut so, mut left) = (BTreeMap::new(), Vec::new());
    for name in named {
        // Facts do not have all values: a plan may propose what is there.
        let places = already(rules, facts, purpose, name, &look)?;
        if places.is_empty() {
            left.push(name.clone());
        } else {
            so.insert(name.to_uppercase(), places);
        }
    }
    Ok((so, left))
}

/// The error of a comparison. An interrupt keeps its exit status.
pub(super) fn uncompared(why: Uncompared<anyhow::Error>) -> anyhow::Error {
    match why {
        Uncompared::Failed(why) => why,
        Uncompared::NotBegun(_) => Ended::refused(why.to_string()).into(),
        Uncompared::NotBack(..) => anyhow!("{why}"),
    }
}

/// Refuses names that are no rules.
pub(super) fn is_known(rules: &Rules, named: &[String]) -> Result<()> {
    match named.iter().find(|name| rules.find(name).is_none()) {
        Some(name) => {
            let meant = did_you_mean(name, rules.iter().map(|it| &it.rule.id));
            let why = format!("there is no rule {name}{meant}: 'loligo tune explain' lists them");
            bail!(Ended::with(Outcome::Usage, why))
        }
        None => Ok(()),
    }
}

/// Refuses where an OSD that is to be restarted is out of reach.
pub(super) fn reaches_all<'a>(
    restarts: &Restarts<'_>,
    facts: &Facts,
    osds: impl Iterator<Item = &'a i64>,
) -> Result<()> {
    if !matches!(restarts.way, Way::Systemd) {
        return Ok(());
    }
    for id in osds {
        let host = facts.osds.iter().find(|osd| osd.id == *id).map_or("", |osd| osd.host.as_str());
        // Where no unit runs it, that of Ceph's packages may be an OSD of another cluster.
        if facts.osds.iter().any(|osd| osd.id == *id && osd.unit.as_deref() == Some("")) {
            return refuse(format!(
                "osd.{id} must be restarted, and no unit of systemd runs it: give --restart-with COMMAND"
            ));
        }
        if !restarts.hosts.reaches(host) {
            return refuse(format!(
                "osd.{id} must be restarted, and its host {host} cannot be reached: add --host {host}, or give --restart-with"
            ));
        }
    }
    Ok(())
}

pub(super) fn on_host(a: &OnHostArgs) -> Result<()> {
    let mut text = String::new();
    std::io::stdin().take(LONGEST_ORDER).read_to_string(&mut text).context("reading the order")?;
    let order: Order = serde_json::from_str(&text).context("this is no order")?;
    // A signal in the middle would leave a value that is only tried.
    let _deaf =
        order.put.as_ref().map(|_| Interrupt::on_signals()).transpose().context("catching signals")?;
    let found = carry_out(&a.root, &order);
    show(true, &found, || ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_tune::facts::Cluster;

    fn refused(cluster: Cluster, health: &Health) -> String {
        let facts = Facts { cluster, ..Facts::default() };
        let said = is_fit(&facts, health, &BTreeSet::new());
        said.map_or_else(|why| format!("{why:#}"), |fsid| format!("fit: {fsid}"))
    }

    #[test]
    fn a_cluster_in_an_upgrade_or_of_an_unknown_release_is_refused() {
        let calm = Health { checks: Vec::new(), unclean: 0, busy: None };
        let cluster = |release, mixed| Cluster {
            fsid: Some("f".into()),
            release,
            mixed: Some(mixed),
            ..Cluster::default()
        };
        assert_eq!(refused(cluster(Some(18), false), &calm), "fit: f");
        assert!(refused(cluster(Some(18), true), &calm).contains("finish the upgrade first"));
        assert!(refused(cluster(Some(21), false), &calm).contains("install a newer version"));
        assert!(refused(cluster(None, false), &calm).contains("does not say its release"));
        assert!(refused(Cluster::default(), &calm).contains("does not say its id"));
        let ill = Health { checks: vec![("MON_DOWN".into(), "1/3 mons down".into())], ..calm };
        let said = refused(cluster(Some(18), false), &ill);
        assert!(said.contains("MON_DOWN: 1/3 mons down") && said.contains("--accept"), "{said}");
    }

    #[test]
    fn a_run_is_named_by_its_moment_and_no_other_name_is_a_path() {
        assert!(name(1_764_361_200).starts_with("20251128-202000-"), "{}", name(1_764_361_200));
        for bad in ["", "../x", "a/b", "a.b"] {
            assert!(journal(None, "f", bad).is_err(), "{bad}");
        }
    }
}
