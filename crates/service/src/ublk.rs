//! The volume's block devices: claimed before it starts, live once it runs, left to their users when it ends.

use crate::core::OpenCore;
use crate::say::say;
use crate::serve::ServeOptions;
use anyhow::{Result, bail};
use loligo_export::Way;
use loligo_export::blockdev::{Name, Owner};
use loligo_export::ublk::{Device, Left, Traits};
use loligo_shard::Handle;
use std::os::unix::fs::MetadataExt;

/// The block devices of one volume, by their names.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    all: Vec<(String, Device)>,
    /// To whom they belong.
    owner: Option<Owner>,
    /// How often it is still looked whether they do.
    looks: u8,
}

/// Looks, one a second: as long may whoever handles the system's events (udev) take to give a new node to whom it thinks right.
const LOOKS: u8 = 10;

/// What tells a volume from all others, also after a restart: its core, whatever cache is before it.
pub(crate) fn identity(core: &OpenCore) -> String {
    let id = &core.identity.id;
    match core.spec.path() {
        Some(path) => match std::fs::metadata(path) {
            // A file may get another name; another file in its place is another.
            Ok(m) if m.is_file() => format!("core {id} file {} {}", m.dev(), m.ino()),
            Ok(_) | Err(_) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
                format!("core {id} {}", path.display())
            }
        },
        None => format!("core {id}"),
    }
}

impl Devices {
    /// Claims what `listen` asks for: those that the last service left, or new ones.
    ///
    /// # Errors
    /// Where the kernel has no ublk, or somebody else serves the device.
    pub(crate) fn claim(
        options: &ServeOptions,
        identity: &str,
        traits: &Traits,
        threads: usize,
    ) -> Result<Devices> {
        let mut devices = Devices { all: Vec::new(), owner: options.block.owner, looks: LOOKS };
        for way in &options.listen {
            let Way::Ublk(name) = way else { continue };
            if !devices.is_empty() {
                bail!("--listen {way}: a volume is one block device at most");
            }
            let named = Name::for_ublk(name, &options.block.dev_names)?;
            let device = Device::claim(identity, named, traits, threads)?;
            if device.size() != traits.size {
                say!(
                    "warning: {} is open with {} bytes and the volume has {} now: its users see those once all of them \
                     have closed it and the volume is started again",
                    device.node(),
                    device.size(),
                    traits.size
                );
            }
            devices.all.push((name.clone(), device));
        }
        Ok(devices)
    }

    /// Lets requests come.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(crate) fn go_live(&mut self, handle: &Handle) -> Result<()> {
        for (_, device) in &mut self.all {
            handle.serve_queues(device.queues()?);
            device.go_live()?;
            if let Some(owner) = self.owner {
                device.give_to(owner)?;
            }
            say!("{} is /dev/{}", device.path().display(), device.node());
        }
        Ok(())
    }

    /// To be called every second or so: sees that a new node stays whose it is.
    pub(crate) fn look(&mut self) {
        let Some(owner) = self.owner.filter(|_| self.looks > 0) else { return };
        self.looks -= 1;
        for (_, device) in &self.all {
            if let Err(why) = device.give_to(owner) {
                say!("warning: {why}");
            }
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The volume has so many bytes from now on. Which devices keep the size that they have, and why.
    pub(crate) fn resize(&mut self, bytes: u64) -> Vec<String> {
        let resized = self.all.iter_mut().map(|(name, device)| (name, device.resize(bytes)));
        resized.filter_map(|(name, r)| r.err().map(|why| format!("/dev/loligo/{name}: {why}"))).collect()
    }

    /// Stops those that nobody has open, while requests are still answered.
    pub(crate) fn let_go(&mut self) {
        for (name, device) in &mut self.all {
            if device.let_go() == Left::Waiting {
                say!(
                    "/dev/loligo/{name} ({}) is in use: it stays, and its users wait until the volume is served again",
                    device.node()
                );
            }
        }
    }

    /// Deletes what was stopped, once the threads have ended.
    pub(crate) fn end(self) {
        for (_, device) in self.all {
            device.end();
        }
    }
}
