//! A volume as a block device, from the mount to the last link and back.

use super::claim::Claim;
use super::error::BlockError;
use super::holders;
use super::loops::{self, LoopDevice, Released};
use super::owner::{Access, Owner};
use crate::fuse::{Counters, Mount, Session};
use crate::nbd::Export;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The description of the device for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Bytes of its blocks: 512 to the size of a page.
    pub block: u32,
    /// It is to be treated as a disk with heads.
    pub rotational: bool,
    /// The owner; nothing: as the system has it.
    pub owner: Option<Owner>,
}

/// A volume served as a block device. Dropping it takes it away, or leaves it to its last user where somebody has it open.
#[derive(Debug)]
pub struct BlockDevice {
    // In this order: the device before the mount that it reads, the name last.
    device: Option<LoopDevice>,
    node: PathBuf,
    mount: Option<Mount>,
    claim: Claim,
}

impl BlockDevice {
    /// Mounts a volume, binds a loop device to the file and makes the names of `claim` lead to it. `serve` gives the session to whoever
    /// carries its requests out, another thread: the kernel asks while the device is made.
    ///
    /// # Errors
    /// If the kernel refuses; nothing is left behind then.
    pub fn new(
        claim: Claim,
        export: &Export,
        counters: Arc<Counters>,
        traits: Traits,
        serve: impl FnOnce(Session),
    ) -> Result<BlockDevice, BlockError> {
        let named = Export { name: claim.name().to_owned(), ..export.clone() };
        let mount = Mount::new(&claim.mountpoint, &named, counters, serve)?;
        let file = mount.path().join(&named.name);
        let label = format!("loligo:{}", named.name);
        let mut made = BlockDevice { device: None, node: PathBuf::new(), mount: Some(mount), claim };
        let claim = &mut made.claim;
        let device = LoopDevice::bind(&file, &label, &traits, |number| {
            claim.record.number = Some(number);
            claim.write_down()
        })?;
        made.device = Some(device);
        made.node = loops::node(device.number);
        made.claim.record.sequence = Some(device.sequence);
        made.claim.write_down()?;
        device.set_up(&traits)?;
        made.give_away(&traits)?;
        made.claim.link(&made.node)?;
        Ok(made)
    }

    /// Hands the node to the user that is to have it, who is the only one then, with his group.
    fn give_away(&mut self, traits: &Traits) -> Result<(), BlockError> {
        const SHARED_BY_BOTH: u32 = 0o660;
        let Some(owner) = traits.owner else { return Ok(()) };
        let failed = |why: rustix::io::Errno| BlockError::Path { path: self.node.clone(), why: why.into() };
        let before = Access::of(&self.node).map_err(failed)?;
        self.claim.record.before = Some(before);
        self.claim.write_down()?;
        Access { owner, mode: SHARED_BY_BOTH }.put(&self.node).map_err(failed)
    }

    /// The path that users know it by.
    pub fn path(&self) -> PathBuf {
        self.claim.path()
    }

    /// The kernel's own.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The volume has so many bytes from now on: so has the device.
    ///
    /// # Errors
    /// The kernel's reason; its users see the former size then.
    pub fn resize(&mut self, bytes: u64) -> Result<(), String> {
        let (Some(mount), Some(device)) = (&self.mount, &self.device) else { return Ok(()) };
        mount.resize(bytes);
        device.follow(&mount.path().join(self.claim.name())).map_err(|why| why.to_string())
    }

    /// The processes that have it open, in words; nothing if that cannot be seen.
    pub fn holders(&self) -> Vec<String> {
        self.device.map_or_else(Vec::new, |d| holders::of(d.number))
    }

    /// Detaches the device if nobody has it open, and takes its names away; changes nothing otherwise.
    pub fn release(&mut self) -> Released {
        self.detach(LoopDevice::release)
    }

    /// Takes the names away and detaches the device, now or with its last user.
    pub fn abandon(&mut self) -> Released {
        if self.device.is_some() {
            self.claim.unlink(&self.node);
        }
        self.detach(LoopDevice::abandon)
    }

    fn detach(
        &mut self,
        how: fn(&LoopDevice, Option<Access>) -> Result<Released, rustix::io::Errno>,
    ) -> Released {
        let Some(device) = self.device else { return Released::Gone };
        match how(&device, self.claim.record.before) {
            Ok(Released::Gone) => {
                self.device = None;
                self.claim.unlink(&self.node);
                Released::Gone
            }
            Ok(Released::Busy) => Released::Busy,
            Err(why) => {
                tracing::warn!(%why, "cannot detach {}", self.node.display());
                Released::Busy
            }
        }
    }

    /// The mount below, to be taken away once the volume has answered what was asked.
    pub fn take_mount(&mut self) -> Option<Mount> {
        self.mount.take()
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        self.abandon();
        drop(self.mount.take());
    }
}
