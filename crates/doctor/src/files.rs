//! The file systems that caches and cores in files stand on.

use super::facts::{Kind, Thing};
use super::{Case, Check, Finding, Part};
use loligo_block::host_files::HostFiles;
use loligo_block::mounts;
use loligo_client::api::definition::VolumeConfig;
use std::path::Path;

/// File systems that are somewhere else.
const REMOTE: [&str; 11] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "9p",
    "afs",
    "glusterfs",
    "fuse.sshfs",
    "fuse.glusterfs",
    "lustre",
];

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    case.parts().iter().filter_map(|part| one(case, part)).flatten().collect()
}

fn one(case: &Case<'_>, part: &Part<'_>) -> Option<Vec<Finding>> {
    let thing = case.facts.paths.get(&part.path)?;
    let volume = case.config.volumes.get(part.volume)?;
    let to_be_made = part.is_cache && thing.kind == Kind::Missing && volume.cache_size.is_some();
    if thing.kind != Kind::File && !to_be_made {
        return None;
    }
    let mut found = vec![kind(case, part, volume, thing), space(part, volume, thing)];
    if thing.direct == Some(false) {
        let check = Check::new(
            part.check("files", "direct"),
            "acknowledged writes reach the device sooner past the page cache",
        );
        let seen = format!("the {} cannot be opened for direct I/O", part.name());
        found.push(check.warn(seen, "another file system (ext4, XFS), or a partition of its own"));
    }
    Some(found)
}

fn kind(case: &Case<'_>, part: &Part<'_>, volume: &VolumeConfig, thing: &Thing) -> Finding {
    let check = Check::new(
        part.check("files", "system"),
        "a cache or core is no safer than the file system it is a file of",
    );
    let Some(fs) = file_system(case.host, &thing.real) else {
        return check.unknown(format!("the {}: no mount is known", part.name()));
    };
    let seen = format!("the {} is on {fs}", part.name());
    let dirty = part.is_cache && matches!(volume.mode.as_deref(), Some("wb" | "wo"));
    match fs.as_str() {
        "tmpfs" | "ramfs" if dirty || !part.is_cache => check.bad(
            format!("{seen}: gone with the next reboot, with all data that is only there"),
            "put it on a disk",
        ),
        "tmpfs" | "ramfs" => check.warn(format!("{seen}: gone with the next reboot"), "put it on a disk"),
        fs if REMOTE.contains(&fs) => check.warn(
            format!("{seen}: on another host, with its pauses and locks"),
            "put it on a device of this host",
        ),
        "overlay" | "aufs" => check
            .warn(format!("{seen}, the layers of a container: gone with it"), "give the container a volume"),
        _ => check.ok(seen),
    }
}

fn space(part: &Part<'_>, volume: &VolumeConfig, thing: &Thing) -> Finding {
    let check = Check::new(
        part.check("files", "space"),
        "a file that cannot grow any more fails its writes, and poisons a cache",
    );
    let whole = thing.size.max(volume.cache_size.filter(|_| part.is_cache).map_or(0, |b| b.0));
    let missing = whole.saturating_sub(thing.allocated);
    let seen = format!(
        "the {} has blocks for {} of {} MiB",
        part.name(),
        thing.allocated.min(whole) >> 20,
        whole >> 20
    );
    if missing > thing.available {
        return check.bad(
            format!("{seen}, and its file system has {} MiB left", thing.available >> 20),
            "free space there, or make it smaller",
        );
    }
    if part.is_cache && thing.kind == Kind::File && missing > 0 {
        return check.warn(
            format!("{seen}: somebody else may take the rest"),
            format!("fallocate --length {whole} FILE while it is stopped"),
        );
    }
    check.ok(seen)
}

/// The type of the file system that `path` is on.
pub(super) fn file_system(host: &HostFiles, path: &Path) -> Option<String> {
    let all = mounts::parse(host.read(mounts::LIST)?.as_bytes());
    mounts::around(&all, path).map(|m| m.kind.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    const MOUNTS: &str = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 0:5 / /ram rw - tmpfs none rw\n\
                          3 1 0:6 / /far rw - nfs4 srv:/x rw\n4 1 8:2 / /with\\040space rw - xfs /dev/sda2 rw\n";

    fn cache(path: &str, mode: &str, thing: Thing) -> Fake {
        let text = format!(
            "[volume.a]\ncore = \"rbd:p/i\"\ncache = \"{path}\"\nmode = \"{mode}\"\ncache-size = \"64m\"\nlisten = [\"unix:/z\"]"
        );
        let mut fake = Fake::new(&[("/proc/self/mountinfo", MOUNTS)]).configured(&text);
        fake.facts.paths.insert(path.into(), Thing { real: path.into(), ..thing });
        fake
    }

    fn file() -> Thing {
        Thing {
            kind: Kind::File,
            size: 64 << 20,
            allocated: 64 << 20,
            available: 1 << 30,
            direct: Some(true),
            ..Thing::default()
        }
    }

    #[test]
    fn memory_and_other_hosts_are_no_place_for_a_cache() {
        let verdict = |path, mode| cache(path, mode, file()).verdict(check, "files.a.cache.system");
        assert_eq!(verdict("/ssd/c", "wb"), Verdict::Ok);
        assert_eq!(verdict("/ram/c", "wb"), Verdict::Bad);
        assert_eq!(verdict("/ram/c", "wt"), Verdict::Warn);
        assert_eq!(verdict("/far/c", "wt"), Verdict::Warn);
        let fake = cache("/x", "wb", file());
        let host = fake.host();
        assert_eq!(file_system(&host, Path::new("/with space/c")).as_deref(), Some("xfs"));
        assert_eq!(file_system(&host, Path::new("/ramble")).as_deref(), Some("ext4"));
    }

    #[test]
    fn files_with_holes_and_full_file_systems_are_found() {
        let verdict = |thing| cache("/ssd/c", "wb", thing).verdict(check, "files.a.cache.space");
        assert_eq!(verdict(file()), Verdict::Ok);
        assert_eq!(verdict(Thing { allocated: 0, ..file() }), Verdict::Warn);
        assert_eq!(verdict(Thing { allocated: 0, available: 1 << 20, ..file() }), Verdict::Bad);
        assert_eq!(
            verdict(Thing { available: 1 << 20, ..Thing::default() }),
            Verdict::Bad,
            "it is to be made"
        );
        assert_eq!(verdict(Thing { available: 1 << 30, ..Thing::default() }), Verdict::Ok);
        let buffered = cache("/ssd/c", "wb", Thing { direct: Some(false), ..file() });
        assert_eq!(buffered.verdict(check, "files.a.cache.direct"), Verdict::Warn);
    }
}
