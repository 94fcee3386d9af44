//! The daemon's memory of its volumes, as they ask for it and change it.

use crate::device_ids::DeviceIds;
use crate::remembered::{Exchanged, Override, Remembered, with_overrides};
use crate::state::{State, StateFile};
use crate::volumes::Volumes;
use crate::writer_lock::{Limit, WriterGuard, WriterLock};
use crate::{exclusive, keeper, missing_pool, ownership, void};
use anyhow::{Context, Result, ensure};
use loligo_client::api::cache_config::CacheConfig;
use loligo_client::api::definition::{Leave, VolumeConfig};
use loligo_client::outcome::{Absent, Ended, Outcome};
use loligo_volume::last_cache::LastCache;
use loligo_volume::memory::{Begins, Memory};
use loligo_volume::options::ServeOptions;
use loligo_volume::volume_state::{Change, VolumeState};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// The contents of `State`, kept on disk.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) file: StateFile,
    /// Of which some may still have what another one is to have.
    pub(super) volumes: Arc<Volumes>,
    /// Held for a look: who lists volumes does not wait for a disk.
    pub(super) state: Mutex<State>,
    /// In hand while the next state is made and stored.
    pub(super) pen: WriterLock,
    pub(super) me: Weak<Registry>,
    /// The definitions by now, so that a value set by command knows what it stands in for.
    pub(super) defined: Mutex<BTreeMap<String, VolumeConfig>>,
    /// The same without the caches that came or went by command.
    pub(super) plain: Mutex<BTreeMap<String, VolumeConfig>>,
    /// Caches that may be dirty, of which that could not be noted. The next note, whatever it is of, says so first.
    pub(super) owed: Mutex<BTreeMap<String, LastCache>>,
    /// The name of this controller, if it was given one.
    pub(super) identity: Option<String>,
}

impl Registry {
    /// The memory that `file` keeps, `state` by now, of `volumes`, for a controller of this name if it was given one.
    pub(super) fn new(
        file: StateFile,
        state: State,
        volumes: Arc<Volumes>,
        identity: Option<String>,
    ) -> Arc<Registry> {
        Arc::new_cyclic(|me| Registry {
            file,
            volumes,
            state: Mutex::new(state),
            pen: WriterLock::default(),
            me: me.clone(),
            defined: Mutex::default(),
            plain: Mutex::default(),
            owed: Mutex::default(),
            identity,
        })
    }

    /// Changes what is remembered, durably or not at all, unless `edit` refuses. A file system that has not answered within
    /// `limit` is not waited for any longer.
    fn edit_within(&self, limit: Limit, edit: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        let until = Instant::now() + limit.0;
        let pen = self.pen.take(until).ok_or_else(|| self.is_silent(limit))?;
        let now = self.state.lock().clone();
        let mut next = now.clone();
        let owed = self.owed.lock().clone();
        for (name, cache) in owed.iter().filter(|(_, cache)| refuse_void(&now, cache).is_ok()) {
            changed(&mut next, name, |r| r.cache = Some(cache.clone()));
        }
        edit(&mut next)?;
        if next != now || self.file.is_uncertain() {
            self.write(next, pen, until, limit)?;
        }
        self.owed.lock().retain(|name, cache| owed.get(name) != Some(cache));
        Ok(())
    }

    fn edit(&self, edit: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        self.edit_within(Limit::PATIENT, edit)
    }

