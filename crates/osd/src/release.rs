//! Taking the cache away from an OSD that was adopted: it goes on on its own device.
//!
//! The OSD's own first block comes back to the disk when nothing is on the cache alone, and before anything is forgotten. Cut off
//! anywhere, the same command goes on; until the volume is deleted, `activate` goes back.

use crate::cluster::Cluster;
use crate::daemon::{self, has_open, holder};
use crate::place::{self, Known, Place};
use crate::raw::{self, Kept, Raw, core_of};
use crate::{activate, before_anything, ceph_volume, folder, wipe};
use anyhow::{Context, Result, bail, ensure};
use loligo_block::IoError;
use loligo_client::api::daemon::Stop;
use loligo_client::api::definition::Leave;
use loligo_client::api::status::Status;
use loligo_client::client::{Client, DaemonClient};
use loligo_format::superblock::Superblock;
use loligo_lab::interrupt::Interrupt;
use loligo_log::say;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The options of a release.
#[derive(Debug, Clone, Copy, Default)]
pub struct Release {
    /// The cache is lost: what it alone held is, too.
    pub without_cache: bool,
}

/// Takes the cache away from an adopted OSD, and starts it on its own device.
///
/// # Errors
/// If it may not stop, or something stands in the way. The OSD then runs on its volume as before.
pub fn release(id: u32, how: Release, stop: &Interrupt) -> Result<()> {
    let daemon = DaemonClient::new()?;
    let known = place::one(&daemon, id)?;
    let place = &known.place;
    ensure!(
        place.adopted.is_some(),
        "osd.{id} was made by 'loligo osd prepare' and cannot be released: its data begin behind a \
        label, and are useless without it. 'loligo osd remove' removes it"
    );
    let cluster = Cluster::new(&place.cluster, stop);
    if runs_on_its_own(&known)? {
        say!("osd.{id} runs on its own device already; the rest of its volume is removed");
        return forget(&daemon, &known, true);
    }
    if holder(&place.dir).is_some() {
        before_anything(may_stop(&cluster, id))?;
    }
    if how.without_cache {
        before_anything(is_lost(&known))?;
    } else if known.volume.status == Status::Serving && !is_void(&known)? {
        // What is dirty now need not be waited for while the OSD is down.
        Client::new(&known.volume.name)?.flush()?;
    }
    stop.check()?;
    let before = cluster.map().ok().and_then(|map| map.osd(id)).filter(|o| o.up).map(|o| o.up_from);
    folder::begin_release(&place.dir)?;
    say!("osd.{id}: stopping");
    let parted =
        daemon::stop(id, &place.dir, stop).and_then(|()| part(&daemon, &known, how.without_cache, stop));
    if let Err(why) = parted {
        return Err(go_back(&daemon, &known, before, why));
    }
    say!("osd.{id}: on its own device again");
    // Whatever ends this from here on, the volume is still known, and the same command goes on.
    start(place, &Interrupt::default(), before).with_context(|| {
        format!(
            "osd.{id} does not come up on its own device: see its log. 'loligo osd release {id}' tries again; 'loligo osd activate {id}' \
             puts it back on its volume"
        )
    })?;
    forget(&daemon, &known, true)
}

/// True if a release was cut off when the OSD was on its own device already.
fn runs_on_its_own(known: &Known) -> Result<bool> {
    let core = core_of(known)?;
    Ok(holder(&known.place.dir).is_some_and(|pid| has_open(pid, &core)))
}

/// The cluster can do without the OSD for a while.
pub(crate) fn may_stop(cluster: &Cluster, id: u32) -> Result<()> {
    match cluster.run(&["osd", "ok-to-stop", &id.to_string()]) {
        Ok(_) => Ok(()),
        Err(why) => bail!(
            "osd.{id} may not stop now, because data would be out of reach without it: {}. Try again \
            when the cluster is well",
            crate::remove::said(&why)
        ),
    }
}

/// Its cache failed, and the disk has everything.
fn is_void(known: &Known) -> Result<bool> {
    Ok(raw::label(&core_of(known)?)?.as_ref().is_some_and(raw::is_void))
}

/// Nobody gives up a cache that is there, or what it alone had.
fn is_lost(known: &Known) -> Result<()> {
    let (id, core) = (known.place.id, core_of(known)?);
    let label = raw::label(&core)?;
    if is_void(known)? {
        return Ok(());
    }
    is_not_there(known)?;
    match label.as_ref().and_then(raw::lost) {
        Some(lost) => bail!("osd.{id} cannot go on without its cache on {}: {lost}", core.display()),
        None => Ok(()),
    }
}

fn is_not_there(known: &Known) -> Result<()> {
    let Some(cache) = known.volume.definition.cache.as_deref().filter(|c| c.exists()) else { return Ok(()) };
    ensure!(
        known.volume.status != Status::Serving,
        "the cache of osd.{} is present and serves: leave --without-cache out",
        known.place.id
    );
    let own = match wipe::open_device(cache) {
        Ok(mut dev) => Superblock::load(&mut dev).is_ok_and(|sb| sb.name == known.volume.name),
        // What somebody has open is not lost.
        Err(why) => why.downcast_ref::<IoError>().is_some_and(|e| e.errno == Errno::BUSY.raw_os_error()),
    };
    ensure!(
        !own,
        "the cache of osd.{} is present at {}: leave --without-cache out",
        known.place.id,
        cache.display()
    );
    Ok(())
}

