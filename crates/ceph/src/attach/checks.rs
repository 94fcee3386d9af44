//! Refusals of an attach, each by what was read before: pure functions. A warning takes a refusal's place where the operator has
//! decided it already.

use super::machine::Wanted;
use super::request::Cache;
use super::step::ImageView;
use crate::CephError;
use crate::attach_marker::{AttachMarker, KEY};
use crate::error::refuse;
use crate::identity::ImageIdentity;
use crate::image::{LockHolder, WatcherInfo, unmap};
use crate::lock_record::{LockRecord, Loss};
use crate::spec::ImageSpec;
use loligo_block::keys::{CACHE, CORE, CREATE, FORCE, FORCE_WITHOUT_CACHE, STEAL};
use loligo_block::{KeyedText, keyed};

/// A daemon that has just begun to mirror an image is not known for one yet.
const MAY_MIRROR: &str =
    ". The image is mirrored: a mirror daemon is known as one half a minute after its start";

/// Refuses options of the image that exclude it as a core.
pub(super) fn check_options(spec: &ImageSpec, overridden: &[String]) -> Result<(), CephError> {
    if overridden.is_empty() {
        return Ok(());
    }
    refuse(format!("image {spec} cannot be a core: {}", overridden.join("; ")))
}

/// Refuses a cache that was made for another core.
pub(super) fn check_core(wanted: &Wanted, identity: &ImageIdentity) -> Result<(), CephError> {
    let theirs = wanted.cache.as_ref().and_then(|c| c.core.as_ref());
    match theirs.filter(|c| **c != identity.to_string()) {
        Some(core) => refuse(keyed!(
            "the cache belongs to another core ({core}); image {} is {identity}: give the right {CORE} or the right {CACHE}",
            wanted.spec
        )),
        None => Ok(()),
    }
}

/// Refuses an image whose marker says that another cache may hold what it lacks.
pub(super) fn check_marker(
    wanted: &Wanted,
    identity: &ImageIdentity,
    value: &str,
    warnings: &mut Vec<String>,
) -> Result<(), CephError> {
    let Some(mark) = AttachMarker::decode(value) else {
        if wanted.without_cache {
            warnings.push("what the image's mark of another release speaks of was given up".to_owned());
            return Ok(());
        }
        return refuse(keyed!(
            "image {0} may lack what a cache holds: its metadata has a mark that this release does not understand ('rbd image-meta get {0} \
             {KEY}'). Use the release that made it; {FORCE_WITHOUT_CACHE} uses the image as it is and loses what only that cache has",
            wanted.spec
        ));
    };
    // A clone or copy inherits its origin's metadata; that says nothing of it.
    if !mark.is_of(identity) {
        return Ok(());
    }
    if mark.void {
        // It lacks nothing; only the cache that was in front of it is not to be had again as it is.
        let kept = wanted.cache.as_ref().is_some_and(|c| c.cache == mark.cache && c.core.is_some());
        return match kept {
            true => refuse(keyed!(
                "cache {} of volume '{}' failed, and image {} was changed without it: what the cache holds is void. {CREATE} {FORCE} makes \
                 it anew",
                mark.cache,
                mark.volume,
                wanted.spec
            )),
            false => Ok(()),
        };
    }
    if wanted.cache.as_ref().is_some_and(|c| c.cache == mark.cache) {
        return Ok(());
    }
    if wanted.without_cache {
        warnings.push(keyed!(
            "what only cache {} of volume '{}' on host {} has was given up, as {FORCE_WITHOUT_CACHE} ordered",
            mark.cache, mark.volume, mark.host
        ).to_string());
        return Ok(());
    }
    refuse(keyed!(
        "image {} may lack what another cache holds: cache {} of volume '{}' on host {} was attached to it and has not been \
         stopped with everything flushed since. Do that first ('loligo flush {}', then a stop; start it if it does not run); \
         {FORCE_WITHOUT_CACHE} uses the image as it is and loses what only that cache has",
        wanted.spec,
        mark.cache,
        mark.volume,
        mark.host,
        mark.volume
    ))
}

/// Refuses dirty data of a cache without a record. True: others may have written to the image.
pub(super) fn check_unrecorded(spec: &ImageSpec, cache: &Cache) -> Result<bool, CephError> {
    if !cache.dirty || cache.force {
        // A cache that was attached always has one, unless it could not be written down.
        return Ok(cache.core.is_some());
    }
    refuse(keyed!(
        "the cache holds dirty data and does not say as whom it had image {spec}: nobody can tell whether others had it since. \
         {FORCE} writes the data all the same"
    ))
}

/// `said`, which is about dirty data, as a warning where `--force` was ordered, and else as a refusal with its `mend`.
fn forced(
    wanted: &Wanted,
    said: &str,
    mend: &KeyedText,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    if wanted.cache.as_ref().is_some_and(|c| c.force) {
        warnings.push(
            keyed!("{said} Its dirty data goes over whatever was written meanwhile, as {FORCE} ordered")
                .to_string(),
        );
        return Ok(true);
    }
    refuse(keyed!("{said} {mend}"))
}

