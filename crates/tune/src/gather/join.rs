//! Joins the reports of hosts with the cluster's word on its OSDs.

use super::host::HostReport;
use super::processes::OsdProcess;
use crate::facts::{Facts, Osd, Unseen};

/// Adds `reports` to what the cluster said.
pub fn join(facts: &mut Facts, reports: Vec<HostReport>) {
    for mut report in reports {
        let name = report.host.name.clone();
        let here = facts.osds.iter().filter(|osd| osd.host == name);
        report.host.osds = here.clone().map(|osd| osd.id).collect();
        for disk in &mut report.disks {
            let on = here.clone().filter(|osd| osd.device.as_deref() == Some(&disk.name));
            disk.osds = on.map(|osd| osd.id).collect();
        }
        let fsid = facts.cluster.fsid.clone();
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
}

/// Enters what a host sees of an OSD's process.
fn enter(osd: &mut Osd, process: OsdProcess) {
    (osd.rss, osd.threads, osd.liburing) = (process.rss, process.threads, process.liburing);
    (osd.cgroup_limit, osd.cpu_limit) = (process.cgroup_limit, process.cpu_limit);
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
