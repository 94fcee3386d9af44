//! The block devices of the configuration: there, free, and what they say of themselves.

use super::facts::{Kind, Thing};
use super::{Case, Check, Finding, Part};
use loligo_block::mounts;
use std::path::Path;

/// Start and size of the partition that the kernel makes of the guard before a label, on disks of either sector size.
const GUARD_512: (Option<&str>, Option<&str>) = (Some("1"), Some("7"));
const GUARD_4096: (Option<&str>, Option<&str>) = (Some("8"), Some("56"));

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for part in case.parts() {
        let Some(thing) = case.facts.paths.get(&part.path) else { continue };
        match thing.kind {
            Kind::Device => all.extend(device(case, &part, thing)),
            Kind::Missing => all.extend(missing(case, &part)),
            Kind::Other => all.push(
                Check::new(part.check("devices", "kind"), "caches and cores are block devices or files")
                    .bad(format!("the {} is neither", part.name()), "give another path"),
            ),
            Kind::File => {}
        }
    }
    all
}

fn missing(case: &Case<'_>, part: &Part<'_>) -> Option<Finding> {
    let will_be_made = part.is_cache && case.config.volumes.get(part.volume)?.cache_size.is_some();
    if will_be_made && !part.path.starts_with("/dev") {
        return None;
    }
    let check = Check::new(part.check("devices", "there"), "the volume waits for it");
    Some(check.bad(format!("the {} is not there", part.name()), "plug it in, or mend the path"))
}

fn device(case: &Case<'_>, part: &Part<'_>, thing: &Thing) -> Vec<Finding> {
    let Some((major, minor)) = thing.number else { return Vec::new() };
    let own = format!("/sys/dev/block/{major}:{minor}");
    // A partition's folder lies inside its disk's, which has the queue.
    let disk = if case.host.has(format!("{own}/partition")) { format!("{own}/..") } else { own.clone() };
    let queue = |name: &str| case.host.read(format!("{disk}/queue/{name}"));
    let mut all = vec![
        free(case, part, thing, &own, (major, minor)),
        rotates(part, queue("rotational").as_deref()),
        sectors(part, queue("logical_block_size").as_deref()),
    ];
    if part.is_cache {
        all.push(flushes(part, queue("write_cache").as_deref()));
    }
    all.push(name(part));
    all
}

fn free(case: &Case<'_>, part: &Part<'_>, thing: &Thing, own: &str, number: (u32, u32)) -> Finding {
    let check = Check::new(part.check("devices", "free"), "two users of a device at once destroy its data");
    let users = users(case, thing, own, number);
    if users.is_empty() {
        return check.ok(format!("nobody but Loligo uses the {}", part.name()));
    }
    let seen = format!("the {} is used by {}", part.name(), users.join(", "));
    check.bad(seen, "stop that user, and let it use /dev/loligo/NAME instead; or give another device")
}

/// The other users of it.
fn users(case: &Case<'_>, thing: &Thing, own: &str, number: (u32, u32)) -> Vec<String> {
    let host = case.host;
    let mut users = Vec::new();
    let wanted = format!("{}:{}", number.0, number.1);
    let mounts = mounts::parse(host.read(mounts::LIST).unwrap_or_default().as_bytes());
    for mount in mounts.iter().filter(|m| m.device == wanted) {
        users.push(format!("the file system mounted at {}", mount.at.display()));
    }
    for above in host.names(format!("{own}/holders")) {
        let dm = host.read(format!("{own}/holders/{above}/dm/name"));
        let md = host.has(format!("{own}/holders/{above}/md"));
        users.push(match (dm, md) {
            (Some(name), _) => format!("device mapper or LVM ({name})"),
            (None, true) => format!("the RAID {above}"),
            (None, false) => format!("the kernel's device {above}"),
        });
    }
    for below in host.names(own).iter().filter(|n| host.has(format!("{own}/{n}/partition"))) {
        // The guard of a label (docs/format.md) is no user.
        let number = |what: &str| host.read(format!("{own}/{below}/{what}")).map(|t| t.trim().to_owned());
        if matches!((number("start").as_deref(), number("size").as_deref()), GUARD_512 | GUARD_4096) {
            continue;
        }
        users.push(format!("its partition {below}"));
    }
    let swaps = host.read("/proc/swaps").unwrap_or_default();
    if swaps.lines().filter_map(|l| l.split_whitespace().next()).any(|s| Path::new(s) == thing.real) {
        users.push("swap".to_owned());
    }
    for osd in host.names("/var/lib/ceph/osd") {
        for link in ["block", "block.db", "block.wal"] {
            let leads = host.link(format!("/var/lib/ceph/osd/{osd}/{link}"));
            if leads.is_some_and(|to| to == thing.real || to.canonicalize().is_ok_and(|t| t == thing.real)) {
                users.push(format!("the OSD {osd}, whose {link} leads here"));
            }
        }
    }
    users
}

