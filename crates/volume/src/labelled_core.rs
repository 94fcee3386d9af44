//! Cores that begin with a label, so that nobody else finds anything on the raw device, and that remember their cache: before
//! their content, or in the place of its first block.

use crate::first_block::{Saved, Unsettled, settle};
use crate::served_label::ServedLabel;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::keys::{CREATE, DATA_OFFSET, FORCE};
use loligo_block::masked_head::{HEAD, body};
use loligo_block::{
    CacheDevice, CoreFile, DeviceFile, KeyedText, MaskedHead, OpenOptions, SIGNATURE_PROBE, SyncFile, SyncIo,
    foreign_signature, keyed, known_signature,
};
use loligo_format::core_label::{CoreLabel, MAX_HOME, MIN_HOME};
use loligo_format::superblock::{SuperError, Superblock};
use loligo_log::say;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The time that somebody who locks the device as a file is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// The remedy for a start that takes a client's bytes for a label.
fn clients() -> KeyedText {
    keyed!(
        "give the cache that it was written through and no {DATA_OFFSET}, since it knows that the content begins at byte 0; or serve \
         the core without a cache by --bare {DATA_OFFSET:#} 0 (data-offset = \"0\" in the file)"
    )
}

/// The requirements on a core.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// Bytes before its content, where that is said.
    pub(crate) home: Option<u64>,
    /// Give up what stands in the way.
    pub(crate) force: bool,
    /// It is served without a cache.
    pub(crate) bare: bool,
}

/// A cache's knowledge of its core.
#[derive(Debug, Clone)]
pub(crate) struct CacheView {
    /// The byte at which the core's content begins.
    pub(crate) begins: u64,
    /// The UUID of the cache.
    pub(crate) uuid: [u8; 16],
    /// Its volume.
    pub(crate) name: String,
    /// It keeps a copy of a first block, sound or not.
    pub(crate) keeps: bool,
}

impl CacheView {
    /// The core is content from its first byte on, without a label. A copy of the first block is on the cache before a label takes the
    /// place of that.
    fn is_plain(&self) -> bool {
        self.begins == 0 && !self.keeps
    }
}

/// The label of a core and the whole device that it lies on.
#[derive(Debug)]
pub(crate) struct LabelledCore {
    mark: Arc<ServedLabel>,
    /// It is on the device already.
    found: bool,
    /// The reason why that cannot be served, as long as nobody has looked at what the cache keeps of it.
    unsettled: Option<Unsettled>,
    /// The cache kept a copy of the first block, and the disk has no label: whoever put the block back may have used the disk since.
    uncovered: bool,
}

