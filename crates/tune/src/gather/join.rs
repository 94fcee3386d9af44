//! Joins the reports of hosts with the cluster's word on its OSDs.

use super::host::HostReport;
use super::placed;
use super::processes::OsdProcess;
use crate::facts::{Facts, Osd, Unseen};
use std::net::IpAddr;

/// Adds `reports` to what the cluster said.
pub fn join(facts: &mut Facts, reports: Vec<HostReport>) {
    for mut report in reports {
        let name = report.host.name.clone();
        if !facts.cluster.reached {
            by_processes(facts, &mut report);
        }
        let here = facts.osds.iter().filter(|osd| osd.host == name);
        // Without a cluster they are those of the one that runs there.
        let fsid = facts.cluster.fsid.clone().or_else(|| Some(report.processes.first()?.fsid.clone()));
        report.host.osds = here.clone().map(|osd| osd.id).collect();
        if let Some(ceph) = &mut report.host.ceph {
            ceph.build_type = here.filter_map(|osd| osd.build_type.clone()).next();
        }
        for process in
            std::mem::take(&mut report.processes).into_iter().filter(|it| Some(&it.fsid) == fsid.as_ref())
        {
            let is_it = |osd: &&mut Osd| osd.id == process.id && osd.host == name;
            if let Some(osd) = facts.osds.iter_mut().find(is_it) {
                enter(osd, process);
            }
        }
        for disk in &mut report.disks {
            let is_on = |osd: &&Osd| osd.host == name && osd.device.as_deref() == Some(&disk.name);
            disk.osds = facts.osds.iter().filter(is_on).map(|osd| osd.id).collect();
        }
        // An OSD that is not seen may stand on any of them.
        let is_whole = facts.cluster.reached
            && facts.osds.iter().filter(|osd| osd.host == name).all(|osd| osd.cache.is_some());
        for cache in &mut report.caches {
            cache.on_osd = cache.on_osd.filter(|on_osd| *on_osd || is_whole);
        }
        if let Some(hosts) = &facts.cluster.hosts_of {
            let count = |all: &[String]| Some(all.iter().filter(|it| **it == name).count() as i64);
            (report.host.mons, report.host.mgrs) = (count(&hosts.mons), count(&hosts.mgrs));
        }
        roles(facts, &mut report);
        facts.hosts.push(report.host);
        facts.disks.append(&mut report.disks);
        facts.nics.append(&mut report.nics);
        facts.caches.append(&mut report.caches);
        facts.unseen.append(&mut report.unseen);
    }
    let mut missing: Vec<&String> = facts
        .osds
        .iter()
        .map(|osd| &osd.host)
        .filter(|name| !name.is_empty() && facts.host(name).is_none())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    let missing = missing.into_iter().map(|name| Unseen {
        what: format!("host {name}"),
        why: format!("it has OSDs, and was not asked: add --host {name}"),
    });
    let missing: Vec<Unseen> = missing.collect();
    facts.unseen.extend(missing);
    placed::enter(facts);
}

/// The OSDs of a host by its processes alone, where no cluster was asked. Those of one cluster count.
fn by_processes(facts: &mut Facts, report: &mut HostReport) {
    let Some(fsid) = report.processes.first().map(|it| it.fsid.clone()) else { return };
    let (host, disks) = (&report.host.name, &report.disks);
    for process in &report.processes {
        if process.fsid != fsid {
            let why = "its cluster is another than that of the first OSD: give --conf".to_owned();
            report.unseen.push(Unseen { what: format!("osd.{} of {host}", process.id), why });
            continue;
        }
        // Data are on the disk that rotates, where one does: the database is on the faster one.
        let turns =
            |name: &&String| disks.iter().any(|disk| disk.name == **name && disk.rotational == Some(true));
        let data = process.disks.iter().find(turns).or(process.disks.first());
        facts.osds.push(Osd {
            id: process.id,
            host: host.clone(),
            up: true,
            device: data.cloned(),
            db_device: process.disks.iter().find(|name| Some(*name) != data).cloned(),
            ..Osd::default()
        });
    }
    report.processes.retain(|it| it.fsid == fsid);
}

/// Enters the networks of the cluster that interfaces carry: by the names that OSDs of this host have for them, and by the
/// addresses that OSDs have.
fn roles(facts: &Facts, report: &mut HostReport) {
    let here = || facts.osds.iter().filter(|osd| osd.host == report.host.name);
    for nic in &mut report.nics {
        let is_it = |name: &Option<String>| name.as_ref() == Some(&nic.name);
        let carries = |address: Option<IpAddr>| {
            let has = |address| report.subnets.iter().any(|it| it.nic == nic.name && it.has(address));
            address.is_some_and(has)
        };
        let is_public =
            here().any(|osd| is_it(&osd.public_iface)) || facts.osds.iter().any(|osd| carries(osd.front));
        let is_cluster =
            here().any(|osd| is_it(&osd.cluster_iface)) || facts.osds.iter().any(|osd| carries(osd.back));
        nic.role = match (is_public, is_cluster) {
            (true, true) => "both",
            (true, false) => "public",
            (false, true) => "cluster",
            (false, false) => "",
        }
        .to_owned();
    }
}

