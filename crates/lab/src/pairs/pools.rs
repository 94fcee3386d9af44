//! The places and pools of a lab of pairs.

use super::place::Node;
use crate::ceph::Ceph;
use crate::config::LabConfig;
use crate::crush::{self, Placed};
use anyhow::{Result, ensure};

/// Puts each OSD to its place, and makes the rule.
///
/// # Errors
/// If the cluster refuses.
pub(crate) fn place(ceph: &Ceph, config: &LabConfig) -> Result<()> {
    let weight = crush::weight(config.osd_bytes()?);
    let tree = ceph.json(&["osd", "tree"])?;
    for node in Node::all(config.pairs) {
        let hosts = node.controllers().map(|c| (c.to_string(), [(c.osd(), weight)]));
        let placed = hosts.each_ref().map(|(host, osds)| Placed { host, osds });
        for command in crush::moves(&tree, &node.to_string(), &placed) {
            ceph.run(&command)?;
        }
    }
    let kind = if config.pairs > 1 { "chassis" } else { "host" };
    ceph.run(&crush::rule(kind)).map(drop)
}

/// The pools of a lab of pairs, each with its copies.
pub(crate) fn pools(config: &LabConfig) -> Vec<(String, u32)> {
    let mut pools = vec![(config.pool.clone(), config.copies())];
    pools.extend(
        (2..=3).filter(|copies| *copies <= config.domains()).map(|copies| (format!("r{copies}"), copies)),
    );
    pools
}

/// Makes the pools, at once.
///
/// # Errors
/// If the cluster refuses.
pub(crate) fn make(ceph: &Ceph, config: &LabConfig) -> Result<()> {
    let pgs = config.pgs().to_string();
    let makes = |(pool, copies): &(String, u32)| -> Result<()> {
        let size = copies.to_string();
        let create = ["osd", "pool", "create", pool, &pgs, &pgs, "replicated", crush::RULE, "--size", &size];
        let sure = if *copies == 1 { &["--yes-i-really-mean-it"][..] } else { &[] };
        ceph.run(&[&create, sure].concat())?;
        ceph.tool("rbd", &["pool", "init", pool]).map(drop)
    };
    let pools = pools(config);
    std::thread::scope(|scope| {
        let all: Vec<_> = pools.iter().map(|pool| scope.spawn(|| makes(pool))).collect();
        all.into_iter().try_for_each(|one| {
            let done = one.join();
            ensure!(done.is_ok(), "making a pool panicked");
            done.unwrap_or(Ok(()))
        })
    })
}
