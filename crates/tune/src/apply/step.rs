//! The steps of a run: changes of a plan that this program can make and take back, each with what was there before.

use super::value::Value;
use crate::facts::{Facts, Osd};
use crate::gather::units::by_package;
use crate::plan::{Change, Now, Plan, Proposal, is_of};
use crate::rules::{Acts, Observe, OptionTable, Preset, Risk, Target};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The name that steps of a search have in place of a rule's.
pub const SEARCH: &str = "search";

/// A change, and what was there before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its place in the order of the run, from 1.
    pub number: u32,
    /// The rule that it is of.
    pub rule: String,
    /// The change.
    pub change: Change,
    /// What was there.
    pub before: Value,
    /// OSDs that must start anew before it acts.
    pub restarts: Vec<i64>,
}

impl Step {
    /// Its place, for people: `osd_max_backfills of osd.0`.
    pub fn place(&self) -> String {
        place(&self.change)
    }

    /// The step in words: `osd_max_backfills of osd: 8 -> 1`.
    pub fn words(&self) -> String {
        match self.change.target {
            Target::Daemon => self.place(),
            _ => {
                let value = Value::plain(self.change.value.clone()).words();
                format!("{}: {} -> {value}", self.place(), self.before.words())
            }
        }
    }
}

/// The place of a change, for people.
pub fn place(change: &Change) -> String {
    let Change { target, who, key, .. } = change;
    match target {
        Target::File => format!("{key} in Ceph's file on {who}"),
        Target::Sysctl | Target::Sysfs | Target::Affinity | Target::Nic | Target::Env => {
            format!("{key} on {who}")
        }
        Target::Unit => format!("the drop-in of {key} on {who}"),
        Target::Pool => format!("{key} of the pool {who}"),
        Target::Daemon => format!("a new start of {who}, for {key}"),
        _ => format!("{key} of {who}"),
    }
}

/// A change that is to be made, before anybody has looked at what is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The rule.
    pub rule: String,
    /// Its price.
    pub risk: Risk,
    /// The change.
    pub change: Change,
    /// OSDs that must start anew before it acts.
    pub restarts: Vec<i64>,
}

impl Chosen {
    /// A change of this price.
    pub fn new(rule: &str, risk: Risk, change: Change, facts: &Facts) -> Chosen {
        let restarts = restarts(&change, risk, facts);
        Chosen { rule: rule.to_owned(), risk, change, restarts }
    }
}

/// A change that is left to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByHand {
    /// The rule.
    pub rule: String,
    /// The change.
    pub change: Change,
    /// The reason.
    pub why: String,
}

/// The part of a plan that is to be applied.
#[derive(Debug, Clone)]
pub struct Choice {
    /// These rules alone; none: all that `risk` lets in.
    pub rules: Vec<String>,
    /// Changes of no greater price.
    pub risk: Risk,
    /// Rules that are named may make availability, durability, recovery or security less.
    pub weaken: bool,
}

/// A choice that a plan does not have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoChoice {
    /// The rule proposes nothing here.
    #[error("{0} proposes nothing here: 'loligo tune plan --verbose' says what became of each rule")]
    NotProposed(String),
    /// It is beyond the price that is allowed.
    #[error("{rule} is beyond --risk: {words}. {mend}")]
    TooDear {
        /// The rule.
        rule: String,
        /// Its price in words.
        words: &'static str,
        /// The way to have it all the same.
        mend: &'static str,
    },
}

