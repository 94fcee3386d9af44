//! Memory: huge pages for the tables, and room for them.

use super::facts::Thing;
use super::{Case, Check, Finding};
use loligo_format::units::BLOCK;

/// Bytes of tables for a block of cache (docs/spec.md, section 4).
const PER_BLOCK: u64 = 21;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    vec![pages(case), room(case), overcommit(case)]
}

fn pages(case: &Case<'_>) -> Finding {
    let check = Check::new(
        "memory.hugepages",
        "the tables of a cache ask for transparent huge pages: look-ups are faster by them",
    );
    match case.host.read("/sys/kernel/mm/transparent_hugepage/enabled") {
        None => check.unknown("the kernel does not say"),
        Some(text) if text.contains("[never]") => check.warn(
            "transparent huge pages are off",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and transparent_hugepage=madvise on the kernel's command line",
        ),
        Some(text) => check.ok(text),
    }
}

/// Bytes of the caches that are configured, and whether all of them are known.
fn caches(case: &Case<'_>) -> (u64, bool) {
    let mut known = true;
    let sizes = case.config.volumes.values().filter_map(|v| {
        let path = v.cache.as_ref()?;
        let there = case.facts.paths.get(path).map(|t: &Thing| t.size).filter(|n| *n > 0);
        let size = there.or(v.cache_size.map(|b| b.0));
        known &= size.is_some();
        size
    });
    (sizes.sum(), known)
}

fn room(case: &Case<'_>) -> Finding {
    let check = Check::new("memory.room", "about 21 bytes for each 4 KiB of cache are locked in memory");
    let text = case.host.read("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let total = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).map(|k| k << 10);
    let (caches, known) = caches(case);
    let needed = caches / BLOCK * PER_BLOCK;
    let Some(total) = total else { return check.unknown("the kernel does not say how much there is") };
    let more = if known { "" } else { ", and more for caches that are not there" };
    let seen =
        format!("{} MiB for caches of {} GiB{more}, of {} MiB", needed >> 20, caches >> 30, total >> 20);
    match needed {
        n if n > total / 10 * 8 => check.bad(seen, "smaller caches, or more memory"),
        n if n > total / 2 => {
            check.warn(seen, "leave half of the memory to everybody else: smaller caches, or more memory")
        }
        _ => check.ok(seen),
    }
}

fn overcommit(case: &Case<'_>) -> Finding {
    let check = Check::new("memory.overcommit", "tables are reserved whole and used by and by");
    match case.host.number("/proc/sys/vm/overcommit_memory") {
        None => check.unknown("the kernel does not say"),
        Some(2) => check.warn(
            "vm.overcommit_memory is 2: reserved memory counts as used",
            "leave room in vm.overcommit_ratio for the tables, or sysctl vm.overcommit_memory=0",
        ),
        Some(n) => check.ok(format!("vm.overcommit_memory is {n}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::fake::Fake;

    #[test]
    fn huge_pages_that_are_off_and_too_large_caches_are_found() {
        let fake = Fake::new(&[
            ("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
            ("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n"),
            ("/proc/sys/vm/overcommit_memory", "2\n"),
        ]);
        assert_eq!(fake.verdict(check, "memory.hugepages"), Verdict::Warn);
        assert_eq!(fake.verdict(check, "memory.room"), Verdict::Ok);
        assert_eq!(fake.verdict(check, "memory.overcommit"), Verdict::Warn);
        let of = |size: &str| {
            let text = format!(
                "[volume.a]\ncore = \"/x\"\ncache = \"/y\"\nmode = \"wb\"\ncache-size = \"{size}\"\nlisten = [\"unix:/z\"]"
            );
            Fake::new(&[("/proc/meminfo", "MemTotal:        8388608 kB\n")])
                .configured(&text)
                .verdict(check, "memory.room")
        };
        assert_eq!((of("64g"), of("900g"), of("2t")), (Verdict::Ok, Verdict::Warn, Verdict::Bad));
    }
}
