//! A host of a controller: its agent, the processes of units, and what it can reach.

use super::call::Pid;
use super::setting::Time;
use loligo_pair::machine::Machine;
use loligo_pair::plan::UnitId;
use std::collections::BTreeMap;

/// A process of a unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pub(super) pid: Pid,
    /// It has opened its LUN and writes.
    pub(super) writes: bool,
    /// It ends once the array has answered what it has written: the kernel keeps it until then.
    pub(super) ends: bool,
    /// Writes that the array has not answered.
    pub(super) under_way: u32,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) up: bool,
    pub(super) frozen: bool,
    /// For how long its clock has stood.
    pub(super) stood: Time,
    pub(super) frozen_since: Time,
    pub(super) clock_stands: bool,
    /// Its network is there.
    pub(super) nic: bool,
    /// Its path to the array is gone.
    pub(super) path_lost: bool,
    /// When its network was last there again.
    pub(super) nic_mended: Time,
    pub(super) machine: Option<Machine>,
    pub(super) run: u64,
    pub(super) processes: BTreeMap<UnitId, Process>,
    /// When it last asked the monitors to call each OSD down.
    pub(super) told: [Option<Time>; 3],
    /// Starts of units in the last seconds.
    pub(super) starts: Vec<Time>,
    /// Since when the machine is fenced.
    pub(super) fenced_at: Option<Time>,
    /// When its host or agent was last made to run again.
    pub(super) awake: Time,
    /// When it was there again after a crash.
    pub(super) crashed_until: Option<Time>,
}

impl Host {
    pub(super) fn new() -> Host {
        Host {
            up: true,
            frozen: false,
            stood: 0,
            frozen_since: 0,
            clock_stands: false,
            nic: true,
            path_lost: false,
            nic_mended: 0,
            machine: None,
            run: 0,
            processes: BTreeMap::new(),
            told: [None; 3],
            starts: Vec::new(),
            fenced_at: None,
            awake: 0,
            crashed_until: None,
        }
    }

    pub(super) fn is_run(&self, run: u64) -> bool {
        self.machine.is_some() && self.run == run
    }

    pub(super) fn process(&self, unit: UnitId) -> Option<&Process> {
        self.processes.get(&unit)
    }

    /// Ends the process of a unit; true once it is gone, which the array's answers come before.
    pub(super) fn end(&mut self, unit: UnitId) -> bool {
        if let Some(process) = self.processes.get_mut(&unit) {
            (process.ends, process.writes) = (true, false);
            if process.under_way > 0 {
                return false;
            }
        }
        self.processes.remove(&unit);
        true
    }

    /// A write of a process is answered.
    pub(super) fn answered(&mut self, unit: UnitId, pid: Pid) {
        if let Some(process) = self.processes.get_mut(&unit).filter(|p| p.pid == pid) {
            process.under_way -= 1;
            if process.ends && process.under_way == 0 {
                self.processes.remove(&unit);
            }
        }
    }

    pub(super) fn wrote(&mut self, unit: UnitId) {
        if let Some(process) = self.processes.get_mut(&unit) {
            process.under_way += 1;
        }
    }

    pub(super) fn end_all(&mut self) {
        self.processes.clear();
    }

    /// True if a process runs that nobody has ended.
    pub(super) fn has_any(&self) -> bool {
        self.processes.values().any(|process| !process.ends)
    }

    pub(super) fn stop_writing(&mut self, unit: UnitId) {
        if let Some(process) = self.processes.get_mut(&unit) {
            process.writes = false;
        }
    }
}
