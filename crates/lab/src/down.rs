//! Taking a lab down.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loligo_block::mounts;

use crate::Progress;
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::lock::Lock;
use crate::namespaces;
use crate::pairs::place::Controller;
use crate::pairs::{osds, store};
use crate::process::{Process, end, run};
use crate::state::State;

/// The time that daemons may take to stop by themselves.
const LIMIT: Duration = Duration::from_secs(20);

/// Stops a lab; unless `keep`, removes it too.
///
/// # Errors
/// If there is no lab, or a mount or a file cannot be removed.
pub fn down(dir: &Path, keep: bool, progress: &mut dyn Progress) -> Result<()> {
    let at = Layout::at(dir)?;
    State::of(&at)?;
    let _lock = Lock::take(&at.lock(), LIMIT)?;
    let mut state = State::of(&at)?;
    progress.step(&format!("stopping {} daemons", state.running().len()));
    stop(&mut state);
    for mount in &state.mounts {
        ensure!(!mounted(mount), "{} cannot be unmounted: 'fuser -vm' shows who uses it", mount.display());
    }
    state.write(&at)?;
    if keep {
        ensure!(
            state.complete,
            "the lab was never finished, and there is nothing to keep: leave --keep out to remove it"
        );
        return Ok(());
    }
    progress.step(&format!("removing {}", at.dir().display()));
    for (osd, _) in &state.osds {
        let cache = at.cache(&state.config, *osd);
        if state.config.cache_dir.is_some() && cache.exists() {
            fs::remove_file(&cache).with_context(|| format!("removing {}", cache.display()))?;
        }
    }
    remove(&at)
}

/// Stops everything that was started: OSDs before what they stand on and before the monitor they report to.
pub(crate) fn stop(state: &mut State) {
    let running = state.running();
    let kind = |prefix: &str| -> Vec<Process> {
        running.iter().filter(|p| p.name.starts_with(prefix)).cloned().collect()
    };
    // All agents at once: none is to take over from another.
    end(&kind("agent."), LIMIT);
    if state.config.cache.is_none() {
        // Their volumes lie on images: without the OSDs they would wait to give them back.
        end(&kind("loligod."), LIMIT);
    }
    // A daemon waits for the OSDs that stand on its volumes.
    let osds = inside(state, |_| true).into_iter().filter(|p| osds::osd_of(p.pid).is_some());
    end(&osds.collect::<Vec<_>>(), LIMIT);
    end(&inside(state, |name| !name.starts_with("mon.")), LIMIT);
    end(&kind("osd."), LIMIT);
    end(&kind(store::NAME), LIMIT);
    end(&[kind("disk."), kind("array.")].concat(), LIMIT);
    end(&kind("mgr."), LIMIT);
    end(&kind("mon."), LIMIT);
    end(&inside(state, |_| true), LIMIT);
    for mount in &state.mounts {
        if mounted(mount) {
            // Its server is gone, so nothing can be lost by not waiting for its users.
            let _ = run(Command::new("umount").arg("-l").arg(mount), LIMIT, &Interrupt::default());
        }
    }
    state.mounts.retain(|m| mounted(m));
    namespaces::remove(state);
    state.processes.clear();
}

/// The processes on controllers of pairs, whoever started them, but for those of the lab's own whose name is not `wanted`.
fn inside(state: &State, wanted: impl Fn(&str) -> bool) -> Vec<Process> {
    let own = |pid: i32| state.processes.iter().find(|p| p.pid == pid).map_or("", |p| p.name.as_str());
    let hosts = Controller::all(state.config.pairs).map(|c| namespaces::name(&state.fsid, &c.to_string()));
    let pids = hosts.flat_map(|namespace| namespaces::pids(&namespace)).filter(|pid| wanted(own(*pid)));
    pids.filter_map(|pid| Process::found("", pid)).collect()
}

/// Removes a stopped lab's folder. A device behind a link stays as it is.
pub(crate) fn remove(at: &Layout) -> Result<()> {
    fs::remove_dir_all(at.dir()).with_context(|| format!("removing {}", at.dir().display()))
}

/// True if something is mounted at `path`.
fn mounted(path: &Path) -> bool {
    mounts::on(&mounts::all().unwrap_or_default(), path).is_some()
}
