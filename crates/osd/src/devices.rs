//! The devices of an OSD: whether they are free, what they are called for good, and which of them die together.

use crate::cluster::Map;
use crate::daemon::linked_from;
use crate::labels;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::{
    DeviceFile, DeviceSpec, OpenOptions, SIGNATURE_PROBE, SyncFile, SyncIo, foreign_signature,
};
use loligo_format::core_label::{CoreLabel, MIN_HOME};
use loligo_format::layout::MIN_CACHE;
use loligo_format::pool::PoolSuper;
use loligo_format::pool::format::Found as InPool;
use loligo_format::superblock::{SuperError, Superblock};
use loligo_volume::identity::{DeviceId, device_id};
use rustix::fs::{major, minor, stat};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that another user of a device is waited for.
const WAIT: Duration = Duration::from_millis(500);
/// Least bytes of data, behind the label: BlueStore's own structures and a little room.
const LEAST_DATA: u64 = 1 << 30;
/// Least bytes of a database or log.
const LEAST_ASIDE: u64 = 256 << 20;
/// First bytes of a BlueStore device, before the OSD's id.
pub(crate) const BLUESTORE: &[u8] = b"bluestore block device\n";
/// A superblock of md in the order that disks have it.
const MD_MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

/// The devices given for an OSD.
#[derive(Debug, Clone)]
pub struct Devices {
    /// Its data: a device, a file, or a modelled disk.
    pub data: DeviceSpec,
    /// The same as it was given.
    pub text: String,
    /// Its cache.
    pub cache: PathBuf,
    /// Bytes of a new cache.
    pub cache_size: Option<u64>,
    /// Its database.
    pub db: Option<PathBuf>,
    /// Its log.
    pub wal: Option<PathBuf>,
}

/// The findings about them.
#[derive(Debug)]
pub(crate) struct Found {
    /// The core turns.
    pub(crate) rotational: bool,
    /// The cache is there, and not to be made as a file.
    pub(crate) cache_exists: bool,
    /// A label of a volume that is no more, to be wiped first.
    pub(crate) old_label: bool,
    /// The data device held something that `--force` gives up.
    pub(crate) held: Option<&'static str>,
}

impl Devices {
    /// The data as the core of a volume.
    pub(crate) fn core(&self) -> String {
        match &self.data {
            DeviceSpec::File(path) => path.display().to_string(),
            DeviceSpec::Hdd { .. } => self.text.clone(),
        }
    }

    /// The same by names that last: `sdb` may be another disk after the next boot.
    pub(crate) fn lasting(self) -> Devices {
        let data = match self.data {
            DeviceSpec::File(path) => DeviceSpec::File(lasting(&path)),
            hdd @ DeviceSpec::Hdd { .. } => hdd,
        };
        let [db, wal] = [self.db, self.wal].map(|p| p.map(|p| lasting(&p)));
        Devices { data, cache: lasting(&self.cache), db, wal, ..self }
    }

    /// They are free, distinct and large enough. Nothing is changed.
    ///
    /// # Errors
    /// If something stands in the way; the error gives the mend.
    pub(crate) fn check(&self, map: &Map, force: bool) -> Result<Found> {
        let data = self.data.path();
        self.distinct()?;
        for (what, path) in self.all() {
            if let Some(link) = linked_from(path, Path::new("")) {
                bail!("{what} {} is in use: {} leads to it", path.display(), link.display());
            }
        }
        // All stay open until all are checked: a disk and a partition of it cannot both be held.
        let file = free("the data device", data)?;
        let size = file.geometry().size;
        ensure!(
            size >= MIN_HOME + LEAST_DATA,
            "{} has {size} bytes, too few for an OSD behind a label: give a device of at least {} bytes",
            data.display(),
            MIN_HOME + LEAST_DATA
        );
        let mut dev = SyncFile::new(file.clone());
        let (old_label, held) = vacant("the data device", data, &mut dev, map, force)?;
        let cache_exists = self.cache.exists();
        let cache = if cache_exists { Some(free("the cache", &self.cache)?) } else { None };
        match &cache {
            Some(file) => self.check_cache(file, map, force)?,
            None => self.check_new_cache()?,
        }
        let mut asides = Vec::new();
        for (what, path) in [("the database", &self.db), ("the log", &self.wal)] {
            let Some(path) = path else { continue };
            let file = free(what, path)?;
            ensure!(
                file.is_block() && file.geometry().size >= LEAST_ASIDE,
                "{what} {} must be a block device of {LEAST_ASIDE} bytes at least",
                path.display()
            );
            vacant(what, path, &mut SyncFile::new(file.clone()), map, force)?;
            asides.push(file);
        }
        let rotational = file.geometry().rotational || matches!(self.data, DeviceSpec::Hdd { .. });
        Ok(Found { rotational, cache_exists, old_label, held })
    }

