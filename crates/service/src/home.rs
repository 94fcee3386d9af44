//! Cores that begin with a label, so that nobody else finds anything on the raw device, and that remember their cache: before
//! their content, or in the place of its first block.

use crate::mark::Mark;
use crate::say::say;
use crate::veil::{Saved, Unsettled, settle};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::veil::HEAD;
use loligo_block::{
    CacheDevice, CoreFile, DeviceFile, OpenOptions, SIGNATURE_PROBE, SyncFile, SyncIo, Veil,
    foreign_signature, known_signature,
};
use loligo_cache::home::{HomeLabel, MAX_HOME, MIN_HOME};
use loligo_cache::superblock::{SuperError, Superblock};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long somebody who locks the device as a file is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// The label of a core and the whole device that it lies on.
#[derive(Debug)]
pub(crate) struct Home {
    mark: Arc<Mark>,
    /// It is on the device already.
    found: bool,
    /// Why that cannot be served, as long as nobody has looked at what the cache keeps of it.
    unsettled: Option<Unsettled>,
    /// The cache kept a copy of the first block, and the disk has no label: whoever put the block back may have used the disk since.
    uncovered: bool,
}

impl Home {
    /// Looks for a label on `whole`, or takes place for one of `wanted` bytes (0: in the content's first block). The core's content
    /// with it; without either the device is the content. `begins` is asked whether its cache knows where that begins, since
    /// clients may have written anything, a label too.
    ///
    /// # Errors
    /// Where the label is damaged or another than wanted, or its place is somebody else's.
    pub(crate) fn find(
        whole: DeviceFile,
        wanted: Option<u64>,
        force: bool,
        begins: impl FnOnce() -> Option<u64>,
    ) -> Result<(CoreFile, Option<Home>)> {
        let path = whole.path().display().to_string();
        let (label, found) = match HomeLabel::load(&mut SyncFile::new(whole.clone())) {
            Ok(label) if label.home_start == 0 => return Home::veiled(whole, wanted),
            Ok(label) if wanted.is_none() && is_content(&whole, &label, begins())? => {
                return Ok((whole.into(), None));
            }
            // With that order its second copy is content.
            Ok(_) if wanted == Some(0) && !begins_with_label(&whole)? => return Home::veiled(whole, wanted),
            Ok(label) => {
                if let Some(n) = wanted.filter(|n| *n != label.home_start) {
                    bail!(
                        "the core {path} was given a home offset of {}, and {n} is wanted: leave --home-offset out",
                        label.home_start
                    );
                }
                (label, true)
            }
            Err(SuperError::Absent) => {
                let Some(home_start) = wanted else { return Ok((whole.into(), None)) };
                if home_start == 0 {
                    return Home::veiled(whole, wanted);
                }
                vacant(&whole, home_start, force)?;
                (HomeLabel { home_start, ..nobodys() }, false)
            }
            Err(SuperError::Io(e)) => return Err(e).context("the core cannot be read"),
            Err(_) if is_veiled(&first_block(&whole)?) => return Home::veiled(whole, wanted),
            Err(e) => bail!(
                "both labels of the core {path} are unusable: {e}. Its content begins behind them; restore the first 1 MiB of the \
                 device, or serve it with a program of the version that wrote them"
            ),
        };
        let content = whole.behind(label.home_start).context("the core is too small")?;
        Ok((
            content.into(),
            Some(Home {
                mark: Arc::new(Mark::new(whole, None, label)),
                found,
                unsettled: None,
                uncovered: false,
            }),
        ))
    }

    /// A core whose content begins at byte 0: its first block is settled before it is served.
    fn veiled(whole: DeviceFile, wanted: Option<u64>) -> Result<(CoreFile, Option<Home>)> {
        let path = whole.path().display().to_string();
        if let Some(n) = wanted.filter(|n| *n != 0) {
            bail!(
                "the content of the core {path} begins at byte 0, and --home-offset {n} is wanted: leave it out"
            );
        }
        // Its own OSD must not have it.
        whole.lock_as_file(WAIT).context("the core cannot be locked")?;
        let raw = first_block(&whole)?;
        let (label, veil, unsettled) = match settle(&raw, None) {
            Ok(settled) => (settled.label, settled.veil, None),
            Err(why) => (None, Veil::of_block(raw.clone()), Some(why)),
        };
        let veil = Arc::new(veil);
        let content = CoreFile::veiled(whole.clone(), veil.clone());
        let label = label.unwrap_or_else(nobodys);
        let mark = Arc::new(Mark::new(whole, Some(veil), label));
        let home = Home { mark, found: is_veiled(&raw), unsettled, uncovered: false };
        Ok((content, Some(home)))
    }

