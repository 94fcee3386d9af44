//! The core of an adopted OSD as it lies on the disk: its own first block, or the label that stands for it.

use crate::devices::bluestore_uuid;
use crate::folder::for_writing;
use crate::place::{Known, Place};
use crate::wipe::{look_at, open_device};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::masked_head::HEAD;
use loligo_block::{DeviceSpec, SyncIo};
use loligo_client::client::DaemonClient;
use loligo_format::core_label::CoreLabel;
use loligo_format::in_place_label::{decode, is_label};
use loligo_format::superblock::{SuperError, Superblock};
use loligo_volume::first_block::{Saved, Unsettled, save, settle};
use rustix::fs::{Mode, OFlags};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that whoever locks the device as a file is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// The sources that an OSD is put back from.
#[derive(Debug, Clone)]
pub(crate) struct Raw<'a> {
    /// Its own device.
    pub(crate) core: &'a Path,
    /// Its cache; nothing where that is lost.
    pub(crate) cache: Option<&'a Path>,
    /// Its volume.
    pub(crate) volume: &'a str,
    /// The files that keep the label's block while it is replaced, if there is no cache that could.
    pub(crate) kept: &'a Kept,
}

/// The places of that copy. Either alone is enough, and one of them is no good alone: the folder of an OSD that `ceph-volume` activates is in
/// memory, and gone after a loss of power.
#[derive(Debug, Clone)]
pub(crate) struct Kept([PathBuf; 2]);

impl Kept {
    /// In the OSD's folder, and with what the daemon remembers.
    ///
    /// # Errors
    /// If no daemon runs.
    pub(crate) fn of(place: &Place, daemon: &DaemonClient) -> Result<Kept> {
        Ok(Kept::in_folders(&place.dir, &daemon.about()?.state_dir, &place.volume()))
    }

    fn in_folders(dir: &Path, state: &Path, volume: &str) -> Kept {
        Kept([dir.join("loligo-head"), state.join(format!("{volume}.head"))])
    }

    /// The newest that is whole and of `volume`.
    fn load(&self, volume: &str) -> Option<Saved> {
        let blocks = self.0.iter().filter_map(|path| std::fs::read(path).ok());
        let whole = blocks.filter_map(|block| Saved::of(block, None)).filter(|s| s.label.name == volume);
        whole.max_by_key(|s| s.label.generation)
    }

