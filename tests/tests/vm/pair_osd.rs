//! Claims about an OSD that moves between two paths of an array, on the reservations of LIO.

use crate::osd::no_debian;
use crate::{LIMIT, disk};
use anyhow::{Result, ensure};
use loligo_tests::vm::{self, Plan, Root};
use std::path::{Path, PathBuf};

/// Bytes of the OSD's LUN.
const LUN: u64 = 6 << 30;

/// Frozen, taken over, thawed: it aborts, and every object is as it was acknowledged. Without the fence that is not so.
#[test]
fn a_thawed_osd_aborts_at_the_fence_and_loses_nothing() -> Result<()> {
    if no_debian("an OSD between two paths of an array in a virtual machine") {
        return Ok(());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let before = dir.path().join("before.sh");
    std::fs::write(
        &before,
        [include_str!("../../vm/lio.sh"), include_str!("../../vm/pair_osd_before.sh")].concat(),
    )?;
    let objects = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/objects.py");
    let plan = Plan {
        script: [include_str!("../../vm/cluster.sh"), include_str!("../../vm/pair_osd.sh")].concat(),
        disks: vec![disk(dir.path(), "lun", LUN)?],
        memory: 3072,
        root: Some(Root::new(dir.path(), false)?),
        files: vec![("before.sh".to_owned(), before), ("objects.py".to_owned(), objects)],
        programs: vec![PathBuf::from(env!("CARGO_BIN_EXE_fence-step"))],
        ..Plan::default()
    };
    let outcome = vm::run(&plan, LIMIT * 8)?;
    let held = outcome.lines.iter().filter(|line| line.starts_with("ok: ")).count();
    ensure!(held >= 4, "not everything was claimed:\n{}", outcome.text());
    Ok(())
}
