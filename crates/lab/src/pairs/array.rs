//! The arrays of a node: their processes, and what is said to them by the attributes of their files.

use super::place::{Node, NodeArray, QUORUM, Side};
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

/// Starts the process of an array: `program` is this program. Its mounts are written down first.
///
/// # Errors
/// If a folder cannot be made, or nothing be started.
pub(crate) fn start(at: &Layout, state: &mut State, program: &Path, array: NodeArray) -> Result<()> {
    let (osd, volume) = (state.config.osd_bytes()?, state.config.volume_cache_bytes()?);
    let cache = state.config.cache_bytes()?.unwrap_or_default();
    let mut command = Command::new(program);
    command.args(["lab", "array"]);
    for side in Side::BOTH {
        let path = array.path(at, side);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        // A mount of a server that was killed is still there.
        state.mounts.push(path.clone());
        command.args(["--path", &format!("{}={}", side.name(), path.display())]);
    }
    for lun in array.luns(&state.config) {
        let size = match lun.as_str() {
            QUORUM => QUORUM_BYTES,
            name if name.starts_with("osd") => osd,
            name if name.starts_with("cache") => cache,
            // A leg of a mirror has a label before its cache.
            _ => volume + if state.config.mirror { 1 << 20 } else { 0 },
        };
        command.args(["--lun", &format!("{lun}={}:{size}", array.node.backing(at, &lun).display())]);
    }
    for defect in &state.config.array_defects {
        command.args(["--defect", defect]);
    }
    state.write(at)?;
    let name = array.process();
    let held: Held = Process::hold(&name, &command, &at.output(&name))?;
    state.start(at, held)
}

/// Waits until each LUN is there by both paths.
///
/// # Errors
/// If the process ends, or the time is over.
pub(crate) fn wait_served(at: &Layout, state: &State, array: NodeArray, stop: &Interrupt) -> Result<()> {
    let begun = Instant::now();
    let name = array.process();
    let luns = array.luns(&state.config);
    let files: Vec<_> =
        Side::BOTH.iter().flat_map(|side| luns.iter().map(|lun| array.path(at, *side).join(lun))).collect();
    while !files.iter().all(|file| file.exists()) {
        stop.check()?;
        if !state.process(&name).is_some_and(Process::alive) || begun.elapsed() > LIMIT {
            let said = fs::read_to_string(at.output(&name)).unwrap_or_default();
            bail!("the array {array} is not served: {}", last_lines(&said, 3));
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

/// An array loses its power, and has it again.
///
/// # Errors
/// If the array is not there, or cannot write down what it remembers.
pub(crate) fn power_cycle(at: &Layout, state: &State, array: NodeArray) -> Result<()> {
    // All of its LUNs lose it.
    let lun = array.luns(&state.config).into_iter().next().context("the array has no LUN")?;
    set(&array.path(at, Side::A).join(lun), POWER_CYCLE, b"1")
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

/// The LUNs of an array; nothing where it does not answer.
pub(crate) fn luns(at: &Layout, state: &State, array: NodeArray) -> Option<Vec<LunStatus>> {
    // Nobody could be freed from a question to one that stands still.
    if state.process(&array.process()).is_some_and(Process::stands_still) {
        return None;
    }
    array.luns(&state.config).into_iter().map(|lun| shown(at, array, lun)).collect()
}

fn shown(at: &Layout, array: NodeArray, lun: String) -> Option<LunStatus> {
    let by_path = Side::BOTH.map(|side| (side.name().to_owned(), array.path(at, side).join(&lun)));
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