    /// Keeps the block in both, durably.
    fn store(&self, block: &[u8]) -> Result<()> {
        for path in &self.0 {
            let write = || -> std::io::Result<()> {
                let mut file = for_writing(0o600).truncate(true).open(path)?;
                file.write_all(block)?;
                file.sync_all()?;
                let dir = path.parent().unwrap_or(Path::new("/"));
                let dir = rustix::fs::open(dir, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                Ok(rustix::fs::fsync(dir)?)
            };
            write().with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// It is no longer needed.
    pub(crate) fn forget(&self) {
        // It is there only where there was no cache.
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// The device that a volume has for its core.
///
/// # Errors
/// If its definition is not understood.
pub(crate) fn core_of(known: &Known) -> Result<PathBuf> {
    let spec: DeviceSpec = known.volume.definition.core.parse().context("the volume's core")?;
    Ok(spec.path().to_owned())
}

/// The first block of a device.
pub(crate) fn first_block(dev: &mut dyn SyncIo) -> Result<Vec<u8>> {
    ensure!(dev.size() > HEAD, "it has {} bytes and is no OSD's", dev.size());
    let mut raw = vec![0; HEAD as usize];
    dev.read_at(0, &mut raw)?;
    Ok(raw)
}

/// True if the core has everything since its volume was stopped, or has its own first block. A mode that left the cache nothing for itself is
/// another matter: a cache that is there is served and stopped once more, and one that is not is given up by order alone.
pub(crate) fn is_settled(core: &Path) -> Result<bool> {
    Ok(label(core)?.is_none_or(|label| label.dirty_bytes == Some(0)))
}

/// The label in the place of the first block; nothing where that is there itself. The user of the device is not disturbed.
pub(crate) fn label(core: &Path) -> Result<Option<CoreLabel>> {
    let look = || {
        let mut dev = look_at(core)?;
        if !is_label(&first_block(&mut dev)?) {
            return Ok(None);
        }
        anyhow::Ok(Some(CoreLabel::load(&mut dev)?))
    };
    look().with_context(|| format!("looking at {}", core.display()))
}

/// The core was served without its cache after that failed: it has everything, and what any cache has of it is void.
pub(crate) fn is_void(label: &CoreLabel) -> bool {
    label.cache == [0; 16] && label.dirty_bytes == Some(0)
}

/// The core's loss for good if it goes on without its cache; nothing where it has everything. The label alone is believed: how the
/// volume is defined does not tell what mode it was switched to, nor what was dirty before.
pub(crate) fn lost(label: &CoreLabel) -> Option<String> {
    let lost = match label.lacks() {
        Some(0) => return None,
        Some(n) => format!("{n} bytes that its cache {} has", label.cache_text()),
        None => format!("an unknown amount of data that only its cache {} has", label.cache_text()),
    };
    Some(format!(
        "it lacks {lost}: the store would be a mixture of old and new. Bring the cache back, or remove \
        the OSD with 'loligo osd remove'"
    ))
}

impl Raw<'_> {
    /// Puts the OSD's own first block back where it belongs. To be called again after whatever cut it off.
    ///
    /// # Errors
    /// If the core lacks something that the cache has, or what the first block was cannot be told.
    pub(crate) fn lift(&self) -> Result<()> {
        let lift = || -> Result<()> {
            let mut dev = open_device(self.core)?;
            dev.file().lock_as_file(WAIT)?;
            let raw = first_block(&mut dev)?;
            let is_own = !is_label(&raw);
            let void = decode(&raw).is_ok_and(|label| is_void(&label));
            let mut cache = self.cache.filter(|_| !void).map(open_device).transpose()?;
            let superblock = match cache.as_mut().map(|cache| Superblock::load(cache)) {
                Some(Ok(sb)) => Some(sb),
                // It was not made one before all this was refused, or was wiped since; nothing of this disk's is on it.
                Some(Err(SuperError::Absent)) if is_own => None,
                Some(Err(why)) => return Err(why).context("its cache cannot be read"),
                None => None,
            };
            let saved = match (&mut cache, &superblock) {
                (Some(cache), Some(sb)) => Saved::load(cache, sb.uuid)?,
                _ => self.kept.load(self.volume),
            };
            if is_own && saved.is_none() {
                return Ok(());
            }
            let settled = match settle(&raw, saved.as_ref()) {
                // It is the OSD's own, and was written since.
                Err(Unsettled::Changed) if bluestore_uuid(&raw).is_some() => return Ok(()),
                other => other?,
            };
            if is_own && settled.mended.is_none() {
                return Ok(());
            }
            if let Some(label) = &settled.label {
                self.may_go(label, superblock.as_ref())?;
            }
            let head =
                settled.masked.head().context("its first block is damaged, and no copy of it is left")?;
            let block = settled.masked.block();
            match &mut cache {
                Some(cache) if saved.is_none_or(|s| s.block != block) => save(cache, &block)?,
                Some(_) => {}
                None => self.kept.store(&block)?,
            }
            dev.write_at(0, &head)?;
            dev.flush()?;
            ensure!(first_block(&mut dev)? == head, "it does not keep what is written to it");
            Ok(())
        };
        lift().with_context(|| format!("giving {} its first block back", self.core.display()))
    }

    /// Nothing of the OSD is on the cache alone.
    fn may_go(&self, label: &CoreLabel, cache: Option<&Superblock>) -> Result<()> {
        ensure!(
            label.name == self.volume,
            "it is the core of volume '{}', not of '{}'",
            label.name,
            self.volume
        );
        let Some(sb) = cache else {
            let Some(lost) = lost(label) else { return Ok(()) };
            bail!("{lost}");
        };
        ensure!(sb.uuid == label.cache, "its cache is {}, and another one is there", label.cache_text());
        match label.dirty_bytes {
            Some(0) if sb.clean && sb.dirty_blocks == 0 => Ok(()),
            Some(n) => bail!("it lacks {n} bytes that its cache has"),
            None => bail!("what it lacks is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::MaskedHead;
    use loligo_engine::open::{FormatOptions, format};
    use loligo_format::superblock::CoreIdentity;
    use loligo_volume::first_block::relabel;
    use std::fs;
    use std::os::unix::fs::FileExt;

    struct Site {
        _dir: tempfile::TempDir,
        core: PathBuf,
        cache: PathBuf,
        head: Vec<u8>,
        block: Vec<u8>,
        kept: Kept,
    }

    /// A veiled core and its cache, both as after a clean stop with `dirty` bytes on the cache.
    fn site(dirty: Option<u64>) -> Site {
        let dir = tempfile::tempdir().expect("a folder");
        let [core, cache] = ["core", "cache"].map(|n| dir.path().join(n));
        let mut head = vec![0; HEAD as usize];
        let text = b"bluestore block device\n0f0e0d0c-0000-1111-2222-333344445555\n";
        head[..text.len()].copy_from_slice(text);
        fs::write(&core, [&head[..], &[5; 8192]].concat()).expect("a core");
        fs::File::create(&cache).and_then(|f| f.set_len(24 << 20)).expect("a cache");
        let mut dev = open_device(&cache).expect("it opens");
        let options = FormatOptions {
            uuid: [3; 16],
            name: "osd4".to_owned(),
            cache_size: 24 << 20,
            core: CoreIdentity { size: 12_288, id: String::new() },
            line_size: 4096,
            shards: 1,
            stripe: 0,
            mode: loligo_format::mode::Mode::Wb,
            core_reserve: 0,
            journal_len: 0,
        };
        let sb = format(&mut dev, &options).expect("it fits");
        let label = CoreLabel {
            generation: 2,
            cache: sb.uuid,
            name: "osd4".to_owned(),
            data_start: 0,
            dirty_bytes: dirty,
            through: false,
        };
        let block = relabel(&MaskedHead::before(head.clone()).expect("room"), &label);
        save(&mut dev, &block).expect("written");
        write_first(&core, &block);
        let [folder, state] = ["folder", "state"].map(|n| dir.path().join(n));
        for d in [&folder, &state] {
            fs::create_dir(d).expect("a folder");
        }
        let kept = Kept::in_folders(&folder, &state, "osd4");
        Site { _dir: dir, core, cache, head, block, kept }
    }

    fn write_first(core: &Path, block: &[u8]) {
        fs::File::options().write(true).open(core).and_then(|f| f.write_all_at(block, 0)).expect("written");
    }

    impl Site {
        fn raw(&self, cache: bool) -> Raw<'_> {
            let cache = cache.then_some(self.cache.as_path());
            Raw { core: &self.core, cache, volume: "osd4", kept: &self.kept }
        }

        fn now(&self) -> Vec<u8> {
            fs::read(&self.core).expect("a core")
        }
    }

    #[test]
    fn a_first_block_comes_back_wherever_cut_off_and_alone_changes() {
        let site = site(Some(0));
        for sectors in 0..=8 {
            // Sectors of before, then of after: what a loss of power leaves.
            write_first(&site.core, &site.block);
            write_first(&site.core, &site.head[..sectors * 512]);
            site.raw(true).lift().expect("it goes");
            assert_eq!(site.now(), [&site.head[..], &[5; 8192]].concat(), "{sectors} sectors");
            site.raw(true).lift().expect("once more is no harm");
        }
        assert!(is_settled(&site.core).expect("it can be read"));
        // The OSD has changed it since.
        let mut changed = site.head.clone();
        changed[700] = 9;
        write_first(&site.core, &changed);
        site.raw(true).lift().expect("there is nothing to do");
        assert_eq!(site.now()[..4096], changed);
    }

    #[test]
    fn a_first_block_that_nobody_knows_is_not_taken_for_the_osds() {
        let site = site(Some(0));
        write_first(&site.core, &[1; 4096]);
        assert!(site.raw(true).lift().is_err());
        assert_eq!(site.now()[..4096], [1; 4096]);
    }

    #[test]
    fn a_removed_osds_adopted_core_loses_its_first_block_alone() {
        let site = site(None);
        crate::wipe::core(&site.core, "osd5", false).expect("another's stays");
        assert_eq!(site.now()[..4096], site.block);
        crate::wipe::core(&site.core, "osd4", false).expect("it goes");
        assert_eq!(site.now(), [&[0; 4096][..], &[5; 8192]].concat());
    }

    #[test]
    fn what_the_cache_alone_holds_keeps_the_label_in_its_place() {
        for dirty in [None, Some(4096)] {
            let site = site(dirty);
            let why = format!("{:#}", site.raw(true).lift().expect_err("it lacks something"));
            assert!(why.contains("lack"), "{why}");
            assert_eq!(site.now()[..4096], site.block);
            assert!(!is_settled(&site.core).expect("it can be read"));
        }
        let site = site(Some(0));
        let other = Raw { volume: "osd5", ..site.raw(true) };
        assert!(format!("{:#}", other.lift().expect_err("another's")).contains("osd4"));
    }

    /// The same first block under a label that says what `change` makes of it.
    fn relabelled(site: &Site, change: impl FnOnce(&mut CoreLabel)) -> Vec<u8> {
        let mut label = decode(&site.block).expect("a label");
        label.generation += 1;
        change(&mut label);
        let block = relabel(&MaskedHead::of_block(site.block.clone()), &label);
        write_first(&site.core, &block);
        block
    }

    #[test]
    fn without_its_cache_the_label_itself_has_the_first_block() {
        let site = site(None);
        let block = relabelled(&site, |label| label.through = true);
        assert!(!is_settled(&site.core).expect("it can be read"));
        site.raw(false).lift().expect("the disk has everything");
        assert_eq!(site.now()[..4096], site.head);
        // Cut off, it is known from either of the copies that were kept.
        let torn = [&site.head[..512], &block[512..1024], &site.head[1024..]].concat();
        for lost in &site.kept.0 {
            let copy = fs::read(lost).expect("it was kept");
            assert_eq!(copy, block);
            fs::remove_file(lost).expect("a loss of power");
            write_first(&site.core, &torn);
            site.raw(false).lift().expect("it goes on");
            assert_eq!(site.now()[..4096], site.head);
            fs::write(lost, copy).expect("for the other one");
        }
        site.kept.forget();
        assert!(site.kept.0.iter().all(|path| !path.exists()));
    }

    #[test]
    fn a_copy_of_another_volumes_first_block_is_none() {
        let site = site(Some(0));
        let other = relabelled(&site, |label| label.name = "osd5".to_owned());
        site.kept.0.iter().for_each(|path| fs::write(path, &other).expect("it can be written"));
        assert!(site.kept.load("osd4").is_none() && site.kept.load("osd5").is_some());
    }

    #[test]
    fn without_a_cache_that_may_have_got_ahead_the_label_stays() {
        for dirty in [None, Some(4096)] {
            let site = site(dirty);
            let why = format!("{:#}", site.raw(false).lift().expect_err("it would be a mixture"));
            assert!(why.contains("a mixture of old and new") && why.contains("osd remove"), "{why}");
            assert_eq!(site.now()[..4096], site.block);
        }
        let known = site(Some(4096));
        relabelled(&known, |label| label.through = true);
        assert!(known.raw(false).lift().is_err(), "it was ahead when it was stopped");
        let site = site(Some(0));
        site.raw(false).lift().expect("it has everything");
        assert_eq!(site.now()[..4096], site.head);
    }

    #[test]
    fn a_cache_that_is_void_is_none() {
        let site = site(Some(0));
        let veil = MaskedHead::of_block(site.block.clone());
        let void =
            CoreLabel { generation: 3, cache: [0; 16], dirty_bytes: Some(0), ..decode(&site.block).unwrap() };
        let block = relabel(&veil, &void);
        for wiped in [false, true] {
            write_first(&site.core, &block);
            if wiped {
                loligo_engine::open::wipe(&mut open_device(&site.cache).expect("it opens")).expect("wiped");
            }
            assert!(label(&site.core).expect("it can be read").is_some_and(|l| is_void(&l)));
            site.raw(true).lift().expect("the disk has everything");
            assert_eq!(site.now()[..4096], site.head);
            // Cut off, it goes on.
            write_first(&site.core, &block);
            write_first(&site.core, &site.head[..512]);
            site.raw(true).lift().expect("it goes on");
            assert_eq!(site.now()[..4096], site.head);
        }
    }

    #[test]
    fn a_disk_refused_before_its_cache_was_made_stays_as_it_is() {
        let site = site(Some(0));
        write_first(&site.core, &site.head);
        loligo_engine::open::wipe(&mut open_device(&site.cache).expect("it opens")).expect("wiped");
        site.raw(true).lift().expect("there is nothing to do");
        assert_eq!(site.now()[..4096], site.head);
        // Under a label that is missed.
        write_first(&site.core, &site.block);
        assert!(site.raw(true).lift().is_err());
        assert_eq!(site.now()[..4096], site.block);
    }
}
