//! Facts of OSDs: of each its options with their sources, and the structures that show what acts.

use super::asked::{Asked, ask, by_id, command, major};
use crate::facts::{Database, Osd, Perf, Setting, Unseen};
use loligo_ceph::commands::{CommandClient, Recipient};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// OSDs that are asked at a time.
const AT_ONCE: usize = 8;

pub(super) fn look(asked: &mut Asked<'_>, map: &Value, names: &BTreeSet<String>) -> Vec<Osd> {
    let metadata = asked.monitors("data of OSDs", "osd metadata").unwrap_or_default();
    let usage = asked.manager("use of OSDs", "osd df").unwrap_or_default();
    let numa = asked.monitors("nodes of OSDs", "osd numa-status").unwrap_or_default();
    let numa = if numa.is_array() { &numa } else { &numa["osds"] };
    let listed = map["osds"].as_array().into_iter().flatten();
    let mut osds: Vec<Osd> = listed
        .filter_map(|said| {
            let id = said["osd"].as_i64()?;
            let (known, used) = (by_id(&metadata, "id", id), by_id(&usage["nodes"], "id", id));
            let is = |key: &str| said[key].as_i64() == Some(1);
            let mut osd = of_metadata(id, known);
            (osd.up, osd.r#in) = (is("up"), is("in"));
            osd.pgs = used["pgs"].as_i64();
            osd.used = used["kb_used"].as_i64().map(|kib| kib << 10);
            osd.class =
                used["device_class"].as_str().or(known["default_device_class"].as_str()).map(str::to_owned);
            nodes(&mut osd, by_id(numa, "osd", id));
            Some(osd)
        })
        .collect();
    let unseen = ask_each(asked.client, &mut osds, names);
    asked.unseen.extend(unseen);
    osds
}

fn of_metadata(id: i64, said: &Value) -> Osd {
    let text = |key: &str| said[key].as_str().map(str::to_owned);
    let number = |key: &str| said[key].as_str().and_then(|it| it.parse::<i64>().ok());
    let is = |key: &str| number(key).map(|it| it == 1);
    let first = |key: &str| text(key)?.split(',').next().map(str::to_owned).filter(|it| !it.is_empty());
    let version = text("ceph_version_short");
    Osd {
        id,
        // Without its domain, as CRUSH and this program name hosts.
        host: text("hostname").map(|it| it.split('.').next().unwrap_or(&it).to_owned()).unwrap_or_default(),
        front: said["front_addr"].as_str().and_then(address),
        back: said["back_addr"].as_str().and_then(address),
        rotational: is("rotational"),
        release: version.as_deref().and_then(major),
        version,
        build_type: text("ceph_version").as_deref().and_then(build_type),
        objectstore: text("osd_objectstore"),
        bytes: number("bluestore_bdev_size"),
        db: is("bluefs_dedicated_db").map(|separate| Database {
            separate,
            rotational: is("bluefs_db_rotational").or(is("rotational")).unwrap_or_default(),
            bytes: number("bluefs_db_size").unwrap_or(0),
            slow_used: 0,
        }),
        min_alloc_size: number("bluestore_min_alloc_size"),
        device: first("bluestore_bdev_devices").or_else(|| first("devices")),
        db_device: first("bluefs_db_devices"),
        public_iface: text("front_iface"),
        cluster_iface: text("back_iface"),
        created: text("ceph_version_when_created").map(|version| major(&version).unwrap_or(0)),
        ..Osd::default()
    }
}

/// The build type in `ceph version 20.2.4 (...) tentacle (stable - RelWithDebInfo)`.
fn build_type(version: &str) -> Option<String> {
    let (_, named) = version.strip_suffix(')')?.rsplit_once(" - ")?;
    Some(named.to_owned())
}

/// The first address of `[v2:10.0.0.1:6802/7,v1:10.0.0.1:6803/7]`.
fn address(said: &str) -> Option<IpAddr> {
    let first = said.trim_start_matches('[').split(',').next()?;
    let plain =
        first.split_once(':').filter(|(kind, _)| ["v1", "v2"].contains(kind)).map_or(first, |(_, it)| it);
    let address: SocketAddr = plain.split('/').next()?.parse().ok()?;
    (!address.ip().is_unspecified()).then(|| address.ip())
}

fn nodes(osd: &mut Osd, said: &Value) {
    let node = |key: &str| said[key].as_i64();
    osd.numa_node = node("numa_node");
    osd.numa_storage = node("storage_numa_node").or_else(|| node("objectstore_numa_node"));
    osd.numa_public = node("front_numa_node").or_else(|| node("network_numa_node"));
    osd.numa_cluster = node("back_numa_node").or_else(|| node("network_numa_node"));
}

/// Asks each OSD that is up; several at a time.
fn ask_each(client: &CommandClient, osds: &mut [Osd], names: &BTreeSet<String>) -> Vec<Unseen> {
    let threads = AT_ONCE.min(osds.len());
    let (queue, unseen) = (Mutex::new(osds.iter_mut()), Mutex::new(Vec::new()));
    let next = || queue.lock().next();
    let work = || {
        while let Some(osd) = next() {
            let found = if osd.up { ask_one(client, osd, names) } else { vec!["it is down".to_owned()] };
            let what = format!("osd.{}", osd.id);
            unseen.lock().extend(found.into_iter().map(|why| Unseen { what: what.clone(), why }));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    unseen.into_inner()
}

/// Asks one; what it did not say.
fn ask_one(client: &CommandClient, osd: &mut Osd, names: &BTreeSet<String>) -> Vec<String> {
    let to = Recipient::Osd(osd.id as u32);
    let mut unseen = Vec::new();
    let mut said = |prefix: &str| match ask(client, to, &command(prefix)) {
        Ok(said) => Some(said),
        Err(why) => {
            unseen.push(why);
            None
        }
    };
    let Some(all) = said("config show") else {
        // One that is silent says nothing else, and each question takes its time.
        return unseen;
    };
    let diff = said("config diff").unwrap_or_default();
    osd.options = options(&all, &diff["diff"], names);
    let value = |name: &str| osd.options.get(name).map(|it| it.value.clone());
    (osd.scheduler, osd.profile) = (value("osd_op_queue"), value("osd_mclock_profile"));
    if let Some(said) = said("dump_recovery_reservations") {
        osd.backfills_max = said["local_reservations"]["max_allowed"].as_i64();
    }
    if let Some(Value::Object(said)) = said("dump_op_pq_state") {
        osd.shards = Some(said.keys().filter(|key| key.contains("ShardedOpWQ")).count() as i64);
    }
    if let Some(said) = said("perf dump") {
        counters(osd, &said);
    }
    if let Some(said) = said("dump_mempools") {
        let pools = if said["mempool"].is_object() { &said["mempool"]["by_pool"] } else { &said["by_pool"] };
        if let Some(perf) = &mut osd.perf {
            perf.pglog_bytes = pools["osd_pglog"]["bytes"].as_i64();
            perf.deferred_queue = pools["bluestore_writing_deferred"]["items"].as_i64();
        }
    }
    if let Some(said) = said("bluestore allocator score block")
        && let Some(perf) = &mut osd.perf
    {
        perf.fragmentation = said["fragmentation_rating"].as_f64();
    }
    if let Some(said) = said("dump_osd_network") {
        osd.rtt_ms = slowest(&said);
    }
    capacity(osd);
    // Its answer is text, and an OSD without tcmalloc refuses.
    match client.send(to, &json!({"prefix": "heap", "heapcmd": "stats"})) {
        Ok(text) if text.contains("MALLOC") => heap(osd, &text),
        Ok(_) => osd.tcmalloc = Some(false),
        Err(why) if why.errno() == Some(libc::EOPNOTSUPP) => osd.tcmalloc = Some(false),
        Err(why) => unseen.push(why.to_string()),
    }
    unseen
}

/// Options of `names`, and those that somebody has set, with the source of each.
fn options(all: &Value, diff: &Value, names: &BTreeSet<String>) -> BTreeMap<String, Setting> {
    /// Sources, the strongest first, as Ceph ranks them.
    const SOURCES: [&str; 6] = ["override", "cmdline", "env", "file", "mon", "default"];
    let entries = all.as_object().into_iter().flatten();
    let kept = entries.filter_map(|(name, value)| {
        let has = |source: &&str| !diff[name.as_str()][*source].is_null();
        let sources: Vec<String> = SOURCES.into_iter().filter(has).map(str::to_owned).collect();
        let source = sources.first().map_or("default", String::as_str);
        if source == "default" && !names.contains(name) {
            return None;
        }
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let setting = Setting::new(&value, source);
        Some((name.clone(), if sources.is_empty() { setting } else { Setting { sources, ..setting } }))
    });
    kept.collect()
}

fn counters(osd: &mut Osd, said: &Value) {
    let store = &said["bluestore"];
    let either = |one: &str, two: &str| store[one].as_f64().or_else(|| store[two].as_f64());
    let hits = either("onode_hits", "bluestore_onode_hits");
    let misses = either("onode_misses", "bluestore_onode_misses");
    let throttle = &said["throttle-osd_client_messages"];
    osd.perf = Some(Perf {
        onode_hit_ratio: hits.zip(misses).and_then(|(hits, misses)| {
            let sum = hits + misses;
            (sum > 0.0).then(|| hits / sum)
        }),
        throttle_messages_wait: throttle["wait"]["avgcount"].as_i64(),
        kv_flush_ms: store["kv_flush_lat"]["avgtime"].as_f64().map(|seconds| seconds * 1e3),
        ..Perf::default()
    });
    if let Some(db) = &mut osd.db {
        db.slow_used = said["bluefs"]["slow_used_bytes"].as_i64().unwrap_or(0);
        if db.bytes == 0 {
            db.bytes = said["bluefs"]["db_total_bytes"].as_i64().unwrap_or(0);
        }
    }
}

/// The slowest heartbeat of the last minute, milliseconds; nothing in the first one.
fn slowest(said: &Value) -> Option<f64> {
    let entries = said["entries"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["average"]["1min"].as_f64()).reduce(f64::max)
}

/// mClock takes the options of the kind of device that the OSD believes to have.
fn capacity(osd: &mut Osd) {
    let Some(rotational) = osd.rotational else { return };
    let kind = if rotational { "hdd" } else { "ssd" };
    let option = |name: &str| osd.options.get(&format!("{name}_{kind}"));
    osd.capacity_iops = option("osd_mclock_max_capacity_iops").and_then(|it| it.double);
    osd.capacity_bandwidth = option("osd_mclock_max_sequential_bandwidth").and_then(|it| it.int);
    osd.recovery_max = option("osd_recovery_max_active").and_then(|it| it.int);
}

fn heap(osd: &mut Osd, text: &str) {
    osd.tcmalloc = Some(true);
    let line = text.lines().find(|line| line.to_lowercase().contains("page size"));
    osd.tcmalloc_page_size =
        line.and_then(|line| line.split_whitespace().find_map(|word| word.parse::<i64>().ok()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_source_is_that_of_a_value() {
        let all = json!({"osd_max_backfills": "8", "osd_op_queue": "wpq", "fsid": "x", "osd_recovery_sleep": "0.000000"});
        let diff = json!({
            "osd_max_backfills": {"default": "1", "mon": "3", "file": "8", "final": "8"},
            "osd_recovery_sleep": {"default": "0.0", "mon": "0.5", "override": "0.0", "final": "0.0"}
        });
        let names = BTreeSet::from(["osd_op_queue".to_owned()]);
        let options = options(&all, &diff, &names);
        let source = |name: &str| options.get(name).map(|it| it.source.as_str());
        assert_eq!(source("osd_max_backfills"), Some("file"));
        assert_eq!(source("osd_recovery_sleep"), Some("override"));
        assert_eq!(source("osd_op_queue"), Some("default"));
        assert_eq!(source("fsid"), None);
    }

    #[test]
    fn a_host_is_named_without_its_domain() {
        let osd = of_metadata(3, &json!({"hostname": "n1.example.org", "ceph_version_short": "18.2.7"}));
        assert_eq!((osd.host.as_str(), osd.release), ("n1", Some(18)));
    }

    #[test]
    fn a_version_text_names_the_build_since_release_20() {
        let of = |said: &str| of_metadata(3, &json!({"ceph_version": said})).build_type;
        let new = "ceph version 20.2.4 (7f79) tentacle (stable - RelWithDebInfo)";
        assert_eq!(of(new).as_deref(), Some("RelWithDebInfo"));
        assert_eq!(of("ceph version 18.2.7 (6b0e) reef (stable)"), None);
    }

    #[test]
    fn an_osd_has_the_first_of_its_addresses() {
        let of = |said: &str| address(said).map(|it| it.to_string());
        assert_eq!(of("[v2:10.0.0.1:6802/7,v1:10.0.0.1:6803/7]").as_deref(), Some("10.0.0.1"));
        assert_eq!(of("[v2:[fd00::1]:6802/7]").as_deref(), Some("fd00::1"));
        assert_eq!(of("10.0.0.2:6800/3").as_deref(), Some("10.0.0.2"));
        assert_eq!(of("[v2:0.0.0.0:0/0]"), None);
    }

    #[test]
    fn the_slowest_heartbeat_counts() {
        let said = json!({"threshold": 0, "entries": [
            {"from osd": 0, "to osd": 1, "interface": "back", "average": {"1min": 0.6, "5min": 9.0}},
            {"from osd": 0, "to osd": 2, "interface": "front", "average": {"1min": 1.5}}
        ]});
        assert_eq!(slowest(&said), Some(1.5));
        assert_eq!(slowest(&json!({"entries": []})), None);
    }

    #[test]
    fn the_page_size_of_tcmalloc_is_read() {
        let mut osd = Osd::default();
        heap(&mut osd, "MALLOC:   1 bytes in use\nMALLOC:         8192              Tcmalloc page size\n");
        assert_eq!((osd.tcmalloc, osd.tcmalloc_page_size), (Some(true), Some(8192)));
    }
}
