//! The volume's block device: claimed before it starts, live once it runs, left to its users when it ends.

use crate::core::OpenCore;
use crate::say::say;
use crate::serve::ServeOptions;
use anyhow::{Context, Result, bail};
use loligo_export::Way;
use loligo_export::blockdev::{Name, Owner};
use loligo_export::ublk::{Device, Left, Traits, Watch};
use loligo_shard::Handle;
use std::os::unix::fs::MetadataExt;

/// The block device of one volume, where it has one.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    one: Option<One>,
    /// To whom it belongs.
    owner: Option<Owner>,
    /// How often it is still looked whether it does.
    looks: u8,
}

/// A device, and what another in its place would have to be.
#[derive(Debug)]
struct One {
    name: String,
    device: Device,
    identity: String,
    traits: Traits,
    threads: usize,
    /// While it has not the size of its volume.
    watch: Option<Watch>,
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
    /// Claims what `listen` asks for: what the last service left, or a new one.
    ///
    /// # Errors
    /// Where the kernel has no ublk, or somebody else serves the device.
    pub(crate) fn claim(
        options: &ServeOptions,
        identity: &str,
        traits: &Traits,
        threads: usize,
    ) -> Result<Devices> {
        let mut devices = Devices { one: None, owner: options.block.owner, looks: LOOKS };
        for way in &options.listen {
            let Way::Ublk(name) = way else { continue };
            if devices.one.is_some() {
                bail!("--listen {way}: a volume is one block device at most");
            }
            let named = Name::for_ublk(name, &options.block.dev_names)?;
            let device = Device::claim(identity, named, traits, threads)?;
            if !device.is_as_large(traits) {
                say!(
                    "warning: {} is open with {} bytes and the volume has {} now: its users see those when all of them have \
                     closed it and open it anew",
                    device.node(),
                    device.size(),
                    traits.size
                );
            }
            let (name, identity, traits) = (name.clone(), identity.to_owned(), traits.clone());
            devices.one = Some(One { name, device, identity, traits, threads, watch: None });
        }
        Ok(devices)
    }

    /// Lets requests come.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(crate) fn go_live(&mut self, handle: &Handle) -> Result<()> {
        let Some(One { device, .. }) = &mut self.one else { return Ok(()) };
        handle.serve_queues(device.queues()?);
        device.go_live()?;
        if let Some(owner) = self.owner {
            device.give_to(owner)?;
        }
        say!("{} is /dev/{}", device.path().display(), device.node());
        Ok(())
    }

    /// To be called every second or so: sees that a new node stays whose it is.
    pub(crate) fn look(&mut self) {
        let (Some(owner), Some(One { device, .. })) = (self.owner.filter(|_| self.looks > 0), &self.one)
        else {
            return;
        };
        self.looks -= 1;
        if let Err(why) = device.give_to(owner) {
            say!("warning: {why}");
        }
    }

    /// To be called some times a second: where the device could not get its volume's size because it was open, another takes its place as
    /// soon as nobody has it open, so that users see the size when they come again.
    ///
    /// # Errors
    /// Where the former device is gone and no other could be made.
    pub(crate) fn renew(&mut self, handle: &Handle) -> Result<()> {
        let Some(one) = self.one.as_mut().filter(|one| !one.device.is_as_large(&one.traits)) else {
            return Ok(());
        };
        let watch = one.watch.get_or_insert_with(|| one.device.watch());
        if !watch.is_due() {
            return Ok(());
        }
        let left = one.device.let_go();
        watch.looked();
        if left == Left::Waiting {
            return Ok(());
        }
        let Some(One { name, device, identity, traits, threads, .. }) = self.one.take() else {
            return Ok(());
        };
        let made = device.renew(&identity, &traits, threads);
        let device = made.with_context(|| format!("/dev/loligo/{name} is to have another size"))?;
        self.one = Some(One { name, device, identity, traits, threads, watch: None });
        self.looks = LOOKS;
        self.go_live(handle)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.one.is_none()
    }

    /// The volume has so many bytes from now on. What keeps the size that it has, and why.
    pub(crate) fn resize(&mut self, bytes: u64) -> Option<String> {
        let One { name, device, traits, .. } = self.one.as_mut()?;
        traits.size = bytes;
        device.resize(bytes).err().map(|why| format!("/dev/loligo/{name}: {why}"))
    }

    /// Stops it if nobody has it open, while requests are still answered.
    pub(crate) fn let_go(&mut self) {
        let Some(One { name, device, .. }) = &mut self.one else { return };
        if device.let_go() == Left::Waiting {
            say!(
                "/dev/loligo/{name} ({}) is in use: it stays, and its users wait until the volume is served again",
                device.node()
            );
        }
    }

    /// Deletes what was stopped, once the threads have ended.
    pub(crate) fn end(self) {
        if let Some(One { device, .. }) = self.one {
            device.end();
        }
    }
}
