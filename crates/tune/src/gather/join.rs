//! Joins the reports of hosts with the cluster's word on its OSDs.

use super::host::HostReport;
use super::placed;
use super::processes::OsdProcess;
use crate::facts::{Facts, Osd, Unseen};

/// Adds `reports` to what the cluster said.
pub fn join(facts: &mut Facts, reports: Vec<HostReport>) {
    for mut report in reports {
        let name = report.host.name.clone();
        if !facts.cluster.reached {
            by_processes(facts, &mut report);
        }
        roles(facts, &mut report);
        let here = facts.osds.iter().filter(|osd| osd.host == name);
        report.host.osds = here.clone().map(|osd| osd.id).collect();
        for disk in &mut report.disks {
            let on = here.clone().filter(|osd| osd.device.as_deref() == Some(&disk.name));
            disk.osds = on.map(|osd| osd.id).collect();
        }
        // Without a cluster they are those of the one that runs there.
        let fsid = facts.cluster.fsid.clone().or_else(|| Some(report.processes.first()?.fsid.clone()));
        for process in report.processes.into_iter().filter(|it| Some(&it.fsid) == fsid.as_ref()) {
            let is_it = |osd: &&mut Osd| osd.id == process.id && osd.host == name;
            if let Some(osd) = facts.osds.iter_mut().find(is_it) {
                enter(osd, process);
            }
        }
        facts.hosts.push(report.host);
        facts.disks.append(&mut report.disks);
        facts.nics.append(&mut report.nics);
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

/// The networks that interfaces carry, as OSDs say it.
fn roles(facts: &Facts, report: &mut HostReport) {
    let here = || facts.osds.iter().filter(|osd| osd.host == report.host.name);
    for nic in &mut report.nics {
        let is_it = |name: &Option<String>| name.as_ref() == Some(&nic.name);
        let role = match (here().any(|it| is_it(&it.public_iface)), here().any(|it| is_it(&it.cluster_iface)))
        {
            (true, true) => "both",
            (true, false) => "public",
            (false, true) => "cluster",
            (false, false) => "",
        };
        nic.role = role.to_owned();
    }
}

/// Enters what a host sees of an OSD's process.
fn enter(osd: &mut Osd, process: OsdProcess) {
    (osd.rss, osd.threads, osd.liburing) = (process.rss, process.threads, process.liburing);
    (osd.cgroup_limit, osd.cpu_limit) = (process.cgroup_limit, process.cpu_limit);
    (osd.unit, osd.drop_in) = (Some(process.unit), Some(process.drop_in));
    osd.allowed = process.allowed;
    let shards = osd.shards.filter(|count| *count > 0);
    osd.shard_threads = shards.zip(process.op_threads).map(|(shards, threads)| threads / shards);
    let perf = osd.perf.get_or_insert_default();
    (perf.kv_sync_busy, perf.msgr_busy) = (process.kv_sync_busy, process.msgr_busy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Disk, Host};

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
        let report = HostReport {
            host: Host { name: "n1".into(), ..Host::default() },
            disks: vec![Disk { name: "sdb".into(), host: "n1".into(), ..Disk::default() }],
            ..HostReport::default()
        };
        join(&mut facts, vec![report]);
        assert_eq!(facts.hosts[0].osds, [0, 1]);
        assert_eq!(facts.disks[0].osds, [0]);
        assert_eq!(facts.unseen.iter().map(|it| it.what.as_str()).collect::<Vec<_>>(), ["host n2"]);
    }
}
