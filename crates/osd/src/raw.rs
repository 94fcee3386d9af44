//! The core of an adopted OSD as it lies on the disk: its own first block, or the label that stands for it.

use crate::devices::bluestore_uuid;
use crate::wipe::open_device;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::SyncIo;
use loligo_block::veil::HEAD;
use loligo_cache::home::HomeLabel;
use loligo_cache::superblock::Superblock;
use loligo_cache::veil::MAGIC;
use loligo_service::veil::{Saved, Unsettled, save, settle};
use rustix::fs::{Mode, OFlags};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long whoever locks the device as a file is waited for.
const WAIT: Duration = Duration::from_secs(10);
/// Where the label's block is kept while it is replaced, if there is no cache that could.
const KEPT: &str = "loligo-head";

/// What an OSD is put back from.
#[derive(Debug, Clone)]
pub(crate) struct Raw<'a> {
    /// Its own device.
    pub(crate) core: &'a Path,
    /// Its cache; nothing where that is lost.
    pub(crate) cache: Option<&'a Path>,
    /// Its volume.
    pub(crate) volume: &'a str,
    /// Its folder.
    pub(crate) dir: &'a Path,
}

/// The first block of a device.
pub(crate) fn first_block(dev: &mut dyn SyncIo) -> Result<Vec<u8>> {
    ensure!(dev.size() > HEAD, "it has {} bytes: that is no OSD's", dev.size());
    let mut raw = vec![0; HEAD as usize];
    dev.read_at(0, &mut raw)?;
    Ok(raw)
}

/// What the core lacks, by its label: 0 where its own first block is there, nothing where that is not known.
pub(crate) fn lacks(core: &Path) -> Result<Option<u64>> {
    let look = || {
        let mut dev = open_device(core)?;
        if !first_block(&mut dev)?.starts_with(MAGIC) {
            return Ok(Some(0));
        }
        anyhow::Ok(HomeLabel::load(&mut dev)?.dirty_bytes)
    };
    look().with_context(|| format!("looking at {}", core.display()))
}

impl Raw<'_> {
    fn kept(&self) -> PathBuf {
        self.dir.join(KEPT)
    }

    /// Puts the OSD's own first block back where it belongs. To be called again after whatever cut it off.
    ///
    /// # Errors
    /// Where the core lacks something that the cache has, or what the first block was cannot be told.
    pub(crate) fn lift(&self) -> Result<()> {
        let lift = || -> Result<()> {
            let mut dev = open_device(self.core)?;
            dev.file().lock_as_file(WAIT)?;
            let mut cache = self.cache.map(open_device).transpose()?;
            let superblock = match &mut cache {
                Some(cache) => Some(Superblock::load(cache).context("its cache cannot be read")?),
                None => None,
            };
            let saved = match (&mut cache, &superblock) {
                (Some(cache), Some(sb)) => Saved::load(cache, sb.uuid)?,
                _ => std::fs::read(self.kept()).ok().and_then(|block| Saved::of(block, None)),
            };
            let raw = first_block(&mut dev)?;
            let is_own = !raw.starts_with(MAGIC);
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
                settled.veil.head().context("its first block is damaged, and no copy of it is left")?;
            let block = settled.veil.block();
            match &mut cache {
                Some(cache) if saved.is_none_or(|s| s.block != block) => save(cache, &block)?,
                Some(_) => {}
                None => self.keep(&block)?,
            }
            dev.write_at(0, &head)?;
            dev.flush()?;
            ensure!(first_block(&mut dev)? == head, "it does not keep what is written to it");
            Ok(())
        };
        lift().with_context(|| format!("giving {} its first block back", self.core.display()))
    }

    /// Nothing of the OSD is on the cache alone.
    fn may_go(&self, label: &HomeLabel, cache: Option<&Superblock>) -> Result<()> {
        ensure!(
            label.name == self.volume,
            "it is the core of volume '{}', and not of '{}'",
            label.name,
            self.volume
        );
        let Some(sb) = cache else { return Ok(()) };
        ensure!(sb.uuid == label.cache, "its cache is {}, and another one is there", label.cache_text());
        match label.dirty_bytes {
            Some(0) if sb.clean && sb.dirty_blocks == 0 => Ok(()),
            Some(n) => bail!("it lacks {n} bytes that its cache has"),
            None => bail!("what it lacks is not known"),
        }
    }

    /// Keeps the block in the folder, durably.
    fn keep(&self, block: &[u8]) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(self.kept())?;
            file.write_all(block)?;
            file.sync_all()?;
            let dir = rustix::fs::open(self.dir, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            Ok(rustix::fs::fsync(dir)?)
        };
        write().with_context(|| format!("writing {}", self.kept().display()))
    }
}

