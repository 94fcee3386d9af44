//! The present value of a thing that a rule would change, and its source.

use crate::facts::{Entry, Facts, Osd};
use crate::rules::Target;
use serde::{Deserialize, Serialize};

/// A present value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Now {
    /// The value at the very place; nothing: none is set there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Values that daemons run with, each with its source, where it is an option of daemons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Running>,
}

/// A value that daemons run with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// The value.
    pub value: String,
    /// Its source: `default`, `file`, `mon`.
    pub source: String,
    /// Numbers of the OSDs.
    pub osds: Vec<i64>,
}

/// The entry of the configuration database at `who`, which may have a mask.
pub(super) fn entry<'a>(facts: &'a Facts, who: &str, key: &str) -> Option<&'a Entry> {
    facts.cluster.config.iter().find(|entry| entry.key == key && entry.whole_who() == who)
}

/// The present value of `key` at `who`; nothing where it cannot be told.
pub(super) fn now(facts: &Facts, target: Target, who: &str, key: &str) -> Option<Now> {
    match target {
        Target::Config => {
            let set = entry(facts, who, key).map(|entry| entry.value.clone());
            Some(Now { set, runs: running(facts, |osd| is_of(osd, who), key) })
        }
        Target::File => Some(Now { set: None, runs: running(facts, |osd| osd.host == who, key) }),
        Target::Sysctl => {
            let host = facts.host(who)?;
            Some(Now { set: Some(host.sysctl.get(key)?.clone()), runs: Vec::new() })
        }
        Target::Affinity => Some(Now { set: bound(facts, who, key), runs: Vec::new() }),
        Target::Nic => Some(Now { set: Some(of_nic(facts, who, key)?), runs: Vec::new() }),
        Target::Env => Some(Now { set: variable(facts, who, key)?, runs: Vec::new() }),
        Target::Unit => Some(Now { set: drop_in(facts, who, key), runs: Vec::new() }),
        _ => None,
    }
}

/// The processors of threads or interrupts of a host.
fn bound(facts: &Facts, host: &str, key: &str) -> Option<String> {
    let (of, what) = key.split_once('/')?;
    if what == "irq" {
        let nic = facts.nics.iter().find(|nic| nic.host == host && nic.name == of)?;
        let all: Vec<String> =
            nic.irqs.as_ref()?.iter().map(|irq| format!("{}={}", irq.id, irq.cpus)).collect();
        return Some(all.join(" "));
    }
    if of == "loligod" {
        return facts.host(host)?.loligod.as_ref().map(|it| it.allowed.clone());
    }
    let osd = facts.osds.iter().find(|osd| osd.host == host && of == format!("osd.{}", osd.id))?;
    osd.allowed.get(what).cloned()
}

/// A value of an interface of a host.
fn of_nic(facts: &Facts, host: &str, key: &str) -> Option<String> {
    let (name, what) = key.split_once('/')?;
    let nic = facts.nics.iter().find(|nic| nic.host == host && nic.name == name)?;
    match what {
        "mtu" => nic.mtu.map(|it| it.to_string()),
        "rings.rx" => nic.rings.as_ref().map(|it| it.rx.to_string()),
        "adaptive_rx" => nic.adaptive_rx.map(|it| it.to_string()),
        "rx_usecs" => nic.rx_usecs.map(|it| it.to_string()),
        _ => None,
    }
}

/// A variable in the environment of an OSD of a host; nothing: it cannot be told.
fn variable(facts: &Facts, host: &str, key: &str) -> Option<Option<String>> {
    let (of, name) = key.split_once('/')?;
    let osd = facts.osds.iter().find(|osd| osd.host == host && of == format!("osd.{}", osd.id))?;
    Some(osd.environment.as_ref()?.get(name).cloned())
}

/// This program's drop-in of a unit of a host.
fn drop_in(facts: &Facts, host: &str, unit: &str) -> Option<String> {
    let of_osds = facts.osds.iter().filter(|osd| osd.host == host);
    let of_osd = of_osds.filter(|osd| osd.unit.as_deref() == Some(unit)).find_map(|osd| osd.drop_in.clone());
    let loligod =
        || facts.host(host)?.loligod.as_ref().filter(|it| it.unit == unit).map(|it| it.drop_in.clone());
    of_osd.or_else(loligod).filter(|text| !text.is_empty())
}

