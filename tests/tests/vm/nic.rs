//! Rings, coalescing and MTUs of a driver that takes the link down, in a virtual machine.

use crate::{LIMIT, skipped};
use anyhow::Result;
use loligo_tests::vm::{self, Plan};

#[test]
fn values_of_a_driver_come_back_with_its_link() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    let script = include_str!("../../vm/nic.sh").to_owned();
    vm::run(&Plan { script, nics: vec![0x10, 0x11], ..Plan::default() }, LIMIT)?;
    Ok(())
}
