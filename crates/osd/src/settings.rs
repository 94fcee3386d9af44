//! Options of Ceph whose defaults depend on whether a device says that it turns. An OSD behind a cache is neither a disk nor flash,
//! and what it is told must not change with what a queue says, so each is set by name.

use crate::cluster::Cluster;
use anyhow::Result;
use loligo_log::say;
use serde_json::Value;

/// An option with the value that an OSD behind a cache gets, and why that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub option: &'static str,
    /// Its value.
    pub value: &'static str,
    /// The reason.
    pub why: &'static str,
}

const fn set(option: &'static str, value: &'static str, why: &'static str) -> Setting {
    Setting { option, value, why }
}

/// The options of an OSD behind a cache. Work that clients wait for is as on flash. Work behind their backs,
/// which sooner or later reaches the disk, is as on disks.
pub const SETTINGS: [Setting; 5] = [
    set("bluestore_min_alloc_size", "4096", "fixed when the store is made: as lines of the cache"),
    set(
        "bluestore_prefer_deferred_size",
        "65536",
        "small overwrites stay in place, so that the disk behind keeps objects in one piece",
    ),
    set("bluestore_throttle_cost_per_io", "4000", "a request costs what it costs on flash"),
    set("osd_op_num_shards", "8", "answers come from flash"),
    set("osd_op_num_threads_per_shard", "2", "answers come from flash"),
];

/// Further options where requests are queued by weight and priority (`wpq`).
const WEIGHED: [Setting; 4] = [
    set("osd_recovery_max_active", "3", "recovery reaches the disk"),
    set("osd_recovery_sleep", "0.1", "recovery reaches the disk"),
    set("osd_delete_sleep", "5", "removal of placement groups reaches the disk"),
    set("osd_snap_trim_sleep", "5", "trimming of snapshots reaches the disk"),
];

/// The options in their place where mClock queues them, which overrules those. The capacity is that of Ceph for a disk: clients are not limited by
/// it, and what runs behind their backs is.
const BY_MCLOCK: [Setting; 5] = [
    set("osd_mclock_skip_benchmark", "true", "it would measure an empty cache and not the disk"),
    set("osd_mclock_max_capacity_iops_hdd", "315", "what lasts is what the disk can do"),
    set("osd_mclock_max_capacity_iops_ssd", "315", "the same where the volume says that it does not turn"),
    set("osd_mclock_max_sequential_bandwidth_hdd", "157286400", "what lasts is what the disk can do"),
    set("osd_mclock_max_sequential_bandwidth_ssd", "157286400", "the same where it does not turn"),
];

/// The options of an OSD whose scheduler of requests is `queue`, besides [`SETTINGS`].
fn besides(queue: &str) -> &'static [Setting] {
    if queue.trim() == "mclock_scheduler" { &BY_MCLOCK } else { &WEIGHED }
}

/// Sets them for one OSD, and says each with its reason.
///
/// # Errors
/// If the cluster does not answer. An option that its release does not know is said and left out.
pub fn apply(cluster: &Cluster, id: u32) -> Result<()> {
    let who = format!("osd.{id}");
    let queue = cluster.run(&["config", "get", &who, "osd_op_queue"])?;
    let settings: Vec<Setting> = SETTINGS.iter().chain(besides(&queue)).copied().collect();
    let all: Vec<_> = settings.iter().map(|s| vec!["config", "set", &who, s.option, s.value]).collect();
    cluster.run_all(&all)?;
    let there = those_of(cluster, &who)?;
    for (s, words) in settings.iter().zip(&all) {
        let set = there.iter().any(|(option, value)| option == s.option && is_same(value, s.value));
        match if set { Ok(String::new()) } else { cluster.run(words) } {
            Ok(_) => say!("  {} = {}: {}", s.option, s.value, s.why),
            Err(why) if format!("{why:#}").contains("unrecognized config option") => {
                say!("  {}: this release of Ceph does not know it", s.option);
            }
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Takes away everything that the cluster's configuration says of one OSD.
///
/// # Errors
/// If the cluster does not answer.
pub fn forget(cluster: &Cluster, id: u32) -> Result<()> {
    let who = format!("osd.{id}");
    let there = those_of(cluster, &who)?;
    if there.is_empty() {
        return Ok(());
    }
    cluster.run_all(&there.iter().map(|(option, _)| removal(&who, option)).collect::<Vec<_>>())?;
    for (option, _) in those_of(cluster, &who)? {
        cluster.run(&removal(&who, &option))?;
    }
    Ok(())
}

fn removal<'a>(who: &'a str, option: &'a str) -> Vec<&'a str> {
    vec!["config", "rm", who, option]
}

/// The options that are set for `who` by name, with their values.
fn those_of(cluster: &Cluster, who: &str) -> Result<Vec<(String, String)>> {
    let dump = cluster.json(&["config", "dump"])?;
    let own = dump.as_array().into_iter().flatten().filter(|e| e["section"] == who);
    let text = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_owned();
    Ok(own.map(|e| (text(e, "name"), text(e, "value"))).collect())
}

/// True if two values are the same: the cluster writes numbers in its own way.
fn is_same(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mclock_is_told_nothing_that_it_overrules() {
        let has = |queue: &str, part: &str| besides(queue).iter().any(|s| s.option.contains(part));
        for void in ["_sleep", "recovery_max_active"] {
            assert!(has("wpq\n", void) && !has("mclock_scheduler\n", void));
        }
        assert!(has("mclock_scheduler", "max_capacity_iops") && !has("wpq", "mclock"));
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        assert!(is_same("0.100000", "0.1") && is_same("5.000000", "5") && is_same("x", "x"));
        assert!(!is_same("4096", "65536") && !is_same("", "0") && !is_same("x", "5"));
    }
}
