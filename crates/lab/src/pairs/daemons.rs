//! The daemons of the controllers, which serve volumes over images of the cluster. The agents tell them what to serve.

use super::agents::environment;
use super::place::Controller;
use crate::ceph::Ceph;
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::namespaces;
use crate::process::{Held, POLL, Process, last_lines};
use crate::state::State;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The port of each volume.
const PORT: u16 = 10809;
/// The time that a daemon may take to be ready.
const LIMIT: Duration = Duration::from_secs(30);

/// The address of the volume that is at home on a controller, wherever it is served.
pub(crate) fn address(state: &State, controller: Controller) -> String {
    namespaces::address(&state.address, namespaces::volume_number(controller))
}

/// The same with the port.
pub(crate) fn socket(state: &State, controller: Controller) -> String {
    format!("{}:{PORT}", address(state, controller))
}

fn file(at: &Layout, controller: Controller) -> PathBuf {
    controller.dir(at).join("loligod.toml")
}

fn control(at: &Layout, controller: Controller) -> PathBuf {
    controller.run(at).join("loligod.sock")
}

/// Starts the daemon of a controller: `program` is this program.
///
/// # Errors
/// If its file cannot be written, or nothing be started.
pub(crate) fn start(at: &Layout, state: &State, program: &Path, controller: Controller) -> Result<Held> {
    let file = file(at, controller);
    let text = format!("[daemon]\nidentity = \"{controller}\"\n");
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    // Of one that was killed.
    let _ = fs::remove_file(control(at, controller));
    let mut command = Command::new(program);
    command.args(["daemon", "--config"]).arg(&file);
    environment(at, controller, &mut command);
    let name = controller.daemon_name();
    let host = namespaces::name(&state.fsid, &controller.to_string());
    Process::hold(&name, &namespaces::within(&host, &command), &at.output(&name))
}

/// Waits until the daemon of a controller answers.
///
/// # Errors
/// With its last words, if it ends, or the time is over.
pub(crate) fn wait_ready(at: &Layout, state: &State, controller: Controller, stop: &Interrupt) -> Result<()> {
    let (begun, name) = (Instant::now(), controller.daemon_name());
    while UnixStream::connect(control(at, controller)).is_err() {
        stop.check()?;
        if !state.process(&name).is_some_and(Process::alive) || begun.elapsed() > LIMIT {
            let said = fs::read_to_string(at.output(&name)).unwrap_or_default();
            bail!("{name} is not ready: {}", last_lines(&said, 3));
        }
        std::thread::sleep(POLL / 5);
    }
    Ok(())
}

/// Makes the images of all volumes.
///
/// # Errors
/// If the cluster refuses.
pub(crate) fn make_images(ceph: &Ceph, state: &State) -> Result<()> {
    let Some(bytes) = state.config.volume_bytes()? else { return Ok(()) };
    for controller in Controller::all(state.config.pairs) {
        let image = format!("{}/{}", state.config.volume_pool(), controller.volume());
        ceph.tool("rbd", &["create", "--size", &format!("{bytes}B"), &image])?;
    }
    Ok(())
}
