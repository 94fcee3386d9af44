//! Units of systemd that run daemons, by their control groups.

use crate::cpus::Cpus;
use loligo_block::host_files::HostFiles;

/// The name of this program's drop-in.
pub(crate) const DROP_IN: &str = "50-loligo-tune.conf";

/// The unit that binds threads again after a start. It comes with the program.
pub(crate) const HOOK: &str = "loligo-tune-threads@.service";

/// Folders that packages and administrators install units in.
const UNITS: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// True if [`HOOK`] is installed.
pub(crate) fn has_hook(files: &HostFiles) -> bool {
    has_unit(files, HOOK)
}

/// True if a unit is installed.
pub(crate) fn has_unit(files: &HostFiles, name: &str) -> bool {
    UNITS.iter().any(|folder| files.has(format!("{folder}/{name}")))
}

/// The unit of an OSD by Ceph's packages. A unit of cephadm runs a container, whose environment is not the unit's.
pub(crate) fn by_package(osd: i64) -> String {
    format!("ceph-osd@{osd}.service")
}

/// True if this is the name of a service of systemd. Such a name is safe within quotes of a shell, and as a file.
pub(crate) fn is_service(unit: &str) -> bool {
    unit.ends_with(".service") && unit.chars().all(|c| c.is_ascii_alphanumeric() || "-_.@:\\".contains(c))
}

/// The path of this program's drop-in of a unit.
pub(crate) fn drop_in_path(unit: &str) -> String {
    format!("/etc/systemd/system/{unit}.d/{DROP_IN}")
}

/// The text of a drop-in for a daemon, an OSD's number or `loligod`: its threads are bound again after each start, and begin on `cpus`,
/// with memory of `node` before that of others.
pub(crate) fn drop_in_text(daemon: &str, cpus: Option<&Cpus>, node: Option<i64>) -> String {
    let hook = format!("loligo-tune-threads@{daemon}.service");
    let mut text = format!(
        "# Written by 'loligo tune apply'. 'loligo tune rollback' puts back what was here.\n\
         [Unit]\nWants={hook}\nBefore={hook}\n"
    );
    if let Some(cpus) = cpus {
        text.push_str(&format!("\n[Service]\nCPUAffinity=\nCPUAffinity={cpus}\n"));
    }
    if let Some(node) = node {
        text.push_str(&format!("NUMAPolicy=preferred\nNUMAMask={node}\n"));
    }
    text
}

/// The unit of a process whose name is one of an OSD's; nothing: none runs it.
pub(super) fn of_osd(files: &HostFiles, pid: &str, id: i64, fsid: &str) -> Option<String> {
    let by_package = by_package(id);
    let by_cephadm = format!("ceph-{fsid}@osd.{id}.service");
    let found = units(files, pid).into_iter().find(|unit| *unit == by_package || *unit == by_cephadm);
    // Docker runs a container beside its unit.
    let template = format!("/etc/systemd/system/ceph-{fsid}@.service");
    found.or_else(|| files.has(template).then_some(by_cephadm))
}

/// The unit of loligod, if it runs this process.
pub(super) fn of_loligod(files: &HostFiles, pid: &str) -> Option<String> {
    units(files, pid).into_iter().find(|unit| unit == "loligod.service")
}

/// True if this unit runs a process.
pub(super) fn runs(files: &HostFiles, unit: &str, pid: &str) -> bool {
    units(files, pid).iter().any(|it| it == unit)
}

/// Units in the path of a process's control group.
fn units(files: &HostFiles, pid: &str) -> Vec<String> {
    let text = files.read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let parts = text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).flat_map(|path| path.split('/'));
    parts.filter(|part| part.ends_with(".service")).map(str::to_owned).collect()
}

/// This program's drop-in of a unit; empty: there is none.
pub(super) fn drop_in(files: &HostFiles, unit: &str) -> String {
    std::fs::read_to_string(files.at(drop_in_path(unit))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_tree::put;

    #[test]
    fn a_unit_is_found_in_each_deployment_and_no_other_is_taken() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |path: &str, text: &str| put(dir.path(), path, text);
        put("proc/1/cgroup", "0::/system.slice/system-ceph\\x2dosd.slice/ceph-osd@3.service\n");
        put(
            "proc/2/cgroup",
            "0::/system.slice/system-ceph\\x2df.slice/ceph-f@osd.3.service/libpod-payload-1\n",
        );
        put("proc/3/cgroup", "0::/system.slice/sshd.service\n");
        put("proc/4/cgroup", "1:name=systemd:/system.slice/ceph-osd@3.service\n");
        put("etc/systemd/system/ceph-d@.service", "[Service]\n");
        let files = HostFiles::new(dir.path());
        let of = |pid: &str, fsid: &str| of_osd(&files, pid, 3, fsid);
        assert_eq!(of("1", "f").as_deref(), Some("ceph-osd@3.service"));
        assert_eq!(of("2", "f").as_deref(), Some("ceph-f@osd.3.service"));
        assert_eq!(of("3", "f"), None);
        assert_eq!(of("3", "d").as_deref(), Some("ceph-d@osd.3.service"));
        assert_eq!(of("4", "f").as_deref(), Some("ceph-osd@3.service"));
        assert_eq!(of_osd(&files, "1", 4, "f"), None, "the unit of another OSD");
    }
}
