//! The two legs of a mirrored cache at a start: found, compared by their labels, believed or refused.

use crate::blank;
use crate::identity::device_id;
use crate::options::{CacheOptions, MirrorOptions};
use crate::pool::{PoolSpec, random_uuid};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::keys::{CACHE, FORCE, JOURNAL_MIRROR, MIRROR, MIRROR_ALONE};
use loligo_block::mirror::{
    Change, Flaws, Leg, Mark, Mirror, MirrorState, MirrorView, Opening, Policy, Refused, Seen, Setup, decide,
};
use loligo_block::{
    CacheDevice, DeviceFile, IoError, OpenOptions, SIGNATURE_PROBE, SyncFile, SyncIo, foreign_signature,
    keyed,
};
use loligo_format::mirror_label::{self, CONTENT};
use loligo_format::superblock::SuperError;
use loligo_log::say;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The time that a leg has to be opened and read.
const LIMIT: Duration = Duration::from_secs(15);

/// A leg as it was found.
#[derive(Debug)]
enum Found {
    Missing(String),
    Blank(DeviceFile),
    Foreign(DeviceFile, String),
    Marked(DeviceFile, Mark),
}

/// Opens both legs of `o`, as far as they can be reached. Nothing is written yet.
///
/// # Errors
/// If neither may be believed, or one has data of somebody else's.
pub(crate) fn open(o: &CacheOptions, m: &MirrorOptions) -> Result<CacheDevice> {
    refuse_unfit(o, m)?;
    let paths = [o.path.clone(), m.path.clone()];
    let mut legs = [None, None];
    let mut seen = [Seen::Missing; 2];
    let mut missing = Vec::new();
    for leg in Leg::BOTH {
        let (n, path) = (leg.index(), &paths[leg.index()]);
        match find(path)? {
            Found::Missing(why) => {
                missing.push(format!("the {leg} leg {} is not there ({why})", path.display()))
            }
            Found::Blank(file) => (seen[n], legs[n]) = (Seen::Blank, Some(file)),
            Found::Foreign(file, _) if o.force => (seen[n], legs[n]) = (Seen::Blank, Some(file)),
            Found::Foreign(_, what) => bail!(keyed!(
                "{} holds {what}: as a leg of a mirrored cache it is overwritten. Add {FORCE} if it may be; else give another {CACHE} \
                 or {JOURNAL_MIRROR}. A cache that exists is not mirrored as it is: flush it, and make a new one",
                path.display()
            )),
            Found::Marked(file, mark) => (seen[n], legs[n]) = (Seen::Marked(mark), Some(file)),
        }
    }
    let opening = decide(seen, m.alone, &Flaws::default()).map_err(|why| refused(why, &paths, &missing))?;
    if let Opening::On { leg, joins: false, .. } = opening
        && m.required
    {
        bail!(keyed!(
            "{}, and is required: bring it back, or start with {MIRROR:#} preferred, which goes on with the {leg} leg alone",
            missing.join("; ")
        ));
    }
    tell_opening(opening, &paths, &missing);
    let top = seen.iter().map(|s| if let Seen::Marked(mark) = s { mark.generation } else { 0 });
    let setup = Setup {
        opening,
        top: top.max().unwrap_or(0),
        set: random_uuid()?,
        seed: seed()?,
        policy: if m.required { Policy::Required } else { Policy::Preferred },
        content: CONTENT,
        store: mirror_label::store,
        tell: Arc::new(move |change| tell(change, &paths)),
    };
    let mirror = Mirror::new(legs, setup).context("the mirrored cache cannot be opened")?;
    Ok(CacheDevice::Mirrored(mirror))
}

fn seed() -> Result<u64> {
    let mut raw = [0; 8];
    raw.copy_from_slice(&random_uuid()?[..8]);
    Ok(u64::from_le_bytes(raw))
}

