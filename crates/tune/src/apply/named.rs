//! Options of Ceph that a person or a search names, and no rule: what may be set is asked of the cluster.

use super::harm::harm;
use super::option_help::{OptionHelp, names};
use super::places::Hands;
use super::step::{Chosen, price};
use crate::facts::Facts;
use crate::nearest::did_you_mean;
use crate::plan::{Change, Now, is_of};
use crate::rules::{Observe, OptionTable, Risk, Target};

/// A change of an option for a section, to the first of `values`. All of them are checked, since a search tries them all. Values that
/// stop work are taken with `weaken` alone.
///
/// # Errors
/// If no daemon is known of the section, none of it uses the option, the release has no such option, the option cannot have one of the
/// values, or it never acts; the reason.
///
/// # Panics
/// If there is no value.
pub fn named(
    hands: Hands<'_>,
    facts: &Facts,
    rule: &str,
    [who, key]: [&str; 2],
    values: &[String],
    weaken: bool,
) -> Result<Chosen, String> {
    if !is_section(who) {
        return Err(format!(
            "{who} is no section that can be followed to its daemons: take osd, osd.N, osd/class:NAME, osd/host:NAME, global or client"
        ));
    }
    if who.starts_with("osd") && !facts.osds.iter().any(|osd| is_of(osd, who)) {
        let meant = did_you_mean(who, sections(facts));
        return Err(format!("there is no OSD of {who}{meant}: 'ceph osd tree' lists them"));
    }
    let Some(help) = OptionHelp::ask(hands, key)? else {
        let meant = did_you_mean(key, names(hands));
        return Err(format!("this release has no option {key}{meant}: 'ceph config ls' lists them"));
    };
    if help.name != key {
        return Err(format!("the option is spelt {}: its value is not found by {key}", help.name));
    }
    if bars_the_tuner(key) {
        return Err(format!(
            "{key}: the tuner's own connection, lock and keys stand on it, and a wrong value could not be taken back"
        ));
    }
    let table = facts.cluster.release.and_then(OptionTable::near);
    let listed = table.and_then(|table| table.find(key));
    if who.starts_with("osd") && help.is_of_clients(listed.map(|it| it.acts)) {
        return Err(format!(
            "no OSD uses {key}: it is an option of clients. Set it for client, or for one of them, as client.NAME"
        ));
    }
    for value in values {
        if let Some(why) = help.refuses(value) {
            return Err(format!("{key}={value}: {why}"));
        }
        if let Some(why) = harm(key, value).filter(|_| !weaken) {
            return Err(format!("{key}={value}: {why}. Give --weaken if that is meant"));
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
    let is_late = listed.is_none() && !who.starts_with("client") && !help.can_update_at_runtime;
    let risk = if is_late { Risk::Restart } else { price(&change, facts)? };
    Ok(Chosen::new(rule, risk, change, facts))
}

/// Sections with a mask that OSDs are of.
fn sections(facts: &Facts) -> Vec<String> {
    let hosts = facts.osds.iter().map(|osd| format!("osd/host:{}", osd.host));
    let classes = facts.osds.iter().filter_map(|osd| osd.class.as_ref());
    hosts.chain(classes.map(|class| format!("osd/class:{class}"))).collect()
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