fn rotates(part: &Part<'_>, rotational: Option<&str>) -> Finding {
    let check = Check::new(
        part.check("devices", "rotational"),
        "Ceph gives an OSD its class and settings by it; controllers and hypervisors often say it wrong",
    );
    match (rotational, part.is_cache) {
        (Some("1"), true) => check.warn(
            format!("the {} says that it is a spinning disk", part.name()),
            "give flash; if it is flash and is reported wrongly: echo 0 > \
            /sys/block/DEVICE/queue/rotational",
        ),
        (Some("1"), false) => check.ok(format!("the {} is a spinning disk", part.name())),
        (Some(_), true) => check.ok(format!("the {} is flash", part.name())),
        (Some(_), false) => check.ok(format!(
            "the {} says that it is flash; if that is wrong, give 'rotational = \"yes\"' for its volume",
            part.name()
        )),
        (None, _) => check.unknown(format!("the {} does not say", part.name())),
    }
}

fn sectors(part: &Part<'_>, logical: Option<&str>) -> Finding {
    let check = Check::new(
        part.check("devices", "sectors"),
        "blocks of 4,096 bytes are the largest that a volume can have",
    );
    match logical.and_then(|n| n.parse::<u32>().ok()) {
        Some(n @ (512 | 1024 | 2048 | 4096)) => {
            check.ok(format!("the {} has sectors of {n} bytes", part.name()))
        }
        Some(n) => check.bad(
            format!("the {} has sectors of {n} bytes", part.name()),
            "format it with 512 or 4,096 (nvme format, sg_format)",
        ),
        None => check.unknown(format!("the {} does not say", part.name())),
    }
}

fn flushes(part: &Part<'_>, cache: Option<&str>) -> Finding {
    let check = Check::new(
        part.check("devices", "flushes"),
        "a device whose cache is volatile is flushed for every fsync of a client",
    );
    match cache {
        Some("write through") => check.ok(format!("the {} keeps every write that it has acknowledged", part.name())),
        Some(_) => check.ok(format!(
            "the {} has a volatile cache and is flushed; with power-loss protection that costs next to nothing",
            part.name()
        )),
        None => check.unknown(format!("the {} does not say", part.name())),
    }
}

