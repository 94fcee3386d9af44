//! Claims about a Debian that boots with the packaged units and udev rule, an OSD on a cached disk in it.

use crate::osd::no_debian;
use crate::{LIMIT, disk};
use anyhow::{Context, Result, ensure};
use loligo_tests::server::program;
use loligo_tests::tidy;
use loligo_tests::vm::{Plan, Root, Vm};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time that a life may take that nobody cuts off.
pub(crate) const LIFE: Duration = Duration::from_secs(1500);
/// Writes after which the machine is cut off, beyond those that it was promised before.
const WRITES: u64 = 150;

/// The package, made in `dir`.
pub(crate) fn package(dir: &Path) -> Result<PathBuf> {
    let out = Command::new(tidy::root().join("scripts/deb.sh")).arg(program()).arg(dir).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?.trim().into())
}

fn number(line: &str, key: &str) -> Option<u64> {
    line.strip_prefix(key)?.split_whitespace().next()?.parse().ok()
}

/// The last number that follows `key` at the beginning of a line.
pub(crate) fn last(lines: &[String], key: &str) -> Result<u64> {
    lines.iter().filter_map(|l| number(l, key)).next_back().with_context(|| format!("no line '{key}'"))
}

/// The rest of a line about the cache that begins with `key`.
fn said<'a>(lines: &'a [String], key: &str) -> Result<&'a str> {
    lines.iter().find_map(|l| l.strip_prefix(key)).with_context(|| format!("no line '{key}'"))
}

#[test]
fn a_machine_boots_with_its_osd_on_a_cached_disk() -> Result<()> {
    if no_debian("a boot with the packaged units") {
        return Ok(());
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm");
    let files = vec![
        ("objects.py".to_owned(), scripts.join("objects.py")),
        ("units/below.service".to_owned(), scripts.join("below.service")),
        ("loligo.deb".to_owned(), package(dir.path())?),
    ];
    let disks = vec![disk(dir.path(), "cache", 512 << 20)?, disk(dir.path(), "core", 8 << 30)?];
    let root = Root::new(dir.path(), true)?;
    let plan = |life: u32, acked: u64| Plan {
        script: format!(
            "LIFE={life} LAST={acked}\n{}{}{}",
            include_str!("../../vm/cluster.sh"),
            include_str!("../../vm/units.sh"),
            include_str!("../../vm/boot.sh")
        ),
        disks: disks.clone(),
        memory: 3072,
        root: Some(root.clone()),
        files: files.clone(),
        ..Plan::default()
    };

    let mut vm = Vm::boot(&plan(1, 0))?;
    let first = vm.outcome(LIFE)?;
    ensure!(first.status == 0, "the first life failed:\n{}", first.text());
    let mut acked = last(&first.lines, "acked ")?;
    let end = vm.off(LIMIT)?;
    println!("{}", end.join("\n"));
    let after = said(&end, "at the end: ")?;
    ensure!(
        after.contains("bytes are newer than the core"),
        "loligod had not stopped, or nothing was dirty: {after}"
    );

    let mut vm = Vm::boot(&plan(2, acked))?;
    let (mut lines, target) = (Vec::new(), acked + WRITES);
    while acked < target {
        let line = vm.line(LIFE)?;
        ensure!(!line.starts_with("FAILED"), "{line}");
        acked = number(&line, "acked ").unwrap_or(acked);
        lines.push(line);
    }
    drop(vm);
    let before = said(&lines, "at the start: ")?;
    ensure!(before == after, "the shutdown left '{after}', and the next start found '{before}'");

    let mut vm = Vm::boot(&plan(3, acked))?;
    let third = vm.outcome(LIFE)?;
    ensure!(third.status == 0, "the third life failed:\n{}", third.text());
    let cut = said(&third.lines, "at the start: ")?;
    ensure!(cut.contains("not stopped cleanly"), "the machine was not cut off: {cut}");
    Ok(())
}
