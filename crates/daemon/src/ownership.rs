//! The ownership of cores by caches: a core is not served past a cache that holds what it lacks, nor through one that is another
//! core's, whatever paths and volumes' names say.

use crate::remembered::Remembered;
use crate::state::State;
use anyhow::{Result, anyhow, bail};
use loligo_block::keyed;
use loligo_block::keys::{CREATE, FORCE};
use loligo_volume::labelled_core;
use loligo_volume::last_cache::{CoreNames, LastCache};
use loligo_volume::options::ServeOptions;
use std::path::Path;

/// The caches that other volumes were served through last, with the names of these.
fn of_others<'a>(name: &'a str, state: &'a State) -> impl Iterator<Item = (&'a String, &'a LastCache)> {
    let others = state.volumes.iter().filter(move |(other, _)| *other != name);
    others.filter_map(|(other, r)| Some((other, r.cache.as_ref().filter(|last| !last.void)?)))
}

/// The same, with whose they are in words.
fn others<'a>(name: &'a str, state: &'a State) -> impl Iterator<Item = (String, &'a LastCache)> {
    of_others(name, state).map(|(other, last)| (format!("volume '{other}'"), last))
}

/// The caches of volumes that are gone, likewise.
fn left(state: &State) -> impl Iterator<Item = (String, &LastCache)> {
    state.left.values().map(|last| ("a volume that is gone".to_owned(), last))
}

/// The cache that has to lie at `path` for volume `name` to be served from `core`: its own, or that of a volume that had the core
/// under another name, if it had the path too or is what is `found` there.
pub(super) fn expected(
    name: &str,
    path: &Path,
    core: &CoreNames,
    found: Option<&Found>,
    state: &State,
) -> Option<LastCache> {
    let own = state.volumes.get(name).and_then(|r| r.cache.as_ref());
    let renamed = || {
        let mut of_core = of_others(name, state).map(|(_, last)| last).filter(|last| last.is_of(core));
        let is_it = |last: &LastCache| last.path == path || found.is_some_and(|f| f.uuid == last.uuid);
        of_core.find(|last| is_it(last) && last.lost().is_some())
    };
    own.filter(|own| own.lost().is_some()).or_else(renamed).or(own).cloned()
}

/// On an array that a partner shares the cache `uuid` of `core` lies at `path`. What this host remembers of another one there is from
/// before: the partner may have made a new one, which is the array's word.
pub(super) fn is_past(state: &mut State, name: &str, core: &CoreNames, path: &Path, uuid: &str) {
    let own = state.volumes.get_mut(name).and_then(|r| r.cache.as_mut());
    let known = own.into_iter().chain(state.left.values_mut());
    let past = known.filter(|last| last.path == path && last.uuid != uuid && last.is_of(core));
    past.for_each(|last| last.dirty_bytes = Some(0));
}

/// True if nobody was served through `last`, since a crash came between the note and the label of its attach. The label
/// says so, and only that of its own core counts: a path may lead to another disk.
pub(super) fn is_unserved(last: &LastCache, core: &CoreNames, path: Option<&Path>) -> bool {
    last.attaching
        && last.dirty_bytes != Some(0)
        && last.is_surely_of(core)
        && path.and_then(labelled_core::named_cache).is_some_and(|named| named != last.uuid)
}

/// Refuses to serve a core bare that lacks what its last cache held.
pub(super) fn refuse_bare(name: &str, remembered: &Remembered) -> Result<()> {
    let Some(last) = &remembered.cache else { return Ok(()) };
    let Some(lost) = last.lost() else { return Ok(()) };
    bail!(keyed!(
        "volume '{name}' is defined without a cache, and was last served through cache {} at {}, which holds {lost}. Give it that cache; or \
         start it with {FORCE}, which gives that up",
        last.uuid,
        last.path.display()
    ))
}

/// The core of volume `name` lacks what `last` holds.
fn lacks(name: &str, whose: &str, last: &LastCache, lost: &str) -> anyhow::Error {
    anyhow!(keyed!(
        "the core of volume '{name}' was last served as {whose}, through cache {} at {}, which holds {lost}. Give it that cache; or \
         start it with {FORCE}, which gives that up",
        last.uuid,
        last.path.display()
    ))
}