    /// Has `next` stored by a thread, which is left behind where that takes too long: what it writes counts no more then, and is
    /// written over as soon as its file system answers.
    fn write(&self, next: State, pen: WriterGuard, until: Instant, limit: Limit) -> Result<()> {
        let me = self.me.upgrade().context("the daemon ends")?;
        let ((says, said), over) = (channel(), Arc::new(AtomicBool::new(false)));
        let is_over = over.clone();
        let work = move || {
            let stored = me.file.store(&next);
            if is_over.swap(true, Ordering::AcqRel) {
                me.file.doubt();
                let now = me.state.lock().clone();
                // Failing that, the next note is stored in any case.
                let _ = me.file.store(&now);
            } else {
                if stored.is_ok() {
                    *me.state.lock() = next;
                }
                // Before anybody is told, who may go on to the next note.
                drop(pen);
                let _ = says.send(stored);
            }
        };
        let failed = |why: anyhow::Error| Ended::with(Outcome::Failed, format!("{why:#}"));
        std::thread::Builder::new().name("notes".into()).spawn(work).context("starting a thread")?;
        let stored = match said.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(stored) => stored,
            // It is just about to say so.
            Err(_) if over.swap(true, Ordering::AcqRel) => said.recv().context("a note failed")?,
            Err(_) => return Err(self.is_silent(limit)),
        };
        Ok(stored.map_err(failed)?)
    }

    /// Nothing was heard of a note within `limit`.
    fn is_silent(&self, Limit(limit): Limit) -> anyhow::Error {
        let (path, s) = (self.file.path().display(), limit.as_secs());
        Ended::with(
            Outcome::Failed,
            format!("{path} cannot be written: its file system has not answered for {s} s"),
        )
        .into()
    }

    /// Changes what is remembered of `name`, durably or not at all.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Remembered)) -> Result<()> {
        self.change_within(Limit::PATIENT, name, change)
    }

    /// The same, within `limit`.
    pub(super) fn change_within(
        &self,
        limit: Limit,
        name: &str,
        change: impl FnOnce(&mut Remembered),
    ) -> Result<()> {
        self.edit_within(limit, |state| {
            changed(state, name, change);
            Ok(())
        })
    }

    /// Forgets `name`. Its cache stays known by itself, for as long as its core does not change without it.
    pub(super) fn forget(&self, name: &str) -> Result<()> {
        self.edit(|state| {
            let cache = state.volumes.remove(name).and_then(|r| r.cache).filter(|c| !c.void);
            state.left.extend(cache.map(|c| (c.uuid.clone(), c)));
            Ok(())
        })
    }

    /// Forgets which cache `name` was served through, and nothing else. The cache stays known by itself, as above.
    pub(super) fn forget_cache(&self, name: &str) -> Result<()> {
        self.edit(|state| {
            let cache = state.volumes.get_mut(name).and_then(|r| r.cache.take()).filter(|c| !c.void);
            state.left.extend(cache.map(|c| (c.uuid.clone(), c)));
            Ok(())
        })
    }

    pub(super) fn of(&self, name: &str) -> Remembered {
        self.state.lock().volumes.get(name).cloned().unwrap_or_default()
    }

    /// Nobody was served through the last cache of `name`, which is `uuid`: the start asks again once it has the core.
    /// Notes that others have made of it meanwhile stay.
    fn is_unserved(&self, name: &str, uuid: &str) -> Result<()> {
        self.edit(|state| {
            let known = state.volumes.get_mut(name).and_then(|r| r.cache.as_mut());
            // The look may have hung, and another start of that name may have been served meanwhile.
            if let Some(known) = known.filter(|known| known.uuid == uuid && known.attaching) {
                known.dirty_bytes = Some(0);
            }
            Ok(())
        })
    }

    /// The definition of `name` is `config` from now on; what was exchanged by command counts as long as it speaks of the same.
    pub(super) fn is_defined(&self, name: &str, config: &VolumeConfig) {
        let defined = Exchanged::effective(self.of(name).exchanged.as_ref(), config);
        self.plain.lock().insert(name.to_owned(), config.clone());
        self.defined.lock().insert(name.to_owned(), defined);
    }

    /// Has volume `name` wait while one that leaves has what it is to have: one that was renamed in the file, say.
    /// However long that takes, it comes to its end by itself, or is left behind, and what it says of its cache then is
    /// to be known first.
    fn wait_for_leaving(&self, name: &str, volume: &VolumeConfig) -> Result<()> {
        let leaving: Vec<_> = self.volumes.all().into_iter().filter(|known| known.leaving).collect();
        if leaving.is_empty() {
            return Ok(());
        }
        // Its own devices alone, for which it has to wait anyway: those of another may be why that one hangs.
        let own = DeviceIds::at([volume]);
        for known in leaving {
            let other = &known.supervisor.name;
            let shared = known.supervisor.used().and_then(|(used, looked)| {
                let used = with_overrides(&used, &self.of(other));
                exclusive::shared((name, volume, &own), (other, &used, &looked))
            });
            if let Some(shared) = shared.filter(|_| other != name) {
                let why = format!("{shared}. '{other}' is being stopped, and this one starts once it has");
                return Err(Absent(why.into()).into());
            }
        }
        Ok(())
    }

    fn note_cache(&self, limit: Limit, name: &str, cache: LastCache) -> Result<()> {
        self.edit_within(limit, |state| {
            refuse_void(state, &cache)?;
            changed(state, name, |r| r.cache = Some(cache));
            Ok(())
        })
    }

    fn note(&self, name: &str, change: &Change) -> Result<()> {
        let defined = self.defined.lock().get(name).cloned();
        // The array first: the partner goes by that, and this host's memory is of no use to it.
        if let Some(socket) = defined.as_ref().and_then(|d| d.keeper.as_deref()) {
            keeper::tell(socket, name, change)?;
        }
        self.change(name, |r| match change {
            Change::Mode(mode) => {
                let instead_of = defined.and_then(|d| d.mode);
                r.mode = Some(Override { value: mode.name().to_owned(), instead_of });
            }
            Change::Param(key, value) => {
                let instead_of = defined.and_then(|d| d.params.get(key).map(|w| w.0.clone()));
                r.params.insert(key.clone(), Override { value: value.clone(), instead_of });
            }
        })
    }
}

