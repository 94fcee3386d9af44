//! A slow disk that the program under test cannot know: one file of a FUSE file system, with a modelled disk behind it
//! that is none of the presets. To its user it is a file like any other, not marked as rotational.
//!
//! A bare volume of this process serves it, so that its whole queue reaches the model at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use loligo_block::{DevId, Device, DeviceFile, HddDevice, HddParams, OpenOptions, UringFile};
use loligo_export::fuse::{Counters, Mount, Mountpoint};
use loligo_export::{Export, Limits};
use loligo_shard::{Backend, CoreSource, Leases, Plan, Running, start};

/// The name of the file.
const NAME: &str = "disk";

/// A 5,900 rpm archive disk: shorter tracks than the presets', slower arm, costlier commands, a smaller buffer.
fn archive_disk() -> HddParams {
    HddParams {
        revolution: 60_000_000_000 / 5900,
        track: 640 << 10,
        switch: 1_900_000,
        skew: 2_200_000,
        seek_base: 2_400_000,
        seek_knee: 7_400_000,
        knee: 0.2,
        seek_full: 21_000_000,
        overhead: 90_000,
        metadata: 100_000,
        queue: 32,
        patience: 2_000_000_000,
        read_ahead: 2 << 20,
        bus_per_kib: 3_400,
        stream_min: 128 << 10,
        stream_gap: 700_000,
    }
}

/// The mounted disk; dropping it unmounts and ends its thread. Declare it before the servers that use it.
#[derive(Debug)]
pub(crate) struct UnknownDisk {
    // The mount goes before the thread that answers it.
    mount: Mount,
    _running: Running,
}

impl UnknownDisk {
    /// Mounts one over `content` in the empty folder `dir`.
    ///
    /// # Errors
    /// Where FUSE cannot be used here, with what would help.
    pub(crate) fn mount(content: &Path, dir: &Path) -> Result<UnknownDisk> {
        let at = Mountpoint::claim(dir)?;
        let file = DeviceFile::open(content, &OpenOptions::default())?;
        let disk = HddDevice::new(UringFile::new(file, DevId(0)), archive_disk());
        let export = Export::new(NAME, disk.geometry().size);
        let running = start(Plan {
            export: export.clone(),
            limits: Limits::default(),
            tls: None,
            listeners: Vec::new(),
            core: CoreSource::Device(Box::new(disk)),
            leases: Leases::default(),
            backend: Backend::Uncached,
        })?;
        let serve = |session| running.handle().serve_mount(0, session);
        let mount = Mount::new(&at, &export, Arc::new(Counters::default()), serve)
            .context("mounting through FUSE (apt-get install fuse3, or be root)")?;
        Ok(UnknownDisk { mount, _running: running })
    }

    /// The disk.
    pub(crate) fn path(&self) -> PathBuf {
        self.mount.path().join(NAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    #[test]
    fn the_disk_reads_back_what_was_written_and_is_gone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let (content, mount) = (dir.path().join("content"), dir.path().join("mount"));
        File::create_new(&content).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(&mount).unwrap();
        let disk = match UnknownDisk::mount(&content, &mount) {
            Ok(disk) => disk,
            Err(why) => return loligo_log::outln!("SKIP: a disk behind FUSE: {why:#}"),
        };
        let file = File::options().read(true).write(true).open(disk.path()).unwrap();
        let begun = Instant::now();
        file.write_all_at(&[7; 4096], 48 << 20).unwrap();
        let took = begun.elapsed();
        file.sync_data().unwrap();
        let mut back = [0; 8192];
        file.read_exact_at(&mut back, (48 << 20) - 4096).unwrap();
        assert_eq!((back[0], back[4096], back[8191]), (0, 7, 7));
        assert!(took > Duration::from_millis(3), "a seek over three quarters of the disk took {took:?}");
        drop(file);
        drop(disk);
        assert!(std::fs::read_dir(&mount).unwrap().next().is_none(), "unmounted");
    }
}