/// Refuses a start that has its core to itself by now, and is to serve it through the cache `uuid` or bare, where another
/// cache holds what the core lacks. The `expected` one was asked about, where it was known then to hold anything.
pub(super) fn refuse_past(
    name: &str,
    core: &CoreNames,
    uuid: Option<&str>,
    expected: Option<&LastCache>,
    state: &State,
) -> Result<()> {
    let own = state.volumes.get(name).and_then(|r| r.cache.as_ref()).filter(|own| !own.void);
    let own = own.into_iter().map(|own| (format!("volume '{name}'"), own));
    let known = own.chain(others(name, state)).chain(left(state));
    let was_asked = |last: &LastCache| expected.is_some_and(|e| e.uuid == last.uuid && e.lost().is_some());
    let mut past = known.filter(|(_, last)| last.is_of(core) && uuid != Some(&last.uuid) && !was_asked(last));
    let lost = past.find_map(|(whose, last)| Some((last.lost()?, whose, last)));
    lost.map_or(Ok(()), |(lost, whose, last)| Err(lacks(name, &whose, last, &lost)))
}

/// A cache that lies at a volume's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The UUID of the cache.
    pub(super) uuid: String,
    /// The name of the volume that it was made for.
    pub(super) volume: String,
    /// It knows its core by nothing but the size: whether the given one is that core is for the daemon's memory to say.
    pub(super) by_size: bool,
}

/// Refuses a core that lacks what a cache holds through which another volume served it, one that is in the file no more, say; and the
/// cache `found` at the volume's place, if it is of another core. A cache is known by its UUID: another one may lie at its path.
pub(super) fn refuse_anothers(
    name: &str,
    options: &ServeOptions,
    core: &CoreNames,
    found: Option<&Found>,
    state: &State,
) -> Result<()> {
    for (whose, last) in others(name, state).chain(left(state)).filter(|(_, last)| last.is_of(core)) {
        // Where nothing is found, or something else, the start finds that it is not what is expected.
        let is_asked_for = options.cache.as_ref().and_then(|c| c.expected.as_ref()) == Some(last);
        if found.is_some_and(|found| found.uuid == last.uuid) || is_asked_for {
            continue;
        }
        let Some(lost) = last.lost() else { continue };
        return Err(lacks(name, &whose, last, &lost));
    }
    let (Some(found), Some(cache)) = (found.filter(|found| found.by_size), &options.cache) else {
        return Ok(());
    };
    // A path that leads to another cache's core by now says less than that core's number.
    if !is_surely_of(found, core, name, state)
        && let Some((whose, last)) =
            others(name, state).chain(left(state)).find(|(_, l)| l.is_surely_of(core))
    {
        bail!(keyed!(
            "{} holds cache {}, and {} is the core of {whose}, which belongs to cache {} at {}. Give the right core; or start the \
             volume with {FORCE}, which takes this one",
            cache.path.display(),
            found.uuid,
            core.text,
            last.uuid,
            last.path.display()
        ))
    }
    let own = state.volumes.get(name).and_then(|r| r.cache.as_ref());
    if own.is_some_and(|own| own.uuid == found.uuid && own.is_of(core)) {
        return Ok(());
    }
    // A copy of a core on another disk is compared with what its cache has clean; what is dirty says nothing of it.
    let own = own.filter(|own| own.lost().is_some()).map(|own| (format!("volume '{name}'"), own));
    let mut known = own.into_iter().chain(others(name, state)).chain(left(state));
    let of_another = known.find(|(_, last)| last.uuid == found.uuid && !last.is_of(core));
    of_another.map_or(Ok(()), |(whose, last)| {
        let lost = last.lost().map(|lost| format!(" It holds {lost}.")).unwrap_or_default();
        bail!(
            keyed!("{} holds cache {}, which belongs to core {} of {whose}, and not to {}.{lost} Give the right one; or start the volume with \
             {CREATE} {FORCE}, which makes the cache anew",
            cache.path.display(),
            found.uuid,
            last.core,
            core.text
        ))
    })
}

/// True if some volume was served through the cache `found` with this very core, by more than a path.
fn is_surely_of(found: &Found, core: &CoreNames, name: &str, state: &State) -> bool {
    let own = state.volumes.get(name).and_then(|r| r.cache.as_ref());
    let known =
        own.into_iter().chain(of_others(name, state).map(|(_, last)| last)).chain(state.left.values());
    known.filter(|last| last.uuid == found.uuid).any(|last| last.is_surely_of(core))
}