    /// A cache that is not there can be made as a file.
    pub(crate) fn check_new_cache(&self) -> Result<()> {
        let size = self.cache_size.with_context(|| {
            format!("{} does not exist: give --cache-size SIZE to make it", self.cache.display())
        })?;
        ensure!(size >= MIN_CACHE, "--cache-size {size} is too small: {MIN_CACHE} bytes at least");
        Ok(())
    }

    fn all(&self) -> Vec<(&'static str, &Path)> {
        let mut all = vec![("the data device", self.data.path()), ("the cache", self.cache.as_path())];
        all.extend(self.db.as_deref().map(|p| ("the database", p)));
        all.extend(self.wal.as_deref().map(|p| ("the log", p)));
        all
    }

    /// No two of them are the same.
    pub(crate) fn distinct(&self) -> Result<()> {
        let mut seen: Vec<(&str, DeviceId)> = Vec::new();
        for (what, path) in self.all() {
            let Some(key) = device_id(path) else { continue };
            if let Some((other, _)) = seen.iter().find(|(_, k)| *k == key) {
                bail!("{other} and {what} are the same device, {}: give each its own", path.display());
            }
            seen.push((what, key));
        }
        Ok(())
    }

    pub(crate) fn check_cache(&self, file: &DeviceFile, map: &Map, force: bool) -> Result<()> {
        let path = self.cache.display();
        let size = file.geometry().size;
        let wanted = self.cache_size.unwrap_or(size);
        ensure!(wanted <= size, "--cache-size {wanted} is more than the {size} bytes of {path}");
        ensure!(
            wanted >= MIN_CACHE,
            "{path}: a cache of {wanted} bytes is too small: {MIN_CACHE} bytes at least"
        );
        let mut dev = SyncFile::new(file.clone());
        match Superblock::load(&mut dev) {
            Ok(sb) => {
                let clean = sb.clean && sb.dirty_blocks == 0;
                ensure!(
                    clean,
                    "{path} is the cache of volume '{}' and holds data that its core does not have. \
                    Flush that volume and run 'loligo release {path}', or give another --cache",
                    sb.name
                );
                ensure!(
                    force,
                    "{path} is the cache of volume '{}'. Its core {} has everything: run 'loligo \
                    release {path}', or add --force to replace it",
                    sb.name,
                    sb.core.id
                );
            }
            Err(SuperError::Absent) => {
                vacant("the cache", &self.cache, &mut dev, map, force)?;
            }
            Err(SuperError::Io(why)) => return Err(why).context("the cache cannot be read"),
            Err(why) => ensure!(
                force,
                "{path} is a damaged cache ({why}): 'loligo inspect {path}' shows it; --force replaces \
                it"
            ),
        }
        Ok(())
    }
}

/// Opens a device that nobody uses.
pub(crate) fn free(what: &str, path: &Path) -> Result<DeviceFile> {
    let options = OpenOptions { exclusive: Some(WAIT), ..OpenOptions::default() };
    DeviceFile::open(path, &options).with_context(|| format!("{what} {} cannot be used", path.display()))
}

