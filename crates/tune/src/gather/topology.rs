//! Processors of a host: cores with their threads, and those that are kept from the scheduler.

use super::lists::numbers;
use crate::facts::Core;
use loligo_block::host_files::HostFiles;
use std::collections::BTreeSet;

/// Cores of these processors; nothing: the kernel does not say it.
pub(super) fn cores(files: &HostFiles, cpus: &[i64]) -> Option<Vec<Core>> {
    let siblings = |cpu: &i64| {
        let at = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
        let said = files.read(format!("{at}/core_cpus_list"));
        let cpus = numbers(&said.or_else(|| files.read(format!("{at}/thread_siblings_list")))?);
        (!cpus.is_empty()).then_some(Core { cpus })
    };
    let all: BTreeSet<Core> = cpus.iter().filter_map(siblings).collect();
    (!all.is_empty()).then(|| all.into_iter().collect())
}

/// Processors that `isolcpus` keeps.
pub(super) fn isolated(files: &HostFiles) -> Option<Vec<i64>> {
    Some(numbers(&files.read("/sys/devices/system/cpu/isolated")?))
}
