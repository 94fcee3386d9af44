//! Claims about the kernel's block device, in a virtual machine whose kernel has ublk.
//!
//! `LOLIGO_LONG=1` kills the service 20 times instead of three.

use anyhow::{Result, ensure};
use loligo_tests::skip::skip;
use loligo_tests::vm::{self, Disk, Plan};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);

/// Says why there is nothing to see, where that is so.
fn skipped() -> bool {
    let why = vm::missing();
    if let Some(why) = &why {
        skip("ublk in a virtual machine", why);
    }
    why.is_some()
}

fn long() -> bool {
    std::env::var_os("LOLIGO_LONG").is_some_and(|v| v == "1")
}

fn disk(dir: &Path, name: &str, size: u64) -> Result<Disk> {
    let path = dir.join(name);
    std::fs::File::create(&path)?.set_len(size)?;
    Ok(Disk::file(&path, name))
}

#[test]
fn a_volume_is_a_disk_like_any_other() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let disks = vec![disk(dir.path(), "cache", 64 << 20)?, disk(dir.path(), "core", 256 << 20)?];
    let plan = Plan { script: include_str!("../vm/device.sh").to_owned(), disks, ..Plan::default() };
    vm::run(&plan, LIMIT)?;
    Ok(())
}

#[test]
fn a_service_that_ends_costs_its_users_time_and_nothing_else() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let disks = [("cache", 64 << 20), ("core", 256 << 20), ("cache2", 32 << 20), ("core2", 64 << 20)];
    let disks = disks.iter().map(|(n, size)| disk(dir.path(), n, *size)).collect::<Result<_>>()?;
    let kills = if long() { 20 } else { 3 };
    let script = format!("KILLS={kills}\n{}", include_str!("../vm/kill.sh"));
    let outcome = vm::run(&Plan { script, disks, ..Plan::default() }, LIMIT + Duration::from_secs(5) * kills)?;
    let cold: Vec<f64> =
        outcome.lines.iter().filter_map(|l| l.strip_prefix("cold_ms ")?.parse().ok()).collect();
    let cold = cold.iter().sum::<f64>() / cold.len() as f64;
    let stall = outcome.number("stall_ms")?;
    println!("the longest stall was {stall:.0} ms, a cold start takes {cold:.0} ms: {:.1}x", stall / cold);
    ensure!(cold > 0.0, "nothing was measured");
    Ok(())
}