impl LabelledCore {
    /// Looks for a label on `whole`, or takes place for one of as many bytes as `wanted` (0: in the content's first block). The core's
    /// content with it; without either the device is the content. `known` is asked what its cache knows of it, since
    /// clients may have written anything, a label too.
    ///
    /// # Errors
    /// If the label is damaged or another than wanted, or its place is somebody else's.
    pub(crate) fn find(
        whole: DeviceFile,
        wanted: Wanted,
        known: impl FnOnce() -> Result<Option<CacheView>>,
    ) -> Result<(CoreFile, Option<LabelledCore>)> {
        let path = whole.path().display().to_string();
        let Wanted { home: wanted, force, bare } = wanted;
        let loaded = CoreLabel::load(&mut SyncFile::new(whole.clone()));
        if bare && wanted == Some(0) && is_content_by_order(&whole, &loaded, force)? {
            return Ok((whole.into(), None));
        }
        // Whoever says how much is before the content says that a label there is the core's own.
        let is_open = wanted.is_none() && !matches!(loaded, Err(SuperError::Absent | SuperError::Io(_)));
        // What refuses the cache is said where the cache is needed.
        let known = if is_open { known() } else { Ok(None) };
        let of_cache = known.as_ref().ok().and_then(Option::as_ref);
        let (label, found) = match loaded {
            Ok(CoreLabel { data_start: 0, .. }) | Err(SuperError::Damaged(_) | SuperError::TooNew(_))
                if is_masked(&first_block(&whole)?) =>
            {
                return match is_clients_veil(&whole, &loaded, of_cache, force)? {
                    true => Ok((whole.into(), None)),
                    false => LabelledCore::veiled(whole, wanted),
                };
            }
            Ok(label) if wanted.is_none() && is_content(&whole, &label, of_cache.map(|k| k.begins))? => {
                return Ok((whole.into(), None));
            }
            // It knows of no label at all.
            Err(SuperError::Damaged(_) | SuperError::TooNew(_))
                if of_cache.is_some_and(CacheView::is_plain) =>
            {
                return Ok((whole.into(), None));
            }
            // With that order its second copy is content.
            Ok(_) | Err(SuperError::Damaged(_) | SuperError::TooNew(_))
                if wanted == Some(0) && !begins_with_label(&whole)? =>
            {
                return LabelledCore::veiled(whole, wanted);
            }
            Ok(label) => {
                if let Some(n) = wanted.filter(|n| *n != label.data_start) {
                    bail!(keyed!(
                        "the core {path} was given a data offset of {}, and {n} is wanted: leave {DATA_OFFSET} out",
                        label.data_start
                    ));
                }
                (label, true)
            }
            Err(SuperError::Absent) => {
                let Some(data_start) = wanted else { return Ok((whole.into(), None)) };
                if data_start == 0 {
                    return LabelledCore::veiled(whole, wanted);
                }
                vacant(&whole, data_start, force)?;
                (CoreLabel { data_start, ..nobodys() }, false)
            }
            Err(SuperError::Io(e)) => return Err(e).context("the core cannot be read"),
            Err(e) => {
                known?;
                bail!(keyed!(
                    "both labels of the core {path} are unusable: {e}. If its content begins behind them, restore the first 1 MiB of the \
                     device, or serve it with a program of the version that wrote them; if a client wrote them, {}",
                    clients()
                ))
            }
        };
        let content = whole.behind(label.data_start).context("the core is too small")?;
        Ok((
            content.into(),
            Some(LabelledCore {
                mark: Arc::new(ServedLabel::new(whole, None, label)),
                found,
                unsettled: None,
                uncovered: false,
            }),
        ))
    }

    /// A core whose content begins at byte 0: its first block is settled before it is served.
    fn veiled(whole: DeviceFile, wanted: Option<u64>) -> Result<(CoreFile, Option<LabelledCore>)> {
        let path = whole.path().display().to_string();
        if let Some(n) = wanted.filter(|n| *n != 0) {
            bail!(keyed!(
                "the content of the core {path} begins at byte 0, and {DATA_OFFSET:#} {n} is wanted: leave it out"
            ));
        }
        // Its own OSD must not have it.
        whole.lock_as_file(WAIT).context("the core cannot be locked")?;
        let raw = first_block(&whole)?;
        let (label, masked, unsettled) = match settle(&raw, None) {
            Ok(settled) => (settled.label, settled.masked, None),
            Err(why) => (None, MaskedHead::of_block(raw.clone()), Some(why)),
        };
        let masked = Arc::new(masked);
        let content = CoreFile::masked(whole.clone(), masked.clone());
        let label = label.unwrap_or_else(nobodys);
        let mark = Arc::new(ServedLabel::new(whole, Some(masked), label));
        let home = LabelledCore { mark, found: is_masked(&raw), unsettled, uncovered: false };
        Ok((content, Some(home)))
    }