/// Refuses what no mirror can be.
fn refuse_unfit(o: &CacheOptions, m: &MirrorOptions) -> Result<()> {
    ensure!(
        PoolSpec::of(&o.path)?.is_none() && PoolSpec::of(&m.path)?.is_none(),
        keyed!("a share of a pool is not mirrored: leave {JOURNAL_MIRROR} out, or give devices")
    );
    let same = device_id(&o.path).is_some_and(|cache| device_id(&m.path) == Some(cache));
    ensure!(
        !same,
        keyed!("{CACHE} and {JOURNAL_MIRROR} name the same device: give one on the partner's array")
    );
    ensure!(
        !(m.required && m.alone),
        keyed!("{MIRROR_ALONE} goes on with one leg, and {MIRROR:#} required does not: give one of them")
    );
    Ok(())
}

/// Looks at a leg. One that does not answer is left behind with its thread.
fn find(path: &Path) -> Result<Found> {
    let (says, said) = channel();
    let at = path.to_owned();
    let look = move || drop(says.send(find_now(&at)));
    std::thread::Builder::new().name("mirror-leg".to_owned()).spawn(look).context("starting a thread")?;
    match said.recv_timeout(LIMIT) {
        Ok(found) => found,
        Err(_) => Ok(Found::Missing(format!("it has answered nothing for {} s", LIMIT.as_secs()))),
    }
}

fn find_now(path: &Path) -> Result<Found> {
    let file = match DeviceFile::open(path, &OpenOptions::default()) {
        Ok(file) => file,
        Err(why) if !path.exists() || is_gone(&why) => return Ok(Found::Missing(why.to_string())),
        Err(why) => return Err(why).with_context(|| format!("{} cannot be opened", path.display())),
    };
    let mut dev = SyncFile::new(file.clone());
    let looked = match mirror_label::load(&mut dev) {
        Ok(mark) => return Ok(Found::Marked(file, mark)),
        Err(SuperError::Absent) => foreign(&mut dev),
        Err(SuperError::Io(why)) => Err(why.into()),
        Err(why) => Ok(Some(format!("a label of a mirrored cache that cannot be read ({why})"))),
    };
    match looked {
        Ok(None) => Ok(Found::Blank(file)),
        Ok(Some(what)) => Ok(Found::Foreign(file, what)),
        Err(why) => match why.downcast_ref::<IoError>() {
            Some(io) if is_gone(io) => Ok(Found::Missing(io.to_string())),
            _ => Err(why.context(format!("{} cannot be read", path.display()))),
        },
    }
}

/// The content of a device without a label, if it has any.
fn foreign(dev: &mut SyncFile) -> Result<Option<String>> {
    let mut head = vec![0; (SIGNATURE_PROBE as u64).min(dev.size()) as usize];
    dev.read_at(0, &mut head)?;
    if let Some(what) = foreign_signature(&head) {
        return Ok(Some(what.to_owned()));
    }
    Ok(blank::holds_data(dev)?.then(|| "data behind a start of zeros".to_owned()))
}

/// True if the device, or the way to it, is gone.
fn is_gone(why: &IoError) -> bool {
    let errnos = [
        libc::EIO,
        libc::ENXIO,
        libc::ENODEV,
        libc::ENOENT,
        libc::ENOTCONN,
        libc::EREMOTEIO,
        libc::ETIMEDOUT,
        libc::EHOSTDOWN,
        libc::ENOMEDIUM,
        libc::ESTALE,
    ];
    errnos.contains(&why.errno)
}

/// A refusal in words, with its mend.
fn refused(why: Refused, paths: &[PathBuf; 2], missing: &[String]) -> anyhow::Error {
    let path = |leg: Leg| paths[leg.index()].display();
    let missing = missing.join("; ");
    match why {
        Refused::SplitBrain => keyed!(
            "{} and {} have each gone on without the other: either may hold acknowledged writes that the other lacks. Choose the one to \
             keep, zero the first MiB of the other, and start with {FORCE} {MIRROR_ALONE}",
            path(Leg::Local),
            path(Leg::Mirror)
        ),
        Refused::Strangers => keyed!(
            "{} and {} are legs of different mirrored caches: give the right {CACHE} and {JOURNAL_MIRROR}",
            path(Leg::Local),
            path(Leg::Mirror)
        ),
        Refused::Unseen(leg) => keyed!(
            "{}: {} was in step with it when it was last seen, and the other may have gone on without it since. Bring the other back; \
             or start with {MIRROR_ALONE}, if it is known that nobody wrote to it alone: what it holds alone is lost",
            if missing.is_empty() { "the other leg of the mirrored cache is blank".to_owned() } else { missing },
            path(leg)
        ),
        Refused::Stale(leg) => keyed!(
            "{} was being copied to when it was last served, and is not whole: the other leg is needed, {}",
            path(leg),
            path(leg.other())
        ),
        Refused::BothStale => keyed!(
            "{} and {} were both being copied to: neither is whole. Restore one of them, or make a new cache",
            path(Leg::Local),
            path(Leg::Mirror)
        ),
        Refused::Nothing(_) => {
            keyed!("{missing}: a new mirrored cache needs both. Bring it, or leave {JOURNAL_MIRROR} out")
        }
        Refused::Missing => keyed!("neither leg of the mirrored cache can be reached: {missing}"),
    }
    .into()
}