/// Refuses dirty data of a cache that lost its image while it was served.
pub(super) fn check_loss(
    wanted: &Wanted,
    loss: &Loss,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    let bytes = wanted.cache.as_ref().and_then(|c| c.dirty_bytes);
    let dirty = bytes.map_or("dirty data (how much is not known)".to_owned(), |n| format!("{n} dirty bytes"));
    let said = format!(
        "somebody else had image {} since this cache was attached: the cache lost it {} ago ({}) and has held {dirty} since.",
        wanted.spec,
        loss.ago(),
        loss.why
    );
    let mend = keyed!(
        "They may be older than what was written to the image: {FORCE} writes them all the same; or make a new cache \
                ({CREATE} {FORCE}) and lose them"
    );
    forced(wanted, &said, &mend, warnings)
}

/// Refuses dirty data of a cache whose lock stands on a header that is not as it was left.
pub(super) fn check_contradiction(
    wanted: &Wanted,
    why: &str,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    let said = format!("image {} was changed since this cache was attached: {why}.", wanted.spec);
    let mend = keyed!(
        "If nobody has written to the image, {FORCE} is right; else make a new cache ({CREATE} {FORCE}) and lose its dirty data"
    );
    forced(wanted, &said, &mend, warnings)
}

/// Names the snapshots newer than `seq`, which were taken while the cache was not attached, and what they lack.
pub(super) fn taken_meanwhile(all: &[(u64, String)], seq: u64, cache: &Cache) -> String {
    let names: Vec<&str> = all.iter().filter(|(id, _)| *id > seq).map(|(_, name)| name.as_str()).collect();
    let lack = cache
        .dirty_bytes
        .map_or("the dirty data of this cache".to_owned(), |n| format!("{n} dirty bytes of this cache"));
    match names.as_slice() {
        [] => format!(" Snapshots were taken meanwhile, without {lack}, and removed again."),
        names => format!(" Snapshots were taken meanwhile, without {lack}: {}.", names.join(", ")),
    }
}

/// Refuses dirty data of a cache whose image has another's lock, or nobody's, since it was attached.
pub(super) fn check_foreign(
    wanted: &Wanted,
    record: &LockRecord,
    holder: Option<&LockHolder>,
    snapshots: &str,
    warnings: &mut Vec<String>,
) -> Result<bool, CephError> {
    let now = holder.map_or("nobody".to_owned(), |h| format!("{} at {}", h.client, h.address));
    let said = format!(
        "somebody else had image {} since this cache was attached: its lock was {} at {}'s and is {now}'s now.{snapshots}",
        wanted.spec, record.holder.client, record.holder.address
    );
    let mend = keyed!(
        "The cache holds dirty data that may be older than what was written to the image since: {FORCE} writes it all the \
                same; or make a new cache ({CREATE} {FORCE}) and lose it"
    );
    forced(wanted, &said, &mend, warnings)
}

/// Refuses an image that somebody uses who is neither `me` nor this cache's.
pub(super) fn check_users(
    wanted: &Wanted,
    view: &ImageView,
    me: i64,
    warnings: &mut Vec<String>,
) -> Result<(), CephError> {
    for watcher in view.watchers.iter().filter(|w| w.client != me && !w.mirrors) {
        // This cache is this process's alone: whoever had it before is dead.
        if wanted.record_of_alone().is_some_and(|r| r.knows_watcher(watcher)) {
            continue;
        }
        // An attach of this process that was given up: fenced like any other, and nobody who uses the image.
        if view.given_up.contains(&watcher.client) {
            continue;
        }
        let WatcherInfo { address, client, kernel, .. } = watcher;
        if !wanted.steal {
            return refuse(used_by(wanted, view, watcher));
        }
        let device = if *kernel { ": the kernel there has it mapped, 'rbd unmap -o force' it" } else { "" };
        warnings
            .push(keyed!("client.{client} at {address} was fenced, as {STEAL} ordered{device}").to_string());
    }
    check_holder(wanted, view, warnings)
}

fn used_by(wanted: &Wanted, view: &ImageView, watcher: &WatcherInfo) -> KeyedText {
    let WatcherInfo { address, client, kernel, .. } = watcher;
    let said = format!("image {} is in use by client.{client} at {address}", wanted.spec);
    if *kernel {
        return keyed!("{said}: {}", unmap());
    }
    let mirror = if view.mirrored { MAY_MIRROR } else { "" };
    keyed!(
        "{said}: end that client first (one that died lets go after 30 s), or take the image away from it with {STEAL}{mirror}"
    )
}

/// Refuses an image whose lock a stranger has who does not watch it: dead, or cut off. An operator who gave up what others may
/// have in their caches has decided that already.
fn check_holder(wanted: &Wanted, view: &ImageView, warnings: &mut Vec<String>) -> Result<(), CephError> {
    let Some(h) = view.holder.as_ref().filter(|h| !h.is_among(&view.watchers)) else { return Ok(()) };
    if wanted.record_of_alone().is_some_and(|r| r.knows(h)) {
        return Ok(());
    }
    let number = h.client.strip_prefix("client.").and_then(|n| n.parse::<i64>().ok());
    if number.is_some_and(|n| view.given_up.contains(&n)) {
        return Ok(());
    }
    let forced = wanted.cache.as_ref().is_some_and(|c| c.force);
    if wanted.steal || wanted.without_cache || forced {
        warnings.push(format!("{} at {}, which held the image's lock, was fenced", h.client, h.address));
        return Ok(());
    }
    let said = format!(
        "{} at {} holds the exclusive lock of image {} and does not answer for it",
        h.client, h.address, wanted.spec
    );
    if h.is_kernel() {
        return refuse(keyed!("{said}: {}", unmap()));
    }
    refuse(keyed!(
        "{said}: it died, or is cut off. See that it is gone, and take the image away from it with {STEAL}"
    ))
}