/// Changes what `state` says of `name`, and what follows from it for caches that are or were its own.
fn changed(state: &mut State, name: &str, change: impl FnOnce(&mut Remembered)) {
    let before = state.volumes.get(name).and_then(|r| r.cache.clone());
    change(state.volumes.entry(name.to_owned()).or_default());
    void::note(state, name, before.as_ref());
}

/// Refuses a `cache` that is to be dirty from now on, and is void already: another volume's start may have made it so.
fn refuse_void(state: &State, cache: &LastCache) -> Result<()> {
    let begins = cache.dirty_bytes.is_none() && !cache.void;
    ensure!(
        !begins || !state.voids.contains_key(&cache.uuid),
        "cache {} is void: its core was served without it. The next start makes it anew",
        cache.uuid
    );
    Ok(())
}

impl Memory for Registry {
    fn options(&self, name: &str, config: &VolumeConfig, leave: Leave) -> Result<ServeOptions> {
        let remembered = self.of(name);
        self.is_defined(name, config);
        let effective = with_overrides(config, &remembered);
        self.wait_for_leaving(name, &effective)?;
        let mut o = ServeOptions::of(&effective, name, leave)?;
        o.identity.clone_from(&self.identity);
        // A copy: what is asked of the devices may take its time.
        let (core, mut state) = (o.core.names(), self.state.lock().clone());
        if let Some(last) = state.volumes.get_mut(name).and_then(|r| r.cache.as_mut())
            && ownership::is_unserved(last, &core, o.core.path())
        {
            last.dirty_bytes = Some(0);
            self.is_unserved(name, &last.uuid)?;
        }
        let remembered = state.volumes.get(name).cloned().unwrap_or_default();
        match &mut o.cache {
            Some(cache) => {
                let lies_at = cache.path.clone();
                if o.reservation.is_some() {
                    // A partner may have made a cache good again that this host knows as void.
                    state.voids.clear();
                }
                let found = void::settle(&mut o, remembered.cache.as_ref(), &state.voids);
                // Another volume's LUN in its place is refused by what is remembered.
                if let Some(found) = found.as_ref().filter(|f| o.reservation.is_some() && f.volume == name) {
                    ownership::is_past(&mut state, name, &core, &lies_at, &found.uuid);
                }
                let path = o.core.path().map(Path::to_owned);
                if let Some(cache) = &mut o.cache {
                    cache.expected = ownership::expected(name, &cache.path, &core, found.as_ref(), &state);
                    let disputed = |found| ownership::disputed(name, &core, path.as_deref(), found, &state);
                    cache.disputed = found.as_ref().and_then(disputed);
                }
                if !leave.force {
                    ownership::refuse_anothers(name, &o, &core, found.as_ref(), &state)?;
                }
            }
            None if leave.force => {}
            None => {
                ownership::refuse_bare(name, &remembered)?;
                ownership::refuse_anothers(name, &o, &core, None, &state)?;
            }
        }
        missing_pool::refuse(&o, &state)?;
        Ok(o)
    }

