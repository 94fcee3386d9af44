//! Making and mending.

use super::deed;
use super::plan::{self, Deed, Kind};
use super::record::{Fault, Record};
use crate::layout::Layout;
use crate::lock::Lock;
use crate::pairs::array;
use crate::state::State;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time that another change of the lab may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Makes a fault. `lasts`: an array that loses its power has it again only once that is mended, and not at once.
///
/// # Errors
/// If the lab has no such target, or the fault is in force already, or it cannot be done as a whole.
pub fn fail(dir: &Path, kind: Kind, target: &str, lasts: bool) -> Result<Fault> {
    let at = Layout::at(dir)?;
    let state = State::of(&at)?;
    let (target, mut deeds) = plan::deeds(&state, kind, target)?;
    ensure!(
        !state.running().is_empty(),
        "the lab is down: 'loligo lab up --dir {}' starts it",
        at.dir().display()
    );
    let mut record = Record::open(&at)?;
    prune(&state, &mut record);
    for host in deeds.iter().filter_map(Deed::host) {
        ensure!(!record.is_off(host), "{host} is off already: 'loligo lab mend {host}' switches it on");
    }
    let same = record.faults.iter().find(|fault| fault.kind == kind && fault.target == target);
    ensure!(same.is_none(), "{kind} {target} is in force already: 'loligo lab mend {target}' ends it");
    if let (Kind::ArrayCycle, false, Some(Deed::Dark { node, mirror })) = (kind, lasts, deeds.first()) {
        let fault = Fault { id: 0, kind, target, at_ms: now_ms(), deeds: Vec::new() };
        array::power_cycle(&at, &state, plan::dark(*node, *mirror))?;
        return Ok(fault);
    }
    for deed in &mut deeds {
        if let Deed::Frozen { host, processes } = deed {
            *processes = deed::to_freeze(&state, host, &[]);
        }
    }
    let id = record.next();
    record.faults.push(Fault { id, kind, target, at_ms: now_ms(), deeds: deeds.clone() });
    record.write()?;
    deed::cut_links(&state, &deeds)?;
    let done = deeds.iter().try_for_each(|deed| deed::act(&at, &state, deed));
    if done.is_err() && matches!(kind, Kind::Osd | Kind::Mon) {
        // Nothing was done.
        record.faults.retain(|fault| fault.id != id);
        record.write()?;
    }
    done?;
    freeze_newcomers(&state, &mut record, id)?;
    let fault = record.faults.iter().find(|fault| fault.id == id).cloned();
    fault.context("it was just written")
}

/// Freezes what a process started while it was looked at.
fn freeze_newcomers(state: &State, record: &mut Record, id: u64) -> Result<()> {
    let Some(fault) = record.faults.iter_mut().find(|fault| fault.id == id) else { return Ok(()) };
    let mut late = Vec::new();
    for deed in &mut fault.deeds {
        if let Deed::Frozen { host, processes } = deed {
            late = deed::to_freeze(state, host, processes);
            processes.extend(late.iter().cloned());
        }
    }
    if late.is_empty() {
        return Ok(());
    }
    record.write()?;
    late.iter().for_each(|p| p.signal(Signal::STOP));
    Ok(())
}

/// Forgets of the faults what is over by itself: a daemon that was killed runs again.
fn prune(state: &State, record: &mut Record) {
    let is_over = |deed: &Deed| match deed {
        Deed::Killed { daemon } => !deed::daemons(state, daemon).is_empty(),
        _ => false,
    };
    for fault in &mut record.faults {
        fault.deeds.retain(|deed| !is_over(deed));
    }
    record.faults.retain(|fault| !fault.deeds.is_empty());
}

/// The faults in force.
///
/// # Errors
/// If the record is damaged.
pub(crate) fn in_force(at: &Layout, state: &State) -> Result<Vec<Fault>> {
    let mut record = Record::open(at)?;
    prune(state, &mut record);
    Ok(record.faults.clone())
}

/// The part of the faults that is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meant<'a> {
    /// All of them.
    All,
    /// Those of a target, and deeds to it: `n0a` of a node without power.
    Of(&'a str),
    /// A controller that is off.
    Off(&'a str),
    /// One, by its number.
    One(u64),
}

impl Meant<'_> {
    fn includes(self, fault: &Fault, deed: &Deed) -> bool {
        match self {
            Meant::All => true,
            Meant::One(id) => fault.id == id,
            Meant::Off(name) => matches!(deed, Deed::Off { host } if host == name),
            Meant::Of(name) => {
                let plain = |full: &str| full == name || full.trim_start_matches("osd.") == name;
                plain(&fault.target) || plain(&deed.object()) || deed.object() == format!("mon.{name}")
            }
        }
    }
}

/// Undoes faults, the latest first: what was undone. `program` is this program.
///
/// # Errors
/// If the lab has no such target, or something cannot be undone; that stays in force.
pub fn mend(dir: &Path, meant: Meant<'_>, program: &Path) -> Result<Vec<Fault>> {
    let at = Layout::at(dir)?;
    State::of(&at)?;
    let _lock = Lock::take(&at.lock(), LIMIT)?;
    let mut state = State::of(&at)?;
    if let Meant::Of(name) = meant {
        is_target(&state, name)?;
    }
    let mut record = Record::open(&at)?;
    adopt(&state, &mut record);
    let mut mended = Vec::new();
    for index in (0..record.faults.len()).rev() {
        let fault = record.faults[index].clone();
        let (undone, stay): (Vec<Deed>, Vec<Deed>) =
            fault.deeds.iter().cloned().partition(|deed| meant.includes(&fault, deed));
        if undone.is_empty() {
            continue;
        }
        for deed in undone.iter().rev() {
            let others: Vec<Deed> = record.deeds().filter(|other| *other != deed).cloned().collect();
            deed::undo(&at, &mut state, deed, &others, program)?;
            record.faults[index].deeds.retain(|other| other != deed);
            record.write()?;
        }
        if stay.is_empty() {
            record.faults.remove(index);
            record.write()?;
        }
        mended.push(Fault { deeds: undone, ..fault });
    }
    Ok(mended)
}

/// Takes OSDs that ended by themselves for killed ones: of a value that they do not bear, or by somebody's signal. Agents start theirs.
fn adopt(state: &State, record: &mut Record) {
    if state.config.pairs > 0 || state.running().is_empty() {
        return;
    }
    for (id, _) in &state.osds {
        let daemon = format!("osd.{id}");
        let deed = Deed::Killed { daemon: daemon.clone() };
        if deed::daemons(state, &daemon).is_empty() && !record.deeds().any(|known| *known == deed) {
            let (id, at_ms) = (record.next(), now_ms());
            record.faults.push(Fault { id, kind: Kind::Osd, target: daemon, at_ms, deeds: vec![deed] });
        }
    }
}

/// # Errors
/// If nothing of the lab is called so.
fn is_target(state: &State, name: &str) -> Result<()> {
    let kinds = [Kind::Controller, Kind::Power, Kind::Osd, Kind::Mon, Kind::Daemon, Kind::Disk];
    let is_known = kinds.iter().any(|kind| plan::deeds(state, *kind, name).is_ok()) || name == "quorum";
    ensure!(
        is_known,
        "the lab has no '{name}': 'loligo lab status' shows what it has, and the faults in force"
    );
    Ok(())
}
