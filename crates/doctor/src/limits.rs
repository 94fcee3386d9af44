//! Limits of a process here: locked memory, open files, capabilities; and the running daemon's share of them.

use super::{Case, Check, Finding};

/// Names and numbers of the capabilities that a service uses (linux/capability.h).
const NEEDED: [(&str, u32, &str); 3] = [
    ("CAP_SYS_ADMIN", 21, "mounts and loop devices"),
    ("CAP_SYS_RESOURCE", 24, "staying alive when memory is short"),
    ("CAP_IPC_LOCK", 14, "locking memory"),
];
/// Least number of files that a daemon of a few dozen volumes opens.
const FILES: u64 = 1024;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut all = vec![capabilities(case), memlock(case), files(case)];
    all.extend(daemon(case));
    all
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn effective(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff")?, 16).ok()
}

fn capabilities(case: &Case<'_>) -> Finding {
    let check = Check::new(
        "limits.capabilities",
        "mounts, loop devices and locked memory need more than an ordinary user has",
    );
    let status = case.host.read("/proc/self/status").unwrap_or_default();
    let Some(have) = effective(&status) else { return check.unknown("the kernel does not say") };
    let lacks: Vec<String> = NEEDED
        .iter()
        .filter(|(_, bit, _)| have & (1 << bit) == 0)
        .map(|(name, _, what)| format!("{name} ({what})"))
        .collect();
    if lacks.is_empty() {
        return check.ok("all that is needed");
    }
    let seen = format!("missing: {}", lacks.join(", "));
    let mend = "run this as root to see what the service sees; in a container, add these capabilities";
    if case.makes_devices() { check.bad(seen, mend) } else { check.warn(seen, mend) }
}

fn memlock(case: &Case<'_>) -> Finding {
    let check =
        Check::new("limits.memlock", "a service whose memory is swapped out may wait for its own device");
    let status = case.host.read("/proc/self/status").unwrap_or_default();
    let may = effective(&status).is_some_and(|c| c & (1 << 14) != 0);
    match case.facts.memlock {
        _ if may => check.ok("no limit, by CAP_IPC_LOCK"),
        None => check.ok("no limit"),
        Some(n) => check
            .warn(format!("{} KiB", n >> 10), "LimitMEMLOCK=infinity in the unit, or 'ulimit -l unlimited'"),
    }
}

fn files(case: &Case<'_>) -> Finding {
    let check = Check::new("limits.files", "each volume and each connection is a few files");
    match case.facts.nofile {
        Some(n) if n < FILES => {
            check.warn(n.to_string(), "LimitNOFILE=65536 in the unit, or 'ulimit -n 65536'")
        }
        Some(n) => check.ok(n.to_string()),
        None => check.ok("no limit"),
    }
}

/// The running daemon, seen from outside.
fn daemon(case: &Case<'_>) -> Option<Finding> {
    let pid = case.facts.daemon.as_ref()?.pid;
    let check = Check::new(
        "limits.daemon",
        "a process that writes for others must not wait for memory that only its own writes free",
    );
    let status = case.host.read(format!("/proc/{pid}/status")).unwrap_or_default();
    let Some(locked) = field(&status, "VmLck") else {
        return Some(check.unknown(format!("process {pid} is in another container")));
    };
    let score = case.host.read(format!("/proc/{pid}/oom_score_adj")).unwrap_or_default();
    let seen = format!("process {pid}: {locked} locked, oom_score_adj {score}");
    let mend = "use the unit loligod.service: it sets LimitMEMLOCK=infinity and OOMScoreAdjust=-1000";
    let right = !locked.starts_with("0 ") && score == "-1000";
    Some(if right { check.ok(seen) } else { check.warn(seen, mend) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;
    use loligo_client::api::daemon::About;

    #[test]
    fn an_ordinary_users_lack_is_bad_only_where_it_is_needed() {
        let fake = Fake::new(&[("/proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n")]);
        let found = fake.one(check, "limits.capabilities");
        assert!(found.verdict == Verdict::Warn && found.seen.contains("CAP_SYS_ADMIN"), "{found:?}");
        let asked = fake.configured("[volume.a]\ncore = \"/x\"\nlisten = [\"block:a\"]");
        assert_eq!(asked.verdict(check, "limits.capabilities"), Verdict::Bad);
        let root = Fake::new(&[("/proc/self/status", "CapEff:\t000001ffffffffff\n")]);
        assert_eq!(root.verdict(check, "limits.capabilities"), Verdict::Ok);
        assert_eq!(root.verdict(check, "limits.memlock"), Verdict::Ok);
    }

    #[test]
    fn small_limits_and_a_daemon_that_is_not_locked_are_found() {
        let mut fake =
            Fake::new(&[("/proc/7/status", "VmLck:\t       0 kB\n"), ("/proc/7/oom_score_adj", "0\n")]);
        (fake.facts.memlock, fake.facts.nofile) = (Some(8 << 20), Some(256));
        fake.facts.daemon = Some(About {
            version: "0".into(),
            pid: 7,
            config: "/etc/x".into(),
            uptime_s: 1.0,
            state_dir: "/x".into(),
        });
        for name in ["limits.memlock", "limits.files", "limits.daemon"] {
            assert_eq!(fake.verdict(check, name), Verdict::Warn, "{name}");
        }
        fake.write("/proc/7/status", "VmLck:\t    8192 kB\n");
        fake.write("/proc/7/oom_score_adj", "-1000\n");
        assert_eq!(fake.verdict(check, "limits.daemon"), Verdict::Ok);
    }
}