    /// Before the core is read: what its cache keeps of its first block says what that is.
    ///
    /// # Errors
    /// Where that cannot be told; with `force`, what is on the core counts.
    pub(crate) fn settle(
        &mut self,
        cache: Option<&CacheDevice>,
        superblock: Option<&Superblock>,
        force: bool,
    ) -> Result<()> {
        let Some(veil) = self.mark.veil() else { return Ok(()) };
        let saved = match (cache, superblock) {
            (Some(cache), Some(sb)) => Saved::load(&mut cache.sync_io(), sb.uuid)?,
            _ => None,
        };
        let raw = first_block(self.mark.whole())?;
        let settled = match settle(&raw, saved.as_ref()) {
            Err(Unsettled::Changed) if force => settle(&raw, None),
            other => other,
        };
        match settled {
            Ok(settled) => {
                if let Some(what) = settled.mended {
                    say!("{}: its first block was {what}: the copy on the cache is taken", self.path());
                }
                if settled.veil.head().is_none() {
                    say!(
                        "warning: {}: its first 4096 bytes are damaged, and no copy is on the cache: they cannot be read until they are \
                         written",
                        self.path()
                    );
                }
                veil.become_like(&settled.veil);
                self.uncovered = saved.is_some() && settled.label.is_none();
                if let Some(label) = settled.label {
                    self.mark.becomes(label);
                }
                self.unsettled = None;
            }
            Err(why) => self.unsettled = Some(why),
        }
        self.is_settled()
    }

    fn is_settled(&self) -> Result<()> {
        let Some(why) = &self.unsettled else { return Ok(()) };
        let mend = match why {
            Unsettled::Label(_) => "give the cache that it belongs to, which keeps a copy",
            Unsettled::Changed => "if what is on the core is right, add --force",
            Unsettled::NoRoom => "this core cannot be served with its content from byte 0 on",
        };
        bail!("the core {} cannot be served: {why}: {mend}", self.path())
    }

    /// Its content begins at byte 0, behind a label in the same block.
    pub(crate) fn is_veiled(&self) -> bool {
        self.mark.veil().is_some()
    }

    /// The label, for whoever switches the mode while the core is served.
    pub(crate) fn mark(&self) -> Weak<Mark> {
        Arc::downgrade(&self.mark)
    }