/// A device holds nothing, or nothing that `force` may not give up: whether it has a label of ours, and what it holds.
fn vacant(
    what: &str,
    path: &Path,
    dev: &mut dyn SyncIo,
    map: &Map,
    force: bool,
) -> Result<(bool, Option<&'static str>)> {
    let path = path.display();
    match CoreLabel::load(dev) {
        Ok(label) => {
            let lacks = match label.dirty_bytes {
                Some(0) => "which was stopped cleanly",
                _ => "whose cache may hold data that it lacks",
            };
            ensure!(
                force,
                "{what} {path} is the core of volume '{}', {lacks}. If it is an OSD's, 'loligo osd \
                remove' frees it; --force gives up its data",
                label.name
            );
            return Ok((true, Some("the core of another volume")));
        }
        Err(SuperError::Absent) => {}
        Err(SuperError::Io(why)) => return Err(why).with_context(|| format!("{what} {path} cannot be read")),
        Err(why) => {
            ensure!(force, "{what} {path} has a damaged Loligo label ({why}): --force gives up its data");
            return Ok((true, Some("the core of another volume")));
        }
    }
    if let Ok(InPool::Pool(_)) = PoolSuper::look(dev) {
        bail!(
            "{what} {path} is a pool with the caches of cores ('loligo cache show {path}' lists them). \
            Give another device, or detach those and run 'loligo cache dissolve {path}'"
        );
    }
    let size = dev.size();
    let mut head = vec![0; (SIGNATURE_PROBE as u64).min(size) as usize];
    dev.read_at(0, &mut head).with_context(|| format!("{what} {path} cannot be read"))?;
    if let Some(uuid) = bluestore_uuid(&head)
        && let Some(id) = map.number_of(&uuid)
    {
        bail!(
            "{what} {path} belongs to osd.{id}. Take that OSD out of the cluster first; or keep it, and \
            put a cache under it with 'loligo osd adopt {id}'"
        );
    }
    let copies = labels::copies(dev, 0)?;
    if let Some(id) = copies.iter().find_map(|(_, uuid)| map.number_of(uuid.as_deref()?)) {
        bail!("{what} {path} has a copy of osd.{id}'s label: take that OSD out of the cluster first");
    }
    let held = match foreign_signature(&head) {
        None if !copies.is_empty() => Some("copies of a BlueStore label, from which a store can be mended"),
        None if has_md(dev)? => Some("Linux RAID"),
        other => other,
    };
    match held {
        Some(kind @ "LVM2 physical volume") => {
            bail!("{what} {path} is an {kind}: take it out of LVM first, with vgreduce and pvremove")
        }
        Some(kind @ "Linux RAID") => {
            bail!("{what} {path} is a member of {kind}: take it out first, with mdadm --zero-superblock")
        }
        Some(kind) => {
            ensure!(
                force,
                "{what} {path} holds {kind}: give another device, or add --force to \
                overwrite it"
            );
            Ok((false, Some(kind)))
        }
        None => Ok((false, None)),
    }
}

/// The id of the OSD whose device begins with `head`.
pub(crate) fn bluestore_uuid(head: &[u8]) -> Option<String> {
    let text = head.strip_prefix(BLUESTORE)?.get(..36)?;
    let fits = |b: &u8| b.is_ascii_hexdigit() || *b == b'-';
    text.iter().all(fits).then(|| String::from_utf8_lossy(text).into_owned())
}

