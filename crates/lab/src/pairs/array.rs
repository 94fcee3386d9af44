//! The array of a node: its process, and what is said to it by the attributes of its files.

use super::place::{Node, QUORUM};
use crate::array::{COUNTERS, FAULT, Fault, POWER_CYCLE};
use crate::interrupt::Interrupt;
use crate::layout::Layout;
use crate::process::{Held, POLL, Process, last_lines};
use crate::state::State;
use anyhow::{Context, Result, bail};
use loligo_pair::fence::{SHOWN, Shown};
use loligo_pair::lun::Counters;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of the quorum LUN.
const QUORUM_BYTES: u64 = 64 << 20;
/// The time that an array may take to be ready.
const LIMIT: Duration = Duration::from_secs(30);

/// Starts the process of a node's array: `program` is this program. Its mounts are written down first.
///
/// # Errors
/// If a folder cannot be made, or nothing be started.
pub(crate) fn start(at: &Layout, state: &mut State, program: &Path, node: Node) -> Result<()> {
    let (osd, volume) = (state.config.osd_bytes()?, state.config.volume_cache_bytes()?);
    let cache = state.config.cache_bytes()?.unwrap_or_default();
    let mut command = Command::new(program);
    command.args(["lab", "array"]);
    for controller in node.controllers() {
        let path = controller.path(at);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        // A mount of a server that was killed is still there.
        state.mounts.push(path.clone());
        command.args(["--path", &format!("{}={}", controller.side.name(), path.display())]);
    }
    for lun in node.luns(&state.config) {
        let size = match lun.as_str() {
            QUORUM => QUORUM_BYTES,
            name if name.starts_with("osd") => osd,
            name if name.starts_with("cache") => cache,
            // A leg of a mirror has a label before its cache.
            _ => volume + if state.config.mirror { 1 << 20 } else { 0 },
        };
        command.args(["--lun", &format!("{lun}={}:{size}", node.backing(at, &lun).display())]);
    }
    for defect in &state.config.array_defects {
        command.args(["--defect", defect]);
    }
    state.write(at)?;
    let name = node.array_name();
    let held: Held = Process::hold(&name, &command, &at.output(&name))?;
    state.start(at, held)
}

/// Waits until each LUN is there by both paths.
///
/// # Errors
/// If the process ends, or the time is over.
pub(crate) fn wait_served(at: &Layout, state: &State, node: Node, stop: &Interrupt) -> Result<()> {
    let begun = Instant::now();
    let name = node.array_name();
    let luns = node.luns(&state.config);
    let files: Vec<_> =
        node.controllers().iter().flat_map(|c| luns.iter().map(|lun| c.lun(at, lun))).collect();
    while !files.iter().all(|file| file.exists()) {
        stop.check()?;
        if !state.process(&name).is_some_and(Process::alive) || begun.elapsed() > LIMIT {
            let said = fs::read_to_string(at.output(&name)).unwrap_or_default();
            bail!("the array of {node} is not served: {}", last_lines(&said, 3));
        }
        std::thread::sleep(POLL / 5);
    }
    Ok(())
}

/// Changes the fault of LUNs by both paths of their node.
///
/// # Errors
/// If the array is not there.
pub(crate) fn change_fault(
    at: &Layout,
    node: Node,
    luns: &[String],
    change: impl Fn(&mut Fault),
) -> Result<()> {
    for file in node.controllers().iter().flat_map(|c| luns.iter().map(|lun| c.lun(at, lun))) {
        let mut fault = get(&file, FAULT).unwrap_or_default();
        change(&mut fault);
        set(&file, FAULT, &serde_json::to_vec(&fault)?)?;
    }
    Ok(())
}

/// The array of a node loses its power, and has it again.
///
/// # Errors
/// If the array is not there, or cannot write down what it remembers.
pub(crate) fn power_cycle(at: &Layout, node: Node) -> Result<()> {
    set(&node.controllers()[0].lun(at, QUORUM), POWER_CYCLE, b"1")
}

fn set(file: &Path, name: &str, value: &[u8]) -> Result<()> {
    setxattr(file, name, value, XattrFlags::empty())
        .with_context(|| format!("{} does not answer: does the lab run?", file.display()))
}

/// A LUN as its array shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LunStatus {
    /// Its name.
    pub lun: String,
    /// Registered keys and holder.
    pub reservation: Shown,
    /// Writes by path.
    pub counters: BTreeMap<String, Counters>,
    /// The fault of each path that has one.
    pub faults: BTreeMap<String, Fault>,
}

/// The LUNs of a node; nothing where its array does not answer.
pub(crate) fn luns(at: &Layout, state: &State, node: Node) -> Option<Vec<LunStatus>> {
    node.luns(&state.config).into_iter().map(|lun| shown(at, node, lun)).collect()
}

fn shown(at: &Layout, node: Node, lun: String) -> Option<LunStatus> {
    let by_path = node.controllers().map(|c| (c.side.name().to_owned(), c.lun(at, &lun)));
    let any = &by_path[0].1;
    let (reservation, counters) = (get(any, SHOWN)?, get(any, COUNTERS)?);
    let fault = |(name, file): &(String, PathBuf)| Some((name.clone(), get::<Fault>(file, FAULT)?));
    let faults = by_path.iter().filter_map(fault).filter(|(_, f)| *f != Fault::default()).collect();
    Some(LunStatus { lun, reservation, counters, faults })
}

fn get<T: serde::de::DeserializeOwned>(file: &Path, name: &str) -> Option<T> {
    let mut raw = vec![0; 64 << 10];
    let len = getxattr(file, name, &mut raw[..]).ok()?;
    serde_json::from_slice(&raw[..len]).ok()
}
