//! The words for a rule that is named although all is as it says.

use super::document::Purpose;
use super::now::{is_same, now};
use super::subjects::Subjects;
use super::weigh::{is_worth, removals};
use crate::expression::{NoAnswer, Scope};
use crate::facts::Facts;
use crate::rules::{CompiledRule, Kind, Rules, Target};

/// A value at a place that facts do not have: of a pool, or below /sys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The name there. A path with `*` is several places.
    pub key: String,
    /// The value.
    pub value: String,
    /// Its source.
    pub source: String,
}

/// A look at a place, by its kind, the pool or host, and its name; nothing: it cannot be told.
pub type Look<'a> = &'a dyn Fn(Target, &str, &str) -> Option<Vec<Seen>>;

/// The places of the rule `id` with their values and sources, where each is as the rule says, whether its condition holds or not. None
/// where a place differs, or cannot be told.
///
/// # Errors
/// If the facts cannot be shown to the rules.
pub fn already(
    rules: &Rules,
    facts: &Facts,
    purpose: Purpose,
    id: &str,
    look: Look<'_>,
) -> Result<Vec<String>, NoAnswer> {
    let Some(compiled) = rules.find(id) else { return Ok(Vec::new()) };
    if !matches!(compiled.rule.kind, Kind::Set | Kind::Remove) {
        return Ok(Vec::new());
    }
    let subjects = Subjects::new(facts)?;
    let mut scope = Scope::new(facts, purpose.workload.word(), purpose.goal.word())?;
    let mut all = Vec::new();
    for object in subjects.of(compiled.rule.subject) {
        scope.look_at(&object.it, subjects.host(object), object.release);
        if !is_worth(&compiled.rule, object.release) {
            continue;
        }
        match places(compiled, facts, &scope, look) {
            Some(places) => all.extend(places),
            // A host or a pool that the rule is not for may lack the place.
            None if matches!(compiled.when.holds(&scope), Ok(false)) => {}
            None => return Ok(Vec::new()),
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// The places of one subject in words.
fn places(compiled: &CompiledRule, facts: &Facts, scope: &Scope, look: Look<'_>) -> Option<Vec<String>> {
    let places: Option<Vec<Vec<String>>> = compiled
        .sets
        .iter()
        .map(|part| {
            let target = part.set.target;
            let (who, key) = (part.who.fill(scope).ok()?, part.key.fill(scope).ok()?);
            let Some(value) = &part.value else {
                let where_to = if who == "*" { String::new() } else { format!(" at {who}") };
                return removals(facts, target, &who, &key)
                    .is_empty()
                    .then(|| vec![format!("{key} is not set{where_to}")]);
            };
            let value = value.text(scope).ok()?;
            let Some(now) = now(facts, target, &who, &key) else {
                return seen(facts, target, &who, &key, &value, look);
            };
            if let Some(set) = now.set {
                return is_same(&set, &value).then(|| vec![format!("{who} {key} is {set} (set there)")]);
            }
            let first = now.runs.first()?;
            let is_so = now.runs.iter().all(|running| is_same(&running.value, &value));
            is_so.then(|| vec![format!("{who} {key} is {} ({})", first.value, first.source)])
        })
        .collect();
    Some(places?.concat())
}

/// The same of places that facts do not have by their names: modules of the manager say an option's value with its source.
fn seen(
    facts: &Facts,
    target: Target,
    who: &str,
    key: &str,
    value: &str,
    look: Look<'_>,
) -> Option<Vec<String>> {
    let all = if target == Target::Mgr {
        let known = facts.cluster.options.get(key)?;
        vec![Seen { key: key.to_owned(), value: known.value.clone(), source: known.source.clone() }]
    } else {
        look(target, who, key)?
    };
    let is_so = !all.is_empty() && all.iter().all(|it| is_same(&it.value, value));
    is_so.then(|| all.iter().map(|it| format!("{who} {} is {} ({})", it.key, it.value, it.source)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Cluster, Entry, Osd, Setting};
    use crate::rules::{Goal, Workload};
    use std::collections::BTreeMap;

    #[test]
    fn a_rule_whose_value_is_there_says_it_with_its_source() {
        let rules = Rules::new().expect("rules");
        let purpose = Purpose { workload: Workload::RbdRandom, goal: Goal::Iops };
        let said = |backfills: &str, source: &str, config: Vec<Entry>| {
            let mut options: BTreeMap<String, Setting> = [
                ("osd_recovery_max_active_hdd", "3"),
                ("osd_recovery_max_active_ssd", "10"),
                ("osd_recovery_op_priority", "3"),
                ("osd_recovery_sleep_hdd", "0.1"),
                ("osd_recovery_sleep_hybrid", "0.025"),
            ]
            .map(|(name, value)| (name.to_owned(), Setting::new(value, "default")))
            .into();
            options.insert("osd_max_backfills".to_owned(), Setting::new(backfills, source));
            let osd = Osd { release: Some(16), options, ..Osd::default() };
            let cluster = Cluster { release: Some(16), config, ..Cluster::default() };
            let facts = Facts { cluster, osds: vec![osd], ..Facts::default() };
            already(&rules, &facts, purpose, "OSD-09", &|_, _, _| None).expect("facts").join("; ")
        };
        assert!(said("1", "default", Vec::new()).contains("osd_max_backfills is 1 (default)"));
        let entry = Entry {
            who: "osd".into(),
            key: "osd_max_backfills".into(),
            value: "1".into(),
            ..Entry::default()
        };
        assert!(said("1", "mon", vec![entry]).contains("osd_max_backfills is 1 (set there)"));
        assert_eq!(said("8", "mon", Vec::new()), "");
    }

    #[test]
    fn places_that_facts_do_not_have_are_looked_at() {
        let rules = Rules::new().expect("rules");
        let purpose = Purpose { workload: Workload::RbdRandom, goal: Goal::Iops };
        let options =
            ["mgr/balancer/mode=upmap", "mgr/balancer/active=true", "mgr/balancer/upmap_max_deviation=1"];
        let options = options.iter().filter_map(|it| it.split_once('='));
        let options =
            options.map(|(name, value)| (name.to_owned(), Setting::new(value, "default"))).collect();
        let balancer = Some(crate::facts::Balancer { active: true, mode: "upmap".into() });
        let cluster = Cluster { release: Some(18), options, balancer, ..Cluster::default() };
        let host = crate::facts::Host { name: "n1".into(), ..crate::facts::Host::default() };
        let mut facts = Facts { cluster, hosts: vec![host], ..Facts::default() };
        let of = |facts: &Facts, id: &str, ahead: [&str; 2]| {
            let look = |target: Target, who: &str, key: &str| {
                assert_eq!((target, who, key), (Target::Sysfs, "n1", "/sys/block/rbd*/queue/read_ahead_kb"));
                let one = |(number, value): (usize, &&str)| Seen {
                    key: key.replace('*', &number.to_string()),
                    value: (*value).to_owned(),
                    source: "the kernel".into(),
                };
                Some(ahead.iter().enumerate().map(one).collect())
            };
            already(&rules, facts, purpose, id, &look).expect("facts").join("; ")
        };
        let said = of(&facts, "BLK-03", ["128", "128"]);
        assert!(said.contains("n1 /sys/block/rbd1/queue/read_ahead_kb is 128 (the kernel)"), "{said}");
        assert_eq!(of(&facts, "BLK-03", ["128", "4096"]), "", "one of them differs");
        let said = of(&facts, "OSD-16", ["", ""]);
        assert!(said.contains("mgr mgr/balancer/mode is upmap (default)"), "{said}");
        facts.cluster.options.insert("mgr/balancer/mode".into(), Setting::new("crush-compat", "mon"));
        assert_eq!(of(&facts, "OSD-16", ["", ""]), "");
    }
}
