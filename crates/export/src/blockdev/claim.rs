//! The name of a volume's block device, with the place where the file below it is mounted.

use super::error::BlockError;
use super::loops;
use super::name::{Kind, Name, path_error};
use super::record::Record;
use crate::fuse::Mountpoint;
use loligo_block::processes::boot_id;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A name that is this process's; dropping it gives it back.
#[derive(Debug)]
pub struct Claim {
    pub(super) name: Name,
    pub(super) mountpoint: Mountpoint,
    pub(super) record: Record,
}

impl Claim {
    /// Takes `name`, and `more` names under /dev. The file is to be mounted in a folder of its own in
    /// `folder`. The remains of a killed owner are cleared away: its dead mount, and its loop device. A loop
    /// device that somebody still has open goes with its last user.
    ///
    /// # Errors
    /// If the name is another process's, or something foreign stands in the way.
    pub fn take(name: &str, folder: &Path, more: &[String]) -> Result<Claim, BlockError> {
        drop(loops::control()?);
        let taken = Name::take(name, more, Kind::Loop)?;
        let mount = folder.join(name);
        // A dead mount cannot be made a folder, and need not.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&mount);
        let mountpoint = match (Mountpoint::claim(&mount), made) {
            (Ok(mountpoint), _) => mountpoint,
            (Err(_), Err(why)) => return Err(path_error(&mount)(why)),
            (Err(e), Ok(())) => return Err(e.into()),
        };
        let record = Record {
            pid: std::process::id(),
            boot: boot_id(),
            mount: mountpoint.path().to_owned(),
            ..Record::default()
        };
        let claim = Claim { name: taken, mountpoint, record };
        claim.write_down()?;
        Ok(claim)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.name.name()
    }

    /// The path that users should give to programs.
    pub fn path(&self) -> PathBuf {
        self.name.path()
    }

    /// The file that stands for the name in use; it goes with the claim.
    pub fn file(&self) -> &Path {
        self.name.file()
    }

    /// Writes the record over the old one.
    pub(super) fn write_down(&self) -> Result<(), BlockError> {
        self.name.write_down(&self.record)
    }

    /// Makes all names lead to `device`.
    pub(super) fn link(&self, device: &Path) -> Result<(), BlockError> {
        self.name.link(device)
    }

    /// Takes the names away.
    pub(super) fn unlink(&self, device: &Path) {
        self.name.unlink(device);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // One that something is still mounted on stays.
        let _ = std::fs::remove_dir(self.mountpoint.path());
    }
}