/// What was kept in an OSD's folder is no longer needed.
pub(crate) fn forget(dir: &Path) {
    // It is there only where there was no cache.
    let _ = std::fs::remove_file(dir.join(KEPT));
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::{SyncFile, Veil};
    use loligo_cache::open::{FormatOptions, format};
    use loligo_cache::superblock::CoreIdentity;
    use loligo_service::veil::relabel;
    use std::fs;
    use std::os::unix::fs::FileExt;

    struct Site {
        dir: tempfile::TempDir,
        core: PathBuf,
        cache: PathBuf,
        head: Vec<u8>,
        block: Vec<u8>,
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
        let mut dev: SyncFile = open_device(&cache).expect("it opens");
        let options = FormatOptions {
            uuid: [3; 16],
            name: "osd4".to_owned(),
            cache_size: 24 << 20,
            core: CoreIdentity { size: 12_288, id: String::new() },
            line_size: 4096,
            shards: 1,
            mode: loligo_cache::mode::Mode::Wb,
            core_reserve: 0,
            journal_len: 0,
        };
        let sb = format(&mut dev, &options).expect("it fits");
        let label = HomeLabel {
            generation: 2,
            cache: sb.uuid,
            name: "osd4".to_owned(),
            home_start: 0,
            dirty_bytes: dirty,
        };
        let block = relabel(&Veil::before(head.clone()).expect("room"), &label);
        save(&mut dev, &block).expect("written");
        write_first(&core, &block);
        Site { dir, core, cache, head, block }
    }

    fn write_first(core: &Path, block: &[u8]) {
        fs::File::options().write(true).open(core).and_then(|f| f.write_all_at(block, 0)).expect("written");
    }

    impl Site {
        fn raw(&self, cache: bool) -> Raw<'_> {
            let cache = cache.then_some(self.cache.as_path());
            Raw { core: &self.core, cache, volume: "osd4", dir: self.dir.path() }
        }

        fn now(&self) -> Vec<u8> {
            fs::read(&self.core).expect("a core")
        }
    }

    #[test]
    fn a_first_block_comes_back_from_wherever_it_was_cut_off_and_nothing_else_changes() {
        let site = site(Some(0));
        for sectors in 0..=8 {
            // Sectors of before, then of after: what a loss of power leaves.
            write_first(&site.core, &site.block);
            write_first(&site.core, &site.head[..sectors * 512]);
            site.raw(true).lift().expect("it goes");
            assert_eq!(site.now(), [&site.head[..], &[5; 8192]].concat(), "{sectors} sectors");
            site.raw(true).lift().expect("once more is no harm");
        }
        assert_eq!(lacks(&site.core).expect("it can be read"), Some(0));
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
    fn an_adopted_core_whose_osd_is_removed_loses_its_first_block_alone() {
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
            assert_eq!(lacks(&site.core).expect("it can be read"), dirty);
        }
        let site = site(Some(0));
        let other = Raw { volume: "osd5", ..site.raw(true) };
        assert!(format!("{:#}", other.lift().expect_err("another's")).contains("osd4"));
    }

    #[test]
    fn without_its_cache_the_label_itself_has_the_first_block() {
        let site = site(None);
        site.raw(false).lift().expect("it was ordered");
        assert_eq!(site.now()[..4096], site.head);
        // Cut off, it is known from the copy that was kept.
        let torn = [&site.head[..512], &site.block[512..1024], &site.head[1024..]].concat();
        write_first(&site.core, &torn);
        site.raw(false).lift().expect("it goes on");
        assert_eq!(site.now()[..4096], site.head);
        forget(site.dir.path());
        assert!(!site.dir.path().join(KEPT).exists());
    }
}
