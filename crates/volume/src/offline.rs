//! Operations on the cache of a stopped service: looking at it, and letting go of it.

use crate::core::describe;
use crate::pool::{Pool, PoolSpec};
use anyhow::{Context, Result, bail};
use loligo_block::keys::FLUSH_ON_STOP;
use loligo_block::{CacheIo, DeviceFile, OpenOptions, SyncFile, keyed};
use loligo_client::outcome::Ended;
use loligo_client::progress::Progress;
use loligo_engine::open::{self, Inspection};
use loligo_format::mirror_label;
use loligo_format::superblock::{SuperError, Superblock};
use loligo_format::units::BLOCK;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The time that another user of the device is waited for.
const WAIT: Duration = Duration::from_millis(500);

fn open_file(path: &Path, read_only: bool) -> Result<CacheIo> {
    if let Some(spec) = PoolSpec::of(path)? {
        let pool = Pool::open_idle(&spec.path)?;
        return Ok(pool.share_of(&spec.core)?.device().sync_io());
    }
    let options = OpenOptions { read_only, exclusive: Some(WAIT), ..OpenOptions::default() };
    match DeviceFile::open(path, &options) {
        Ok(file) => Ok(CacheIo::Whole(SyncFile::new(content(file, read_only)?))),
        Err(e) if !path.exists() => bail!(Ended::refused(format!("{e}: give the path of a cache"))),
        Err(e) => Err(e.into()),
    }
}

/// The content of a device that was opened. A leg of a mirror can be looked at by itself, and no more.
fn content(file: DeviceFile, read_only: bool) -> Result<DeviceFile> {
    let is_leg = !matches!(
        mirror_label::load(&mut SyncFile::new(file.clone())),
        Err(SuperError::Absent | SuperError::Io(_))
    );
    match (is_leg, read_only) {
        (false, _) => Ok(file),
        (true, true) => Ok(file.behind(mirror_label::CONTENT)?),
        (true, false) => bail!(Ended::refused(format!(
            "{} is a leg of a mirrored cache, and is not to differ from the other one: serve the volume",
            file.path().display()
        ))),
    }
}

fn checked(dev: &mut CacheIo, path: &Path) -> Result<Inspection> {
    let mut progress = Progress::new(format!("checking {}", path.display()));
    let found = open::inspect(dev, |done, all| progress.show(done, all))
        .with_context(|| format!("{} cannot be inspected", path.display()))?;
    progress.end(&format!("{} blocks checked", found.checked_blocks));
    Ok(found)
}

/// Checks every checksum of a stopped cache, changing nothing; progress goes to stderr.
///
/// # Errors
/// If it is in use, or no cache.
pub fn inspect(path: &Path) -> Result<Inspection> {
    checked(&mut open_file(path, true)?, path)
}

/// An inspection as JSON.
pub fn inspection_json(i: &Inspection) -> Value {
    let sb = &i.superblock;
    json!({
        "uuid": sb.uuid_text(),
        "name": sb.name,
        "generation": sb.generation,
        "clean": sb.clean,
        "mode": sb.mode.name(),
        "core_size": sb.core.size,
        "core_id": sb.core.id,
        "data_start": sb.data_start,
        // The word of older releases, for one release more.
        "home_start": sb.data_start,
        "data_length": sb.data_length,
        "home_length": sb.data_length,
        "cache_size": sb.layout.cache_size,
        "cache_bytes": sb.layout.data_bytes(),
        "line_size": sb.line_size,
        "shards": sb.layout.shards,
        "core_reserve": sb.core_reserve,
        "occupied_bytes": i.occupied_blocks * BLOCK,
        "dirty_bytes": i.dirty_blocks * BLOCK,
        "journal_frames": i.frames,
        "checked_blocks": i.checked_blocks,
        "damage": i.damage.iter().map(|d| json!({ "what": d.what, "dirty": d.dirty })).collect::<Vec<_>>(),
    })
}

/// An inspection as rows of label and value.
pub fn inspection_rows(i: &Inspection) -> Vec<(&'static str, String)> {
    let sb = &i.superblock;
    vec![
        ("volume", sb.name.clone()),
        ("uuid", sb.uuid.iter().map(|b| format!("{b:02x}")).collect()),
        ("core", describe(&sb.core)),
        ("exported", format!("{} bytes from byte {}", sb.data_length, sb.data_start)),
        ("cache size", format!("{} bytes, {} for data", sb.layout.cache_size, sb.layout.data_bytes())),
        ("line size", sb.line_size.to_string()),
        ("shards", sb.layout.shards.to_string()),
        ("core reserve", format!("{} %", sb.core_reserve)),
        ("mode", sb.mode.name().to_owned()),
        ("stopped", if sb.clean { "cleanly" } else { "not cleanly: the next start recovers" }.to_owned()),
        ("occupied", format!("{} bytes", i.occupied_blocks * BLOCK)),
        ("dirty", format!("{} bytes", i.dirty_blocks * BLOCK)),
        ("journal", format!("{} frames behind the checkpoint", i.frames)),
        ("checked", format!("{} blocks", i.checked_blocks)),
    ]
}

/// Makes the device no cache any more, so that its core can be used alone.
///
/// # Errors
/// If it is served, is no cache, or still holds what its core does not have.
pub fn release(path: &Path) -> Result<()> {
    let mut dev = open_file(path, false)?;
    let sb = match Superblock::load(&mut dev) {
        Ok(sb) => sb,
        Err(SuperError::Absent) => {
            bail!(Ended::refused(format!(
                "{} is no Loligo cache: there is nothing to release",
                path.display()
            )))
        }
        Err(e @ SuperError::Io(_)) => return Err(e).with_context(|| path.display().to_string()),
        Err(e) => bail!(Ended::refused(format!(
            "{}: {e}; look at it with 'loligo inspect {}'",
            path.display(),
            path.display()
        ))),
    };
    let dirty = if sb.clean {
        sb.dirty_blocks
    } else {
        let found = checked(&mut dev, path)?;
        if let Some(d) = found.damage.iter().find(|d| d.dirty) {
            bail!(Ended::refused(format!(
                "{} is damaged ({}): what its core lacks is not known, so it is not released",
                path.display(),
                d.what
            )));
        }
        found.dirty_blocks
    };
    if dirty > 0 {
        bail!(Ended::refused(keyed!(
            "{} holds {} bytes that its core does not have: serve it with {FLUSH_ON_STOP} (or run 'loligo flush' while it \
             is served), stop it, and release it then",
            path.display(),
            dirty * BLOCK,
        )));
    }
    open::wipe(&mut dev).with_context(|| format!("{} could not be released", path.display()))
}
