//! Writing over what says whose a device is.

use crate::labels;
use anyhow::{Context, Result};
use loligo_block::{DeviceFile, OpenOptions, SyncFile, SyncIo};
use loligo_engine::open;
use loligo_format::core_label::{CoreLabel, MIN_HOME};
use loligo_format::superblock::Superblock;
use std::path::Path;
use std::time::Duration;

/// The time that another user of a device is waited for.
const WAIT: Duration = Duration::from_secs(10);
/// Bytes at the start of a store that name it and begin its contents.
const HEAD: u64 = 10 << 20;
/// Bytes written at once.
const STEP: u64 = 1 << 20;

/// Opens a device that nobody uses.
pub(crate) fn open_device(path: &Path) -> Result<SyncFile> {
    let options = OpenOptions { exclusive: Some(WAIT), ..OpenOptions::default() };
    Ok(SyncFile::new(DeviceFile::open(path, &options)?))
}

/// Opens a device to be read beside whoever has it.
pub(crate) fn look_at(path: &Path) -> Result<SyncFile> {
    let options = OpenOptions { read_only: true, exclusive: None, ..OpenOptions::default() };
    Ok(SyncFile::new(DeviceFile::open(path, &options)?))
}

/// Writes zeros over the first bytes of `dev` from `start` on.
pub(crate) fn zero_head(dev: &mut dyn SyncIo, start: u64) -> Result<()> {
    let end = (start + HEAD).min(dev.size());
    let mut at = start;
    while at < end {
        let n = STEP.min(end - at);
        dev.write_at(at, &vec![0; n as usize])?;
        at += n;
    }
    dev.flush()?;
    Ok(())
}

/// The start of a core's content, before anything of ours is on it: what an earlier store left there would be taken for a store.
pub(crate) fn content(path: &Path, label: bool) -> Result<()> {
    let wipe = || {
        let mut dev = open_device(path)?;
        zero_head(&mut dev, MIN_HOME)?;
        // Of a store on the whole disk, and of one that was behind a label.
        labels::clear(&mut dev, 0)?;
        labels::clear(&mut dev, MIN_HOME)?;
        if label {
            CoreLabel::wipe(&mut dev)?;
        }
        anyhow::Ok(())
    };
    wipe().with_context(|| format!("wiping {}", path.display()))
}

/// The label of `volume` on a core, and with `all` the start of the store behind it. A core with another label, or none, stays as
/// it is.
pub(crate) fn core(path: &Path, volume: &str, all: bool) -> Result<()> {
    let wipe = || {
        let mut dev = open_device(path)?;
        if let Ok(label) = CoreLabel::load(&mut dev)
            && label.name == volume
        {
            if all {
                zero_head(&mut dev, label.data_start)?;
                labels::clear(&mut dev, label.data_start)?;
            }
            CoreLabel::wipe(&mut dev)?;
        }
        anyhow::Ok(())
    };
    wipe().with_context(|| format!("wiping {}", path.display()))
}

/// The cache of `volume` is one no more; as a file it goes. One of another volume, or what is none, stays as it is.
pub(crate) fn cache(path: &Path, volume: &str, made: bool) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let wipe = || {
        let mut dev = open_device(path)?;
        if Superblock::load(&mut dev).is_ok_and(|sb| sb.name == volume) {
            if made && !dev.file().is_block() {
                std::fs::remove_file(path)?;
            } else {
                open::wipe(&mut dev)?;
            }
        }
        anyhow::Ok(())
    };
    wipe().with_context(|| format!("wiping {}", path.display()))
}

/// The start of a device.
pub(crate) fn head(path: &Path) -> Result<()> {
    let wipe = || zero_head(&mut open_device(path)?, 0);
    wipe().with_context(|| format!("wiping {}", path.display()))
}