/// Divides a plan into what is to be made and what is left to a person.
///
/// # Errors
/// If a rule that was named proposes nothing, or is beyond the price.
pub fn choose(plan: &Plan, facts: &Facts, choice: &Choice) -> Result<(Vec<Chosen>, Vec<ByHand>), NoChoice> {
    for rule in &choice.rules {
        let found = plan.proposals.iter().find(|it| it.rule.eq_ignore_ascii_case(rule));
        let proposal = found.ok_or_else(|| NoChoice::NotProposed(rule.clone()))?;
        if let Some(mend) = too_dear(proposal, choice) {
            let (rule, words) = (proposal.rule.clone(), proposal.risk.words());
            return Err(NoChoice::TooDear { rule, words, mend });
        }
    }
    let is_named = |it: &Proposal| choice.rules.iter().any(|rule| it.rule.eq_ignore_ascii_case(rule));
    let is_meant = |it: &&Proposal| match choice.rules.is_empty() {
        true => it.risk <= choice.risk && it.risk != Risk::Weakens,
        false => is_named(it),
    };
    let (mut chosen, mut by_hand) = (Vec::new(), Vec::new());
    for proposal in plan.proposals.iter().filter(is_meant) {
        for change in &proposal.changes {
            let one = Chosen::new(&proposal.rule, proposal.risk, change.clone(), facts);
            let is_late = !one.restarts.is_empty() && choice.risk < Risk::Restart;
            let late = is_late.then_some("OSDs read it as they start: give --risk restart");
            let same = chosen.iter().find(|it: &&Chosen| it.change.is_at(change));
            if same.is_some_and(|it| it.change.value == change.value) {
                continue;
            }
            let taken = same.map(|it| format!("{} sets it already", it.rule));
            match why_by_hand(change).or(late).map(str::to_owned).or_else(|| no_unit(change, facts)).or(taken)
            {
                Some(why) => by_hand.push(ByHand { rule: one.rule, change: one.change, why }),
                None => chosen.push(one),
            }
        }
    }
    Ok((chosen, by_hand))
}

/// The settings of a preset as changes, and those that are left to a person.
pub fn of_preset(preset: &Preset, facts: &Facts) -> (Vec<Chosen>, Vec<ByHand>) {
    let (mut chosen, mut by_hand) = (Vec::new(), Vec::new());
    for set in &preset.sets {
        let places: Vec<(String, String)> = match (set.target, set.who.as_str()) {
            (Target::Sysctl | Target::Sysfs, "*") => {
                facts.hosts.iter().map(|it| (it.name.clone(), set.key.clone())).collect()
            }
            (Target::Nic, "*") if facts.nics.iter().any(|nic| !nic.role.is_empty()) => {
                let of_cluster = facts.nics.iter().filter(|nic| !nic.role.is_empty());
                of_cluster.map(|nic| (nic.host.clone(), format!("{}/{}", nic.name, set.key))).collect()
            }
            _ => vec![(set.who.clone(), set.key.clone())],
        };
        for (who, key) in places {
            let change = Change {
                target: set.target,
                who,
                key,
                now: Now::default(),
                value: Some(set.value.clone()),
                observe: Observe::Option,
            };
            let price = match why_by_hand(&change) {
                Some(why) => Err(why.to_owned()),
                None if change.target == Target::Affinity => {
                    Err(format!("{} divides the processors of each host", set.rule))
                }
                None if change.target == Target::Nic && !has_large_peer(&change, facts) => {
                    Err("no other host has such an MTU: nothing says that switches pass it".to_owned())
                }
                None if is_unlisted(&change, facts) => Err("this release does not know it".to_owned()),
                None => price(&change, facts),
            };
            match price {
                Ok(risk) => chosen.push(Chosen::new(&set.rule, risk, change, facts)),
                Err(why) => by_hand.push(ByHand { rule: set.rule.clone(), change, why }),
            }
        }
    }
    (chosen, by_hand)
}

/// True if another host of the cluster has an MTU of that size already.
fn has_large_peer(change: &Change, facts: &Facts) -> bool {
    let size = change.value.as_ref().and_then(|it| it.parse::<i64>().ok());
    let mut others = facts.nics.iter().filter(|nic| nic.host != change.who && !nic.role.is_empty());
    others.any(|nic| nic.mtu.zip(size).is_some_and(|(mtu, size)| mtu >= size))
}