    fn begins(&self, name: &str, begins: Begins<'_>) -> Result<()> {
        let Begins { core, cache, forced, expected } = begins;
        let uuid = cache.as_ref().map(|c| c.uuid.clone());
        // On an array that a partner shares this host's memory of a void cache may be old.
        let is_shared = self.defined.lock().get(name).is_some_and(|defined| defined.reservation.is_some());
        self.edit(|state| {
            // Asked where it is decided: others may have been served while this start waited for its devices.
            if let (Some(cache), true) = (&cache, is_shared) {
                state.voids.remove(&cache.uuid);
                ownership::is_past(state, name, core, &cache.path, &cache.uuid);
            }
            cache.as_ref().map_or(Ok(()), |cache| refuse_void(state, cache))?;
            if !forced {
                ownership::refuse_past(name, core, uuid.as_deref(), expected, state)?;
            }
            changed(state, name, |r| {
                r.lost = None;
                match cache {
                    Some(cache) => r.cache = Some(cache),
                    None => r.forget_cache(),
                }
            });
            let given_up = forced || expected.is_some_and(|e| Some(&e.uuid) != uuid.as_ref());
            void::core_changes(state, name, core, uuid.as_deref(), given_up);
            Ok(())
        })
    }

    fn lost(&self, name: &str, why: &str) -> Result<()> {
        self.change(name, |r| r.lost = Some(why.to_owned()))
    }

    fn can_note(&self) -> Result<()> {
        let limit = Limit::PAUSED;
        let until = Instant::now() + limit.0;
        let written = self.pen.take(until).ok_or_else(|| self.is_silent(limit)).and_then(|pen| {
            let now = self.state.lock().clone();
            self.write(now, pen, until, limit)
        });
        written.map_err(|why| {
            let dir = self.file.path().parent().unwrap_or(Path::new("/")).display();
            let why = format!(
                "nothing is changed, because it could not be remembered: {why:#}. Mend the file system of {dir}, or give the daemon \
                 another state-dir, which must not lie on the volume itself; then try again"
            );
            Ended::refused(why).into()
        })
    }

    fn cache_is(&self, name: &str, cache: LastCache) -> Result<()> {
        let may_be_dirty = cache.dirty_bytes.is_none() && !cache.void;
        let noted = self.note_cache(Limit::PAUSED, name, cache.clone());
        if noted.is_err() && may_be_dirty {
            self.owed.lock().insert(name.to_owned(), cache);
        }
        noted
    }

    fn cache_was(&self, name: &str, cache: LastCache) -> Result<()> {
        self.note_cache(Limit::PATIENT, name, cache)
    }

    fn attached(&self, name: &str, keys: &CacheConfig, cache: LastCache) -> Result<()> {
        self.note_attached(name, keys, cache)
    }

    fn detached(&self, name: &str) -> Result<()> {
        self.note_detached(name)
    }

