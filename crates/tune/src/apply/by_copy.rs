//! The bounds of a run that is taken back by the cluster's copy: options that rules know, and none that opens a door.

use super::peers::is_mtu;
use super::value::Value;
use crate::plan::Change;
use crate::rules::{OptionTable, Target, is_key};

/// Words in names of options that decide who gets in, over which wires.
const DOORS: [&str; 14] = [
    "auth", "cephx", "keyring", "key", "keyfile", "secret", "password", "token", "insecure", "network",
    "addr", "host", "bind", "dns",
];
/// Words in names of options that name code, files and commands, or break data on purpose.
const CODE: [&str; 17] = [
    "path",
    "dir",
    "file",
    "hook",
    "command",
    "cmd",
    "script",
    "socket",
    "plugin",
    "plugins",
    "modules",
    "class",
    "setuser",
    "setgroup",
    "chdir",
    "experimental",
    "inject",
];

/// The reason why a change is not taken back to `before` by a copy, whoever wrote it; nothing: it may be.
pub(super) fn forbidden(change: &Change, before: &Value) -> Option<String> {
    let Change { target, who, key, .. } = change;
    let is_option = matches!(target, Target::Config | Target::Mgr);
    let is_module = key.starts_with("mgr/");
    let is_known = match target {
        Target::Config if !is_module => OptionTable::all().any(|table| table.find(key).is_some()),
        Target::Config | Target::Mgr => is_key(Target::Mgr, key),
        Target::Pool => is_key(Target::Pool, key),
        // Hosts have bounds of their own.
        _ => true,
    };
    if is_mtu(change) && !is_lower(change, before) {
        return Some(
            "a copy only lowers an MTU. Take it back on the host of the run, or by 'ip link set'".to_owned(),
        );
    }
    let by_hand = format!("'ceph config set {who} {key} VALUE'");
    let why = if !is_known {
        "no rule has it, and no table of options"
    } else if is_option && is_grave(key) {
        "it decides who gets in, or which code runs"
    } else {
        return None;
    };
    Some(format!("{why}. Take it back on the host of the run, or by hand: {by_hand}"))
}

/// True if an MTU is taken back to a lower one: larger packets may not pass.
fn is_lower(change: &Change, before: &Value) -> bool {
    let size = |value: &Option<String>| value.as_ref().and_then(|it| it.parse::<i64>().ok());
    size(&before.now).zip(size(&change.value)).is_some_and(|(before, made)| before < made)
}

/// True if an option may open a cluster or run code.
fn is_grave(key: &str) -> bool {
    let is_wire = key.starts_with("ms_") && (key.ends_with("_mode") || key.ends_with("type"));
    let is_count = key.ends_with("_per_key");
    is_wire || key.split('_').any(|word| (DOORS.contains(&word) && !is_count) || CODE.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Now;
    use crate::rules::Observe;

    fn is_left(target: Target, key: &str) -> bool {
        let (now, value) = (Now::default(), Some("1".into()));
        let change =
            Change { target, who: "osd".into(), key: key.into(), now, value, observe: Observe::None };
        forbidden(&change, &Value::default()).is_some()
    }

    #[test]
    fn a_copy_raises_no_mtu() {
        let of = |key: &str, made: &str, before: &str| {
            let (now, value) = (Now::default(), Some(made.to_owned()));
            let (target, who, key) = (Target::Nic, "n1".to_owned(), key.to_owned());
            let change = Change { target, who, key, now, value, observe: Observe::Nic };
            forbidden(&change, &Value::plain(Some(before.to_owned()))).is_some()
        };
        assert!(!of("e0/mtu", "9000", "1500") && of("e0/mtu", "1500", "9000") && of("e0/mtu", "x", "1500"));
        assert!(!of("e0/rps_cpus", "0-3", "none"));
    }

    #[test]
    fn options_that_open_doors_or_run_code_are_never_taken_back() {
        for key in [
            "auth_client_required",
            "auth_allow_insecure_global_id_reclaim",
            "cephx_sign_messages",
            "ms_cluster_mode",
            "ms_mon_client_mode",
            "plugin_dir",
            "erasure_code_dir",
            "osd_class_dir",
            "osd_class_load_list",
            "rbd_plugins",
            "osd_erasure_code_plugins",
            "mgr_module_path",
            "log_file",
            "admin_socket",
            "run_dir",
            "setuser",
            "public_network",
            "cluster_network",
            "mon_host",
            "keyring",
            "key",
            "crush_location_hook",
            "bluestore_block_path",
            "no_such_option",
            "mgr/dashboard/password",
        ] {
            assert!(is_left(Target::Config, key) && is_left(Target::Mgr, key), "{key}");
        }
        assert!(is_left(Target::Pool, "size") && is_left(Target::Pool, "min_size"), "no rule sets it");
    }

    #[test]
    fn what_rules_set_for_speed_is_taken_back() {
        for key in [
            "osd_max_backfills",
            "osd_memory_target",
            "filestore_queue_max_ops",
            "bluestore_rocksdb_options",
            "rbd_cache_max_dirty",
        ] {
            assert!(!is_left(Target::Config, key), "{key}");
        }
        assert!(!is_left(Target::Mgr, "mgr/balancer/mode") && !is_left(Target::Sysctl, "vm.swappiness"));
        let of_tables = OptionTable::all().flat_map(OptionTable::iter).map(|it| it.name.as_str());
        let grave: std::collections::BTreeSet<&str> = of_tables.filter(|it| is_grave(it)).collect();
        assert!((20..60).contains(&grave.len()), "{grave:?}");
    }
}
