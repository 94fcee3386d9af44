//! Claims about fences on the targets of the kernel, in a virtual machine.

use crate::{LIMIT, long, skipped};
use anyhow::{Result, ensure};
use loligo_tests::fence_claims::CLAIMS;
use loligo_tests::skip::skip;
use loligo_tests::vm::{self, Plan};
use std::path::PathBuf;

/// The claims on `targets`, each of which says that every claim holds.
fn keeps(targets: &[&str], newest: bool) -> Result<()> {
    let script = format!("TARGETS='{}'\n{}", targets.join(" "), include_str!("../../vm/fence.sh"));
    let programs = vec![PathBuf::from(env!("CARGO_BIN_EXE_fence-claims"))];
    let outcome = vm::run(&Plan { script, newest, programs, ..Plan::default() }, LIMIT)?;
    let held = outcome.lines.iter().filter(|line| line.starts_with("ok: ")).count();
    ensure!(held == CLAIMS.len() * targets.len(), "{held} claims of {} on {targets:?}", CLAIMS.len());
    Ok(())
}

#[test]
fn lio_keeps_the_claims_about_fences() -> Result<()> {
    if skipped() {
        return Ok(());
    }
    keeps(&["lio"], false)
}

#[test]
fn nvmet_keeps_the_claims_about_fences() -> Result<()> {
    if let Some(why) = vm::newest_missing() {
        skip("fences on nvmet, which has reservations since Linux 6.13", &why);
        return Ok(());
    }
    keeps(if long() { &["lio", "nvmet"] } else { &["nvmet"] }, true)
}