/// The reason why the core at `path` may be another cache's than `found`, which knows it by the size alone: a
/// label at its start names one that is known. It counts where neither the number of the core nor its content
/// says anything.
pub(super) fn disputed(
    name: &str,
    core: &CoreNames,
    path: Option<&Path>,
    found: &Found,
    state: &State,
) -> Option<String> {
    if !found.by_size || is_surely_of(found, core, name, state) {
        return None;
    }
    let named = labelled_core::named_cache(path?).filter(|named| *named != found.uuid)?;
    let (whose, _) = others(name, state).chain(left(state)).find(|(_, last)| last.uuid == named)?;
    Some(format!("the label at its start names cache {named} of {whose}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_client::api::definition::Leave;
    use loligo_client::api::definition::VolumeConfig;
    use loligo_format::core_label::CoreLabel;

    fn last(uuid: &str, core: &str, dirty_bytes: Option<u64>) -> LastCache {
        LastCache {
            path: "/ssd/c".into(),
            uuid: uuid.into(),
            core: core.into(),
            core_names: vec![format!("path:{core}")],
            dirty_bytes,
            void: false,
            attaching: false,
        }
    }

    fn state(volumes: &[(&str, LastCache)]) -> State {
        let known = |last: &LastCache| Remembered { cache: Some(last.clone()), ..Remembered::default() };
        let volumes = volumes.iter().map(|(name, last)| ((*name).to_owned(), known(last))).collect();
        State { volumes, ..State::default() }
    }

    fn core(text: &str, names: &[&str]) -> CoreNames {
        CoreNames { text: text.into(), names: names.iter().map(|n| (*n).to_owned()).collect() }
    }

    /// The message if `found` lies at the volume's place; `None` is served bare.
    fn said(cache: Option<&str>, core: &CoreNames, found: Option<&str>, state: &State) -> Option<String> {
        let cache = cache.map(|c| format!("cache = \"{c}\"\nmode = \"wb\"\n")).unwrap_or_default();
        let text = format!("core = \"/dev/sdb\"\nlisten = [\"unix:/x\"]\n{cache}");
        let config: VolumeConfig = toml::from_str(&text).unwrap();
        let mut options = ServeOptions::of(&config, "b", Leave::default()).unwrap();
        let found = found.map(|uuid| Found { uuid: uuid.to_owned(), volume: "b".to_owned(), by_size: true });
        if let Some(c) = &mut options.cache {
            c.expected = expected("b", &c.path, core, found.as_ref(), state);
        }
        refuse_anothers("b", &options, core, found.as_ref(), state).err().map(|why| why.to_string())
    }

    #[test]
    fn only_the_label_of_its_own_core_clears_a_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        let mut label = CoreLabel {
            generation: 1,
            cache: [0xcd; 16],
            name: "w".into(),
            data_start: 1 << 20,
            dirty_bytes: Some(0),
            through: false,
        };
        let mut disk = vec![0; 4 << 20];
        label.store(&mut disk).unwrap();
        std::fs::write(&path, disk).unwrap();
        let core = core("/d/core", &["path:/d/core", "file:1:2:3"]);
        let unserved = |names: &[&str], uuid: &str, attaching| {
            let core_names = names.iter().map(|n| (*n).to_owned()).collect();
            let last = LastCache { core_names, attaching, ..last(uuid, "/d/core", None) };
            is_unserved(&last, &core, Some(&path))
        };
        let own = ["path:/d/core", "file:1:2:3"];
        assert!(unserved(&own, "ab", true));
        assert!(!unserved(&own, "ab", false), "its attach came to its end");
        assert!(!unserved(&own, &"cd".repeat(16), true), "it is named");
        assert!(!unserved(&["path:/d/core", "file:1:9:3"], "ab", true), "the path leads to another disk");
    }

    #[test]
    fn a_core_that_lacks_what_a_cache_holds_is_not_served_bare() {
        let of = |dirty| Remembered { cache: Some(last("ab", "/dev/sdb", dirty)), ..Remembered::default() };
        assert!(refuse_bare("a", &Remembered::default()).is_ok());
        assert!(refuse_bare("a", &of(Some(0))).is_ok());
        assert!(refuse_bare("a", &of(None)).unwrap_err().to_string().contains("/ssd/c"));
    }

    #[test]
    fn a_core_is_known_by_any_of_its_paths() {
        let known = state(&[("a", last("ab", "/dev/sdb", Some(4096)))]);
        let by_id = core("/dev/disk/by-id/x", &["path:/dev/sdb"]);
        assert!(said(None, &by_id, None, &known).unwrap().contains("served as volume 'a'"));
        assert_eq!(said(None, &core("/dev/sdc", &["path:/dev/sdc"]), None, &known), None);
    }

    #[test]
    fn a_path_says_nothing_where_lasting_names_differ() {
        let named = |name: &str| LastCache {
            core_names: vec!["path:/dev/sdb".into(), name.into()],
            ..last("ab", "/dev/sdb", None)
        };
        let asked = |had: &str, now: &str| {
            let core = core("/dev/sdb", &["path:/dev/sdb", now]);
            said(None, &core, None, &state(&[("a", named(had))])).is_some()
        };
        assert!(!asked("device:naa.b+0", "device:naa.a+0"), "letters were exchanged");
        assert!(!asked("device:naa.b+1048576", "device:naa.b+2097152"), "two partitions");
        assert!(asked("device:naa.b+0", "device:naa.b+0"));
        assert!(asked("device:naa.36b+0", "device:mpath-336b+0"), "the same disk behind multipath");
        assert!(asked("path:/a.img", "path:/b.img"), "loop devices have no lasting name");
        assert!(asked("path:/dev/sdb", "device:naa.a+0"), "an older program noted no name");
        let elsewhere = core("/dev/sdc", &["path:/dev/sdc", "device:naa.b+0"]);
        assert!(said(None, &elsewhere, None, &state(&[("a", named("device:naa.b+0"))])).is_some());
    }

    #[test]
    fn another_cache_at_the_same_path_is_not_the_one() {
        let known = state(&[("a", last("ab", "/dev/sdb", Some(4096)))]);
        let sdb = core("/dev/sdb", &[]);
        let asked = expected("b", Path::new("/ssd/c"), &sdb, None, &known);
        assert_eq!(asked, Some(last("ab", "/dev/sdb", Some(4096))), "the start looks for this one");
        assert_eq!(said(Some("/ssd/c"), &sdb, Some("ab"), &known), None, "its volume was renamed");
        assert_eq!(said(Some("/ssd/by-id"), &sdb, Some("ab"), &known), None, "and its device");
        assert!(said(Some("/ssd/by-id"), &sdb, Some("cd"), &known).is_some());
        assert!(said(Some("/ssd/by-id"), &sdb, None, &known).is_some());
    }

    #[test]
    fn a_cache_of_another_core_is_refused_clean_or_dirty() {
        for dirty in [Some(0), Some(4096), None] {
            let mut known = state(&[("c", last("cd", "/dev/sdc", dirty))]);
            let sdb = core("/dev/sdb", &["path:/dev/sdb"]);
            let why = said(Some("/ssd/d"), &sdb, Some("cd"), &known).expect("refused");
            assert!(why.contains("/dev/sdc of volume 'c'") && why.contains("--create --force"), "{why}");
            let gone = known.volumes.remove("c").and_then(|r| r.cache).unwrap();
            known.left.insert("cd".into(), gone);
            assert!(said(Some("/ssd/d"), &sdb, Some("cd"), &known).unwrap().contains("that is gone"));
        }
    }

    #[test]
    fn the_number_of_another_caches_core_outvotes_a_path() {
        let of = |uuid: &str, path: &str, number: &str, dirty| LastCache {
            core_names: vec![format!("path:{path}"), number.into()],
            ..last(uuid, path, dirty)
        };
        for dirty in [Some(0), Some(4096), None] {
            let own = of("ab", "/d/1", "file:1:1:1", dirty);
            let mut known = state(&[("b", own), ("w", of("cd", "/d/2", "file:1:2:1", Some(0)))]);
            let said = |number: &str, known: &State| {
                said(Some("/ssd/c"), &core("/d/1", &[number]), Some("ab"), known)
            };
            let why = said("file:1:2:1", &known).expect("refused");
            assert!(why.contains("/d/1 is the core of volume 'w'") && why.contains("--force"), "{why}");
            assert_eq!(said("file:1:1:1", &known), None, "it is its own");
            assert_eq!(said("file:9:1:1", &known), None, "mounted anew, it may be its own");
            let gone = known.volumes.remove("w").and_then(|r| r.cache).unwrap();
            known.left.insert("cd".into(), gone);
            assert!(said("file:1:2:1", &known).expect("refused").contains("that is gone"));
        }
    }

    #[test]
    fn an_edited_core_is_asked_about_where_the_own_cache_is_dirty() {
        for (dirty, may) in [(Some(0), true), (Some(4096), false), (None, false)] {
            let known = state(&[("b", last("ab", "/dev/sdb", dirty))]);
            let edited = core("/dev/sdc", &["path:/dev/sdc"]);
            assert_eq!(said(Some("/ssd/c"), &edited, Some("ab"), &known).is_none(), may, "{dirty:?}");
            assert_eq!(said(Some("/ssd/c"), &core("/dev/sdb", &[]), Some("ab"), &known), None);
        }
    }

    #[test]
    fn a_core_lacks_also_what_the_cache_of_a_deleted_volume_holds() {
        let mut known = State::default();
        known.left.insert("ab".into(), last("ab", "/dev/sdb", Some(4096)));
        let why = said(None, &core("/dev/sdb", &[]), None, &known).expect("refused");
        assert!(why.contains("a volume that is gone") && why.contains("--force"), "{why}");
    }
}
