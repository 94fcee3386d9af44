//! Caches whose core was changed without them: after they had failed, or because the volume was served bare or through another one.
//! Their contents are void, whoever brings them back.

use crate::ownership::Found;
use crate::state::State;
use loligo_block::{IoError, IoKind};
use loligo_log::say;
use loligo_volume::last_cache::{CoreNames, LastCache};
use loligo_volume::options::{CacheOptions, ServeOptions};
use loligo_volume::{cache, core};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// After a change of what is remembered of `name`, whose cache was `before`: a cache that is not its cache any more is void, and one that
/// failed is at once. Not one that has become another volume's: that is the same one under another name.
pub(super) fn note(state: &mut State, name: &str, before: Option<&LastCache>) {
    let now = state.volumes.get(name).and_then(|r| r.cache.clone());
    if let Some(now) = &now {
        // A cache is one volume's: what others remember of it, under whose names it was served before, is past.
        let others = state.volumes.iter_mut().filter(|(other, _)| *other != name);
        others.for_each(|(_, r)| r.cache = r.cache.take().filter(|c| c.uuid != now.uuid));
        state.left.remove(&now.uuid);
    }
    let now = now.as_ref();
    // Its volume has another core by now: it stays known by itself, for as long as its own core does not change without it.
    if let (Some(before), Some(now)) = (before, now)
        && now.uuid != before.uuid
        && !now.is_of(&before.core())
        && !before.void
    {
        state.left.insert(before.uuid.clone(), before.clone());
    }
    let left = before.filter(|b| now.is_none_or(|n| n.uuid != b.uuid && n.is_of(&b.core())));
    let void: Vec<LastCache> = left.into_iter().chain(now.filter(|n| n.void)).cloned().collect();
    for cache in void {
        let others = state.volumes.iter().filter(|(other, _)| *other != name);
        let elsewhere = others.filter_map(|(_, r)| r.cache.as_ref()).any(|c| c.uuid == cache.uuid && !c.void);
        if !elsewhere {
            state.voids.insert(cache.uuid, cache.path);
        }
    }
    // A volume that forgets its cache says nothing of the core: its cache may have become another volume's.
    if let Some(now) = state.volumes.get(name).and_then(|r| r.cache.clone()).filter(|now| Some(now) != before)
    {
        core_changes(state, name, &now.core(), Some(&now.uuid), false);
    }
}

/// `core` is served as volume `name`, through the cache `uuid` or bare: from here on every other cache of it is void, also one of a volume that
/// was deleted or taken out of the file. One that holds what its core lacks is not for a path alone, unless somebody
/// has `given_up` what it holds.
pub(super) fn core_changes(
    state: &mut State,
    name: &str,
    core: &CoreNames,
    uuid: Option<&str>,
    given_up: bool,
) {
    let State { volumes, voids, left } = state;
    let is_known = |c: &LastCache| given_up || c.lost().is_none() || c.is_surely_of(core);
    let is_stale = |c: &LastCache| c.is_of(core) && Some(c.uuid.as_str()) != uuid && is_known(c);
    let others = volumes.iter_mut().filter(|(other, _)| *other != name);
    for cache in others.filter_map(|(_, r)| r.cache.as_mut()).filter(|c| is_stale(c)) {
        cache.void = true;
        voids.insert(cache.uuid.clone(), cache.path.clone());
    }
    left.retain(|_, cache| {
        if is_stale(cache) {
            voids.insert(cache.uuid.clone(), cache.path.clone());
        }
        // One that is served again is its volume's.
        !is_stale(cache) && Some(cache.uuid.as_str()) != uuid
    });
}

/// Has `o` start with a new cache where a void one lies, and without one where the volume's own has failed and is not there. The
/// cache that lies there, if it is not void.
pub(super) fn settle(
    o: &mut ServeOptions,
    last: Option<&LastCache>,
    voids: &BTreeMap<String, PathBuf>,
) -> Option<Found> {
    let c = o.cache.as_mut()?;
    // Whatever may be said against the device is for the start to say.
    let look = CacheOptions { create: true, force: true, expected: None, ..c.clone() };
    match cache::peek(&look) {
        Ok((_, Some(sb))) if voids.contains_key(&sb.uuid_text()) => {
            say!(
                "{}: its core was changed without it, so that what it holds is void: it is made anew",
                c.path.display()
            );
            c.replace = Some(sb.uuid_text());
        }
        Ok((Some(_), found)) => {
            return found.map(|sb| Found {
                uuid: sb.uuid_text(),
                by_size: core::is_known_by_size(&sb.core),
                volume: sb.name,
            });
        }
        Ok((None, _)) => without(o, last),
        Err(why) if is_gone(&why) || !c.path.exists() => without(o, last),
        Err(_) => {}
    }
    None
}

/// The device answers with errors.
fn is_gone(why: &anyhow::Error) -> bool {
    let gone = |e: &IoError| matches!(e.kind, IoKind::Io | IoKind::Gone);
    why.chain().any(|e| e.downcast_ref::<IoError>().is_some_and(gone))
}

/// True if a volume of which `last` is known is served without cache `c` where that is not there.
pub(super) fn is_done_without(c: &CacheOptions, last: &LastCache) -> bool {
    // With a reserve the volume would be larger than it was.
    last.void && last.path == c.path && c.core_reserve.is_none_or(|n| n == 0)
}

