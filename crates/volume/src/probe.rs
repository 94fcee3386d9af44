//! Loligo's data on a device. The probe only looks: nothing is opened for writing, locked or waited for. So it can be asked of a
//! device that is being served, and by udev.

mod pool;

use anyhow::{Context, Result, bail};
use loligo_block::{IoError, IoKind, SIGNATURE_PROBE, SyncIo, foreign_signature};
use loligo_format::core_label::CoreLabel;
use loligo_format::superblock::{SuperError, Superblock};
use loligo_format::units::BLOCK;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub use pool::{Pooled, Sharing};

/// The contents of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A cache.
    Cache(Box<Superblock>),
    /// A core with a label before its content.
    Core(CoreLabel),
    /// A pool that cores share.
    Pool(Pooled),
    /// A cache, label or pool that cannot be used: what it is, and why.
    Unusable(&'static str, String),
    /// Nothing of Loligo's; whose signature there is, nothing where all that was looked at is zero.
    Nothing(Option<&'static str>),
}

/// A device that is only read.
struct Reader {
    file: File,
    size: u64,
}

impl Reader {
    /// The same device once more.
    fn again(&self) -> Result<Reader> {
        Ok(Reader { file: self.file.try_clone()?, size: self.size })
    }
}

impl SyncIo for Reader {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        self.file.read_exact_at(buf, offset).map_err(|e| IoError::new(IoKind::Io, e.to_string()))
    }

    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), IoError> {
        Err(IoError::new(IoKind::Invalid, "opened for reading"))
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// Looks at `path`.
///
/// # Errors
/// If it cannot be read.
pub fn probe(path: &Path) -> Result<Found> {
    let at = || format!("{} cannot be probed", path.display());
    // Without NONBLOCK a pipe that somebody put there would be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = open(path, flags, Mode::empty()).with_context(at)?;
    let kind = FileType::from_raw_mode(fstat(&fd).with_context(at)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        bail!("{} is neither a block device nor a file", path.display());
    }
    let mut file = File::from(fd);
    let size = file.seek(SeekFrom::End(0)).with_context(at)?;
    file.rewind().with_context(at)?;
    find(&mut Reader { file, size }).with_context(at)
}

fn find(dev: &mut Reader) -> Result<Found> {
    let mut head = Vec::new();
    (&dev.file).take(SIGNATURE_PROBE as u64).read_to_end(&mut head)?;
    let cache = match Superblock::load(dev) {
        Ok(sb) => return Ok(Found::Cache(Box::new(sb))),
        Err(SuperError::Io(e)) => return Err(e.into()),
        Err(e) => e,
    };
    match pool::find(dev)? {
        Some(Ok(pool)) => return Ok(Found::Pool(pool)),
        Some(Err(why)) => return Ok(Found::Unusable("pool", why)),
        None => {}
    }
    match (CoreLabel::load(dev), cache) {
        (Ok(label), _) => Ok(Found::Core(label)),
        (Err(SuperError::Io(e)), _) => Err(e.into()),
        (Err(SuperError::Absent), SuperError::Absent) => Ok(Found::Nothing(foreign_signature(&head))),
        (Err(SuperError::Absent), e) => Ok(Found::Unusable("cache", e.to_string())),
        (Err(e), _) => Ok(Found::Unusable("core", format!("its label: {e}"))),
    }
}

impl Found {
    /// In a word: cache, core, pool, or nothing.
    pub fn kind(&self) -> &'static str {
        match self {
            Found::Cache(_) => "cache",
            Found::Core(_) => "core",
            Found::Pool(_) => "pool",
            Found::Unusable(what, _) => what,
            Found::Nothing(_) => "nothing",
        }
    }

    /// As JSON.
    pub fn json(&self, path: &Path) -> Value {
        let mut all = match self {
            Found::Cache(sb) => json!({
                "volume": sb.name,
                "uuid": sb.uuid_text(),
                "generation": sb.generation,
                "mode": sb.mode.name(),
                "clean": sb.clean,
                "dirty_bytes": dirty(sb),
                "cache_size": sb.layout.cache_size,
                "core_size": sb.core.size,
                "core_id": sb.core.id,
                "data_start": sb.data_start,
                // The word of older releases, for one release more.
                "home_start": sb.data_start,
                "data_length": sb.data_length,
                "home_length": sb.data_length,
            }),
            Found::Core(label) => json!({
                "volume": label.name,
                "cache": label.cache_text(),
                "generation": label.generation,
                "data_start": label.data_start,
                // The word of older releases, for one release more.
                "home_start": label.data_start,
                "dirty_bytes": label.dirty_bytes,
                "core_has_everything": label.lacks() == Some(0),
            }),
            Found::Pool(pool) => pool.json(),
            Found::Unusable(_, why) => json!({ "unusable": why }),
            Found::Nothing(whose) => json!({ "foreign": whose }),
        };
        all["path"] = json!(path);
        all["kind"] = json!(self.kind());
        all
    }

    /// The same of each core of a pool.
    pub fn members(&self) -> Vec<String> {
        match self {
            Found::Pool(pool) => pool.members.iter().map(|m| m.sentence()).collect(),
            _ => Vec::new(),
        }
    }

    /// In a line for people.
    pub fn sentence(&self) -> String {
        let lacks = |dirty: Option<u64>| match dirty {
            Some(0) => "the core has everything".to_owned(),
            Some(n) => format!("{n} bytes are newer than the core"),
            None => "served now, or not stopped cleanly: what the core lacks is not known".to_owned(),
        };
        match self {
            Found::Cache(sb) => {
                format!(
                    "the cache {} of volume '{}', mode {}; {}",
                    sb.uuid_text(),
                    sb.name,
                    sb.mode.name(),
                    lacks(dirty(sb))
                )
            }
            Found::Core(label) => format!(
                "a core of volume '{}', its content from byte {} on{}, behind the cache {}; {}",
                label.name,
                label.data_start,
                if label.data_start == 0 { ", with the first block kept behind the label" } else { "" },
                label.cache_text(),
                match (label.dirty_bytes, label.through) {
                    (None, true) => "served now, or not stopped cleanly; the core has everything".to_owned(),
                    (dirty, _) => lacks(dirty),
                }
            ),
            Found::Pool(pool) => pool.sentence(),
            Found::Unusable(what, why) => format!("a {what} that cannot be used: {why}"),
            Found::Nothing(Some(whose)) => format!("nothing of Loligo's: {whose}"),
            Found::Nothing(None) => "nothing of Loligo's: zeros".to_owned(),
        }
    }

    /// As udev takes it: KEY=VALUE. To be of the usage `raid` keeps file managers and mounts by name away from it, and a type
    /// of our own whoever looks for theirs.
    pub fn export(&self) -> Vec<(&'static str, String)> {
        let (uuid, label, dirty) = match self {
            Found::Cache(sb) => (Some(sb.uuid_text()), Some(sb.name.clone()), dirty(sb)),
            Found::Core(label) => (Some(label.cache_text()), Some(label.name.clone()), label.dirty_bytes),
            Found::Pool(pool) => (Some(pool.uuid.clone()), None, pool.dirty()),
            Found::Unusable(..) => (None, None, None),
            Found::Nothing(_) => return Vec::new(),
        };
        let kind = format!("loligo_{}", self.kind());
        let mut all = vec![
            ("ID_FS_USAGE", "raid".to_owned()),
            ("ID_FS_TYPE", kind),
            ("ID_FS_VERSION", "1".to_owned()),
            ("UDISKS_IGNORE", "1".to_owned()),
            ("LOLIGO_KIND", self.kind().to_owned()),
            ("LOLIGO_DIRTY_BYTES", dirty.map_or("unknown".to_owned(), |n| n.to_string())),
        ];
        all.extend(uuid.into_iter().flat_map(|u| [("ID_FS_UUID", u.clone()), ("ID_FS_UUID_ENC", u)]));
        // A volume's name is a plain file name; one that is not has been written by somebody else.
        let plain = label.filter(|l| loligo_client::names::check_name(l).is_ok());
        all.extend(plain.into_iter().flat_map(|l| {
            [("ID_FS_LABEL", l.clone()), ("ID_FS_LABEL_ENC", l.clone()), ("LOLIGO_VOLUME", l)]
        }));
        all
    }
}

