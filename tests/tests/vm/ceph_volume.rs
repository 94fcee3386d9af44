//! Claims about OSDs that ceph-volume made, on cached disks, in a Debian that boots with the packaged units.

use crate::boot::{LIFE, last, package};
use crate::osd::no_debian;
use crate::{LIMIT, disk};
use anyhow::{Result, ensure};
use loligo_tests::vm::{Plan, Root, Vm};
use std::path::Path;

#[test]
fn ceph_volume_osds_boot_behind_caches_and_released_without() -> Result<()> {
    if no_debian("OSDs that ceph-volume made") {
        return Ok(());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let objects = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/objects.py");
    let files = vec![("objects.py".to_owned(), objects), ("loligo.deb".to_owned(), package(dir.path())?)];
    let mut disks = Vec::new();
    for of in ["raw", "lvm", "alone"] {
        disks.push(disk(dir.path(), &format!("{of}-cache"), 256 << 20)?);
        disks.push(disk(dir.path(), &format!("{of}-core"), 8 << 30)?);
    }
    let root = Root::new(dir.path(), true)?;
    let mut acked = 0;
    for life in 1..=3 {
        let script = format!(
            "LIFE={life} LAST={acked}\n{}{}{}",
            include_str!("../../vm/cluster.sh"),
            include_str!("../../vm/units.sh"),
            include_str!("../../vm/ceph_volume.sh")
        );
        let plan = Plan {
            script,
            disks: disks.clone(),
            memory: 4096,
            root: Some(root.clone()),
            files: files.clone(),
            ..Plan::default()
        };
        let mut vm = Vm::boot(&plan)?;
        let outcome = vm.outcome(LIFE)?;
        ensure!(outcome.status == 0, "life {life} failed:\n{}", outcome.text());
        if life == 1 {
            acked = last(&outcome.lines, "acked ")?;
        }
        if life < 3 {
            vm.off(LIMIT * 2)?;
        }
    }
    Ok(())
}
