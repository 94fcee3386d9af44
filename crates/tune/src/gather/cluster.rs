//! Facts of the cluster and of its pools, by commands to monitors and the manager.

use super::asked::{Asked, ask, by_id, command, major};
use super::{images, osds};
use crate::facts::{Balancer, Clients, Cluster, Entry, Erasure, Facts, HostsOf, Osd, Pool, Setting, Unknown};
use crate::plan::{is_of, is_same};
use crate::rules::OptionTable;
use loligo_ceph::commands::{CommandClient, Recipient};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Asks a cluster: its part of the facts, with the options of `names` in each OSD.
pub fn cluster(client: &CommandClient, names: &BTreeSet<String>) -> Facts {
    let mut asked = Asked { client, unseen: Vec::new() };
    let status = asked.monitors("the cluster's state", "status");
    let map = asked.monitors("the map of OSDs", "osd dump");
    let mut cluster = Cluster { reached: map.is_some() || status.is_some(), ..Cluster::default() };
    if let Some(status) = &status {
        health(&mut cluster, status);
    }
    if let Some(map) = &map {
        flags(&mut cluster, map);
    }
    if let Some(versions) = asked.monitors("versions", "versions") {
        releases(&mut cluster, &versions);
    }
    if let Some(dump) = asked.monitors("the configuration", "config dump") {
        cluster.config = entries(&dump);
    }
    cluster.unknown_keys = unknown(&cluster);
    for (who, key) in OPTIONS {
        // A module that is not on has no options.
        let setting = option(&asked, &cluster.config, who, key);
        cluster.options.extend(setting.map(|setting| (key.to_owned(), setting)));
    }
    let mons = asked.monitors("hosts of monitors", "mon metadata");
    let mgrs = asked.monitors("hosts of managers", "mgr metadata");
    cluster.hosts_of = mons.zip(mgrs).map(|(mons, mgrs)| HostsOf { mons: hosts(&mons), mgrs: hosts(&mgrs) });
    if let Some(said) = asked.monitors("features of clients", "features") {
        cluster.clients = clients(&said);
    }
    if let Some(said) = asked.manager("the balancer", "balancer status") {
        let mode = said["mode"].as_str().unwrap_or_default().to_owned();
        cluster.balancer = Some(Balancer { active: said["active"] == true, mode });
    }
    // A cluster without the module has no such command.
    let orchestrator = client.send(Recipient::Manager, &command("orch status"));
    cluster.orchestrator = Some(orchestrator.ok().map_or_else(String::new, |said| {
        let said: Value = serde_json::from_str(&said).unwrap_or_default();
        said["backend"].as_str().unwrap_or_default().to_owned()
    }));
    let mut osds = Vec::new();
    let mut pools = Vec::new();
    if let Some(map) = &map {
        osds = osds::look(&mut asked, map, names);
        osds.iter_mut().filter(|osd| !osd.options.is_empty()).for_each(|osd| {
            osd.ignores = Some(ignored(osd, &cluster.config));
        });
        cluster.rtt_ms = osds.iter().filter_map(|osd| osd.rtt_ms).reduce(f64::max);
        let trimming = status.as_ref().and_then(|status| trimming(&mut asked, status));
        for osd in &mut osds {
            let Some((perf, counts)) = osd.perf.as_mut().zip(trimming.as_ref()) else { continue };
            perf.snaptrim_pgs = Some(counts.get(&osd.id).copied().unwrap_or(0));
        }
        pools = self::pools(&mut asked, map, osds.iter().filter(|osd| osd.r#in).count());
    }
    let images = images::look(&mut asked, &pools);
    Facts { cluster, osds, pools, images, unseen: asked.unseen, ..Facts::default() }
}

/// The cluster's id.
///
/// # Errors
/// If no monitor answers.
pub fn fsid(client: &CommandClient) -> Result<String, String> {
    let said = ask(client, Recipient::Monitors, &command("fsid"))?;
    text(&said["fsid"]).ok_or_else(|| "the cluster does not say its id".to_owned())
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn health(cluster: &mut Cluster, status: &Value) {
    cluster.fsid = text(&status["fsid"]);
    cluster.health = text(&status["health"]["status"]);
    cluster.checks =
        status["health"]["checks"].as_object().map_or_else(Vec::new, |it| it.keys().cloned().collect());
    cluster.mons = status["monmap"]["num_mons"].as_i64();
}

fn flags(cluster: &mut Cluster, map: &Value) {
    cluster.fsid = text(&map["fsid"]).or(cluster.fsid.take());
    cluster.require_osd_release = text(&map["require_osd_release"]);
    cluster.min_compat_client = text(&map["require_min_compat_client"]);
    let set = map["flags_set"].as_array().into_iter().flatten();
    cluster.flags = set.filter_map(text).collect();
}

fn releases(cluster: &mut Cluster, versions: &Value) {
    let mut of_all = BTreeSet::new();
    for (kind, said) in versions.as_object().into_iter().flatten().filter(|(kind, _)| *kind != "overall") {
        let counts: BTreeMap<String, i64> = said
            .as_object()
            .into_iter()
            .flatten()
            .map(|(version, count)| (version.clone(), count.as_i64().unwrap_or(0)))
            .collect();
        of_all.extend(counts.keys().cloned());
        if !counts.is_empty() {
            cluster.versions.insert(kind.clone(), counts);
        }
    }
    cluster.release = of_all.iter().filter_map(|version| major(version)).min();
    cluster.mixed = Some(of_all.len() > 1);
}

fn entries(dump: &Value) -> Vec<Entry> {
    let tables: Vec<&OptionTable> = [16, 18, 20].into_iter().filter_map(OptionTable::near).collect();
    let matters = |key: &str| {
        OPTIONS.iter().any(|(_, it)| *it == key) || tables.iter().any(|it| it.find(key).is_some())
    };
    let all = dump.as_array().into_iter().flatten().map(|entry| {
        let key = text(&entry["name"]).unwrap_or_default();
        let value = text(&entry["value"]).unwrap_or_default();
        Entry {
            who: text(&entry["section"]).unwrap_or_default(),
            mask: text(&entry["mask"]).unwrap_or_default(),
            // Passwords of gateways and dashboards are among the others, and facts are passed on.
            value: if matters(&key) { value } else { NOT_SHOWN.to_owned() },
            key,
        }
    });
    all.collect()
}

/// Entries whose option is not in the release's table, of kinds that the table has whole.
fn unknown(cluster: &Cluster) -> Vec<Unknown> {
    let Some(table) = cluster.release.and_then(OptionTable::near) else { return Vec::new() };
    // The tables have what matters for speed, and not every option: a name is unknown if an older table has it and this one has not.
    let older = [16, 18].into_iter().filter_map(OptionTable::near);
    let older: Vec<&OptionTable> = older.collect();
    let is_gone = |entry: &&Entry| {
        table.find(&entry.key).is_none() && older.iter().any(|table| table.find(&entry.key).is_some())
    };
    let gone = cluster.config.iter().filter(is_gone);
    gone.map(|entry| Unknown { who: entry.whole_who(), key: entry.key.clone() }).collect()
}

fn clients(said: &Value) -> Option<Clients> {
    /// Releases whose clients have all that 18's have, in Ceph's words.
    const NEW: [&str; 3] = ["reef", "squid", "tentacle"];
    let of_clients = said["client"].as_array()?;
    let releases: BTreeSet<&str> = of_clients.iter().filter_map(|entry| entry["release"].as_str()).collect();
    let is_new = |entry: &Value| entry["release"].as_str().is_some_and(|release| NEW.contains(&release));
    Some(Clients {
        all_reef: of_clients.iter().all(is_new),
        count: of_clients.iter().filter_map(|entry| entry["num"].as_i64()).sum(),
        releases: releases.into_iter().map(str::to_owned).collect(),
    })
}

/// Options that the database has for an OSD, and that it runs without: none of the values that are set for it is the one it has.
fn ignored(osd: &Osd, config: &[Entry]) -> Vec<String> {
    let is_meant = |entry: &&Entry| is_of(osd, &entry.whole_who());
    let keys: BTreeSet<&String> = config.iter().filter(is_meant).map(|entry| &entry.key).collect();
    let is_ignored = |key: &&String| {
        let Some(runs) = osd.options.get(*key) else { return false };
        let mut set = config.iter().filter(is_meant).filter(|entry| entry.key == **key);
        set.all(|entry| !is_same(&entry.value, &runs.value))
    };
    keys.into_iter().filter(is_ignored).cloned().collect()
}

/// Hosts of daemons, by the answer to `mon metadata` or `mgr metadata`.
fn hosts(said: &Value) -> Vec<String> {
    let names = said.as_array().into_iter().flatten().filter_map(|daemon| daemon["hostname"].as_str());
    names.map(|name| name.split('.').next().unwrap_or(name).to_owned()).collect()
}

/// Placement groups that trim snapshots, by OSD. They are asked for where the state names some.
fn trimming(asked: &mut Asked<'_>, status: &Value) -> Option<BTreeMap<i64, i64>> {
    let states = status["pgmap"]["pgs_by_state"].as_array()?;
    if !states.iter().any(|it| it["state_name"].as_str().is_some_and(|name| name.contains("snaptrim"))) {
        return Some(BTreeMap::new());
    }
    let command = json!({"prefix": "pg ls", "states": ["snaptrim", "snaptrim_wait"], "format": "json"});
    Some(by_osd(&asked.ask(Recipient::Manager, "groups that trim snapshots", command)?))
}

fn by_osd(said: &Value) -> BTreeMap<i64, i64> {
    let groups = said["pg_stats"].as_array().or_else(|| said.as_array()).into_iter().flatten();
    let mut counts = BTreeMap::new();
    for id in groups.flat_map(|it| it["acting"].as_array().into_iter().flatten()).filter_map(Value::as_i64) {
        *counts.entry(id).or_default() += 1;
    }
    counts
}

/// In place of the value of an option that no rule asks for.
const NOT_SHOWN: &str = "(not shown)";

/// Options of monitors and of the manager's modules that rules ask for.
const OPTIONS: [(&str, &str); 4] = [
    ("mon", "mon_osd_blocklist_default_expire"),
    ("mon", "mon_osd_down_out_interval"),
    ("mon", "mon_osd_down_out_subtree_limit"),
    ("mgr", "mgr/balancer/upmap_max_deviation"),
];

/// Asks for one of them: the value that the monitors hand out, and whether somebody set it.
fn option(asked: &Asked<'_>, config: &[Entry], who: &str, key: &str) -> Option<Setting> {
    let said = asked
        .client
        .send(Recipient::Monitors, &json!({"prefix": "config get", "who": who, "key": key}))
        .ok()?;
    let is_set = config.iter().any(|entry| entry.key == key && [who, "global"].contains(&entry.who.as_str()));
    Some(Setting::new(said.trim(), if is_set { "mon" } else { "default" }))
}

fn pools(asked: &mut Asked<'_>, map: &Value, osds: usize) -> Vec<Pool> {
    let usage = asked.monitors("use of pools", "df").unwrap_or_default();
    let scaling = asked.manager("targets of pools", "osd pool autoscale-status").unwrap_or_default();
    let rules = asked.monitors("CRUSH rules", "osd crush rule dump").unwrap_or_default();
    let mut pools = Vec::new();
    for said in map["pools"].as_array().into_iter().flatten() {
        let id = said["pool"].as_i64().unwrap_or(-1);
        let (used, scaled) = (by_id(&usage["pools"], "id", id), by_id(&scaling, "pool_id", id));
        let rule = said["crush_rule"].as_i64().map_or(&Value::Null, |rule| by_id(&rules, "rule_id", rule));
        let (size, pg_num) = (said["size"].as_i64().unwrap_or(0), said["pg_num"].as_i64().unwrap_or(0));
        let is_erasure = said["type"].as_i64() == Some(3);
        let ec = if is_erasure { erasure(asked, said) } else { None };
        pools.push(Pool {
            name: text(&said["pool_name"]).unwrap_or_default(),
            id,
            kind: if is_erasure { "erasure" } else { "replicated" }.to_owned(),
            size,
            min_size: said["min_size"].as_i64().unwrap_or(0),
            pg_num,
            pg_target: scaled["pg_num_final"].as_i64(),
            autoscale: text(&said["pg_autoscale_mode"]),
            bulk: Some(has_flag(said, "bulk")),
            applications: said["application_metadata"]
                .as_object()
                .map_or_else(Vec::new, |it| it.keys().cloned().collect()),
            compression_mode: text(&said["options"]["compression_mode"]).or(Some("none".to_owned())),
            compression_algorithm: text(&said["options"]["compression_algorithm"]),
            ec,
            read_balance_score: said["read_balance"]["score_acting"].as_f64(),
            class: class(rule),
            failure_domain: domain(rule),
            bytes: used["stats"]["stored"].as_i64(),
            objects: used["stats"]["objects"].as_i64(),
            pgs_per_osd: (osds > 0).then(|| (pg_num * size) as f64 / osds as f64),
        });
    }
    pools
}

fn has_flag(pool: &Value, flag: &str) -> bool {
    pool["flags_names"].as_str().is_some_and(|flags| flags.split(',').any(|it| it == flag))
}

fn erasure(asked: &mut Asked<'_>, pool: &Value) -> Option<Erasure> {
    let name = pool["erasure_code_profile"].as_str()?;
    let command = json!({"prefix": "osd erasure-code-profile get", "name": name, "format": "json"});
    let said = asked.ask(Recipient::Monitors, &format!("the profile {name}"), command)?;
    let number = |key: &str| said[key].as_str().and_then(|it| it.parse().ok()).unwrap_or(0);
    Some(Erasure {
        plugin: text(&said["plugin"]).unwrap_or_default(),
        technique: text(&said["technique"]).unwrap_or_default(),
        k: number("k"),
        m: number("m"),
        optimizations: has_flag(pool, "ec_optimizations"),
    })
}

/// The device class that a rule takes: `default~hdd`.
fn class(rule: &Value) -> Option<String> {
    let steps = rule["steps"].as_array()?;
    let take = steps.iter().find(|step| step["op"] == "take")?;
    let (_, class) = take["item_name"].as_str()?.split_once('~')?;
    Some(class.to_owned())
}

/// The type of bucket that a rule spreads copies over.
fn domain(rule: &Value) -> Option<String> {
    let steps = rule["steps"].as_array()?;
    let choose =
        steps.iter().rev().find(|step| step["op"].as_str().is_some_and(|op| op.starts_with("choose")))?;
    text(&choose["type"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_configuration_is_not_gathered() {
        let entry = |name: &str, value: &str| json!({"section": "client.rgw", "mask": "", "name": name, "value": value});
        let dump = json!([
            entry("rgw_keystone_admin_password", "hunter2"),
            entry("mgr/dashboard/GRAFANA_API_PASSWORD", "s3cret"),
            entry("osd_max_backfills", "8"),
            entry("filestore_max_sync_interval", "10"),
        ]);
        let values: Vec<String> = entries(&dump).into_iter().map(|it| it.value).collect();
        assert_eq!(values, [NOT_SHOWN, NOT_SHOWN, "8", "10"]);
    }

    #[test]
    fn releases_of_an_upgrade_are_mixed_and_the_oldest_counts() {
        let mut cluster = Cluster::default();
        let versions = json!({
            "mon": {"ceph version 18.2.7 (x) reef (stable)": 3},
            "osd": {"ceph version 16.2.15 (x) pacific (stable)": 2, "ceph version 18.2.7 (x) reef (stable)": 4},
            "rgw": {},
            "overall": {"ceph version 16.2.15 (x) pacific (stable)": 2}
        });
        releases(&mut cluster, &versions);
        assert_eq!((cluster.release, cluster.mixed), (Some(16), Some(true)));
        assert_eq!(cluster.versions.len(), 2);
    }

    #[test]
    fn a_rule_says_its_class_and_what_it_spreads_over() {
        let rule = json!({"steps": [
            {"op": "take", "item": -2, "item_name": "default~hdd"},
            {"op": "chooseleaf_firstn", "num": 0, "type": "host"},
            {"op": "emit"}
        ]});
        assert_eq!(class(&rule).as_deref(), Some("hdd"));
        assert_eq!(domain(&rule).as_deref(), Some("host"));
        assert_eq!(class(&json!({"steps": [{"op": "take", "item_name": "default"}]})), None);
    }

    #[test]
    fn a_value_that_an_osd_runs_without_is_ignored() {
        let entry = |who: &str, key: &str, value: &str| Entry {
            who: who.into(),
            key: key.into(),
            value: value.into(),
            ..Entry::default()
        };
        let options = [("osd_op_num_shards", "5"), ("osd_max_backfills", "3")]
            .map(|(name, value)| (name.to_owned(), Setting::new(value, "mon")));
        let osd = Osd { id: 1, options: options.into(), ..Osd::default() };
        let config = [
            entry("osd", "osd_op_num_shards", "8"),
            entry("global", "osd_max_backfills", "9"),
            entry("osd.1", "osd_max_backfills", "3"),
            entry("osd.2", "osd_max_backfills", "7"),
            entry("osd", "osd_unseen", "1"),
        ];
        assert_eq!(ignored(&osd, &config), ["osd_op_num_shards"]);
    }

    #[test]
    fn groups_that_trim_are_counted_for_each_of_their_osds() {
        let said =
            json!({"pg_stats": [{"pgid": "1.0", "acting": [0, 2]}, {"pgid": "1.1", "acting": [2, 1]}]});
        assert_eq!(by_osd(&said), BTreeMap::from([(0, 1), (1, 1), (2, 2)]));
    }

    #[test]
    fn clients_and_hosts_of_daemons_are_counted() {
        let said = json!({"client": [{"release": "luminous", "num": 3}, {"release": "reef", "num": 2}]});
        let clients = clients(&said).expect("clients");
        assert_eq!((clients.all_reef, clients.count), (false, 5));
        assert_eq!(clients.releases, ["luminous", "reef"]);
        assert_eq!(
            hosts(&json!([{"name": "a", "hostname": "n1.example.org"}, {"hostname": "n1"}])),
            ["n1", "n1"]
        );
    }

    #[test]
    fn entries_have_their_masks() {
        let dump = json!([
            {"section": "osd", "name": "osd_max_backfills", "value": "8", "mask": "class:hdd", "level": "advanced"},
            {"section": "global", "name": "osd_recovery_sleep", "value": "0.1", "mask": ""}
        ]);
        let all = entries(&dump);
        assert_eq!(
            (all[0].whole_who(), all[1].whole_who()),
            ("osd/class:hdd".to_owned(), "global".to_owned())
        );
    }
}
