//! A volume group over one volume, with one logical volume that fills it: what `ceph-volume lvm` puts a store on.

use anyhow::{Context, Result, ensure};
use loligo_lab::interrupt::Interrupt;
use loligo_lab::process;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time that one command may take: it may wait for udev.
const LIMIT: Duration = Duration::from_secs(120);
/// The logical volume in its group. By names that begin like this and like the group's, Ceph's udev rule knows what is an OSD's.
const VOLUME: &str = "osd-block";

fn group(id: u32) -> String {
    format!("ceph-loligo-osd{id}")
}

/// The logical volume of an OSD, as LVM calls it.
pub(crate) fn name(id: u32) -> String {
    format!("{}/{VOLUME}", group(id))
}

/// The same as a path.
pub(crate) fn path(id: u32) -> PathBuf {
    Path::new("/dev").join(name(id))
}

/// Makes it over the whole of `device`.
///
/// # Errors
/// If LVM refuses; the error holds its words.
pub(crate) fn make(id: u32, device: &Path, stop: &Interrupt) -> Result<()> {
    let group = group(id);
    run(Command::new("vgcreate").args(["--yes", &group]).arg(device), stop)?;
    let fill = ["--yes", "--extents", "100%FREE", "--name", VOLUME, &group];
    run(Command::new("lvcreate").args(fill), stop)
}

/// It can be opened: LVM may not have come to `device` yet.
///
/// # Errors
/// If LVM refuses; the error holds its words.
pub(crate) fn activate(id: u32, device: &Path, stop: &Interrupt) -> Result<()> {
    run(change(id, device, "y")?.arg(group(id)), stop)?;
    let path = path(id);
    ensure!(path.exists(), "LVM has activated {}, and {} is not there", group(id), path.display());
    Ok(())
}

/// Nobody has `device` open any more on account of it.
///
/// # Errors
/// If LVM refuses, as it does while somebody uses it.
pub(crate) fn let_go(id: u32, device: &Path, stop: &Interrupt) -> Result<()> {
    if !device.exists() || !path(id).exists() {
        return Ok(());
    }
    run(change(id, device, "n")?.arg(group(id)), stop)
}

/// Looks at no other device: one of those may answer nothing.
fn change(id: u32, device: &Path, wanted: &str) -> Result<Command> {
    let node = device.canonicalize().with_context(|| format!("the device of {}", group(id)))?;
    let mut command = Command::new("vgchange");
    command.args(["--activate", wanted, "--config"]);
    command.arg(format!("devices {{ filter = [ \"a|^{}$|\", \"r|.*|\" ] }}", node.display()));
    Ok(command)
}

fn run(command: &mut Command, stop: &Interrupt) -> Result<()> {
    process::run(command, LIMIT, stop).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_after_its_osd_and_a_missing_one_let_go() {
        assert_eq!(
            (name(7), path(7)),
            ("ceph-loligo-osd7/osd-block".to_owned(), "/dev/ceph-loligo-osd7/osd-block".into())
        );
        let_go(4_000_007, Path::new("/dev/null"), &Interrupt::default()).expect("there is nothing to do");
    }
}
