//! Modules of the kernel that block devices need.

use super::{Case, Check, Finding};
use loligo_block::host_files::HostFiles;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let loops = Check::new(
        "modules.loop",
        "'block:NAME' is a loop device over a mount where there is no ublk, and 'loop:NAME' everywhere",
    );
    let needed = case.makes_loops();
    let mend = "modprobe loop; in a container, give it /dev/loop-control and the loop devices";
    let found = match (state(case.host, "loop"), case.host.has("/dev/loop-control")) {
        (_, true) => loops.ok("/dev/loop-control is there"),
        (State::Loadable, false) => loops
            .warn("the module is there and not loaded", "modprobe loop, and a line in /etc/modules-load.d"),
        (_, false) if needed => loops.bad("no /dev/loop-control", mend),
        (_, false) => loops.warn("no /dev/loop-control", mend),
    };
    let fuse = Check::new("modules.fuse", "files and loop devices need a FUSE file system");
    let fuse = match state(case.host, "fuse") {
        State::Active => fuse.ok("active"),
        State::Loadable => fuse.ok("it is loaded when it is needed"),
        State::Missing if case.host.has("/dev/fuse") => fuse.ok("/dev/fuse is there"),
        State::Missing => fuse.unknown("no trace of it: is this a container?"),
    };
    vec![found, fuse]
}

/// The state of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Loaded, or part of the kernel.
    Active,
    /// It could be loaded.
    Loadable,
    /// Nobody knows it.
    Missing,
}

/// True if a module is active or can be made so.
pub(super) fn there(host: &HostFiles, name: &str) -> bool {
    state(host, name) != State::Missing
}

fn state(host: &HostFiles, name: &str) -> State {
    if host.has(format!("/sys/module/{name}")) {
        return State::Active;
    }
    let Some(release) = host.read("/proc/sys/kernel/osrelease") else { return State::Missing };
    let listed = |file: &str| {
        let lines = host.read(format!("/lib/modules/{release}/{file}")).unwrap_or_default();
        // kernel/drivers/block/loop.ko.xz: what it needs
        lines.lines().any(|l| {
            let file = l.split(':').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            file.split_once(".ko").is_some_and(|(stem, _)| stem.replace('-', "_") == name)
        })
    };
    match (listed("modules.builtin"), listed("modules.dep")) {
        (true, _) => State::Active,
        (_, true) => State::Loadable,
        _ => State::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    const KERNEL: (&str, &str) = ("/proc/sys/kernel/osrelease", "6.1.0-28-amd64\n");

    #[test]
    fn a_module_is_found_loaded_built_in_and_loadable() {
        let fake = Fake::new(&[KERNEL, ("/sys/module/loop/parameters/max_part", "0")]);
        fake.write(
            "/lib/modules/6.1.0-28-amd64/modules.dep",
            "kernel/drivers/block/ublk_drv.ko:\nkernel/drivers/block/drbd/drbd.ko: kernel/lib/lru_cache.ko\n",
        );
        fake.write("/lib/modules/6.1.0-28-amd64/modules.builtin", "kernel/fs/fuse/fuse.ko\n");
        let host = fake.host();
        assert_eq!(state(&host, "loop"), State::Active);
        assert_eq!(state(&host, "fuse"), State::Active);
        assert_eq!(state(&host, "ublk_drv"), State::Loadable);
        assert_eq!(
            state(&host, "lru_cache"),
            State::Missing,
            "what another needs is no module of its own here"
        );
    }

    #[test]
    fn loop_devices_are_asked_for_only_where_a_volume_is_one() {
        assert_eq!(Fake::new(&[KERNEL]).verdict(check, "modules.loop"), Verdict::Warn);
        let asked = Fake::new(&[KERNEL]).configured("[volume.a]\ncore = \"/x\"\nlisten = [\"block:a\"]");
        assert_eq!(asked.verdict(check, "modules.loop"), Verdict::Bad);
        asked.write("/dev/loop-control", "");
        assert_eq!(asked.verdict(check, "modules.loop"), Verdict::Ok);
    }
}