    fn path(&self) -> std::path::Display<'_> {
        self.mark.whole().path().display()
    }

    /// Bytes before the content.
    pub(crate) fn start(&self) -> u64 {
        self.mark.label().home_start
    }

    /// Refuses to serve the core without a cache, where that may hold what it lacks and nobody gives that up by `force`.
    pub(crate) fn refuse_bare(&self, force: bool) -> Result<()> {
        self.is_settled()?;
        let label = self.mark.label();
        let Some(lost) = lost(&label).filter(|_| !force) else { return Ok(()) };
        bail!(
            "the core {} belongs to cache {} of volume '{}', which holds {lost}. Serve it through that cache; --force gives that up",
            self.path(),
            label.cache_text(),
            label.name
        )
    }

    /// Refuses any other cache than the one that the label names, where that may hold what the core lacks; a found label without
    /// one of these is another core's that stands in its place, unless it was `attaching`: nobody was served through
    /// it, and it is empty.
    pub(crate) fn refuse_other(
        &self,
        cache: Option<&Superblock>,
        attaching: bool,
        force: bool,
    ) -> Result<()> {
        let label = self.mark.label();
        if let Some(sb) = cache.filter(|_| self.found && label.cache == [0; 16] && !attaching) {
            bail!(
                "the core {} was served without a cache since cache {} of volume '{}' was in front of it: what that holds is void. \
                 --create --force makes it anew",
                self.path(),
                sb.uuid_text(),
                sb.name
            );
        }
        if !self.found || force || cache.is_some_and(|sb| sb.uuid == label.cache) {
            return Ok(());
        }
        let Some(lost) = lost(&label) else { return Ok(()) };
        bail!(
            "the core {} belongs to cache {} of volume '{}', which holds {lost}. Give that cache; --force gives it up",
            self.path(),
            label.cache_text(),
            label.name
        )
    }

    /// Whether the core was, or may have been, written without `cache` since that was in front of it: what it has clean is not to be
    /// believed then.
    ///
    /// # Errors
    /// Where it has something dirty all the same. Not even an order has that written: it would be single blocks of an old state in a newer one.
    pub(crate) fn is_ahead_of(&self, cache: &Superblock, dirty_bytes: u64) -> Result<bool> {
        let ahead = self.uncovered || self.found && self.mark.label().cache != cache.uuid;
        ensure!(
            !ahead || dirty_bytes == 0,
            "the core {} was used without cache {} of volume '{}' since that was in front of it, and the cache still holds {dirty_bytes} \
             dirty bytes, which are older than the core: --create --force makes it anew and gives them up",
            self.path(),
            cache.uuid_text(),
            cache.name
        );
        Ok(ahead)
    }

    /// From now on `cache` may hold what the core lacks, but for as long as the label says `through`. Durable when this returns.
    pub(crate) fn attach(&mut self, cache: &Superblock, device: &CacheDevice, through: bool) -> Result<()> {
        if !self.found {
            let path = self.path();
            match self.mark.veil() {
                None => {
                    say!("{path}: a label at its start, its content from byte {} on", self.start())
                }
                Some(_) => say!(
                    "{path}: a label in the place of its first block, which is kept behind it and on the cache"
                ),
            }
        }
        self.mark.write(Some(device), |label| {
            label.cache = cache.uuid;
            label.name.clone_from(&cache.name);
            (label.dirty_bytes, label.through) = (None, through);
        })?;
        announce(self.mark.whole());
        self.found = true;
        Ok(())
    }

    /// The cache was stopped cleanly and holds so many bytes that the core lacks.
    pub(crate) fn detach(&mut self, dirty_bytes: u64, device: &CacheDevice) -> Result<()> {
        self.mark.write(Some(device), |label| {
            (label.dirty_bytes, label.through) = (Some(dirty_bytes), false);
        })
    }

    /// What it says.
    pub(crate) fn label(&self) -> HomeLabel {
        self.mark.label()
    }

    /// It says again what it said as `former`, to the generation. Durable when this returns.
    pub(crate) fn restore(&mut self, former: HomeLabel) -> Result<()> {
        self.mark.write(None, |label| {
            // One that is written counts on.
            *label = HomeLabel { generation: former.generation.saturating_sub(1), ..former };
        })
    }

    /// The core goes on without a cache: what any holds of it is void. Durable when this returns.
    pub(crate) fn void(&mut self) -> Result<()> {
        self.mark.write(None, |label| {
            label.cache = [0; 16];
            (label.dirty_bytes, label.through) = (Some(0), false);
        })
    }
}

/// The cache that the label at the start of the core at `path` names, which is all zeros for none; nothing where there
/// is no such label.
pub(crate) fn named_cache(path: &Path) -> Option<String> {
    let look = OpenOptions { read_only: true, exclusive: None, ..OpenOptions::default() };
    let label = HomeLabel::load(&mut SyncFile::new(DeviceFile::open(path, &look).ok()?)).ok()?;
    Some(label.cache_text())
}

fn lost(label: &HomeLabel) -> Option<String> {
    match label.lacks() {
        Some(0) => None,
        Some(n) => Some(format!("{n} bytes that the core does not have")),
        None => Some("whatever the core did not have when it was served last".to_owned()),
    }
}

/// Has udev see what was written at the start of `device`; a hint to others, so that nothing fails with it.
pub(crate) fn announce(device: &DeviceFile) {
    if let Err(why) = device.announce() {
        let path = device.path().display();
        say!(
            "{path}: udev was not told of what is there now ({why}): udevadm trigger --action=change {path}"
        );
    }
}

/// A label that nobody has written yet.
fn nobodys() -> HomeLabel {
    HomeLabel {
        generation: 0,
        cache: [0; 16],
        name: String::new(),
        home_start: 0,
        dirty_bytes: Some(0),
        through: false,
    }
}

fn first_block(whole: &DeviceFile) -> Result<Vec<u8>> {
    ensure!(whole.geometry().size > HEAD, "the core {} is too small", whole.path().display());
    let mut raw = vec![0; HEAD as usize];
    SyncFile::new(whole.clone()).read_at(0, &mut raw).context("the core cannot be read")?;
    Ok(raw)
}

/// The start of the device, where signatures lie.
fn signatures_of(whole: &DeviceFile) -> Result<Vec<u8>> {
    let mut head = vec![0; SIGNATURE_PROBE];
    SyncFile::new(whole.clone()).read_at(0, &mut head).context("the core cannot be read")?;
    Ok(head)
}

