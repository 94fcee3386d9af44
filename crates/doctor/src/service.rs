//! The unit of systemd, and the order of those above it.

use super::{Case, Check, Finding};

/// The folders of units, those of the administrator first.
const FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
const UNIT: &str = "loligod.service";
/// Units of OSDs that must come up after volumes.
const ABOVE: [&str; 2] = ["ceph-osd@.service", "ceph-volume@.service"];

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let unit = Check::new("service.unit", "a service that was started by hand is gone after a reboot");
    if !case.host.has("/run/systemd/system") {
        return vec![unit.ok("no systemd runs here: start 'loligod' with the init system that does")];
    }
    let Some(folder) = FOLDERS.iter().find(|f| case.host.has(format!("{f}/{UNIT}"))) else {
        return vec![unit.warn("no loligod.service", "make install, or install the package")];
    };
    let wanted = FOLDERS.iter().any(|f| {
        let folders = case.host.names(f);
        folders.iter().filter(|n| n.ends_with(".wants")).any(|n| case.host.has(format!("{f}/{n}/{UNIT}")))
    });
    let mut found = vec![if wanted {
        unit.ok(format!("{folder}/{UNIT}, enabled"))
    } else {
        unit.warn(format!("{folder}/{UNIT}, not enabled"), "systemctl enable loligod")
    }];
    found.extend(ABOVE.iter().filter_map(|above| order(case, above)));
    found
}

/// Checks that a unit that is installed starts after ours, and does not fall with it.
fn order(case: &Case<'_>, above: &str) -> Option<Finding> {
    FOLDERS.iter().find(|f| case.host.has(format!("{f}/{above}")))?;
    let check = Check::new(
        format!("service.order.{}", above.trim_end_matches("@.service")),
        "an OSD must find its volume when it starts, and must not be stopped because loligod is started again",
    );
    let mut text = String::new();
    for folder in FOLDERS {
        text.push('\n');
        text.push_str(&case.host.read(format!("{folder}/{above}")).unwrap_or_default());
        for name in case.host.names(format!("{folder}/{above}.d")) {
            text.push('\n');
            text.push_str(&case.host.read(format!("{folder}/{above}.d/{name}")).unwrap_or_default());
        }
    }
    let says = |keys: &[&str]| {
        text.lines().any(|l| {
            let (key, units) = l.split_once('=').unwrap_or_default();
            keys.contains(&key.trim()) && units.split_whitespace().any(|u| u == UNIT)
        })
    };
    if says(&["Requires", "BindsTo", "PartOf", "Requisite"]) {
        let mend = format!(
            "leave After={UNIT} alone in {above}.d: Requires=, BindsTo= and PartOf= stop OSDs with loligod"
        );
        return Some(check.bad(format!("{above} falls with {UNIT}"), mend));
    }
    Some(if says(&["After"]) {
        check.ok(format!("{above} starts after {UNIT}"))
    } else {
        let mend = format!(
            "a file {above}.d/10-loligo.conf with [Unit] and After={UNIT}; 'make install' puts one there"
        );
        check.warn(format!("{above} does not wait for {UNIT}"), mend)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    #[test]
    fn a_unit_missing_not_enabled_or_not_waited_for_is_found() {
        let fake = Fake::new(&[]);
        assert_eq!(fake.verdict(check, "service.unit"), Verdict::Ok);
        fake.write("/run/systemd/system/x", "");
        assert_eq!(fake.verdict(check, "service.unit"), Verdict::Warn);
        fake.write("/usr/lib/systemd/system/loligod.service", "[Unit]\n");
        assert!(fake.one(check, "service.unit").mend.is_some_and(|m| m.contains("enable")));
        fake.link(
            "/etc/systemd/system/multi-user.target.wants/loligod.service",
            "/usr/lib/systemd/system/loligod.service",
        );
        assert_eq!(fake.verdict(check, "service.unit"), Verdict::Ok);
        fake.write("/usr/lib/systemd/system/ceph-osd@.service", "[Unit]\nAfter=network.target\n");
        assert_eq!(fake.verdict(check, "service.order.ceph-osd"), Verdict::Warn);
        fake.write(
            "/etc/systemd/system/ceph-osd@.service.d/10-loligo.conf",
            "[Unit]\nAfter=x loligod.service\n",
        );
        assert_eq!(fake.verdict(check, "service.order.ceph-osd"), Verdict::Ok);
        fake.write("/etc/systemd/system/ceph-osd@.service.d/20.conf", "[Unit]\nRequires=loligod.service\n");
        assert_eq!(fake.verdict(check, "service.order.ceph-osd"), Verdict::Bad);
    }
}
