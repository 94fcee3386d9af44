//! The daemon's memory between its lives: volumes made by command, what an administrator changed while they were served, and
//! which cache held dirty data of which core.
//!
//! One file: a line with magic, version, CRC32C and length, then JSON. It is replaced as a whole, durably, before a change counts.

use crate::remembered::Remembered;
use anyhow::{Context, Result, bail, ensure};
use loligo_block::crc32c;
use loligo_volume::last_cache::LastCache;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const MAGIC: &str = "loligo-state";
const VERSION: u32 = 4;
/// The oldest that is read, and what is written while nothing needs more: [`Remembered::exchanged`] and [`State::voids`] are of version 2, so that a program which
/// would serve a volume without its cache does not read it; [`State::left`] is of version 3, since a program that drops it would believe a stale cache.
/// [`Remembered::lost`] is of version 4, since a program that drops it would start what another controller has.
const PLAIN: u32 = 1;
const EXCHANGED: u32 = 2;
const LEFT: u32 = 3;
/// Longest file that is read, bytes.
const MOST: u64 = 64 << 20;

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// By name of the volume.
    pub volumes: BTreeMap<String, Remembered>,
    /// Caches by their UUID whose core was changed without them: what they hold is believed by nobody,
    /// whichever volume they are given to. The place of each is kept.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub voids: BTreeMap<String, PathBuf>,
    /// Caches by their UUID whose volume was forgotten: they are believed until their core is served without them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left: BTreeMap<String, LastCache>,
}

/// The file.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// It may have been replaced by what was not remembered then, because that failed in the middle.
    uncertain: AtomicBool,
}

impl StateFile {
    /// In the folder `dir`, which is made where it is not there.
    ///
    /// # Errors
    /// If that cannot be.
    pub fn at(dir: &Path) -> Result<StateFile> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
            format!("cannot make the folder {}: set state-dir in the configuration to another", dir.display())
        })?;
        Ok(StateFile { path: dir.join("state"), uncertain: AtomicBool::new(false) })
    }

    /// True if it may say something else than what was stored last with success.
    pub fn is_uncertain(&self) -> bool {
        self.uncertain.load(Ordering::Relaxed)
    }

    /// Somebody may have stored what counts no more.
    pub(super) fn doubt(&self) {
        self.uncertain.store(true, Ordering::Relaxed);
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The state in the file; nothing if there is none yet.
    ///
    /// # Errors
    /// If it is damaged: what it remembers may be the only word of dirty data.
    pub fn load(&self) -> Result<State> {
        let raw = match std::fs::metadata(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(State::default()),
            Ok(m) if m.len() > MOST => bail!("{} is too long to be the daemon's", self.path.display()),
            Ok(_) | Err(_) => std::fs::read(&self.path),
        };
        let raw = raw.with_context(|| format!("{} cannot be read", self.path.display()))?;
        decode(&raw).with_context(|| {
            format!(
                "{} is damaged. It says which volumes were made by command and which caches are dirty: restore it, or move it \
                 away and make those volumes anew",
                self.path.display()
            )
        })
    }

    /// Replaces it, durably.
    ///
    /// # Errors
    /// If the file system does not take it.
    pub fn store(&self, state: &State) -> Result<()> {
        let beside = self.path.with_extension("new");
        let write = || -> std::io::Result<()> {
            let mut file =
                std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&encode(state))?;
            file.sync_all()?;
            self.uncertain.store(true, Ordering::Relaxed);
            std::fs::rename(&beside, &self.path)?;
            let dir = self.path.parent().unwrap_or(Path::new("/"));
            let dir =
                rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::fs::fsync(dir)?;
            self.uncertain.store(false, Ordering::Relaxed);
            Ok(())
        };
        write().with_context(|| format!("{} cannot be written", self.path.display()))
    }
}

fn encode(state: &State) -> Vec<u8> {
    let body = serde_json::to_vec_pretty(state).expect("names and numbers");
    let newer = !state.voids.is_empty() || state.volumes.values().any(|r| r.exchanged.is_some());
    let version = match (state.left.is_empty(), newer) {
        _ if state.volumes.values().any(|r| r.lost.is_some()) => VERSION,
        (false, _) => LEFT,
        (true, true) => EXCHANGED,
        (true, false) => PLAIN,
    };
    let mut raw = format!("{MAGIC} {version} {:08x} {}\n", crc32c(&body), body.len()).into_bytes();
    raw.extend(body);
    raw
}