/// Enters what a host sees of an OSD's process.
fn enter(osd: &mut Osd, process: OsdProcess) {
    (osd.rss, osd.threads, osd.liburing) = (process.rss, process.threads, process.liburing);
    (osd.cgroup_limit, osd.cpu_limit) = (process.cgroup_limit, process.cpu_limit);
    (osd.unit, osd.drop_in) = (Some(process.unit), Some(process.drop_in));
    (osd.allowed, osd.environment) = (process.allowed, process.environment);
    (osd.cache, osd.plugins) = (process.cache, process.plugins);
    (osd.log_errors, osd.sharding) = (process.log_errors, process.sharding);
    // The OSD's own word ends at a logical volume or a file.
    osd.device = process.device.or(osd.device.take());
    let shards = osd.shards.filter(|count| *count > 0);
    osd.shard_threads = shards.zip(process.op_threads).map(|(shards, threads)| threads / shards);
    let perf = osd.perf.get_or_insert_default();
    (perf.kv_sync_busy, perf.msgr_busy) = (process.kv_sync_busy, process.msgr_busy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Behind, Cache, CephBuild, Cluster, Disk, Host, Nic};
    use crate::gather::subnets::Subnet;

    #[test]
    fn osds_find_host_and_disk_and_a_missing_host_is_named() {
        let osd = |id, host: &str, device: &str| Osd {
            id,
            host: host.into(),
            device: Some(device.into()),
            ..Osd::default()
        };
        let mut facts = Facts {
            osds: vec![osd(0, "n1", "sdb"), osd(1, "n1", "sdc"), osd(2, "n2", "sdb")],
            ..Facts::default()
        };
        facts.osds[1].build_type = Some("Debug".into());
        let report = HostReport {
            host: Host { name: "n1".into(), ceph: Some(CephBuild::default()), ..Host::default() },
            disks: vec![Disk { name: "sdb".into(), host: "n1".into(), ..Disk::default() }],
            ..HostReport::default()
        };
        join(&mut facts, vec![report]);
        assert_eq!(facts.hosts[0].osds, [0, 1]);
        assert_eq!(facts.hosts[0].ceph.as_ref().and_then(|it| it.build_type.as_deref()), Some("Debug"));
        assert_eq!(facts.disks[0].osds, [0]);
        assert_eq!(facts.unseen.iter().map(|it| it.what.as_str()).collect::<Vec<_>>(), ["host n2"]);
    }

    #[test]
    fn a_cache_is_no_clients_while_an_osd_is_not_seen() {
        let process = |id: i64| OsdProcess {
            id,
            fsid: "f".into(),
            cache: Some(Behind { kind: "loligo".into(), ..Behind::default() }),
            device: Some("sdb".into()),
            ..OsdProcess::default()
        };
        let cache = |on_osd| Cache { on_osd: Some(on_osd), ..Cache::default() };
        let join_with = |processes: Vec<OsdProcess>| {
            let osd = |id| Osd { id, host: "n1".into(), ..Osd::default() };
            let cluster = Cluster { reached: true, fsid: Some("f".into()), ..Cluster::default() };
            let mut facts = Facts { cluster, osds: vec![osd(0), osd(1)], ..Facts::default() };
            let host = Host { name: "n1".into(), ..Host::default() };
            let caches = vec![cache(true), cache(false)];
            join(&mut facts, vec![HostReport { host, processes, caches, ..HostReport::default() }]);
            facts
        };
        let on = |facts: &Facts| facts.caches.iter().map(|it| it.on_osd).collect::<Vec<_>>();
        assert_eq!(on(&join_with(vec![process(0)])), [Some(true), None]);
        let whole = join_with(vec![process(0), process(1)]);
        assert_eq!(on(&whole), [Some(true), Some(false)]);
        assert_eq!(whole.osds[0].device.as_deref(), Some("sdb"));
        assert_eq!(whole.osds[0].cache.as_ref().map(|it| it.kind.as_str()), Some("loligo"));
    }

    #[test]
    fn an_interface_carries_the_networks_of_osds_in_its_subnet() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let nic = |name: &str| Nic { name: name.into(), ..Nic::default() };
        let subnet = |nic: &str, address: &str| Subnet { nic: nic.into(), address: ip(address), bits: 24 };
        let nics = vec![nic("eth0"), nic("eth1"), nic("eth2"), nic("eth3")];
        let subnets =
            vec![subnet("eth0", "10.0.0.0"), subnet("eth1", "10.0.1.0"), subnet("eth2", "10.0.2.0")];
        let mut report = HostReport { nics, subnets, ..HostReport::default() };
        let osd = Osd {
            front: Some(ip("10.0.0.7")),
            back: Some(ip("10.0.1.7")),
            cluster_iface: Some("eth3".into()),
            ..Osd::default()
        };
        roles(&Facts { osds: vec![osd], ..Facts::default() }, &mut report);
        let roles: Vec<&str> = report.nics.iter().map(|nic| nic.role.as_str()).collect();
        assert_eq!(roles, ["public", "cluster", "", "cluster"]);
    }
}