fn is_unlisted(change: &Change, facts: &Facts) -> bool {
    let table = facts.cluster.release.and_then(OptionTable::near);
    change.target == Target::Config && table.is_none_or(|table| table.find(&change.key).is_none())
}

/// The price of a change that no rule proposes, by the table of options.
///
/// # Errors
/// If it acts only when something is made anew, or never; the reason.
pub(super) fn price(change: &Change, facts: &Facts) -> Result<Risk, String> {
    if change.target != Target::Config {
        return Ok(Risk::Online);
    }
    let table = facts.cluster.release.and_then(OptionTable::near);
    let option = table.and_then(|table| table.find(&change.key));
    match option.map(|option| option.acts) {
        // The tables have what matters for speed, and not every option.
        None if change.who.starts_with("client") => Ok(Risk::Reopen),
        None | Some(Acts::Live) => Ok(Risk::Online),
        Some(Acts::Client) => Ok(Risk::Reopen),
        Some(Acts::Restart | Acts::Unknown) => Ok(Risk::Restart),
        Some(Acts::Mkfs) => Err(format!("{} acts when an OSD is made", change.key)),
        Some(Acts::Pool) => Err(format!("{} acts when a pool is made", change.key)),
        Some(Acts::Never) => Err(format!("{} never acts in this release", change.key)),
    }
}

fn too_dear(proposal: &Proposal, choice: &Choice) -> Option<&'static str> {
    match proposal.risk {
        Risk::Weakens => (!choice.weaken).then_some("Give --weaken if that is meant"),
        Risk::Redeploy | Risk::Reboot => Some("A person does that"),
        risk => (risk > choice.risk).then_some("Raise --risk"),
    }
}

/// The reason why a change is not made by this program.
fn why_by_hand(change: &Change) -> Option<&'static str> {
    match (change.target, change.key.as_str()) {
        (
            Target::Config
            | Target::File
            | Target::Mgr
            | Target::Sysctl
            | Target::Sysfs
            | Target::Daemon
            | Target::Affinity
            | Target::Nic
            | Target::Env,
            _,
        ) => None,
        (Target::Unit, key) if key.ends_with(".service") => None,
        (Target::Unit, _) => Some("it is set in a drop-in: 'systemctl edit'"),
        (Target::Pool, "allow_ec_optimizations") => Some("there is no way back from it"),
        (Target::Pool, "pg_num" | "pgp_num" | "bulk") => Some(
            "it moves data, and nothing takes that back exactly: 'ceph osd pool set', at an hour of little load",
        ),
        (Target::Pool, _) => None,
        (Target::Image, _) => Some("it is set with 'rbd config image set'"),
        (Target::Cas, _) => Some("it is set with 'casadm' or 'loligo param set'"),
    }
}

/// The reason why the environment of an OSD is left to a person: Ceph's packages do not run it.
fn no_unit(change: &Change, facts: &Facts) -> Option<String> {
    let osd = facts.osds.iter().find(|osd| change.target == Target::Env && is_variable_of(change, osd))?;
    match osd.unit.as_deref().unwrap_or_default() {
        "" => Some(format!("no unit of systemd runs osd.{}: it is set where its process is started", osd.id)),
        unit if unit == by_package(osd.id) => None,
        _ => Some(
            "its container has an environment of its own: 'extra_container_args' of the service's specification, by 'ceph orch apply'"
                .to_owned(),
        ),
    }
}

/// True if a variable is one of this OSD.
fn is_variable_of(change: &Change, osd: &Osd) -> bool {
    let of = change.key.split_once('/').and_then(|(of, _)| of.strip_prefix("osd."));
    osd.host == change.who && of == Some(osd.id.to_string().as_str())
}

