//! Claims about the program for aarch64, on a kernel whose pages have 16 KiB.

use crate::disk;
use anyhow::{Result, ensure};
use loligo_tests::skip::{at_length, skip};
use loligo_tests::vm::{self, Plan, Platform, Root};
use std::time::Duration;

/// The time that all of it may take: nothing runs at the speed of a processor.
const LIMIT: Duration = Duration::from_secs(3600);
/// Claims of the script.
const CLAIMS: usize = 7;

#[test]
fn pages_of_16_kib_on_aarch64_are_served_and_told() -> Result<()> {
    const WHAT: &str = "pages of 16 KiB on aarch64";
    if !at_length(WHAT) {
        return Ok(());
    }
    if let Some(why) = vm::arm_missing() {
        skip(WHAT, &why);
        return Ok(());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let disks = [("cache", 64 << 20), ("core", 256 << 20), ("osd.cache", 256 << 20), ("osd.core", 6 << 30)];
    let disks = disks.iter().map(|(name, size)| disk(dir.path(), name, *size)).collect::<Result<_>>()?;
    let script = format!("{}{}", include_str!("../../vm/cluster.sh"), include_str!("../../vm/arm16k.sh"));
    let root = Some(Root::arm(dir.path())?);
    let outcome = vm::run(
        &Plan { script, disks, memory: 3072, root, platform: Platform::Arm16k, ..Plan::default() },
        LIMIT,
    )?;
    let held = outcome.lines.iter().filter(|line| line.starts_with("ok: ")).count();
    ensure!(held == CLAIMS, "{held} claims of {CLAIMS}");
    ensure!(outcome.value("in_use") == Some("folding"), "{:?} computes checksums", outcome.value("in_use"));
    ensure!(outcome.value("tcmalloc") == Some("true"), "the OSD does not tell of its tcmalloc");
    let (page, told) = (outcome.number("tcmalloc_page_size")?, outcome.number("told")? > 0.0);
    ensure!(page >= 4096.0, "tcmalloc works in pages of {page} bytes");
    // A build with larger pages is no harm.
    ensure!(
        told == (page < 16384.0),
        "tcmalloc works in pages of {page} bytes, and MEM-06 tells of it: {told}"
    );
    Ok(())
}