fn tell_opening(opening: Opening, paths: &[PathBuf; 2], missing: &[String]) {
    let Opening::On { leg, joins, .. } = opening else { return };
    let (on, other) = (paths[leg.index()].display(), paths[leg.other().index()].display());
    match joins {
        true => say!("the mirrored cache is opened on its {leg} leg {on}; {other} is copied to from it"),
        false => say!("warning: the mirrored cache is opened on {on} alone: {}", missing.join("; ")),
    }
}

fn tell(change: &Change, paths: &[PathBuf; 2]) {
    let path = |leg: &Leg| paths[leg.index()].display();
    match change {
        Change::Left(leg, why) => {
            say!("error: the {leg} leg of the mirrored cache, {}, is left: {why}", path(leg));
        }
        Change::Alone(leg) => say!(
            "warning: {} holds the cache alone from now on, and its label says so. The other leg is tried every 5 s",
            path(leg)
        ),
        Change::Joining(leg) => say!("{} answers again: it is copied to", path(leg)),
        Change::JoinFailed(leg, why) => {
            say!("warning: the copy to {} has ended early ({why}): it is tried again", path(leg));
        }
        Change::InStep(leg) => say!("{} is in step again: both legs hold the same", path(leg)),
        Change::Stopped(leg, why) => say!(
            "error: the {leg} leg of the mirrored cache, {}, is gone ({why}) and is required: no writes are taken. Mend it and restart \
             the volume",
            path(leg)
        ),
        Change::Failed(why) => say!("error: the mirrored cache takes nothing any more: {why}"),
    }
}

/// A mirror's state as JSON.
pub(crate) fn json(view: MirrorView) -> Value {
    let (state, leg) = words(view.state);
    json!({
        "state": state,
        "leg": leg.map(|leg| leg.to_string()),
        "copied_bytes": view.copied,
        "bytes": view.size,
        "left": view.left,
    })
}

/// The word for a state, and the leg that is lost or joins.
fn words(state: MirrorState) -> (&'static str, Option<Leg>) {
    match state {
        MirrorState::InStep => ("in step", None),
        MirrorState::Leaving(leg) => ("leaving", Some(leg)),
        MirrorState::Alone(on) => ("alone", Some(on.other())),
        MirrorState::Joining(leg) => ("joining", Some(leg)),
        MirrorState::Stopped(leg) => ("stopped", Some(leg)),
        MirrorState::Failed => ("failed", None),
    }
}

/// The trouble of a mirror, if it has any.
pub(crate) fn trouble(view: MirrorView) -> Option<String> {
    let percent = view.copied.unwrap_or(0) * 100 / view.size.max(1);
    Some(match view.state {
        MirrorState::InStep => return None,
        MirrorState::Leaving(leg) => format!("the {leg} leg of its cache does not answer, and is being left"),
        MirrorState::Alone(on) => {
            format!("the {} leg of its cache is gone: the {on} one holds it alone", on.other())
        }
        MirrorState::Joining(leg) => format!("the {leg} leg of its cache is being copied to: {percent} %"),
        MirrorState::Stopped(leg) => {
            format!("the {leg} leg of its cache is gone and required: no writes are taken")
        }
        MirrorState::Failed => "both legs of its cache are gone".to_owned(),
    })
}
