//! Options of Ceph that a person or a search names, and no rule: what may be set is asked of the cluster.

use super::places::Hands;
use super::step::{Chosen, price};
use crate::facts::Facts;
use crate::plan::{Change, Now, is_of};
use crate::rules::{Observe, OptionTable, Risk, Target};
use loligo_ceph::commands::Recipient;
use serde::Deserialize;
use serde_json::json;

/// A change of an option for a section, to the first of `values`. All of them are checked, since a search tries them all. Values that
/// stop work are taken with `weaken` alone.
///
/// # Errors
/// If no daemon is known of the section, the release has no such option, the option cannot have one of the values, or it never acts;
/// the reason.
///
/// # Panics
/// If there is no value.
pub fn named(
    hands: Hands<'_>,
    facts: &Facts,
    rule: &str,
    [who, key]: [&str; 2],
    values: &[String],
) -> Result<Chosen, String> {
    if !is_section(who) {
        return Err(format!(
            "{who} is no section that can be followed to its daemons: take osd, osd.N, osd/class:NAME, osd/host:NAME, global or client"
        ));
    }
    if who.starts_with("osd") && !facts.osds.iter().any(|osd| is_of(osd, who)) {
        return Err(format!("there is no OSD of {who}: 'ceph osd tree' lists them"));
    }
    let help = help(hands, key)?.ok_or_else(|| format!("this release has no option {key}"))?;
    if help.name != key {
        return Err(format!("the option is spelt {}: its value is not found by {key}", help.name));
    }
    if bars_the_tuner(key) {
        return Err(format!(
            "{key}: the tuner's own connection, lock and keys stand on it, and a wrong value could not be taken back"
        ));
    }
    for value in values {
        if let Some(why) = help.refuses(value) {
            return Err(format!("{key}={value}: {why}"));
        }
    }
    let change = Change {
        target: Target::Config,
        who: who.to_owned(),
        key: key.to_owned(),
        now: Now::default(),
        value: Some(values[0].clone()),
        observe: observe(who, key),
    };
    let table = facts.cluster.release.and_then(OptionTable::near);
    let is_listed = table.is_some_and(|table| table.find(key).is_some());
    let is_late = !is_listed && !who.starts_with("client") && !help.can_update_at_runtime;
    let risk = if is_late { Risk::Restart } else { price(&change, facts)? };
    Ok(Chosen::new(rule, risk, change, facts))
}

/// Sections as the configuration database spells them, and whose daemons are known.
fn is_section(who: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ':', ' ']);
    match who.split_once('/') {
        Some(("osd", mask)) => {
            ["class:", "host:"].iter().any(|kind| mask.strip_prefix(kind).is_some_and(is_name))
        }
        Some(_) => false,
        None => {
            let number = who.strip_prefix("osd.");
            ["osd", "global"].contains(&who)
                || number.is_some_and(|it| it.parse::<u32>().is_ok_and(|number| number.to_string() == it))
                || who == "client"
                || who.strip_prefix("client.").is_some_and(is_name)
        }
    }
}

/// The monitors' word on an option; nothing: they know none of this name.
fn help(hands: Hands<'_>, option: &str) -> Result<Option<OptionHelp>, String> {
    let order = json!({"prefix": "config help", "key": option, "format": "json"});
    match hands.client.send(Recipient::Monitors, &order) {
        Ok(said) => serde_json::from_str(&said).map(Some).map_err(|why| format!("config help: {why}")),
        Err(why) if why.errno() == Some(libc::ENOENT) => Ok(None),
        Err(why) => Err(why.to_string()),
    }
}

/// True if an option decides whether the tuner itself still reaches the cluster, takes its lock, an attribute of an object, and writes
/// the state of its runs.
fn bars_the_tuner(key: &str) -> bool {
    const NAMES: [&str; 12] = [
        "osd_max_attr_size",
        "osd_max_attr_name_len",
        "osd_max_object_name_len",
        "osd_max_object_namespace_len",
        "mon_config_key_max_entry_size",
        "mon_host",
        "keyring",
        "keyfile",
        "public_addr",
        "cluster_addr",
        "public_network",
        "cluster_network",
    ];
    const FAMILIES: [&str; 4] = ["auth_", "cephx_", "ms_bind_", "osd_class_"];
    let is_wire = key.starts_with("ms_") && (key.ends_with("_mode") || key.ends_with("type"));
    is_wire || NAMES.contains(&key) || FAMILIES.iter().any(|family| key.starts_with(family))
}

