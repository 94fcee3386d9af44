//! The stop: clients first, their mounts and devices with them, then what they were promised, then the word "clean".

use crate::held_cache::HeldCache;
use crate::hung_device::{self, HungDevice, LOOK};
use crate::options::ServeOptions;
use crate::signals::StopSignals;
use crate::stats;
use crate::ublk::Devices;
use crate::volume::Shutdown;
use crate::volume_state::VolumeState;
use anyhow::{Context, Result, anyhow, bail};
use loligo_block::IoError;
use loligo_client::progress::Progress;
use loligo_engine::api::Control;
use loligo_engine::{FallbackState, open};
use loligo_export::fuse::{Mount, Unmounted};
use loligo_format::units::BLOCK;
use loligo_log::say;
use loligo_shard::{Command, Ended, Running};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A cluster that takes longer to answer is waited for aloud.
const SLOW: Duration = Duration::from_secs(3);

/// Ends a volume: accepted requests are answered, connections closed, everything acknowledged made durable.
/// The result is the number of dirty blocks that stay on the cache.
///
/// # Errors
/// If something of that failed; what was acknowledged is safe on the cache all the same, and the next start recovers.
pub(crate) fn stop(
    options: &ServeOptions,
    signals: &StopSignals,
    running: Running,
    (mounts, mut devices): (Vec<Mount>, Devices),
    app: &VolumeState,
    left: Shutdown,
) -> Result<u64> {
    // On every way out of here the image is kept no more before it is closed.
    let Shutdown { core, held, image, void, keeping } = left;
    let handle = running.handle().clone();
    app.refuse_snapshots();
    // A cluster may not answer for as long as it likes; a cache whose image keeps its lock loses nothing by a crash.
    signals.kill(image.is_some());
    let slow = image.is_some().then(say_if_slow);
    // While requests are answered: what the kernel still wants of a device that goes is among them.
    devices.let_go();
    // Also where what it holds is void: an engine that broke off may still wait for it.
    let cache = held.as_ref().map(|h| &h.file);
    let mirror = cache.and_then(|file| file.mirror().cloned());
    let mut hung = HungDevice::new(cache, &handle);
    let drained = drain(app, &mut hung);
    unmount(mounts);
    drop(slow);
    let mut flushed = Ok(());
    if options.flush_on_stop && held.is_some() && drained.is_ok() {
        signals.kill(false);
        flushed = flush(app, signals, &mut hung);
        signals.kill(image.is_some());
    }
    let slow = image.is_some().then(say_if_slow);
    let stopped = drained.and_then(|()| {
        handle.wait_while(handle.send_all(|| Command::Control(Control::Stop)), LOOK, || {
            hung.try_on();
            Ok::<(), String>(())
        })
    });
    drop(slow);
    stats::rewrite(options, app, false);
    let ended = running.join().context("a thread of the volume failed");
    devices.end();
    let ended = ended?;
    // One that is another client's refuses the flush too, and what is dirty never goes there.
    let lost = app.has_lost_image();
    let core_flushed = if lost { Ok(()) } else { core.backing.sync_io().flush() };
    // It reads the image, which is closed below.
    let home = core.home.filter(|_| held.is_some() && !void);
    drop((core.backing, core.cache_file));
    must_have_stopped(stopped, core_flushed, held.is_some())?;
    if void && held.is_some() {
        say!("stopped: the core has everything; what its cache holds is void");
    }
    let held = held.filter(|_| !void);
    // A volume that had nothing to write has asked its cache nothing until here.
    if let Some(silent) = held.as_ref().map(|h| &h.file).filter(|file| !hung_device::answers(file)) {
        bail!(
            "{}, and cannot be closed: what was acknowledged is safe. The next start recovers, once it answers again",
            hung_device::silence(silent)
        );
    }
    let dirty_left = held.as_ref().map(|held| close_cache(held, &ended, lost)).transpose()?.unwrap_or(0);
    if let (Some(mut home), Some(cache)) = (home, &held) {
        home.detach(dirty_left * BLOCK, &cache.file)?;
    }
    if let Some(mut image) = image {
        image.may_be_dirty = dirty_left > 0 || lost;
        drop(keeping);
        let record = image.give_back()?;
        if let (Some(held), Some(record)) = (held, record) {
            note_record(&held, record)?;
        }
    }
    if let Some(mirror) = mirror {
        // After everything else that is written to it.
        mirror.close();
    }
    flushed.context("the flush failed; what is dirty is safe on the cache")?;
    Ok(dirty_left)
}