/// The state in `raw`.
///
/// # Errors
/// An error says what is wrong with it. There is never a panic, whatever the bytes are.
pub fn decode(raw: &[u8]) -> Result<State> {
    let end = raw.iter().take(128).position(|b| *b == b'\n').context("its first line is missing")?;
    let (head, body) =
        (std::str::from_utf8(&raw[..end]).context("its first line is no text")?, &raw[end + 1..]);
    let mut words = head.split(' ');
    ensure!(words.next() == Some(MAGIC), "its first word is not {MAGIC}");
    let version = words.next().and_then(|v| v.parse::<u32>().ok()).context("its version is missing")?;
    ensure!(
        (PLAIN..=VERSION).contains(&version),
        "it has version {version}, and this program knows {VERSION}"
    );
    let sum =
        words.next().and_then(|s| u32::from_str_radix(s, 16).ok()).context("its checksum is missing")?;
    let len = words.next().and_then(|l| l.parse::<usize>().ok()).context("its length is missing")?;
    ensure!(len == body.len(), "{} bytes of {len} are there", body.len());
    ensure!(crc32c(body) == sum, "its checksum does not match");
    serde_json::from_slice(body).context("its content is not understood")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::{Exchanged, Override};
    use proptest::prelude::*;

    fn some() -> State {
        let made = toml::from_str("core = \"/dev/sdb\"\nlisten = [\"unix:/x\"]").unwrap();
        let cache = LastCache {
            path: "/ssd/c".into(),
            uuid: "ab".repeat(16),
            core: "/dev/sdb".to_owned(),
            core_names: vec!["path:/dev/sdb".to_owned()],
            dirty_bytes: Some(4096),
            void: true,
            attaching: false,
        };
        let mode = Override { value: "wt".to_owned(), instead_of: Some("wb".to_owned()) };
        let one = Remembered {
            made: Some(made),
            run: Some(false),
            exchanged: None,
            mode: Some(mode.clone()),
            params: [("seq-cutoff".to_owned(), mode)].into(),
            cache: Some(cache),
            lost: None,
        };
        State { volumes: [("a".to_owned(), one)].into(), ..State::default() }
    }

    #[test]
    fn what_is_stored_is_loaded_and_nothing_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::at(&dir.path().join("deep/er")).unwrap();
        assert_eq!(file.load().unwrap(), State::default());
        file.store(&some()).unwrap();
        assert_eq!(file.load().unwrap(), some());
    }

    #[test]
    fn a_file_that_older_programs_would_misread_has_a_new_version() {
        let mut state = some();
        assert!(encode(&state).starts_with(b"loligo-state 1 "));
        let one = state.volumes.get_mut("a").unwrap();
        let cached = loligo_client::api::cache_config::CacheConfig {
            cache: Some("/ssd/d".into()),
            ..Default::default()
        };
        one.exchanged = Some(Exchanged { now: cached, instead_of: Default::default() });
        let raw = encode(&state);
        assert!(raw.starts_with(b"loligo-state 2 "));
        assert_eq!(decode(&raw).unwrap(), state);
        let cache = state.volumes["a"].cache.clone().unwrap();
        state.left.insert(cache.uuid.clone(), cache);
        let raw = encode(&state);
        assert!(raw.starts_with(b"loligo-state 3 "));
        assert_eq!(decode(&raw).unwrap(), state);
        state.volumes.get_mut("a").unwrap().lost = Some("fenced".to_owned());
        let raw = encode(&state);
        assert!(raw.starts_with(b"loligo-state 4 "));
        assert_eq!(decode(&raw).unwrap(), state);
    }

    #[test]
    fn a_damaged_file_is_refused_wherever_the_damage_is() {
        let whole = encode(&some());
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0x10;
            assert!(decode(&broken).is_err(), "byte {at}");
            assert!(decode(&whole[..at]).is_err(), "cut at {at}");
        }
        let later = String::from_utf8(whole).unwrap().replacen(" 1 ", " 5 ", 1);
        let why = decode(later.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("version 5"), "{why}");
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_a_panic(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode(&raw).is_err());
            let mut after = format!("{MAGIC} {VERSION} {:08x} {}\n", crc32c(&raw), raw.len()).into_bytes();
            after.extend(&raw);
            let _ = decode(&after);
        }
    }
}
