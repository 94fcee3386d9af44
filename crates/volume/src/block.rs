//! Block devices of a volume: claimed early, made when clients may come, and let go of only when nobody has them open.

use crate::options::{BlockOptions, ServeOptions};
use crate::signals::StopSignals;
use crate::stats;
use crate::volume_state::VolumeState;
use anyhow::{Result, ensure};
use loligo_block::keyed;
use loligo_block::keys::{DEV_NAME, LISTEN};
use loligo_client::names;
use loligo_export::blockdev::{BlockDevice, Claim, Released, Traits};
use loligo_export::fuse::Mount;
use loligo_export::ublk::UblkError;
use loligo_export::{Export, ExportSpec};
use loligo_log::say;
use std::time::{Duration, Instant};

/// Between two tries to let go of a device.
const LOOK: Duration = Duration::from_millis(200);
/// Programs that only look at new devices have them open for a moment: this long nothing is said.
const MOMENT: Duration = Duration::from_secs(1);
/// The time after which the holders of a device are named again.
const AGAIN: Duration = Duration::from_secs(30);

/// Before any thread runs, for threads inherit it: where there are block devices, the kernel's file systems may wait for
/// this process when memory is short, so that it must not wait for them to free some.
pub fn prepare(options: &ServeOptions) {
    if devices(options) > 0
        && let Err(why) = rustix::process::configure_io_flusher_behavior(true)
    {
        say!(
            "warning: PR_SET_IO_FLUSHER is refused ({why}): when memory is very short, the block device may hang. Give the \
             service CAP_SYS_RESOURCE"
        );
    }
}

fn devices(options: &ServeOptions) -> usize {
    let device =
        |spec: &&ExportSpec| matches!(spec, ExportSpec::Block(_) | ExportSpec::Ublk(_) | ExportSpec::Loop(_));
    options.listen.iter().filter(device).count()
}

/// # Errors
/// If the options contradict each other.
pub(crate) fn check(options: &ServeOptions) -> Result<()> {
    let named = !options.block.dev_names.is_empty();
    ensure!(
        !named || devices(options) == 1,
        keyed!("{DEV_NAME} names the one block device: give {LISTEN} block:NAME, once")
    );
    Ok(())
}

/// The ways to a volume with the kind of block device that this kernel has: its own where it can, for that outlives the service. Who wants
/// one of them says so (`ublk:`, `loop:`).
pub(crate) fn choose(listen: &[ExportSpec]) -> Vec<ExportSpec> {
    let own = |why: Result<(), UblkError>| match why {
        Ok(()) => true,
        Err(why) => {
            tracing::debug!(%why, "a loop device instead of ublk");
            false
        }
    };
    let choice = |spec: &ExportSpec| match spec {
        ExportSpec::Block(name) if own(loligo_export::ublk::available()) => ExportSpec::Ublk(name.clone()),
        ExportSpec::Block(name) => ExportSpec::Loop(name.clone()),
        other => other.clone(),
    };
    listen.iter().map(choice).collect()
}

/// Takes a device's name, and clears away what a killed service left under it.
///
/// # Errors
/// If it is somebody else's.
pub(crate) fn claim(name: &str, options: &BlockOptions) -> Result<Claim> {
    Ok(Claim::take(name, &names::runtime_dir()?.join("block"), &options.dev_names)?)
}

/// Makes the devices. Each is one client. `turns`: the core has heads to move.
///
/// # Errors
/// If the kernel refuses; those made before are taken away again.
pub(crate) fn serve(
    claims: Vec<Claim>,
    export: &Export,
    options: &BlockOptions,
    turns: bool,
    app: &VolumeState,
) -> Result<Vec<BlockDevice>> {
    let rotational = options.rotational.of(turns);
    let traits = Traits { block: export.min_block, rotational, owner: options.owner };
    let mut devices = Vec::new();
    for (number, claim) in claims.into_iter().enumerate() {
        let serve = |desk| app.handle.serve_mount(number, desk);
        let device = BlockDevice::new(claim, export, app.fuse.clone(), traits, serve)?;
        say!("{} is {}", device.path().display(), device.node().display());
        devices.push(device);
    }
    Ok(devices)
}

/// Detaches the devices once nobody has them open, the volume being served meanwhile; a signal ends the wait,
/// or that every request `fails`, and who has one open then gets errors. The result is the mounts below,
/// which go when everything accepted is answered.
pub(crate) fn let_go(
    devices: &mut [BlockDevice],
    options: &ServeOptions,
    signals: &StopSignals,
    fails: impl Fn() -> bool,
    app: &VolumeState,
) -> Vec<Mount> {
    let begun = Instant::now();
    let (mut said, mut last) = (None::<Instant>, String::new());
    loop {
        let busy: Vec<&BlockDevice> = devices.iter_mut().filter_map(|d| is_held(d).then_some(&*d)).collect();
        if busy.is_empty() || fails() {
            break;
        }
        let words = busy.iter().map(|d| describe(d)).collect::<Vec<_>>().join("; ");
        if begun.elapsed() > MOMENT && (words != last || said.is_none_or(|t| t.elapsed() > AGAIN)) {
            say!(
                "waiting to stop: {words}. Unmount it or stop what uses it; until then the volume is served. Another signal \
                 stops all the same: users of the device then get errors, and nothing acknowledged and flushed is lost"
            );
            (said, last) = (Some(Instant::now()), words);
        }
        if signals.within(LOOK) {
            say!("given up on a second signal: who has the device open gets errors from now on");
            break;
        }
        stats::rewrite(options, app, true);
    }
    for device in devices.iter_mut() {
        device.abandon();
    }
    devices.iter_mut().filter_map(BlockDevice::take_mount).collect()
}

/// True if somebody has `device` open; it is detached if nobody has. If somebody can be seen, the device is not even opened:
/// the last to close it writes what the page cache still has, and that had better not be this process.
fn is_held(device: &mut BlockDevice) -> bool {
    !device.holders().is_empty() || device.release() == Released::Busy
}

fn describe(device: &BlockDevice) -> String {
    let holders = match device.holders() {
        none if none.is_empty() => "something that cannot be seen from here (a container?)".to_owned(),
        some => some.join(" and "),
    };
    format!("{} ({}) is in use by {holders}", device.path().display(), device.node().display())
}