/// True if md has written itself at the end, where two of its formats do.
fn has_md(dev: &mut dyn SyncIo) -> Result<bool> {
    let size = dev.size();
    let places = [size.saturating_sub(8 << 10) & !0xfff, (size & !0xffff).saturating_sub(64 << 10)];
    for at in places {
        let mut raw = vec![0; 4096];
        if at + 4096 <= size {
            dev.read_at(at, &mut raw)?;
            if raw[..4] == MD_MAGIC {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The cache that is given for an OSD, by its whole path.
///
/// # Errors
/// If it is a share of a pool: an OSD has a cache of its own.
pub fn own_cache(given: &Path) -> Result<PathBuf> {
    if given.to_str().is_some_and(|text| text.starts_with("pool:")) {
        bail!(
            "--cache {} is a share of a pool, and an OSD needs a cache of its own: others must not die \
            with it or take its room. Give each OSD a partition or a logical volume of the flash; \
            shares of pools are for 'loligo volume create'",
            given.display()
        );
    }
    Ok(std::path::absolute(given)?)
}

/// A name under which udev finds the same device at every boot; `path` itself where there is none, or it is no device.
pub(crate) fn lasting(path: &Path) -> PathBuf {
    let own = path.to_owned();
    let Ok(wanted) = stat(path) else { return own };
    let kept = ["/dev/disk/", "/dev/mapper/", "/dev/loligo/"].iter().any(|p| path.starts_with(p));
    // A link somewhere else under /dev is a logical volume's.
    if wanted.st_rdev == 0 || kept || path.is_symlink() {
        return own;
    }
    for folder in ["/dev/disk/by-partuuid", "/dev/disk/by-id"] {
        let mut names: Vec<PathBuf> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
        names.sort();
        let same = |p: &PathBuf| stat(p).is_ok_and(|s| s.st_rdev == wanted.st_rdev);
        if let Some(name) = names.into_iter().find(same) {
            return name;
        }
    }
    own
}

/// The disks (or, where no disk can be seen, file systems) that what is at `path` lies on.
pub fn disks_under(path: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Ok(s) = stat(path) {
        below(if s.st_rdev != 0 { s.st_rdev } else { s.st_dev }, 0, &mut found);
    }
    found
}

/// Follows a device down to what holds its bytes.
fn below(number: u64, depth: u32, found: &mut BTreeSet<String>) {
    let name = format!("{}:{}", major(number), minor(number));
    let Ok(own) = fs::canonicalize(format!("/sys/dev/block/{name}")) else {
        found.insert(format!("file system {name}"));
        return;
    };
    let disk = if own.join("partition").exists() { own.parent().unwrap_or(&own).to_owned() } else { own };
    let numbers = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten().filter_map(|slave| {
        let text = fs::read_to_string(slave.path().join("dev")).ok()?;
        let (a, b) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(a.parse().ok()?, b.parse().ok()?))
    });
    let mut under: Vec<u64> = numbers.collect();
    if let Ok(file) = fs::read_to_string(disk.join("loop/backing_file"))
        && let Ok(s) = stat(file.trim())
    {
        under.push(s.st_dev);
    }
    if under.is_empty() || depth > 8 {
        found.insert(disk.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    if depth <= 8 {
        under.into_iter().for_each(|n| below(n, depth + 1, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::RamDevice;
    use loligo_format::pool::format::MIN_POOL;

    fn nobody() -> Map {
        Map::from(
            serde_json::json!({ "osds": [{ "osd": 4, "uuid": "0f0e0d0c-0000-1111-2222-333344445555" }] }),
        )
    }

    fn with(at: u64, mark: &[u8], force: bool) -> Result<(bool, Option<&'static str>)> {
        let mut dev = RamDevice::new(4 << 20).unwrap();
        dev.write_at(at, mark).unwrap();
        vacant("the data device", Path::new("/dev/x"), &mut dev, &nobody(), force)
    }

    #[test]
    fn foreign_data_goes_by_force_unless_others_still_count_on_it() {
        let page = |mark: &[u8]| {
            let mut raw = vec![0; 4096];
            raw[..mark.len()].copy_from_slice(mark);
            raw
        };
        assert_eq!(with(0, &page(b""), false).unwrap(), (false, None));
        assert!(with(0, &page(b"XFSB"), false).unwrap_err().to_string().contains("--force"));
        assert_eq!(with(0, &page(b"XFSB"), true).unwrap(), (false, Some("XFS")));
        let lvm = with(0, &page(b"LABELONE"), true).unwrap_err().to_string();
        assert!(lvm.contains("pvremove"), "{lvm}");
        for at in [4096, (4 << 20) - (8 << 10), (4 << 20) - (64 << 10)] {
            let md = with(at, &page(&MD_MAGIC), true).unwrap_err().to_string();
            assert!(md.contains("zero-superblock"), "{md}");
        }
        let mine = page(b"bluestore block device\n0f0e0d0c-0000-1111-2222-333344445555\n");
        assert!(with(0, &mine, true).unwrap_err().to_string().contains("osd.4"));
        let gone = page(b"bluestore block device\nffffffff-0000-1111-2222-333344445555\n");
        assert!(with(0, &gone, false).unwrap_err().to_string().contains("Ceph BlueStore"));
        assert_eq!(with(0, &gone, true).unwrap(), (false, Some("Ceph BlueStore")));
    }

    #[test]
    fn a_copy_of_a_label_is_no_free_disk() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(2 << 30).unwrap();
        let mut dev = crate::wipe::open_device(file.path()).unwrap();
        let mut look = |uuid: &str, force| {
            let mut copy = format!("bluestore block device\n{uuid}\n").into_bytes();
            copy.resize(4096, 0);
            dev.write_at(1 << 30, &copy).unwrap();
            vacant("the data device", Path::new("/dev/x"), &mut dev, &nobody(), force)
        };
        let theirs = look("0f0e0d0c-0000-1111-2222-333344445555", true).unwrap_err().to_string();
        assert!(theirs.contains("osd.4"), "{theirs}");
        let gone = "ffffffff-0000-1111-2222-333344445555";
        assert!(look(gone, false).unwrap_err().to_string().contains("copies of a BlueStore label"));
        assert!(look(gone, true).unwrap().1.is_some());
        drop(dev);
        crate::wipe::content(file.path(), false).unwrap();
        let mut dev = crate::wipe::open_device(file.path()).unwrap();
        assert!(labels::on(&mut dev).unwrap().is_empty());
    }

    #[test]
    fn a_share_of_a_pool_is_refused_by_name_as_an_osds_cache() {
        for pool in ["pool:/dev/nvme0n1p3#0", "pool:nv#osd.3", "pool:"] {
            let why = own_cache(Path::new(pool)).unwrap_err().to_string();
            assert!(
                why.contains(pool) && why.contains("share of a pool") && why.contains("a partition"),
                "{why}"
            );
        }
        let mut dev = RamDevice::new(MIN_POOL).unwrap();
        loligo_engine::pool::Pool::format(&mut dev, [7; 16], MIN_POOL).unwrap();
        let why =
            vacant("the cache", Path::new("/dev/x"), &mut dev, &nobody(), true).unwrap_err().to_string();
        assert!(
            why.contains("is a pool") && why.contains("dissolve"),
            "nor is the whole of one, by force: {why}"
        );
        assert_eq!(own_cache(Path::new("/dev/nvme0n1p3")).unwrap(), Path::new("/dev/nvme0n1p3"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            own_cache(Path::new("./pool:x")).unwrap(),
            here.join("pool:x"),
            "a file may have such a name"
        );
    }

    #[test]
    fn files_of_one_file_system_die_together() {
        let dir = tempfile::tempdir().expect("a folder");
        let [a, b] = ["a", "b"].map(|n| dir.path().join(n));
        for f in [&a, &b] {
            fs::write(f, "x").expect("a file");
        }
        assert!(!disks_under(&a).is_empty());
        assert_eq!(disks_under(&a), disks_under(&b));
        assert!(disks_under(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn the_same_device_twice_is_refused_also_by_another_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let [data, other] = ["data", "other"].map(|n| dir.path().join(n));
        fs::File::create(&data).and_then(|f| f.set_len(4 << 30)).expect("a file");
        std::os::unix::fs::symlink(&data, &other).expect("a link");
        let devices = Devices {
            data: DeviceSpec::File(data),
            text: String::new(),
            cache: other,
            cache_size: None,
            db: None,
            wal: None,
        };
        let why = devices.check(&nobody(), true).unwrap_err().to_string();
        assert!(why.contains("the data device and the cache are the same"), "{why}");
    }
}
