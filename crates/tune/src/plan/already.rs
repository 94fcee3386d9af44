//! The words for a rule that is named although all is as it says.

use super::document::Purpose;
use super::now::{is_same, now};
use super::subjects::Subjects;
use super::weigh::{is_worth, removals};
use crate::expression::{NoAnswer, Scope};
use crate::facts::Facts;
use crate::rules::{CompiledRule, Kind, Rules};

/// The places of the rule `id` with their values and sources, where each is as the rule says, whether its condition holds or not. None
/// where a place differs, or cannot be told.
///
/// # Errors
/// If the facts cannot be shown to the rules.
pub fn already(rules: &Rules, facts: &Facts, purpose: Purpose, id: &str) -> Result<Vec<String>, NoAnswer> {
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
        let Some(places) = places(compiled, facts, &scope) else { return Ok(Vec::new()) };
        all.extend(places);
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// The places of one subject in words.
fn places(compiled: &CompiledRule, facts: &Facts, scope: &Scope) -> Option<Vec<String>> {
    let places = compiled.sets.iter().map(|part| {
        let target = part.set.target;
        let (who, key) = (part.who.fill(scope).ok()?, part.key.fill(scope).ok()?);
        let Some(value) = &part.value else {
            let where_to = if who == "*" { String::new() } else { format!(" at {who}") };
            return removals(facts, target, &who, &key)
                .is_empty()
                .then(|| format!("{key} is not set{where_to}"));
        };
        let value = value.text(scope).ok()?;
        let now = now(facts, target, &who, &key)?;
        if let Some(set) = now.set {
            return is_same(&set, &value).then(|| format!("{who} {key} is {set} (set there)"));
        }
        let first = now.runs.first()?;
        let is_so = now.runs.iter().all(|running| is_same(&running.value, &value));
        is_so.then(|| format!("{who} {key} is {} ({})", first.value, first.source))
    });
    places.collect()
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
            already(&rules, &facts, purpose, "OSD-09").expect("facts").join("; ")
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
}