/// `32M` and `4Ki`: numbers that the cluster writes out.
fn is_abbreviated(value: &str) -> bool {
    let digits = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    digits.len() < value.len()
        && ["K", "M", "G", "T", "P", "E"]
            .iter()
            .any(|unit| digits.strip_prefix(unit).is_some_and(|rest| ["", "i", "B", "iB"].contains(&rest)))
}

/// The way to see that a value acts. Some options have a witness beside the daemon's word on them.
fn observe(who: &str, key: &str) -> Observe {
    match key {
        _ if who.starts_with("client") => Observe::Image,
        "osd_max_backfills" => Observe::Reservers,
        _ if key.starts_with("osd_op_num_shards") => Observe::Shards,
        _ => Observe::Option,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: serde_json::Value) -> OptionHelp {
        serde_json::from_value(said).expect("help of an option")
    }

    #[test]
    fn sections_are_those_whose_daemons_are_known() {
        for good in ["osd", "osd.3", "osd/class:hdd", "osd/host:n1", "global", "client", "client.vm"] {
            assert!(is_section(good), "{good}");
        }
        for bad in
            ["mon", "osd.03", "osd/root:default", "osd/class:hdd/host:n1", "class:hdd/osd", "osd/class:", ""]
        {
            assert!(!is_section(bad), "{bad}");
        }
    }

    #[test]
    fn numbers_with_units_are_known() {
        for short in ["32M", "4Ki", "1.5GiB", "10K"] {
            assert!(is_abbreviated(short), "{short}");
        }
        for full in ["33554432", "kernel", "0/1", "compression=M", "M", "high_client_ops", "10s"] {
            assert!(!is_abbreviated(full), "{full}");
        }
    }

    #[test]
    fn values_that_an_option_cannot_have_are_refused() {
        let uint = of(json!({"type": "uint", "min": "", "max": "", "enum_values": []}));
        let float = of(json!({"type": "float", "min": 0.0, "max": "1"}));
        let word =
            of(json!({"type": "str", "min": "", "max": "", "enum_values": ["wpq", "mclock_scheduler"]}));
        let refused = |help: &OptionHelp, value: &str| help.refuses(value).unwrap_or_default();
        assert_eq!(refused(&uint, "7"), "");
        assert_eq!(refused(&uint, "many"), "it takes a whole number, not below 0");
        assert_eq!(refused(&uint, "-1"), "it takes a whole number, not below 0");
        assert!(refused(&uint, "32M").contains("in full"));
        assert_eq!(refused(&float, "0.5"), "");
        for small in ["0.0000001", "1e-7", "0.1234567"] {
            assert_eq!(refused(&float, small), "the cluster keeps 6 decimals of it");
        }
        assert_eq!(refused(&float, "1e-3"), "");
        let (truth, time) = (of(json!({"type": "bool"})), of(json!({"type": "secs"})));
        assert_eq!((refused(&truth, "true"), refused(&time, "5")), (String::new(), String::new()));
        let level = of(json!({"type": "str", "name": "debug_osd"}));
        assert_eq!(refused(&level, "1/5"), "");
        for bad in ["1", "perhaps", "01/5", "1/"] {
            assert!(refused(&level, bad).contains("both levels"), "{bad}");
        }
        assert_eq!(refused(&truth, "True"), "it takes true or false");
        assert_eq!(refused(&time, "5m"), "it takes a whole number, not below 0");
        assert_eq!(refused(&float, "1.5"), "it takes 1 at most");
        assert_eq!(refused(&float, "-1"), "it takes 0 at least");
        assert_eq!(refused(&word, "wpq"), "");
        assert_eq!(refused(&word, "fifo"), "it takes one of these: wpq, mclock_scheduler");
        assert!(of(json!({"type": "str", "newer": [1]})).refuses("x=1,y=2").is_none());
    }

    #[test]
    fn options_that_the_tuner_stands_on_are_refused() {
        for key in [
            "osd_max_attr_size",
            "osd_max_object_namespace_len",
            "mon_config_key_max_entry_size",
            "ms_type",
            "ms_cluster_type",
            "auth_client_required",
            "osd_class_load_list",
        ] {
            assert!(bars_the_tuner(key), "{key}");
        }
        for key in
            ["osd_max_backfills", "ms_async_op_threads", "ms_dispatch_throttle_bytes", "osd_debug_inject_x"]
        {
            assert!(!bars_the_tuner(key), "{key}");
        }
    }
}