fn is_veiled(block: &[u8]) -> bool {
    loligo_cache::veil::is_label(block)
}

/// Whether a label whose content would begin behind it lies in somebody's content. The cache knows best. Without one, a second copy
/// alone says nothing where the device begins with something else: it was left behind.
fn is_content(whole: &DeviceFile, label: &HomeLabel, begins: Option<u64>) -> Result<bool> {
    if let Some(start) = begins {
        return Ok(start != label.home_start);
    }
    if begins_with_label(whole)? {
        return Ok(false);
    }
    let Some(what) = known_signature(&signatures_of(whole)?) else { return Ok(false) };
    let (path, n) = (whole.path().display(), label.home_start);
    say!(
        "warning: {path} holds {what}, and at 512 KiB the second copy of a label of volume '{}', which is taken for left behind: the \
         content begins at byte 0. If it begins behind the label: --home-offset {n}",
        label.name
    );
    Ok(true)
}

fn begins_with_label(whole: &DeviceFile) -> Result<bool> {
    Ok(loligo_cache::home::is_label(&first_block(whole)?))
}

/// Whether a label of `home` bytes has room, and lies over nobody's data.
fn vacant(whole: &DeviceFile, home: u64, force: bool) -> Result<()> {
    let path = whole.path().display();
    ensure!(
        (MIN_HOME..=MAX_HOME).contains(&home) && home.is_multiple_of(MIN_HOME),
        "--home-offset {home}: 0, or 1m to 1g in steps of 1m"
    );
    let size = whole.geometry().size;
    ensure!(size > home, "the core {path} has {size} bytes, and its content would begin at {home}");
    match foreign_signature(&signatures_of(whole)?) {
        Some(what) if !force => bail!(
            "the core {path} holds {what}, and its content would begin behind a label: if that is to be overwritten, add --force; an \
             OSD with data is put behind a cache by 'loligo osd adopt'"
        ),
        // Data of somebody's that bears no signature. Behind that place nothing is written but by clients.
        None if !force && head_holds_data(whole, home)? => bail!(
            "the core {path} has no known signature, and its first {home} bytes are not all zero: a label would be written over them, and the \
             content would begin behind them. If they are nobody's, add --force"
        ),
        Some(_) | None => Ok(()),
    }
}

/// Whether anything but zeros lies in the first `bytes`.
fn head_holds_data(whole: &DeviceFile, bytes: u64) -> Result<bool> {
    let (mut io, mut piece) = (SyncFile::new(whole.clone()), vec![0; MIN_HOME as usize]);
    for at in (0..bytes).step_by(piece.len()) {
        io.read_at(at, &mut piece).context("the core cannot be read")?;
        if piece.iter().any(|b| *b != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 4 << 20;
    const HOME: u64 = MIN_HOME;

    /// A disk that had a label of `HOME` bytes, and what is at its start since.
    fn disk(start: &[u8]) -> (tempfile::TempDir, DeviceFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        let mut bytes = vec![0; SIZE];
        HomeLabel { home_start: HOME, ..nobodys() }.store(&mut bytes).unwrap();
        bytes[..start.len()].copy_from_slice(start);
        std::fs::write(&path, bytes).unwrap();
        (dir, DeviceFile::open(&path, &OpenOptions::default()).unwrap())
    }

    /// Where its content begins, for who has heard this of the cache.
    fn begins(start: &[u8], wanted: Option<u64>, of_cache: Option<u64>) -> u64 {
        let (_dir, device) = disk(start);
        let (_, home) = Home::find(device, wanted, false, || of_cache).unwrap();
        home.map_or(0, |home| home.start())
    }

    #[test]
    fn a_second_copy_that_was_left_behind_makes_no_label() {
        let xfs = [&b"XFSB"[..], &[0; 4092]].concat();
        assert_eq!(begins(&xfs, None, None), 0);
        assert_eq!(begins(&xfs, Some(HOME), None), HOME, "whoever says so has it");
        assert_eq!(begins(&xfs, None, Some(HOME)), HOME, "its cache knows");
        assert_eq!(begins(&[0xa5; 4096], None, None), HOME, "nobody's signature");
        assert_eq!(begins(&[], None, None), HOME);
    }

    #[test]
    fn a_label_that_a_client_wrote_is_content() {
        assert_eq!(begins(&[], None, Some(0)), 0);
        assert_eq!(begins(&[], None, Some(HOME)), HOME);
    }
}