fn running(facts: &Facts, is_meant: impl Fn(&Osd) -> bool, key: &str) -> Vec<Running> {
    let mut all: Vec<Running> = Vec::new();
    for osd in facts.osds.iter().filter(|osd| is_meant(osd)) {
        let Some(setting) = osd.options.get(key) else { continue };
        match all.iter_mut().find(|it| it.value == setting.value && it.source == setting.source) {
            Some(same) => same.osds.push(osd.id),
            None => all.push(Running {
                value: setting.value.clone(),
                source: setting.source.clone(),
                osds: vec![osd.id],
            }),
        }
    }
    all
}

/// True if a value at `who` is one for this OSD.
pub fn is_of(osd: &Osd, who: &str) -> bool {
    let (section, mask) = who.split_once('/').unwrap_or((who, ""));
    let by_section = matches!(section, "global" | "osd") || section == format!("osd.{}", osd.id);
    let by_mask = match mask.split_once(':') {
        None => true,
        Some(("class", class)) => osd.class.as_deref() == Some(class),
        Some(("host", host)) => osd.host == host,
        Some(_) => false,
    };
    by_section && by_mask
}

/// True if two values are the same to Ceph: `1` and `true`, `0.1` and `0.100000`.
pub fn is_same(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    if let (Ok(one), Ok(other)) = (one.parse::<f64>(), other.parse::<f64>()) {
        return (one - other).abs() <= f64::EPSILON * one.abs().max(other.abs());
    }
    let truth = |value: &str| match value {
        "1" | "true" | "yes" => Some(true),
        "0" | "false" | "no" => Some(false),
        _ => None,
    };
    truth(one).is_some() && truth(one) == truth(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_with_a_mask_is_for_some_osds() {
        let osd = Osd { id: 3, class: Some("hdd".into()), host: "n1".into(), ..Osd::default() };
        for who in ["global", "osd", "osd.3", "osd/class:hdd", "osd/host:n1", "global/class:hdd"] {
            assert!(is_of(&osd, who), "{who}");
        }
        for who in ["mon", "osd.33", "osd/class:ssd", "osd/host:n11", "client", "osd/rack:r1"] {
            assert!(!is_of(&osd, who), "{who}");
        }
    }

    #[test]
    fn a_file_is_that_of_the_osds_of_its_host() {
        let setting = crate::facts::Setting::new("8", "file");
        let osd = |id, host: &str| Osd {
            id,
            host: host.into(),
            options: [("k".to_owned(), setting.clone())].into(),
            ..Osd::default()
        };
        let facts = Facts { osds: vec![osd(0, "n1"), osd(1, "n2")], ..Facts::default() };
        let found = now(&facts, Target::File, "n2", "k").expect("known");
        assert_eq!(found.runs.iter().map(|it| it.osds.clone()).collect::<Vec<_>>(), [vec![1]]);
    }

    #[test]
    fn values_of_interfaces_are_those_of_their_host() {
        let nic = |host: &str, mtu| crate::facts::Nic {
            name: "e0".into(),
            host: host.into(),
            mtu: Some(mtu),
            adaptive_rx: Some(false),
            ..crate::facts::Nic::default()
        };
        let facts = Facts { nics: vec![nic("n1", 1500), nic("n2", 9000)], ..Facts::default() };
        let of = |key: &str| now(&facts, Target::Nic, "n2", key).and_then(|it| it.set);
        assert_eq!((of("e0/mtu").as_deref(), of("e0/adaptive_rx").as_deref()), (Some("9000"), Some("false")));
        assert_eq!((of("e0/rings.rx"), of("e1/mtu"), of("e0/rps_cpus")), (None, None, None));
    }

    #[test]
    fn values_are_the_same_as_ceph_takes_them() {
        assert!(is_same("1", "true") && is_same("0.1", "0.100000") && is_same("4096", "4096.0"));
        assert!(!is_same("1", "2") && !is_same("true", "false") && !is_same("wpq", "mclock_scheduler"));
    }
}
