//! A volume that gets larger while it is served, and a share of a pool that gets another size.

use super::trouble::Trouble;
use super::{LOOK, Volume};
use crate::core::{Backing, CoreSpec};
use crate::memory::Memory;
use crate::signals::StopSignals;
use anyhow::{Context, Result, anyhow, bail, ensure};
use loligo_block::DeviceSpec;
use loligo_client::outcome::{Ended, OrRefused};
use loligo_format::units::BLOCK;
use std::time::{Duration, Instant};

/// Bytes of a volume at most: an exbibyte.
const MOST: u64 = 1 << 60;

impl Volume {
    /// Refuses a size that the volume cannot have while it is served, before anything is changed for it.
    fn can_have(&self, before: u64, bytes: u64) -> Result<()> {
        ensure!(
            before.is_multiple_of(BLOCK),
            "the volume has {before} bytes, no multiple of {BLOCK}, and its last block is in the cache as one that ends there: it grows with \
             the next start"
        );
        ensure!(bytes <= MOST, "{bytes} bytes: a volume of more than {MOST} is none that can be");
        if let Some(held) = self.left.held.as_ref().filter(|_| !self.core_only) {
            let mut sb = held.superblock.lock().clone();
            sb.grow(bytes).map_err(|why| anyhow!("{why}"))?;
        }
        Ok(())
    }

    /// Takes the size that the core has by now; `wanted`: a file is made that long first.
    pub(super) fn resize(&mut self, wanted: Option<u64>) -> Result<String> {
        let (Backing::File(file), CoreSpec::Device(spec)) = (&self.left.core.backing, &self.left.core.spec)
        else {
            bail!(Ended::refused("an RBD image is resized with 'rbd resize': the volume follows by itself"));
        };
        ensure!(
            matches!(spec, DeviceSpec::File(_)),
            Ended::refused(
                "a modelled disk keeps the size that it was started with: stop the volume, make the file longer, start it"
            )
        );
        let info = self.app.info();
        let before = info.size;
        let start = self.left.core.home.as_ref().map_or(0, crate::labelled_core::LabelledCore::start);
        if let Some(bytes) = wanted {
            ensure!(bytes >= before, Ended::refused(shrinking(bytes, before)));
            self.can_have(before, bytes).or_refused()?;
            let end = bytes.checked_add(start).context("no file is as long as that")?;
            file.file().extend(end).context("the core cannot be made larger")?;
            // Durable before the cache knows of it: a start refuses a core that is shorter than its cache remembers.
            self.left.core.backing.sync_io().flush().context("the larger core cannot be made durable")?;
        }
        let now = file.file().look_again().context("the core cannot be asked for its size")?;
        let was = self.left.core.identity.size;
        ensure!(now >= was, Ended::refused(shrinking(now, was)));
        self.can_have(before, now).or_refused()?;
        let mut length = now;
        if let Some(held) = self.left.held.as_ref().filter(|_| !self.core_only) {
            // Before anything lies behind the former end: recovery refuses what the superblock does not know of.
            let mut sb = held.superblock.lock();
            let mut next = sb.clone();
            next.grow(now).map_err(|why| anyhow!("{why}"))?;
            next.store(&mut held.file.sync_io()).context("the superblock cannot be written")?;
            length = next.data_length;
            *sb = next;
        }
        self.left.core.identity.size = now;
        if length == before {
            return Ok(format!("the volume has {before} bytes: the core is as large as it was"));
        }
        self.app.handle.resize(length).map_err(|why| anyhow!(why))?;
        self.app.is_now(|info| info.size = length);
        let mut done = format!("the volume grew from {before} to {length} bytes");
        for mount in &self.mounts {
            mount.resize(length);
        }
        for device in &mut self.devices {
            if let Err(why) = device.resize(length) {
                done += &format!("; {} stays as it was until the next start: {why}", device.path().display());
            }
        }
        if let Some(why) = self.kernel.resize(length) {
            done += &format!("; {why}");
        }
        Ok(done)
    }

    /// Brings the share that the cache lies in to `bytes`.
    pub(super) fn resize_share(
        &mut self,
        bytes: u64,
        memory: &dyn Memory,
        signals: &StopSignals,
    ) -> Result<String, Trouble> {
        let gone = || {
            format!(
                "the cache of this volume is gone, and the core is served without it: there is nothing to resize. {}",
                self.mend(true)
            )
        };
        if self.core_only {
            return Err(Ended::refused(gone()).into());
        }
        let share = self.left.held.as_ref().and_then(|h| h.share.clone());
        let Some(share) = share else {
            let why =
                "the cache of this volume is no share of a pool: it keeps the size that it was made with";
            return Err(Ended::refused(why).into());
        };
        let (min, max) = share.bounds()?;
        let told = || {
            format!(
                "this share has {min} to {max} bytes: give such a size ('loligo cache resize --min' changes the least; the most is \
                 fixed when a core is attached)"
            )
        };
        if !(min..=max).contains(&bytes) {
            return Err(Ended::refused(told()).into());
        }
        let (app, mut next, mut stopping) = (self.app.clone(), Instant::now() + LOOK, false);
        // A core that answers nothing would hold it up for ever.
        let resized = share.resize_live(&app.handle, bytes, || {
            stopping |= signals.within(Duration::ZERO);
            if stopping || app.changes.is_given_up() {
                return Err("given up: the share is as large as it was".to_owned());
            }
            if Instant::now() >= next {
                next += LOOK;
                self.look(Some(memory));
            }
            Ok(())
        });
        match resized {
            Err(_) if stopping => return Err(Trouble::Stop),
            other => other?,
        }
        Ok(format!("the share has {} slots a shard", share.limit()?))
    }
}

fn shrinking(to: u64, from: u64) -> String {
    format!(
        "the core would have {to} bytes, and the volume has {from}: clients and the cache may hold what lies behind that. A volume does not \
         get smaller while it is served"
    )
}
