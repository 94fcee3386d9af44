//! loligod on a host: its shards, their processors, and the node of its devices.

use super::{devices, pids, units};
use crate::facts::Loligod;
use loligo_block::host_files::HostFiles;
use std::collections::BTreeSet;

/// The program's name.
const NAME: &str = "loligod";
/// The beginning of the names of its shards' threads.
pub(crate) const SHARD: &str = "shard-";

/// The processes of loligod with shards.
pub(crate) fn processes(files: &HostFiles) -> Vec<String> {
    pids::of(files, &[NAME])
}

pub(super) fn look(files: &HostFiles) -> Option<Loligod> {
    let (mut shards, mut allowed, mut nodes, mut unit) = (0, BTreeSet::new(), BTreeSet::new(), None);
    for pid in processes(files) {
        let threads = super::threads::look(files, &pid);
        for thread in threads.iter().filter(|it| it.name.starts_with(SHARD)) {
            shards += 1;
            allowed.insert(thread.cpus.clone());
        }
        let disks = super::threads::devices(files, &pid);
        nodes.extend(disks.iter().filter_map(|disk| devices::node(files, &format!("/sys/block/{disk}"))));
        unit = unit.or_else(|| units::of_loligod(files, &pid));
    }
    nodes.remove(&-1);
    let unit = unit.unwrap_or_default();
    (shards > 0).then(|| Loligod {
        shards,
        node: nodes.first().copied().filter(|_| nodes.len() == 1).unwrap_or(-1),
        allowed: allowed.into_iter().collect::<Vec<_>>().join(" / "),
        drop_in: units::drop_in(files, &unit),
        unit,
        ..Loligod::default()
    })
}
