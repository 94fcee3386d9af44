//! Claims about an OSD on the kernel's block device, in a virtual machine with a Debian in it.

use crate::{LIMIT, disk, skipped};
use anyhow::{Result, ensure};
use loligo_tests::skip::is_long;
use loligo_tests::skip::skip;
use loligo_tests::vm::{self, Plan, Root};
use std::path::Path;
use std::time::Duration;

/// Bytes of a core, of which an OSD uses little, and of its cache.
const CORE: u64 = 8 << 30;
const CACHE: u64 = 512 << 20;
/// Requests a second of a core: a disk's.
const IOPS: u32 = 150;

/// Says why there is nothing to see, where that is so.
pub(crate) fn no_debian(what: &str) -> bool {
    if skipped() {
        return true;
    }
    let why = if is_long() {
        Root::missing()
    } else {
        Some("it takes many minutes: LOLIGO_LONG=1 does it".to_owned())
    };
    if let Some(why) = &why {
        skip(what, why);
    }
    why.is_some()
}

/// The number of times that loligod is killed.
const KILLS: u32 = 20;

#[test]
fn an_osd_on_ublk_only_waits_when_loligod_is_killed() -> Result<()> {
    if no_debian("an OSD on ublk in a virtual machine") {
        return Ok(());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let disks = vec![disk(dir.path(), "cache", CACHE)?, disk(dir.path(), "core", CORE)?.slow(IOPS)];
    let script =
        format!("KILLS={KILLS}\n{}{}", include_str!("../../vm/cluster.sh"), include_str!("../../vm/osd.sh"));
    let files = vec![("objects.py".to_owned(), Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/objects.py"))];
    let root = Some(Root::new(dir.path(), false)?);
    let plan = Plan { script, disks, memory: 3072, root, files, ..Plan::default() };
    let outcome = vm::run(&plan, LIMIT * 6 + Duration::from_secs(20) * KILLS)?;
    let numbers = |key: &str, at: usize| -> Vec<f64> {
        let lines = outcome.lines.iter().filter_map(|l| l.strip_prefix(key));
        lines.filter_map(|l| l.split_whitespace().nth(at)?.parse().ok()).collect()
    };
    let (device, client, cold) = (numbers("stall ", 0), numbers("stall ", 1), numbers("cold_ms ", 0));
    ensure!(device.len() == KILLS as usize && cold.len() == 5, "not everything was measured");
    let largest = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let median = |all: &[f64]| crate::median(all.to_vec());
    let base = median(&cold);
    for (what, all) in [("device stalled", &device), ("slowest write", &client)] {
        println!(
            "{what}: median {:.0} ms, longest {:.0} ms; a cold start takes {base:.0} ms: {:.1}x, {:.1}x",
            median(all),
            largest(all),
            median(all) / base,
            largest(all) / base
        );
    }
    ensure!(base > 0.0, "nothing was measured");
    let ratio = largest(&client) / base;
    ensure!(
        ratio <= 3.0,
        "the longest wait of a client was {ratio:.1} times a cold start, and 3 is the most that it may be"
    );
    Ok(())
}