/// Stops the volume, and gives the OSD's device back its first block and the OSD its link. The OSD is stopped.
///
/// # Errors
/// If the core lacks something, among others.
pub(crate) fn part(
    daemon: &DaemonClient,
    known: &Known,
    without_cache: bool,
    stop: &Interrupt,
) -> Result<()> {
    let Known { place, volume } = known;
    let core = core_of(known)?;
    settle_down(daemon, &volume.name)?;
    if !without_cache && !raw::is_settled(&core)? {
        // It was not stopped cleanly: it must be served once more.
        match daemon.start(&volume.name, Leave::default())? {
            Status::Serving => {}
            other => bail!(
                "volume '{}' is {}: {}. If its cache is lost for good, run 'loligo osd release {} \
                --without-cache'. It works if the cache never had data of its own: always in wt, wa, wi \
                or pt",
                volume.name,
                other.word(),
                other.why().unwrap_or("somebody stopped it"),
                place.id
            ),
        }
        settle_down(daemon, &volume.name)?;
    }
    stop.check()?;
    let cache = volume.definition.cache.as_deref().filter(|c| !without_cache && c.exists());
    let kept = Kept::of(place, daemon)?;
    Raw { core: &core, cache, volume: &volume.name, kept: &kept }.lift()?;
    if let Some(origin) = &place.adopted {
        folder::link_block(&place.dir, origin)?;
    }
    folder::own(place)
}

/// Takes the volume of an OSD that is on its own device away, and its cache; as a file that goes if it was `made` for it.
///
/// # Errors
/// If the daemon does not forget it.
pub(crate) fn forget(daemon: &DaemonClient, known: &Known, made: bool) -> Result<()> {
    let Known { place, volume } = known;
    ceph_volume::starts_again(place, &Interrupt::default())?;
    daemon.delete(&volume.name, true)?;
    if let Some(cache) = &volume.definition.cache
        && let Err(why) = wipe::cache(cache, &volume.name, made)
    {
        say!("warning: {why:#}. By hand: wipefs -a {}", cache.display());
    }
    Kept::of(place, daemon)?.forget();
    // A file of the volume was mounted there, if anything was.
    let _ = std::fs::remove_dir(place.dir.join("volume"));
    folder::end_release(&place.dir);
    Ok(())
}

/// Stops a volume, everything dirty written to its core before.
fn settle_down(daemon: &DaemonClient, volume: &str) -> Result<()> {
    match daemon.stop(volume, &Stop { flush: true, force: false })? {
        Status::Stopped => Ok(()),
        other => bail!(
            "volume '{volume}' does not stop cleanly: it is {}: {}",
            other.word(),
            other.why().unwrap_or("nobody says why")
        ),
    }
}

/// It did not work out: the OSD goes on on its volume.
fn go_back(daemon: &DaemonClient, known: &Known, since: Option<u64>, why: anyhow::Error) -> anyhow::Error {
    let id = known.place.id;
    say!("osd.{id}: not released: it is started again as it was");
    let back = place::one(daemon, id)
        .and_then(|known| activate::bring_up(daemon, &known, since, &Interrupt::default()));
    match back {
        Ok(()) => why,
        Err(also) => why.context(format!(
            "osd.{id} does not run now ({also:#}). 'loligo osd activate {id}' tries to start it with \
            its cache; 'loligo osd release {id}' tries to take the cache away"
        )),
    }
}

/// Starts an OSD that has no volume, and waits until it is up.
pub(crate) fn start(place: &Place, stop: &Interrupt, before: Option<u64>) -> Result<()> {
    let cluster = Cluster::new(&place.cluster, stop);
    let started = holder(&place.dir).is_none();
    if started {
        own_folder(place, stop)?;
        daemon::start(place, stop)?;
    }
    activate::wait_up(&cluster, place, before.filter(|_| started))
}

/// One that was in memory, and was put aside, is written again.
fn own_folder(place: &Place, stop: &Interrupt) -> Result<()> {
    let Some(origin) = &place.adopted else { return Ok(()) };
    activate::restore(place, &place.dir.join(origin), stop)?;
    folder::link_block(&place.dir, origin)?;
    folder::own(place)
}

/// The target of `block` in an OSD's folder, as it stands there.
pub(crate) fn origin(dir: &Path) -> Result<PathBuf> {
    let block = dir.join("block");
    std::fs::read_link(&block).with_context(|| {
        format!(
            "{} is no link: only an OSD whose data lie on a device or file elsewhere can be adopted. \
            Stop the OSD, move the file elsewhere with 'mv', and put a link to it there",
            block.display()
        )
    })
}
