//! Cores whose content begins behind a label, so that nobody else finds anything on the raw device, and that remember their cache.

use crate::absent::Absent;
use crate::say::say;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::{DeviceFile, SIGNATURE_PROBE, SyncFile, SyncIo, foreign_signature};
use loligo_cache::home::{HomeLabel, MAX_HOME, MIN_HOME};
use loligo_cache::superblock::{SuperError, Superblock};

/// The label of a core and the whole device that it lies on.
#[derive(Debug)]
pub(crate) struct Home {
    whole: DeviceFile,
    label: HomeLabel,
    /// It is on the device already.
    found: bool,
}

impl Home {
    /// Looks for a label on `whole`, or takes place for one of `wanted` bytes. The core's content with it; without either the
    /// device is the content.
    ///
    /// # Errors
    /// Where the label is damaged or another than wanted, or its place is somebody else's.
    pub(crate) fn find(
        whole: DeviceFile,
        wanted: Option<u64>,
        force: bool,
    ) -> Result<(DeviceFile, Option<Home>)> {
        let path = whole.path().display().to_string();
        let label = match HomeLabel::load(&mut SyncFile::new(whole.clone())) {
            Ok(label) => {
                if let Some(n) = wanted.filter(|n| *n != label.home_start) {
                    bail!(
                        "the core {path} was given a home offset of {}, and {n} is wanted: leave --home-offset out",
                        label.home_start
                    );
                }
                Home { whole: whole.clone(), label, found: true }
            }
            Err(SuperError::Absent) => {
                let Some(home_start) = wanted else { return Ok((whole, None)) };
                vacant(&whole, home_start, force)?;
                let label = HomeLabel {
                    generation: 0,
                    cache: [0; 16],
                    name: String::new(),
                    home_start,
                    dirty_bytes: Some(0),
                };
                Home { whole: whole.clone(), label, found: false }
            }
            Err(SuperError::Io(e)) => return Err(e).context("the core cannot be read"),
            Err(e) => bail!(
                "both labels of the core {path} are unusable: {e}. Its content begins behind them; restore the first 1 MiB of the \
                 device, or serve it with a program of the version that wrote them"
            ),
        };
        let content = whole.behind(label.label.home_start).context("the core is too small")?;
        Ok((content, Some(label)))
    }

    /// Bytes before the content.
    pub(crate) fn start(&self) -> u64 {
        self.label.home_start
    }

    /// Refuses to serve the core without a cache, where that may hold what it lacks.
    pub(crate) fn refuse_bare(&self) -> Result<()> {
        match self.lost() {
            None => Ok(()),
            Some(lost) => Err(Absent(format!(
                "the core {} belongs to cache {} of volume '{}', which holds {lost}: serve it through that cache",
                self.whole.path().display(),
                self.label.cache_text(),
                self.label.name
            ))
            .into()),
        }
    }

    fn lost(&self) -> Option<String> {
        match self.label.dirty_bytes {
            Some(0) => None,
            Some(n) => Some(format!("{n} bytes that the core does not have")),
            None => Some("whatever the core did not have when it was served last".to_owned()),
        }
    }

    /// Refuses any other cache than the one that the label names, where that may hold what the core lacks; a found label without
    /// one of these is another core's that stands in its place.
    pub(crate) fn refuse_other(&self, cache: Option<&Superblock>, force: bool) -> Result<()> {
        if let Some(sb) = cache.filter(|_| self.found && self.label.cache == [0; 16]) {
            bail!(
                "the core {} was served without a cache since cache {} of volume '{}' was in front of it: what that holds is void. \
                 --create --force makes it anew",
                self.whole.path().display(),
                sb.uuid_text(),
                sb.name
            );
        }
        if !self.found || force || cache.is_some_and(|sb| sb.uuid == self.label.cache) {
            return Ok(());
        }
        let Some(lost) = self.lost() else { return Ok(()) };
        bail!(
            "the core {} belongs to cache {} of volume '{}', which holds {lost}. Give that cache; --force gives it up",
            self.whole.path().display(),
            self.label.cache_text(),
            self.label.name
        )
    }

    /// From now on `cache` may hold what the core lacks. Durable when this returns.
    pub(crate) fn attach(&mut self, cache: &Superblock) -> Result<()> {
        if !self.found {
            say!(
                "{}: a label at its start, its content from byte {} on",
                self.whole.path().display(),
                self.label.home_start
            );
        }
        self.label.cache = cache.uuid;
        self.label.name = cache.name.clone();
        self.write(None)?;
        self.found = true;
        Ok(())
    }

    /// The cache was stopped cleanly and holds so many bytes that the core lacks.
    pub(crate) fn detach(&mut self, dirty_bytes: u64) -> Result<()> {
        self.write(Some(dirty_bytes))
    }

    /// The core goes on without a cache: what any holds of it is void. Durable when this returns.
    pub(crate) fn void(&mut self) -> Result<()> {
        self.label.cache = [0; 16];
        self.write(Some(0))
    }

    fn write(&mut self, dirty_bytes: Option<u64>) -> Result<()> {
        self.label.dirty_bytes = dirty_bytes;
        self.label.store(&mut SyncFile::new(self.whole.clone())).context("the core's label cannot be written")
    }
}

/// Whether a label of `home` bytes has room, and lies over nobody's data.
fn vacant(whole: &DeviceFile, home: u64, force: bool) -> Result<()> {
    let path = whole.path().display();
    ensure!(
        (MIN_HOME..=MAX_HOME).contains(&home) && home.is_multiple_of(MIN_HOME),
        "--home-offset {home}: 1m to 1g in steps of 1m"
    );
    let size = whole.geometry().size;
    ensure!(size > home, "the core {path} has {size} bytes, and its content would begin at {home}");
    let mut head = vec![0; SIGNATURE_PROBE];
    SyncFile::new(whole.clone()).read_at(0, &mut head).context("the core cannot be read")?;
    match foreign_signature(&head) {
        Some(what) if !force => bail!(
            "the core {path} holds {what}, and its content would begin behind a label: if that is to be overwritten, add --force; an \
             OSD with data is put behind a cache by 'loligo osd adopt'"
        ),
        Some(_) | None => Ok(()),
    }
}
