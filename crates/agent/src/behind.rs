//! The volume that an OSD behind a cache stands on: a file in the OSD's own folder, served by this controller's daemon.

use crate::cancel::Cancel;
use crate::config::{OsdConfig, PairConfig};
use crate::volume::Volume;
use anyhow::{Context, Result};
use loligo_block::mounts;
use loligo_pair::machine::{Answer, Cause};
use loligo_pair::plan::Side;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::process::Pid;
use std::path::{Path, PathBuf};

/// The volume below an OSD.
#[derive(Debug)]
pub struct Behind {
    volume: Volume,
    mount: PathBuf,
    file: PathBuf,
    /// The file system that the OSD was started on.
    mounted: Option<String>,
}

impl Behind {
    /// The volume of `osd` as `side` has it; nothing: it has no cache.
    ///
    /// # Errors
    /// If its definition makes no sense.
    pub fn new(pair: &PairConfig, osd: &OsdConfig, side: Side) -> Result<Option<Behind>> {
        let Some(unit) = osd.volume() else { return Ok(None) };
        let volume = Volume::new(pair, &unit, side)?.below_osd();
        let mount = osd.mount(side);
        Ok(Some(Behind { volume, file: mount.join(&unit.name), mount, mounted: None }))
    }

    /// The OSD's data: what the core holds with the cache's newer blocks over it.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The volume itself.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// True if the daemon serves it, or is about to.
    pub fn is_here(&self) -> bool {
        self.volume.is_here()
    }

    /// True if the process `pid` has a file open of the mount that is there now. The daemon that serves it is not asked: it may hang.
    pub fn carries(&self, pid: Pid) -> bool {
        let Some(now) = self.mounted_now() else { return false };
        let open = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
        open.into_iter().flatten().flatten().any(|fd| device(&fd.path()).as_ref() == Some(&now))
    }

    /// The number of the file system that is mounted now.
    fn mounted_now(&self) -> Option<String> {
        let (dir, name) = (self.mount.parent()?, self.mount.file_name()?);
        let mount = dir.canonicalize().ok()?.join(name);
        mounts::on(&mounts::all().ok()?, &mount).map(|mount| mount.device.clone())
    }

    /// Has the daemon serve it. It is there when this returns.
    ///
    /// # Errors
    /// If the daemon refuses, or it does not come in time.
    pub fn start(&mut self, cancel: &Cancel) -> Result<()> {
        let made = std::fs::create_dir_all(&self.mount);
        // The dead mount of a daemon that was killed is cleared away by the next one.
        let is_dead = matches!(rustix::fs::stat(&self.mount), Err(Errno::NOTCONN | Errno::CONNABORTED));
        made.or_else(|why| if is_dead { Ok(()) } else { Err(why) })
            .with_context(|| format!("making {}", self.mount.display()))?;
        self.volume.try_start(cancel, None)?;
        let now = self.mounted_now();
        self.mounted = Some(now.with_context(|| format!("nothing is mounted on {}", self.mount.display()))?);
        Ok(())
    }

    /// Looks whether it has gone from under its OSD, and why.
    pub fn has_ended(&mut self) -> Option<Cause> {
        let ended = self.volume.has_ended();
        // A daemon that came back has made another mount, and the OSD has the dead one.
        let is_other = || self.mounted.is_some() && self.mounted_now() != self.mounted;
        ended.or_else(|| is_other().then_some(Cause::Other))
    }

    /// Ends it at once, writing nothing.
    pub fn kill(&mut self) -> Answer {
        self.volume.kill()
    }

    /// Stops it in peace. What was acknowledged is on its cache.
    pub fn stop(&mut self) -> Answer {
        self.volume.stop()
    }
}

/// The number of the file system that an open file lies on. The file system itself is not asked.
fn device(path: &Path) -> Option<String> {
    let known = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS).ok()?;
    Some(format!("{}:{}", known.stx_dev_major, known.stx_dev_minor))
}
