//! The power of a controller, as the board beside it (BMC) switches it.

use super::deed;
use super::make::{Meant, mend, now_ms};
use super::plan::{Deed, Kind, controller};
use super::record::{Fault, Record, is_off, read};
use crate::layout::Layout;
use crate::state::State;
use anyhow::Result;
use std::path::Path;

/// True if a controller has power. It has none once it is switched off and nothing runs there any more.
///
/// # Errors
/// If the lab has no such controller.
pub fn is_on(dir: &Path, name: &str) -> Result<bool> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    let host = controller(name, state.config.pairs)?.to_string();
    Ok(!(is_off(&read(&at)?, &host) && deed::is_still(&state, &host)))
}

/// Switches a controller off; one that is off stays so. Returns once nothing runs there.
///
/// # Errors
/// If the lab has no such controller, or a process does not end.
pub fn switch_off(dir: &Path, name: &str) -> Result<Fault> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    let host = controller(name, state.config.pairs)?.to_string();
    let mut record = Record::open(&at)?;
    let deeds = vec![Deed::Off { host: host.clone() }];
    let fault = Fault { id: record.next(), kind: Kind::PowerOff, target: host, at_ms: now_ms(), deeds };
    if !record.is_off(&fault.target) {
        record.faults.push(fault.clone());
        record.write()?;
    }
    deed::cut_links(&state, &fault.deeds)?;
    fault.deeds.iter().try_for_each(|off| deed::act(&at, &state, off))?;
    Ok(fault)
}

/// Switches a controller on: its links, its monitor, and its agent or OSD. Nothing, where it is on.
///
/// # Errors
/// If the lab has no such controller, or something cannot be started.
pub fn switch_on(dir: &Path, name: &str, program: &Path) -> Result<()> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    let host = controller(name, state.config.pairs)?.to_string();
    mend(dir, Meant::Off(&host), program).map(drop)
}