/// Refuses to call a stop clean whose threads, or whose core's last flush, have failed.
fn must_have_stopped(
    stopped: Result<(), String>,
    core_flushed: Result<(), IoError>,
    has_cache: bool,
) -> Result<()> {
    match stopped {
        Err(why) if has_cache => bail!(
            "the cache could not be stopped cleanly: {why}. Everything acknowledged before that is on it; mend the \
             device, then start again: that recovers"
        ),
        Err(why) => bail!("what was written since the last flush may be lost: {why}"),
        Ok(()) => {}
    }
    core_flushed.context(match has_cache {
        true => {
            "the core could not be flushed: what is dirty is safe on the cache, what went past it since the last flush \
             may be lost; mend the core, then start again: that recovers"
        }
        false => "the core could not be flushed: what was written since the last flush may be lost",
    })
}

/// Writes into the superblock that the cache was stopped cleanly, as its threads have `ended`. The result is
/// the number of its dirty blocks.
fn close_cache(held: &HeldCache, ended: &[Ended], lost: bool) -> Result<u64> {
    let mut superblock = held.superblock.lock();
    let finals: Vec<u64> = ended.iter().map(|e| e.last_seq).collect();
    let dirty = ended.iter().map(|e| e.dirty_blocks).sum();
    let mode = ended.first().map_or(superblock.mode, |e| e.mode);
    open::close(&mut held.file.sync_io(), &mut superblock, &finals, mode, dirty, None)
        .context("the superblock could not be written: the next start recovers")?;
    match dirty {
        0 if lost => say!("stopped: the image is another client's; the cache holds nothing that it lacks"),
        0 => say!("stopped: the core has everything"),
        n => say!("stopped: {} dirty bytes are safe on the cache", n * BLOCK),
    }
    Ok(dirty)
}

/// Notes in the cache how its image was given back.
fn note_record(held: &HeldCache, record: String) -> Result<()> {
    let mut superblock = held.superblock.lock();
    superblock.core_record = record;
    superblock
        .store(&mut held.file.sync_io())
        .context("the superblock could not be written: the next start drops what is clean")
}

/// Turns clients away, and waits until the last request is answered. A cache that is gone by now is not done without any more, nor is
/// one waited for that answers nothing: what waits for either fails.
fn drain(app: &VolumeState, hung: &mut HungDevice<'_>) -> Result<(), String> {
    let handle = &app.handle;
    handle.wait_while(handle.send_all(|| Command::Drain), LOOK, || {
        hung.try_on();
        if handle.snapshots().iter().any(|s| s.fallback == Some(FallbackState::Waiting)) {
            // A thread that has ended is found out elsewhere.
            let _ = handle.control(&Control::GiveUp("the volume is being stopped".to_owned()));
        }
        Ok(())
    })
}

/// Says why nothing happens, where the stop waits for the cluster; until what it gives is dropped.
fn say_if_slow() -> Sender<()> {
    let (over, waited) = channel();
    let waits = move || {
        if waited.recv_timeout(SLOW) == Err(RecvTimeoutError::Timeout) {
            say!(
                "still stopping: the cluster has not answered what is under way to it. Another signal ends the service at once; what \
                 was acknowledged is safe on the cache, and the next start goes on from there"
            );
        }
    };
    // Without a thread nothing is said; the stop goes on.
    drop(std::thread::Builder::new().name("slow-stop".to_owned()).spawn(waits));
    over
}

/// Takes the mounts away. Further requests from them are refused by threads that have drained, so that this
/// waits for nobody.
pub(crate) fn unmount(mounts: Vec<Mount>) {
    for mount in mounts {
        let path = mount.path().display().to_string();
        match mount.unmount() {
            Ok(Unmounted::Gone) => {}
            Ok(Unmounted::Busy) => {
                say!(
                    "{path} was in use: it is unmounted, and who has the volume open there gets errors from now on"
                );
            }
            Err(why) => {
                say!("warning: {path} cannot be unmounted: {why}. Unmount it by hand: umount -l {path}")
            }
        }
    }
}

/// Destages everything, until that is done or another signal comes.
fn flush(app: &VolumeState, signals: &StopSignals, hung: &mut HungDevice<'_>) -> Result<()> {
    let total = app.dirty_bytes();
    let mut progress = Progress::new("flushing to the core");
    let mut given_up = false;
    let asked = app.handle.send_all(|| Command::Control(Control::FlushDirty));
    let flushed = app.handle.wait_while(asked, LOOK, || {
        let left = app.dirty_bytes();
        hung.goes_on(left);
        given_up = signals.within(Duration::ZERO);
        progress.show(total.saturating_sub(left), total);
        if given_up {
            Err(format!("given up on a second signal, {left} bytes stay dirty on the cache"))
        } else {
            Ok(())
        }
    });
    match flushed {
        Ok(()) => progress.end("done"),
        Err(said) if given_up => progress.end(&said),
        Err(why) => {
            progress.end("failed");
            return Err(anyhow!(app.with_sectors(why)));
        }
    }
    Ok(())
}