/// Bytes that the core lacks; nothing: not known without reading the whole cache.
fn dirty(sb: &Superblock) -> Option<u64> {
    sb.clean.then_some(sb.dirty_blocks * BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &[(u64, &[u8])]) -> tempfile::NamedTempFile {
        let made = tempfile::NamedTempFile::new().unwrap();
        made.as_file().set_len(4 << 20).unwrap();
        content.iter().for_each(|(at, bytes)| made.as_file().write_all_at(bytes, *at).unwrap());
        made
    }

    fn label() -> CoreLabel {
        CoreLabel {
            generation: 1,
            cache: *b"0123456789abcdef",
            name: "osd0".into(),
            data_start: 1 << 20,
            dirty_bytes: Some(4096),
            through: false,
        }
    }

    #[test]
    fn a_labelled_core_is_told_from_nothing_and_from_somebody_elses() {
        let made = file(&[(0, &label().encode())]);
        assert_eq!(probe(made.path()).unwrap(), Found::Core(label()));
        assert_eq!(probe(file(&[]).path()).unwrap(), Found::Nothing(None));
        assert_eq!(probe(file(&[(0, b"XFSB")]).path()).unwrap(), Found::Nothing(Some("XFS")));
        assert!(probe(Path::new("/dev/null")).unwrap_err().to_string().contains("neither"));
        assert!(format!("{:#}", probe(Path::new("/nowhere")).unwrap_err()).contains("/nowhere"));
    }

    #[test]
    fn a_damaged_label_is_still_ours_so_nobody_takes_the_device() {
        let mut raw = label().encode();
        raw[100] ^= 1;
        let found = probe(file(&[(0, &raw)]).path()).unwrap();
        assert!(matches!(found, Found::Unusable("core", _)), "{found:?}");
        assert!(found.export().contains(&("ID_FS_TYPE", "loligo_core".to_owned())));
    }

    #[test]
    fn only_our_devices_and_unambiguous_names_are_exported() {
        assert_eq!(Found::Nothing(Some("XFS")).export(), []);
        let odd = Found::Core(CoreLabel { name: "a\nLOLIGO_KIND=x".into(), ..label() });
        assert!(odd.export().iter().all(|(_, v)| !v.contains('\n')));
        let plain = Found::Core(label());
        assert!(plain.export().contains(&("LOLIGO_VOLUME", "osd0".to_owned())));
    }
}