fn without(o: &mut ServeOptions, last: Option<&LastCache>) {
    let Some(c) = &o.cache else { return };
    if !last.is_some_and(|last| is_done_without(c, last)) {
        return;
    }
    say!(
        "warning: the cache {} failed and is not there: the core has everything, and is served without it. 'loligo volume attach' \
         gives the volume another one",
        c.path.display()
    );
    (o.cache, o.data_offset) = (None, None);
    o.params.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::Remembered;

    fn cache(uuid: &str, void: bool) -> LastCache {
        let (path, core) = (PathBuf::from("/ssd/c"), "/dev/sdb".to_owned());
        let core_names = vec!["device:wwn+0".to_owned()];
        let dirty_bytes = Some(0);
        LastCache { path, uuid: uuid.to_owned(), core, core_names, dirty_bytes, void, attaching: false }
    }

    #[test]
    fn a_cache_is_void_once_its_own_volume_goes_on_without_it() {
        let noted = |before: Option<&LastCache>, now: Option<&LastCache>, others: Option<&LastCache>| {
            let of =
                |cache: Option<&LastCache>| Remembered { cache: cache.cloned(), ..Remembered::default() };
            let volumes = [("v".to_owned(), of(now)), ("w".to_owned(), of(others))].into();
            let mut state = State { volumes, ..State::default() };
            note(&mut state, "v", before);
            state.voids.into_keys().collect::<Vec<_>>()
        };
        let (a, b, gone) = (cache("a", false), cache("b", false), cache("a", true));
        assert!(noted(None, Some(&a), None).is_empty());
        assert!(noted(Some(&a), Some(&a), None).is_empty());
        assert_eq!(noted(Some(&a), Some(&gone), None), ["a"], "it failed");
        assert_eq!(noted(Some(&gone), Some(&b), None), ["a"], "and has another in its place");
        assert_eq!(noted(Some(&a), Some(&b), None), ["a"], "it was exchanged by the file");
        assert_eq!(noted(Some(&a), None, None), ["a"], "the volume is bare");
        assert!(noted(Some(&a), None, Some(&a)).is_empty(), "its volume has another name now");
        let by_id = LastCache { core: "/dev/disk/by-id/wwn".to_owned(), ..b.clone() };
        assert_eq!(noted(Some(&a), Some(&by_id), None), ["a"], "another path to the same core");
        let elsewhere = LastCache { core: "/dev/sdc".to_owned(), core_names: Vec::new(), ..b };
        assert!(noted(Some(&a), Some(&elsewhere), None).is_empty(), "another volume has the name now");
    }

    #[test]
    fn a_cache_stays_known_when_its_volume_has_another_core() {
        let (a, b) = (cache("a", false), cache("b", false));
        let elsewhere = LastCache { core: "/dev/sdc".to_owned(), core_names: Vec::new(), ..b };
        let volumes = [("v".to_owned(), Remembered { cache: Some(elsewhere), ..Remembered::default() })];
        let mut state = State { volumes: volumes.into(), ..State::default() };
        note(&mut state, "v", Some(&a));
        assert_eq!(state.left.get("a"), Some(&a));
        core_changes(&mut state, "w", &a.core(), None, false);
        assert!(state.left.is_empty() && state.voids.contains_key("a"), "its core was served without it");
    }

    #[test]
    fn a_path_to_another_disk_makes_no_dirty_cache_void() {
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let core = |of: &[&str]| CoreNames { text: "/dev/sdb".to_owned(), names: names(of) };
        let stays = |had: &[&str], now: &[&str], given_up| {
            let dirty = LastCache { core_names: names(had), dirty_bytes: None, ..cache("a", false) };
            let known = Remembered { cache: Some(dirty.clone()), ..Remembered::default() };
            let (volumes, left) = ([("v".to_owned(), known)].into(), [("b".to_owned(), dirty)].into());
            let mut state = State { volumes, left, ..State::default() };
            core_changes(&mut state, "w", &core(now), None, given_up);
            assert_eq!(state.left.is_empty(), !state.voids.is_empty());
            state.voids.is_empty()
        };
        let path = "path:/dev/sdb";
        let (had, other) = ([path, "device:wwn-b+0"], [path, "device:wwn-a+0"]);
        assert!(stays(&had, &other, true), "the path leads to another disk");
        assert!(!stays(&had, &["path:/dev/sdc", "device:wwn-b+0"], false), "the disk has another path");
        assert!(stays(&[path], &other, false), "the path says little");
        assert!(!stays(&[path], &other, true), "it was given up");
    }

    #[test]
    fn a_cache_served_under_a_new_name_leaves_its_old_name() {
        let of = |dirty| LastCache { dirty_bytes: dirty, ..cache("a", false) };
        let known = |c: LastCache| Remembered { cache: Some(c), ..Remembered::default() };
        let volumes = [("old".to_owned(), known(of(Some(4096)))), ("new".to_owned(), known(of(None)))];
        let mut state = State { volumes: volumes.into(), ..State::default() };
        note(&mut state, "new", None);
        assert_eq!(state.volumes["old"].cache, None);
        assert_eq!(state.volumes["new"].cache, Some(of(None)));
        assert!(state.voids.is_empty() && state.left.is_empty());
    }
}
