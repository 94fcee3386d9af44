//! Claims about fences on the targets of the kernel, in a virtual machine.

use crate::{LIMIT, skipped};
use anyhow::{Result, ensure};
use loligo_tests::fence_claims::CLAIMS;
use loligo_tests::skip::is_long;
use loligo_tests::skip::skip;
use loligo_tests::vm::{self, Plan, Platform, Vm};
use std::path::PathBuf;

/// Boots of a kernel that may panic before it says anything.
const BOOTS: usize = 3;

/// The claims on `targets`, each of which says that every claim holds.
fn keeps(targets: &[&str], platform: Platform) -> Result<()> {
    let parts = [include_str!("../../vm/lio.sh"), include_str!("../../vm/fence.sh")];
    let script = format!("TARGETS='{}'\n{}", targets.join(" "), parts.concat());
    let programs = vec![PathBuf::from(env!("CARGO_BIN_EXE_fence-claims"))];
    let mut vm = booted(&Plan { script, platform, programs, ..Plan::default() })?;
    let outcome = vm.outcome(LIMIT)?;
    ensure!(outcome.status == 0, "the script failed with status {}:\n{}", outcome.status, outcome.text());
    let held = outcome.lines.iter().filter(|line| line.starts_with("ok: ")).count();
    ensure!(held == CLAIMS.len() * targets.len(), "{held} claims of {} on {targets:?}", CLAIMS.len());
    Ok(())
}

/// The machine once its script runs. Linux 7.2 changes its own code while it boots, and qemu 7.2 with two emulated processors
/// sometimes runs half of the change, so that it panics.
fn booted(plan: &Plan) -> Result<Vm> {
    let mut tries = 1;
    loop {
        let mut vm = Vm::boot(plan)?;
        match vm.line(LIMIT) {
            Ok(_) => return Ok(vm),
            Err(why) if plan.platform == Platform::X86Newest && tries < BOOTS => {
                println!("boot {tries} of {BOOTS} failed: {why:#}");
            }
            Err(why) => return Err(why),
        }
        tries += 1;
    }
}

#[test]
fn lio_keeps_the_claims_about_fences() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    keeps(&["lio"], Platform::X86)
}

#[test]
fn nvmet_keeps_the_claims_about_fences() -> Result<()> {
    if let Some(why) = vm::newest_missing() {
        skip("fences on nvmet, which has reservations since Linux 6.13", &why);
        return Ok(());
    }
    keeps(if is_long() { &["lio", "nvmet"] } else { &["nvmet"] }, Platform::X86Newest)
}
