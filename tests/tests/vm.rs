//! Claims about the kernel's block device, in a virtual machine whose kernel has ublk.

use anyhow::Result;
use loligo_tests::skip::skip;
use loligo_tests::vm::{self, Plan};
use std::time::Duration;

#[test]
fn a_volume_is_a_disk_like_any_other() -> Result<()> {
    if let Some(why) = vm::missing() {
        skip("ublk in a virtual machine", &why);
        return Ok(());
    }
    let plan = Plan { script: include_str!("../vm/device.sh").to_owned(), ..Plan::default() };
    vm::run(&plan, Duration::from_secs(200))?;
    Ok(())
}
