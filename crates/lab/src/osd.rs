//! One OSD: its store and its daemon.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loligo_block::{SIGNATURE_PROBE, foreign_signature};

use crate::ceph::Ceph;
use crate::config::{Aside, Data, Hosts, Kind, LabConfig, OsdPlan};
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::namespaces;
use crate::process::{Held, POLL, Process, last_lines};
use crate::state::State;

/// Bytes of a database or log that is a file.
const ASIDE: u64 = 2 << 30;
/// The time that the server of what an OSD stands on may take to be ready; it writes a new cache whole first.
const SERVE_LIMIT: Duration = Duration::from_secs(120);

/// A device that is to be written over holds nothing, or the user knows.
///
/// # Errors
/// With what is on it.
pub(crate) fn vacant(device: &Path, force: bool) -> Result<()> {
    let mut head = Vec::new();
    fs::File::open(device)
        .and_then(|f| f.take(SIGNATURE_PROBE as u64).read_to_end(&mut head))
        .with_context(|| format!("reading {}", device.display()))?;
    match foreign_signature(&head) {
        Some(what) if !force => {
            bail!("{} holds {what}: choose another device, or add --force to overwrite it", device.display())
        }
        _ => Ok(()),
    }
}

/// Makes the folder of an OSD with links to its devices, ready for mkfs.
pub(crate) fn prepare(at: &Layout, config: &LabConfig, plan: &OsdPlan, uuid: &str) -> Result<()> {
    let dir = at.daemon("osd", &plan.id.to_string());
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    fs::write(dir.join("fsid"), format!("{uuid}\n"))?;
    let data = if is_served(config, plan) { Some(served_file(at, plan.id)) } else { plan.device.clone() };
    let links = [("block", data), ("block.db", plan.db.clone()), ("block.wal", plan.wal.clone())];
    for (name, target) in links {
        if let Some(target) = target {
            let link = dir.join(name);
            symlink(&target, &link).with_context(|| format!("linking {}", link.display()))?;
        }
    }
    Ok(())
}

/// Options for mkfs alone.
fn store_options(config: &LabConfig) -> Vec<String> {
    let mut options = Vec::new();
    for (name, aside) in [("db", &config.db), ("wal", &config.wal)] {
        if matches!(aside, Some(Aside::File(_))) {
            options.push(format!("--bluestore_block_{name}_create=true"));
            options.push(format!("--bluestore_block_{name}_size={ASIDE}"));
        }
    }
    options
}

/// Makes the store.
pub(crate) fn mkfs(ceph: &Ceph, config: &LabConfig, id: u32, uuid: &str) -> Result<()> {
    let id = id.to_string();
    let mut args = ["-i", &id, "--mkfs", "--osd-uuid", uuid].map(str::to_owned).to_vec();
    args.extend(store_options(config));
    ceph.tool("ceph-osd", &args).with_context(|| format!("making the store of osd.{id}"))?;
    Ok(())
}

/// Starts the daemon.
pub(crate) fn start(at: &Layout, ceph: &Ceph, state: &State, plan: &OsdPlan) -> Result<Held> {
    let name = format!("osd.{}", plan.id);
    let mut command = ceph.command("ceph-osd");
    command.args(["-f", "-i", &plan.id.to_string()]);
    if let Some(host) = host(&state.config, plan) {
        command.arg(format!("--crush_location=root=default host={host}"));
    }
    if state.config.in_namespaces() {
        let namespace = namespaces::name(&state.fsid, &format!("osd{}", plan.id));
        command = namespaces::within(&namespace, &command);
    }
    Process::hold(&name, &command, &at.output(&name))
}

/// The CRUSH host of an OSD, where it is not the machine's own name.
fn host(config: &LabConfig, plan: &OsdPlan) -> Option<String> {
    match config.hosts {
        Hosts::Namespaces => Some(format!("osd{}", plan.id)),
        Hosts::Loopback => plan.host.clone(),
    }
}

/// True if Loligo serves what an OSD stands on: the model of a disk, or anything through a cache.
pub(crate) fn is_served(config: &LabConfig, plan: &OsdPlan) -> bool {
    let modelled = plan.device.is_none() && config.data == Data::Kind(Kind::Hdd);
    modelled || config.cache.is_some()
}

/// The name of the volume that an OSD stands on.
pub fn volume(id: u32) -> String {
    format!("disk{id}")
}

/// The volume as a file.
fn served_file(at: &Layout, id: u32) -> PathBuf {
    at.mount(id).join(volume(id))
}

/// The volume's core.
fn core(at: &Layout, config: &LabConfig, plan: &OsdPlan) -> Result<String> {
    if let Some(device) = &plan.device {
        return Ok(device.display().to_string());
    }
    let disk = at.disk(plan.id);
    let size = config.osd_bytes()?;
    let make = || -> std::io::Result<()> {
        let file = fs::File::options().create(true).append(true).open(&disk)?;
        if file.metadata()?.len() < size { file.set_len(size) } else { Ok(()) }
    };
    make().with_context(|| format!("making {}", disk.display()))?;
    Ok(match config.data {
        Data::Kind(Kind::Hdd) => format!("hdd:{}?rpm={}", disk.display(), config.rpm),
        Data::Kind(Kind::File) | Data::Devices(_) => format!("file:{}", disk.display()),
    })
}

/// Starts the server of what an OSD stands on: `program` is this program.
pub(crate) fn serve(at: &Layout, state: &State, program: &Path, plan: &OsdPlan) -> Result<Held> {
    let (id, config) = (plan.id, &state.config);
    let mount = at.mount(id);
    fs::create_dir_all(&mount).with_context(|| format!("making {}", mount.display()))?;
    let name = format!("disk.{id}");
    let listen = format!("fuse:{}", mount.display());
    let mut command = Command::new(program);
    command.args(["serve", "--name", &volume(id), "--core", &core(at, config, plan)?, "--listen", &listen]);
    match config.cache_bytes()? {
        None => command.arg("--bare"),
        Some(bytes) => {
            let cache = at.cache(config, id);
            command.arg("--cache").arg(cache).args(["--cache-size", &bytes.to_string()]);
            let params =
                config.cache_set.iter().flat_map(|(k, v)| ["--param".to_owned(), format!("{k}={v}")]);
            let profile = config.profile().into_iter().flat_map(|p| ["--profile", p]);
            command.args(["--mode", &config.cache_mode]).args(profile).args(params)
        }
    };
    command.env("LOLIGO_RUNTIME_DIR", at.run());
    Process::hold(&name, &command, &at.output(&name))
}

/// Waits until the volume's file is there.
pub(crate) fn wait_served(at: &Layout, process: &Process, id: u32, stop: &Interrupt) -> Result<()> {
    let begun = Instant::now();
    while !served_file(at, id).exists() {
        stop.check()?;
        if !process.alive() || begun.elapsed() > SERVE_LIMIT {
            let said = fs::read_to_string(at.output(&process.name)).unwrap_or_default();
            bail!("what osd.{id} stands on is not served: {}", last_lines(&said, 3));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// All devices of a plan are there and vacant.
pub(crate) fn check_devices(plans: &[OsdPlan], force: bool) -> Result<()> {
    for plan in plans {
        for device in [&plan.device, &plan.db, &plan.wal].into_iter().flatten() {
            ensure!(device.exists(), "{} does not exist", device.display());
            vacant(device, force)?;
        }
    }
    Ok(())
}
