//! The volume's block devices: claimed before it starts, live once it runs, left to their users when it ends.

use crate::core::OpenCore;
use crate::say::say;
use anyhow::{Result, bail};
use loligo_export::Way;
use loligo_export::ublk::{Device, Left, Traits};
use loligo_shard::Handle;

/// The block devices of one volume, by their names.
#[derive(Debug, Default)]
pub(crate) struct Devices(Vec<(String, Device)>);

/// What tells a volume from all others, also after a restart: its cache, else its core.
pub(crate) fn identity(cache: Option<String>, core: &OpenCore) -> String {
    match (cache, core.spec.path()) {
        (Some(uuid), _) => format!("cache {uuid}"),
        (None, Some(path)) => {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            format!("core {} {}", core.identity.id, path.display())
        }
        (None, None) => format!("core {}", core.identity.id),
    }
}

impl Devices {
    /// Claims what `listen` asks for: those that the last service left, or new ones.
    ///
    /// # Errors
    /// Where the kernel has no ublk, or somebody else serves the device.
    pub(crate) fn claim(listen: &[Way], identity: &str, traits: &Traits, threads: usize) -> Result<Devices> {
        let mut devices = Devices::default();
        for way in listen {
            let Way::Ublk(name) = way else { continue };
            if !devices.0.is_empty() {
                bail!("--listen {way}: a volume is one block device at most");
            }
            let device = Device::claim(identity, name, traits, threads)?;
            if device.size() != traits.size {
                say!(
                    "warning: {} is open with {} bytes and the volume has {} now: its users see those once all of them \
                     have closed it and the volume is started again",
                    device.node(),
                    device.size(),
                    traits.size
                );
            }
            devices.0.push((name.clone(), device));
        }
        Ok(devices)
    }

    /// Lets requests come.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub(crate) fn go_live(&mut self, handle: &Handle) -> Result<()> {
        for (_, device) in &mut self.0 {
            handle.serve_queues(device.queues()?);
            device.go_live()?;
        }
        Ok(())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The volume has so many bytes from now on. Which devices keep the size that they have, and why.
    pub(crate) fn resize(&mut self, bytes: u64) -> Vec<String> {
        let resized = self.0.iter_mut().map(|(name, device)| (name, device.resize(bytes)));
        resized.filter_map(|(name, r)| r.err().map(|why| format!("/dev/loligo/{name}: {why}"))).collect()
    }

    /// Stops those that nobody has open, while requests are still answered.
    pub(crate) fn let_go(&mut self) {
        for (name, device) in &mut self.0 {
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
        for (_, device) in self.0 {
            device.end();
        }
    }
}