    fn follow(&self, app: &Arc<VolumeState>) {
        let (me, name) = (self.me.clone(), app.name.clone());
        app.remember_by(move |change| me.upgrade().map_or(Ok(()), |me| me.note(&name, &change)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_volume::last_cache::CoreNames;

    /// A registry in a folder of its own.
    fn notes(dir: &std::path::Path) -> Arc<Registry> {
        Registry::new(StateFile::at(dir).unwrap(), State::default(), Arc::default(), None)
    }

    fn begins(notes: &Registry, name: &str, cache: Option<LastCache>, forced: bool) -> Result<()> {
        let core = &CoreNames { text: "/dev/sdb".into(), names: vec!["device:x+0".into()] };
        notes.begins(name, Begins { core, cache, forced, expected: None })
    }

    #[test]
    fn a_start_that_waited_does_not_give_up_what_became_dirty() {
        let core = CoreNames { text: "/dev/sdb".into(), names: vec!["device:x+0".into()] };
        let cache = |uuid: &str, dirty| core.cache("/ssd/c".as_ref(), uuid.to_owned(), dirty, false);
        for other in [None, Some(cache("cd", None))] {
            let dir = tempfile::tempdir().unwrap();
            let notes = notes(dir.path());
            begins(&notes, "m", Some(cache("ab", None)), false).unwrap();
            notes.cache_is("m", cache("ab", Some(4096))).unwrap();
            let why = begins(&notes, "f", other.clone(), false).expect_err("m's cache is dirty").to_string();
            assert!(why.contains("volume 'm'") && why.contains("4096 bytes"), "{why}");
            let state = notes.state.lock().clone();
            assert!(state.voids.is_empty() && !state.volumes.contains_key("f"), "{state:?}");
            assert_eq!(notes.file.load().unwrap(), state);
            begins(&notes, "f", other, true).expect("as ordered");
            assert!(notes.state.lock().voids.contains_key("ab"));
            let why =
                begins(&notes, "m", Some(cache("ab", None)), false).expect_err("it is void").to_string();
            assert!(why.contains("is void"), "{why}");
        }
    }

    #[test]
    fn a_cache_that_may_be_dirty_is_noted_with_the_next_note() {
        let core = CoreNames { text: "/dev/sdb".into(), names: vec!["device:x+0".into()] };
        let cache = |dirty| core.cache("/ssd/c".as_ref(), "ab".to_owned(), dirty, false);
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(dir.path());
        notes.cache_is("m", cache(Some(0))).unwrap();
        // Nothing can be written in this place.
        let beside = dir.path().join("state.new");
        std::fs::create_dir(&beside).unwrap();
        notes.cache_is("m", cache(None)).expect_err("it cannot be written");
        std::fs::remove_dir(&beside).unwrap();
        notes.change("a", |r| r.run = Some(false)).unwrap();
        assert_eq!(notes.file.load().unwrap().volumes["m"].cache, Some(cache(None)));
        notes.cache_was("m", cache(Some(0))).unwrap();
        assert_eq!(notes.of("m").cache, Some(cache(Some(0))), "it was said once");
    }

    #[test]
    fn a_cache_that_became_void_meanwhile_stays_void() {
        let core = CoreNames { text: "/dev/sdb".into(), names: vec!["device:x+0".into()] };
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(dir.path());
        let asked = core.cache("/ssd/c".as_ref(), "ab".to_owned(), None, false);
        notes.cache_is("m", LastCache { attaching: true, ..asked.clone() }).unwrap();
        begins(&notes, "f", None, true).expect("as ordered");
        notes.is_unserved("m", &asked.uuid).unwrap();
        let known = notes.of("m").cache.expect("a cache");
        assert_eq!((known.void, known.dirty_bytes), (true, Some(0)));
        assert!(notes.state.lock().voids.contains_key("ab"));
    }

    #[test]
    fn a_clean_cache_is_void_once_its_core_is_served_without_it() {
        let core = CoreNames { text: "/dev/sdb".into(), names: vec!["device:x+0".into()] };
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(dir.path());
        notes.cache_is("m", core.cache("/ssd/c".as_ref(), "ab".to_owned(), Some(0), false)).unwrap();
        begins(&notes, "f", None, false).expect("nothing is lost");
        assert!(notes.state.lock().voids.contains_key("ab"));
    }

    #[test]
    fn what_a_look_found_that_hung_is_not_noted_over_a_start() {
        let core = CoreNames { text: "/dev/sdb".into(), names: vec!["device:x+0".into()] };
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(dir.path());
        let cache = core.cache("/ssd/c".as_ref(), "ab".to_owned(), None, false);
        let attaching = LastCache { attaching: true, ..cache.clone() };
        let dirty = || notes.of("m").cache.unwrap().dirty_bytes;
        notes.cache_is("m", attaching).unwrap();
        notes.is_unserved("m", "ab").unwrap();
        assert_eq!(dirty(), Some(0));
        begins(&notes, "m", Some(cache), false).unwrap();
        notes.is_unserved("m", "ab").unwrap();
        assert_eq!(dirty(), None, "it is served");
    }

    #[test]
    fn a_hung_note_is_given_up_and_overwrites_no_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(dir.path());
        let run = |name: &str, limit| {
            let limit = Limit(std::time::Duration::from_millis(limit));
            notes.change_within(limit, name, |r| r.run = Some(false))
        };
        run("a", 10_000).unwrap();
        // Who opens it to write waits for a reader.
        let fifo = dir.path().join("state.new");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        for name in ["b", "c"] {
            let why = run(name, 100).expect_err("it hangs").to_string();
            assert!(why.contains("has not answered"), "{why}");
        }
        assert_eq!(notes.state.lock().volumes.len(), 1, "neither counts");
        let reader = std::fs::File::options().read(true).open(&fifo).unwrap();
        std::fs::remove_file(&fifo).unwrap();
        run("d", 10_000).unwrap();
        drop(reader);
        let stored = notes.file.load().unwrap();
        assert_eq!(stored.volumes.keys().collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!(stored, *notes.state.lock());
    }
}