/// The OSDs that read the value only as they start.
fn restarts(change: &Change, risk: Risk, facts: &Facts) -> Vec<i64> {
    let osds = facts.osds.iter();
    let ids: BTreeSet<i64> = match change.target {
        Target::File => osds.filter(|osd| osd.host == change.who).map(|osd| osd.id).collect(),
        Target::Config | Target::Daemon => {
            osds.filter(|osd| is_of(osd, &change.who)).map(|osd| osd.id).collect()
        }
        Target::Env => osds.filter(|osd| is_variable_of(change, osd)).map(|osd| osd.id).collect(),
        // What a daemon believes of its disk it has looked at as it started.
        Target::Sysfs | Target::Sysctl if risk == Risk::Restart => {
            osds.filter(|osd| osd.host == change.who).map(|osd| osd.id).collect()
        }
        _ => BTreeSet::new(),
    };
    let is_late = matches!(change.target, Target::File | Target::Env) || risk == Risk::Restart;
    if is_late { ids.into_iter().collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Now;
    use crate::rules::Observe;

    fn change(target: Target, who: &str) -> Change {
        let (who, key, value) = (who.to_owned(), "k".to_owned(), Some("1".to_owned()));
        Change { target, who, key, now: Now::default(), value, observe: Observe::Option }
    }

    #[test]
    fn osds_start_anew_for_files_and_for_rules_that_say_so() {
        let osd = |id, host: &str| Osd { id, host: host.into(), ..Osd::default() };
        let facts = Facts { osds: vec![osd(0, "n1"), osd(1, "n2")], ..Facts::default() };
        let of = |target, who: &str, risk| restarts(&change(target, who), risk, &facts);
        assert_eq!(of(Target::Config, "osd", Risk::Online), [0i64; 0]);
        assert_eq!(of(Target::Config, "osd", Risk::Restart), [0, 1]);
        assert_eq!(of(Target::Config, "osd/host:n2", Risk::Restart), [1]);
        assert_eq!(of(Target::Config, "mon", Risk::Restart), [0i64; 0]);
        assert_eq!(of(Target::File, "n1", Risk::Online), [0]);
        assert_eq!(of(Target::Sysfs, "n1", Risk::Online), [0i64; 0]);
    }

    #[test]
    fn a_preset_raises_mtus_where_other_hosts_have_them() {
        let rules = crate::rules::Rules::new().expect("rules");
        let presets = Preset::all(|id| rules.find(id).is_some()).expect("presets");
        let of = |mtus: &[i64]| {
            let nics = mtus.iter().zip(1..).map(|(mtu, number)| crate::facts::Nic {
                name: "e0".into(),
                host: format!("n{number}"),
                role: "both".into(),
                mtu: Some(*mtu),
                ..crate::facts::Nic::default()
            });
            let facts = Facts { nics: nics.collect(), ..Facts::default() };
            let (chosen, by_hand) = of_preset(&presets[0], &facts);
            let chosen = chosen.iter().filter(|it| it.change.target == Target::Nic);
            let by_hand = by_hand.iter().filter(|it| it.change.target == Target::Nic);
            (chosen.map(|it| place(&it.change)).collect::<Vec<_>>(), by_hand.count())
        };
        assert_eq!(of(&[1500, 1500]), (Vec::new(), 2));
        assert_eq!(of(&[1500, 9000]), (vec!["e0/mtu on n1".to_owned()], 1));
        assert_eq!(of(&[]), (Vec::new(), 1), "what is left out is listed");
    }

    #[test]
    fn moves_of_data_and_keys_of_units_are_left_to_a_person() {
        let of = |target, key: &str| {
            let proposed = Change { key: key.to_owned(), ..change(target, "w") };
            why_by_hand(&proposed).is_some()
        };
        assert!(of(Target::Pool, "pg_num") && of(Target::Pool, "bulk") && of(Target::Unit, "MemoryMax"));
        assert!(!of(Target::Nic, "e0/mtu"));
        assert!(!of(Target::Pool, "size") && !of(Target::Unit, "ceph-osd@3.service"));
    }
}
