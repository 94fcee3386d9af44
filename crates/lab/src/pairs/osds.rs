//! OSDs of pairs: made once, by the path of their home controller, with a folder on each of the two.

use super::place::{Controller, cache_lun, osd_lun};
use super::store::{self, Served};
use crate::ceph::Ceph;
use crate::config::LabConfig;
use crate::layout::Layout;
use crate::namespaces;
use crate::process::{Held, Process, end};
use crate::state::State;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Serves the data of all OSDs by their home controllers' paths, while their stores are made. The servers are written down.
///
/// # Errors
/// If one is not served.
pub(crate) fn serve(at: &Layout, state: &mut State, program: &Path) -> Result<()> {
    let parts: Vec<_> = state
        .osds
        .iter()
        .map(|(id, _)| {
            let home = Controller::home(*id);
            let [core, cache] = [osd_lun(*id), cache_lun(*id)].map(|lun| home.lun(at, &lun));
            (*id, core, cache, home.osd_mount(at, *id))
        })
        .collect();
    let all: Vec<_> =
        parts.iter().map(|(id, core, cache, mount)| Served { id: *id, core, cache, mount }).collect();
    for served in &all {
        let held = served.hold(at, &state.config, program)?;
        state.start(at, held)?;
    }
    for served in &all {
        let server =
            state.process(&format!("{}{}", store::NAME, served.id)).context("it was just started")?;
        served.wait(at, server)?;
    }
    Ok(())
}

/// Ends these servers. What they acknowledged is on the caches.
pub(crate) fn leave(state: &mut State) {
    let is_one = |process: &&Process| process.name.starts_with(store::NAME);
    end(&state.processes.iter().filter(is_one).cloned().collect::<Vec<_>>(), store::END);
    state.processes.retain(|process| !is_one(&process));
}

/// Makes the store of an OSD, and the folder of the partner for it.
///
/// # Errors
/// If a folder cannot be made, or one of Ceph's programs fails.
pub(crate) fn make_store(
    at: &Layout,
    ceph: &Ceph,
    config: &LabConfig,
    (id, uuid): (u32, &str),
) -> Result<()> {
    let home = Controller::home(id);
    let dir = folder(at, home, id)?;
    fs::write(dir.join("fsid"), format!("{uuid}\n"))?;
    link(at, home, config, id, &dir)?;
    let (number, data) = (id.to_string(), dir.display().to_string());
    ceph.tool("ceph-osd", &["-i", &number, "--mkfs", "--osd-uuid", uuid, "--osd-data", &data])
        .with_context(|| format!("making the store of osd.{id}"))?;
    for partner in home.node.controllers().into_iter().filter(|c| *c != home) {
        let dir = folder(at, partner, id)?;
        // Both see the same bytes. The partner's way to a volume is there once that is served there.
        let device = match config.cache {
            Some(_) => home.osd_data(at, config, id),
            None => partner.lun(at, &osd_lun(id)),
        };
        let device = device.display().to_string();
        let path = dir.display().to_string();
        ceph.tool("ceph-bluestore-tool", &["prime-osd-dir", "--dev", &device, "--path", &path])
            .with_context(|| format!("preparing {path}"))?;
        link(at, partner, config, id, &dir)?;
    }
    Ok(())
}

fn folder(at: &Layout, controller: Controller, id: u32) -> Result<std::path::PathBuf> {
    let dir = controller.osd_dir(at, id);
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    Ok(dir)
}

/// The OSD finds its data by the controller's own path.
fn link(at: &Layout, controller: Controller, config: &LabConfig, id: u32, dir: &Path) -> Result<()> {
    let link = dir.join("block");
    if fs::symlink_metadata(&link).is_ok() {
        fs::remove_file(&link).with_context(|| format!("removing {}", link.display()))?;
    }
    symlink(controller.osd_data(at, config, id), &link).with_context(|| format!("linking {}", link.display()))
}

/// Starts the daemon on a controller.
///
/// # Errors
/// If nothing can be started.
pub(crate) fn start(at: &Layout, ceph: &Ceph, state: &State, id: u32, on: Controller) -> Result<Held> {
    let name = format!("osd.{id}");
    let mut command = ceph.command("ceph-osd");
    command.args(["-f", "-i", &id.to_string(), "--osd-data"]).arg(on.osd_dir(at, id));
    let command = namespaces::within(&namespaces::name(&state.fsid, &on.to_string()), &command);
    Process::hold(&name, &command, &at.output(&name))
}

/// The process ids of the daemon of an OSD on these hosts.
pub(crate) fn daemons(state: &State, id: u32) -> Vec<(String, i32)> {
    let hosts = Controller::all(state.config.pairs).map(|c| c.to_string());
    let of = |host: String| {
        let inside = namespaces::pids(&namespaces::name(&state.fsid, &host));
        inside
            .into_iter()
            .filter(|pid| osd_of(*pid) == Some(id))
            .map(|pid| (host.clone(), pid))
            .collect::<Vec<_>>()
    };
    hosts.flat_map(of).collect()
}

/// The OSD whose daemon a process is.
pub(crate) fn osd_of(pid: i32) -> Option<u32> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<&str> = raw.split(|b| *b == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let (program, rest) = words.split_first()?;
    (Path::new(program).file_name()? == "ceph-osd").then_some(())?;
    rest.windows(2).find(|two| matches!(two[0], "-i" | "--id")).and_then(|two| two[1].parse().ok())
}
