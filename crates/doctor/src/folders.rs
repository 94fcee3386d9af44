//! The folders that a service writes to.

use super::files::file_system;
use super::{Case, Check, Finding};
use std::path::Path;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let runtime =
        Check::new("folders.runtime", "control sockets lie there; no volume can be managed without them");
    let state = Check::new(
        "folders.state",
        "the daemon remembers there, over restarts and reboots, which cache holds data that its core \
        lacks",
    );
    let mut found = Vec::new();
    found.push(match &case.facts.runtime_dir {
        None => runtime.bad("none", "set LOLIGO_RUNTIME_DIR to a folder of yours"),
        Some(dir) => {
            writable(case, &runtime, dir, "run as root, or set LOLIGO_RUNTIME_DIR to a folder of yours")
                .unwrap_or_else(|| runtime.ok(dir.display().to_string()))
        }
    });
    found.push(match &case.facts.state_dir {
        None => state.bad("none", "give state-dir in the configuration, or set LOLIGO_STATE_DIR"),
        Some(dir) => writable(case, &state, dir, "run as root, or give state-dir in the configuration")
            .or_else(|| lasting(case, &state, dir))
            .unwrap_or_else(|| state.ok(dir.display().to_string())),
    });
    found
}

fn writable(case: &Case<'_>, check: &Check, dir: &Path, mend: &str) -> Option<Finding> {
    let why = case.facts.folders.get(dir)?.as_ref()?;
    let seen = format!("{} cannot be written to: {why}", dir.display());
    // An ordinary user asks about what root's service will do.
    Some(if case.facts.is_root { check.bad(seen, mend) } else { check.warn(seen, mend) })
}

fn lasting(case: &Case<'_>, check: &Check, dir: &Path) -> Option<Finding> {
    let on = file_system(case.host, dir).filter(|fs| matches!(fs.as_str(), "tmpfs" | "ramfs"))?;
    let seen = format!("{} is on {on}: a reboot forgets it", dir.display());
    Some(check.bad(seen, "give a state-dir on a disk"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    #[test]
    fn folders_that_cannot_be_written_to_or_forget_are_bad() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /var/lib/loligo rw - tmpfs none rw\n";
        let mut fake = Fake::new(&[("/proc/self/mountinfo", mounts)]);
        assert_eq!(fake.verdict(check, "folders.runtime"), Verdict::Bad);
        fake.facts.is_root = true;
        fake.facts.runtime_dir = Some("/run/loligo".into());
        fake.facts.state_dir = Some("/var/lib/loligo".into());
        assert_eq!(fake.verdict(check, "folders.runtime"), Verdict::Ok);
        assert!(fake.one(check, "folders.state").seen.contains("tmpfs"));
        fake.facts.state_dir = Some("/var/lib/other".into());
        assert_eq!(fake.verdict(check, "folders.state"), Verdict::Ok);
        fake.facts.folders.insert("/run/loligo".into(), Some("/run: Read-only file system".into()));
        assert_eq!(fake.verdict(check, "folders.runtime"), Verdict::Bad);
    }
}