fn name(part: &Part<'_>) -> Finding {
    let check =
        Check::new(part.check("devices", "name"), "the kernel gives out such names anew with every boot");
    let text = part.path.to_string_lossy();
    let short = text.strip_prefix("/dev/").filter(|n| !n.contains('/')).unwrap_or_default();
    let changes = ["sd", "vd", "hd", "xvd", "nvme", "dm-", "md", "loop"].iter().any(|p| short.starts_with(p));
    if changes {
        check.warn(
            format!("the {} is named by a path that may lead to another device tomorrow", part.name()),
            "give one of /dev/disk/by-id",
        )
    } else {
        check.ok(format!("the {} is named by a lasting path", part.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    /// A disk 8:16 as the core and a partition 259:3 of a flash device as the cache.
    fn host() -> Fake {
        let text = "[volume.a]\ncore = \"/dev/sdb\"\ncache = \"/dev/disk/by-id/nvme-x-part3\"\nmode = \"wb\"\nlisten = [\"unix:/z\"]";
        let mut fake = Fake::new(&[
            ("/sys/devices/sdb/queue/rotational", "1\n"),
            ("/sys/devices/sdb/queue/logical_block_size", "512\n"),
            ("/sys/devices/nvme0n1/queue/rotational", "0\n"),
            ("/sys/devices/nvme0n1/queue/logical_block_size", "4096\n"),
            ("/sys/devices/nvme0n1/queue/write_cache", "write back\n"),
            ("/sys/devices/nvme0n1/nvme0n1p3/partition", "3\n"),
        ])
        .configured(text);
        fake.link("/sys/dev/block/8:16", "../../devices/sdb");
        fake.link("/sys/dev/block/259:3", "../../devices/nvme0n1/nvme0n1p3");
        for (path, real, number) in
            [("/dev/sdb", "/dev/sdb", (8, 16)), ("/dev/disk/by-id/nvme-x-part3", "/dev/nvme0n1p3", (259, 3))]
        {
            let thing =
                Thing { kind: Kind::Device, real: real.into(), number: Some(number), ..Thing::default() };
            fake.facts.paths.insert(path.into(), thing);
        }
        fake
    }

    #[test]
    fn a_free_disk_or_partition_is_right_but_for_a_name_that_moves() {
        let fake = host();
        let wrong: Vec<Finding> =
            fake.found(check).into_iter().filter(|f| f.verdict != Verdict::Ok).collect();
        assert_eq!(wrong.len(), 1, "{wrong:#?}");
        assert_eq!((wrong[0].check.as_str(), wrong[0].verdict), ("devices.a.core.name", Verdict::Warn));
        assert!(fake.one(check, "devices.a.cache.flushes").seen.contains("volatile"));
    }

    #[test]
    fn whoever_else_uses_a_device_is_named() {
        let seen = |change: &dyn Fn(&Fake)| {
            let fake = host();
            change(&fake);
            let found = fake.one(check, "devices.a.core.free");
            assert_eq!(found.verdict, Verdict::Bad, "{found:?}");
            found.seen
        };
        assert!(
            seen(&|f| f.write("/proc/self/mountinfo", "9 1 8:16 / /srv rw - xfs /dev/sdb rw\n"))
                .contains("/srv")
        );
        assert!(
            seen(&|f| f.write("/sys/devices/sdb/holders/dm-3/dm/name", "vg-lv\n")).contains("LVM (vg-lv)")
        );
        assert!(seen(&|f| f.write("/sys/devices/sdb/holders/md0/md/level", "raid1\n")).contains("RAID md0"));
        assert!(seen(&|f| f.write("/sys/devices/sdb/sdb1/partition", "1\n")).contains("partition sdb1"));
        let guarded = host();
        for (name, number) in [("partition", "1\n"), ("start", "1\n"), ("size", "7\n")] {
            guarded.write(&format!("/sys/devices/sdb/sdb1/{name}"), number);
        }
        assert_eq!(guarded.one(check, "devices.a.core.free").verdict, Verdict::Ok, "our own guard");
        assert!(seen(&|f| f.write("/proc/swaps", "Filename Type\n/dev/sdb partition\n")).contains("swap"));
        assert!(seen(&|f| f.link("/var/lib/ceph/osd/ceph-3/block", "/dev/sdb")).contains("OSD ceph-3"));
    }

    #[test]
    fn what_is_missing_spins_or_has_odd_sectors_is_found() {
        let mut fake = host();
        fake.write("/sys/devices/nvme0n1/queue/rotational", "1\n");
        fake.write("/sys/devices/nvme0n1/queue/logical_block_size", "16384\n");
        assert_eq!(fake.verdict(check, "devices.a.cache.rotational"), Verdict::Warn);
        assert_eq!(fake.verdict(check, "devices.a.cache.sectors"), Verdict::Bad);
        fake.facts.paths.insert("/dev/sdb".into(), Thing::default());
        assert_eq!(fake.verdict(check, "devices.a.core.there"), Verdict::Bad);
    }
}
