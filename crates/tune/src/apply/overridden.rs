//! Values that OSDs take from elsewhere, before those of the configuration database.

use super::places::{Hands, entry};
use super::step::Step;
use crate::facts::Facts;
use crate::gather::asked::{ask, command};
use crate::plan::{Change, is_of, is_same};
use crate::rules::Target;
use loligo_ceph::commands::Recipient;
use serde_json::Value;
use std::collections::BTreeMap;

/// Sources that go before the database, as `config diff` names them, and the way to end each. An override ends with the OSD's next
/// start, and is not among them.
const SOURCES: [(&str, &str); 3] = [
    ("file", "take it out of that file"),
    ("env", "take it out of CEPH_ARGS of its unit"),
    ("cmdline", "take it out of the arguments of its unit"),
];

/// Steps whose values no OSD would run with, by their numbers: an OSD has a value of its own that goes before. The reason, with the way
/// to end it.
///
/// # Errors
/// If an OSD that is up does not answer.
pub fn overridden(hands: Hands<'_>, facts: &Facts, steps: &[Step]) -> Result<BTreeMap<u32, String>, String> {
    let mut all = BTreeMap::new();
    if !steps.iter().any(|it| it.change.target == Target::Config) {
        return Ok(all);
    }
    let dump = ask(hands.client, Recipient::Monitors, &command("config dump"))?;
    for osd in facts.osds.iter().filter(|osd| osd.up) {
        let of_file = |it: &Step| it.change.target == Target::File && it.change.who == osd.host;
        let is_freed = |key: &str| steps.iter().any(|it| of_file(it) && it.change.key == key);
        let meant =
            steps.iter().filter(|it| it.change.target == Target::Config && is_of(osd, &it.change.who));
        let meant: Vec<&Step> = meant.filter(|it| !is_freed(&it.change.key)).collect();
        if meant.is_empty() {
            continue;
        }
        let own = format!("osd.{}", osd.id);
        for step in &meant {
            let is_freed = steps.iter().any(|it| it.change.who == own && it.change.key == step.change.key);
            if let Some(why) = by_section(&dump, &own, &step.change).filter(|_| !is_freed) {
                all.entry(step.number).or_insert(why);
            }
        }
        let diff = ask(hands.client, Recipient::Osd(osd.id as u32), &command("config diff"))?;
        for step in meant {
            if let Some(why) = before(&diff, &step.change.key, step.change.value.as_deref()) {
                all.entry(step.number).or_insert_with(|| format!("osd.{} on {} has {why}", osd.id, osd.host));
            }
        }
    }
    Ok(all)
}

/// The value of an OSD's own section that goes before that of `change`, in words.
fn by_section(dump: &Value, own: &str, change: &Change) -> Option<String> {
    let Change { who, key, .. } = change;
    let has = (who != own).then(|| entry(dump, own, key)).flatten()?;
    let is_other = !is_same(&has, change.value.as_deref()?);
    is_other.then(|| {
        format!(
            "{key} is {has} for {own} alone, which goes before {who}: 'ceph config rm {own} {key}' ends that"
        )
    })
}

/// The source whose value goes before `want`, in words; nothing: there is none, or its value is the same.
fn before(diff: &Value, key: &str, want: Option<&str>) -> Option<String> {
    let (sources, want) = (&diff["diff"][key], want?);
    SOURCES.iter().find_map(|(source, mend)| {
        let value = &sources[*source];
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (!value.is_null() && !is_same(&text, want)).then(|| {
            format!(
                "{key}={text} by its {source}, which goes before the database: {mend}, and start the OSD anew"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Now;
    use crate::rules::Observe;
    use serde_json::json;

    #[test]
    fn a_section_of_one_osd_goes_before_that_of_all() {
        let dump = json!([{"section": "osd.1", "name": "k", "value": "3", "mask": ""}]);
        let change = |who: &str, value: Option<&str>| Change {
            target: Target::Config,
            who: who.into(),
            key: "k".into(),
            now: Now::default(),
            value: value.map(str::to_owned),
            observe: Observe::Option,
        };
        let of = |own: &str, change: &Change| by_section(&dump, own, change);
        assert!(
            of("osd.1", &change("osd", Some("5"))).is_some_and(|why| why.contains("ceph config rm osd.1 k"))
        );
        assert_eq!(of("osd.1", &change("osd", Some("3"))), None, "it is the same");
        assert_eq!(of("osd.1", &change("osd.1", Some("5"))), None, "it is that very section");
        assert_eq!((of("osd.1", &change("osd", None)), of("osd.2", &change("osd", Some("5")))), (None, None));
    }

    #[test]
    fn a_value_of_a_file_goes_before_the_database() {
        let diff = json!({"diff": {
            "k": {"default": 1, "file": 3, "mon": 2, "final": 3},
            "n": {"default": 1, "mon": 2, "override": 5, "final": 5}
        }});
        let of = |key: &str, want: &str| before(&diff, key, Some(want));
        assert!(of("k", "7").is_some_and(|why| why.contains("k=3 by its file")));
        assert_eq!(of("k", "3"), None, "it acts all the same");
        assert_eq!((of("n", "7"), of("other", "1")), (None, None));
        assert_eq!(before(&diff, "k", None), None, "what is taken away leaves the file's value, as is meant");
    }
}