    /// Before the core is read: what its cache keeps of its first block says what that is.
    ///
    /// # Errors
    /// If that cannot be told; with `force`, what is on the core counts.
    pub(crate) fn settle(
        &mut self,
        cache: Option<&CacheDevice>,
        superblock: Option<&Superblock>,
        force: bool,
    ) -> Result<()> {
        let Some(masked) = self.mark.masked() else { return Ok(()) };
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
                if settled.masked.head().is_none() {
                    say!(
                        "warning: {}: its first 4096 bytes are damaged, and no copy is on the cache: they cannot be read until they are \
                         written",
                        self.path()
                    );
                }
                masked.become_like(&settled.masked);
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
            Unsettled::Label(_) => keyed!(
                "give the cache that it belongs to, which keeps a copy; if a client wrote it, {}",
                clients()
            ),
            Unsettled::Changed => keyed!("if what is on the core is right, add {FORCE}"),
            Unsettled::NoRoom => "this core cannot be served with its content from byte 0 on".into(),
        };
        bail!(keyed!("the core {} cannot be served: {why}: {mend}", self.path()))
    }

    /// Its content begins at byte 0, behind a label in the same block.
    pub(crate) fn is_masked(&self) -> bool {
        self.mark.masked().is_some()
    }

    /// The label, for whoever switches the mode while the core is served.
    pub(crate) fn mark(&self) -> Weak<ServedLabel> {
        Arc::downgrade(&self.mark)
    }

    fn path(&self) -> std::path::Display<'_> {
        self.mark.whole().path().display()
    }

    /// Bytes before the content.
    pub(crate) fn start(&self) -> u64 {
        self.mark.label().data_start
    }

    /// Refuses to serve the core without a cache, where that may hold what it lacks and nobody gives that up by `force`.
    pub(crate) fn refuse_bare(&self, force: bool) -> Result<()> {
        self.is_settled()?;
        let label = self.mark.label();
        let Some(lost) = lost(&label).filter(|_| !force) else { return Ok(()) };
        bail!(keyed!(
            "the core {} belongs to cache {} of volume '{}', which holds {lost}. Serve it through that cache; {FORCE} gives that up",
            self.path(),
            label.cache_text(),
            label.name
        ))
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
            bail!(keyed!(
                "the core {} was served without a cache since cache {} of volume '{}' was in front of it: what that holds is void. \
                 {CREATE} {FORCE} makes it anew",
                self.path(),
                sb.uuid_text(),
                sb.name
            ));
        }
        if !self.found || force || cache.is_some_and(|sb| sb.uuid == label.cache) {
            return Ok(());
        }
        let Some(lost) = lost(&label) else { return Ok(()) };
        bail!(keyed!(
            "the core {} belongs to cache {} of volume '{}', which holds {lost}. Give that cache; {FORCE} gives it up",
            self.path(),
            label.cache_text(),
            label.name
        ))
    }

    /// True if the core was, or may have been, written without `cache` since that was in front of it: what it has clean is not to be
    /// believed then.
    ///
    /// # Errors
    /// If it has something dirty all the same. Not even an order has that written: it would be single blocks of an old state in a
    /// newer one.
    pub(crate) fn is_ahead_of(&self, cache: &Superblock, dirty_bytes: u64) -> Result<bool> {
        let ahead = self.uncovered || self.found && self.mark.label().cache != cache.uuid;
        ensure!(
            !ahead || dirty_bytes == 0,
            keyed!(
                "the core {} was used without cache {} of volume '{}' since that was in front of it, and the cache still holds {dirty_bytes} \
                 dirty bytes, which are older than the core: {CREATE} {FORCE} makes it anew and gives them up",
                self.path(),
                cache.uuid_text(),
                cache.name
            )
        );
        Ok(ahead)
    }

    /// From now on `cache` may hold what the core lacks, but for as long as the label says `through`. Durable when this returns.
    pub(crate) fn attach(&mut self, cache: &Superblock, device: &CacheDevice, through: bool) -> Result<()> {
        if !self.found {
            let path = self.path();
            match self.mark.masked() {
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

    /// The contents of the label.
    pub(crate) fn label(&self) -> CoreLabel {
        self.mark.label()
    }

    /// It says again what it said as `former`, to the generation. Durable when this returns.
    pub(crate) fn restore(&mut self, former: CoreLabel) -> Result<()> {
        self.mark.write(None, |label| {
            // One that is written counts on.
            *label = CoreLabel { generation: former.generation.saturating_sub(1), ..former };
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
pub fn named_cache(path: &Path) -> Option<String> {
    let look = OpenOptions { read_only: true, exclusive: None, ..OpenOptions::default() };
    let label = CoreLabel::load(&mut SyncFile::new(DeviceFile::open(path, &look).ok()?)).ok()?;
    Some(label.cache_text())
}

fn lost(label: &CoreLabel) -> Option<String> {
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
fn nobodys() -> CoreLabel {
    CoreLabel {
        generation: 0,
        cache: [0; 16],
        name: String::new(),
        data_start: 0,
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

fn is_masked(block: &[u8]) -> bool {
    loligo_format::in_place_label::is_label(block)
}

/// True if a label whose content would begin behind it lies in somebody's content. The cache knows best. Without one, a second copy
/// alone says nothing where the device begins with something else: it was left behind.
fn is_content(whole: &DeviceFile, label: &CoreLabel, begins: Option<u64>) -> Result<bool> {
    if let Some(start) = begins {
        return Ok(start != label.data_start);
    }
    if begins_with_label(whole)? {
        return Ok(false);
    }
    let Some(what) = known_signature(&signatures_of(whole)?) else { return Ok(false) };
    let (path, n) = (whole.path().display(), label.data_start);
    say!(
        "warning: {path} holds {what}, and at 512 KiB the second copy of a label of volume '{}', which is taken for left behind: the \
         content begins at byte 0. If it begins behind the label: {DATA_OFFSET:#} {n}",
        label.name
    );
    Ok(true)
}

/// True if the first block, which bears the magic of a label in its place, is content as it is: its cache knows of none.
///
/// # Errors
/// If another cache may have put it there, and nobody takes it for content by `force`: a client that reads such a label has lost
/// its first block.
fn is_clients_veil(
    whole: &DeviceFile,
    label: &Result<CoreLabel, SuperError>,
    known: Option<&CacheView>,
    force: bool,
) -> Result<bool> {
    let Some(known) = known.filter(|known| known.is_plain()) else { return Ok(false) };
    let whose = match label {
        // Where the block behind it is damaged, no copy is made.
        Ok(label) if label.cache == known.uuid => return Ok(false),
        Ok(label) => (label.name == known.name)
            .then(|| format!("of cache {}, for this very volume '{}'", label.cache_text(), label.name)),
        Err(why) => may_be_veil(&first_block(whole)?, why)
            .then(|| format!("that is damaged ({why}), and what is behind it is not")),
    };
    let Some(whose) = whose.filter(|_| !force) else { return Ok(true) };
    bail!(keyed!(
        "the core {} begins with a label {whose}, and the cache that is given knows of none: another cache may have been in front of the core \
         since. If so, give that one; if a client wrote the label, add {FORCE}, which takes it for content",
        whole.path().display()
    ))
}

/// True if a label in the place of a first block, unusable because of `why`, may have been a sound one.
fn may_be_veil(block: &[u8], why: &SuperError) -> bool {
    matches!(why, SuperError::TooNew(_)) || body::unpack(block).is_some()
}

/// True if a core without a cache is content from its first byte on, as was said. A label that somebody may go by is not shown as content
/// for that alone: what served the core behind it may have been taken from the same definition.
///
/// # Errors
/// If there is such a one, without `force`.
fn is_content_by_order(
    whole: &DeviceFile,
    label: &Result<CoreLabel, SuperError>,
    force: bool,
) -> Result<bool> {
    let counts = match label {
        Err(SuperError::Io(_)) => return Ok(false),
        Err(SuperError::Absent) => false,
        Ok(_) | Err(SuperError::TooNew(_)) => true,
        Err(why) => {
            let raw = first_block(whole)?;
            is_masked(&raw) && may_be_veil(&raw, why)
        }
    };
    ensure!(
        !counts || force,
        keyed!(
            "the core {} has a label, and {DATA_OFFSET:#} 0 without a cache would show it to clients as content: if it is the core's own, leave \
             {DATA_OFFSET} out; if a client wrote it, add {FORCE}",
            whole.path().display()
        )
    );
    Ok(true)
}

fn begins_with_label(whole: &DeviceFile) -> Result<bool> {
    Ok(loligo_format::core_label::is_label(&first_block(whole)?))
}

/// True if a label of `home` bytes has room, and lies over nobody's data.
fn vacant(whole: &DeviceFile, home: u64, force: bool) -> Result<()> {
    let path = whole.path().display();
    ensure!(
        (MIN_HOME..=MAX_HOME).contains(&home) && home.is_multiple_of(MIN_HOME),
        keyed!("{DATA_OFFSET:#} {home}: 0, or 1m to 1g in steps of 1m")
    );
    let size = whole.geometry().size;
    ensure!(size > home, "the core {path} has {size} bytes, and its content would begin at {home}");
    match foreign_signature(&signatures_of(whole)?) {
        Some(what) if !force => bail!(keyed!(
            "the core {path} holds {what}, and its content would begin behind a label: if that is to be overwritten, add {FORCE}; an \
             OSD with data is put behind a cache by 'loligo osd adopt'"
        )),
        // Data of somebody's that bears no signature. Behind that place nothing is written but by clients.
        None if !force && head_holds_data(whole, home)? => bail!(keyed!(
            "the core {path} has no known signature, and its first {home} bytes are not all zero: a label would be written over them, and the \
             content would begin behind them. If they are nobody's, add {FORCE}"
        )),
        Some(_) | None => Ok(()),
    }
}

/// True if anything but zeros lies in the first `bytes`.
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
        CoreLabel { data_start: HOME, ..nobodys() }.store(&mut bytes).unwrap();
        bytes[..start.len()].copy_from_slice(start);
        std::fs::write(&path, bytes).unwrap();
        (dir, DeviceFile::open(&path, &OpenOptions::default()).unwrap())
    }

    /// The byte at which its content begins, for a reader that has heard this of the cache.
    fn begins(start: &[u8], home: Option<u64>, of_cache: Option<u64>) -> u64 {
        let known = of_cache.map(|begins| CacheView { begins, ..plain() });
        let (_, home) = found(start, Wanted { home, ..Wanted::default() }, known).unwrap();
        home.map_or(0, |home| home.start())
    }

    fn found(
        start: &[u8],
        wanted: Wanted,
        known: Option<CacheView>,
    ) -> Result<(CoreFile, Option<LabelledCore>)> {
        let (_dir, device) = disk(start);
        LabelledCore::find(device, wanted, || Ok(known))
    }

    /// The knowledge of a cache that has never seen a label.
    fn plain() -> CacheView {
        CacheView { begins: 0, uuid: [3; 16], name: "host".to_owned(), keeps: false }
    }

    /// The result of a start with `known`, or none, on a disk: content, a masked block, or what it says.
    fn taken(start: &[u8], wanted: Wanted, known: Option<CacheView>) -> String {
        match found(start, wanted, known) {
            Ok((_, None)) => "content".to_owned(),
            Ok((_, Some(home))) if home.is_masked() => "masked".to_owned(),
            Ok((_, Some(home))) => format!("behind {}", home.start()),
            Err(why) => why.to_string(),
        }
    }

    /// A first block behind a label of `cache` for volume `name`.
    fn veiled(cache: [u8; 16], name: &str) -> Vec<u8> {
        let head = [&b"bluestore block device"[..], &[0; 4074]].concat();
        let label = CoreLabel { cache, name: name.to_owned(), ..nobodys() };
        crate::first_block::relabel(&MaskedHead::before(head).unwrap(), &label)
    }

    fn eight_bytes(magic: &[u8; 8]) -> Vec<u8> {
        [&[0; 8], &magic[..], &[0xa5; 4080]].concat()
    }

    const FORCED: Wanted = Wanted { home: None, force: true, bare: false };
    const BARE: Wanted = Wanted { home: None, force: false, bare: true };
    const AS_CONTENT: Wanted = Wanted { home: Some(0), force: false, bare: true };

    #[test]
    fn a_damaged_label_is_content_where_the_cache_knows_of_none() {
        // The second copy goes too.
        let mut start = vec![0; 513 << 10];
        start[..4096].copy_from_slice(&eight_bytes(b"LOLIGOHM"));
        let taken = |wanted, known| taken(&start, wanted, known);
        assert_eq!(taken(Wanted::default(), Some(plain())), "content");
        let own = CacheView { begins: HOME, ..plain() };
        for (wanted, known) in [(Wanted::default(), Some(own)), (FORCED, None), (BARE, None)] {
            let why = taken(wanted, known);
            assert!(why.contains("unusable") && why.contains("--bare --data-offset 0"), "{why}");
        }
        assert_eq!(taken(AS_CONTENT, None), "content");
        let (_dir, device) = disk(&start);
        let why = LabelledCore::find(device, Wanted::default(), || bail!("not there yet")).unwrap_err();
        assert_eq!(why.to_string(), "not there yet", "it may know");
    }

    #[test]
    fn an_unsound_veil_is_content_where_the_cache_keeps_no_copy() {
        let start = eight_bytes(b"LOLIGOVL");
        assert_eq!(taken(&start, Wanted::default(), Some(plain())), "content");
        let keeps = CacheView { keeps: true, ..plain() };
        assert_eq!(taken(&start, FORCED, Some(keeps)), "masked");
        assert_eq!(taken(&start, Wanted::default(), Some(CacheView { begins: HOME, ..plain() })), "masked");
        assert_eq!(taken(&start, FORCED, None), "masked");
        let (_, home) = found(&start, BARE, None).unwrap();
        let why = home.unwrap().refuse_bare(true).unwrap_err().to_string();
        assert!(why.contains("is damaged") && why.contains("--bare --data-offset 0"), "{why}");
        assert_eq!(taken(&start, AS_CONTENT, None), "content");
        let said = Wanted { home: Some(0), ..FORCED };
        assert_eq!(taken(&start, said, Some(plain())), "masked", "a label is wanted there");
    }

    #[test]
    fn a_sound_veil_of_a_client_is_content_and_an_own_one_is_not() {
        let guests = veiled([8; 16], "guest");
        assert_eq!(taken(&guests, Wanted::default(), Some(plain())), "content");
        let own = CacheView { uuid: [8; 16], ..plain() };
        assert_eq!(taken(&guests, FORCED, Some(own)), "masked", "its copies are lost");
        assert_eq!(taken(&guests, FORCED, Some(CacheView { keeps: true, ..plain() })), "masked");
        assert_eq!(taken(&guests, FORCED, None), "masked", "the cache is not there");
        let said = Wanted { home: Some(0), ..FORCED };
        assert_eq!(taken(&guests, said, Some(plain())), "masked", "an adopted one with another cache");
        assert_eq!(taken(&guests, Wanted { force: true, ..BARE }, None), "masked");
        assert!(taken(&guests, AS_CONTENT, None).contains("add --force"));
        assert_eq!(taken(&guests, Wanted { force: true, ..AS_CONTENT }, None), "content");
    }

    #[test]
    fn a_veil_that_another_cache_may_have_put_there_is_refused() {
        let ours = veiled([8; 16], "host");
        let mut damaged = veiled([8; 16], "guest");
        damaged[100] ^= 1;
        for start in [ours, damaged] {
            let why = taken(&start, Wanted::default(), Some(plain()));
            assert!(why.contains("another cache may have been") && why.contains("add --force"), "{why}");
            assert_eq!(taken(&start, FORCED, Some(plain())), "content");
            assert!(taken(&start, AS_CONTENT, None).contains("add --force"));
            assert_eq!(taken(&start, Wanted::default(), None), "masked");
        }
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
