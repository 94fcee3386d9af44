//! The rows: a fault each, with how long it lasts and what is expected.

use loligo_lab::fail::Kind;
use serde::Serialize;
use std::time::Duration;

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// A controller loses its power.
    Controller,
    /// The same where nobody takes over, until the operator switches it on again.
    Stock,
    /// The process of an OSD is killed.
    Osd,
    /// A LUN answers with errors on both paths.
    Disk,
    /// The LUN of a volume's cache answers with errors on both paths.
    DiskVolume,
    /// The array of the mirror of a volume's cache answers nothing.
    Mirror,
    /// The LUN of a mirrored volume's cache answers with errors on both paths.
    MirrorCache,
    /// Both links of a controller are cut; its processes live on.
    Nic,
    /// The link between two controllers is cut.
    Link,
    /// The processes of a controller stand still, and go on later.
    Freeze,
    /// Both controllers of a node lose their power.
    Power,
    /// A controller is taken over by order, and given back.
    Giveback,
    /// An array loses its power, and has it again at once.
    ArrayCycle,
}

/// All rows, in the order in which they are played: those that need the same lab follow on one another.
pub const ROWS: [Row; 13] = [
    Row::Controller,
    Row::Osd,
    Row::Disk,
    Row::DiskVolume,
    Row::Link,
    Row::Power,
    Row::ArrayCycle,
    Row::Nic,
    Row::Freeze,
    Row::Giveback,
    Row::Mirror,
    Row::MirrorCache,
    Row::Stock,
];

/// The object of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A controller.
    Controller,
    /// The node of one.
    Node,
    /// The OSD that is at home on one.
    Osd,
    /// The volume that is.
    Volume,
    /// The array of the mirrors of one's node.
    Mirrors,
}

/// The part of a run whose operations a target is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// From the fault until the order to give back, or the end.
    Fault,
    /// From the order to give back until the end.
    Giveback,
}

/// The name beside those of pools of the operations on a volume.
pub const VOLUME: &str = "volume";

/// The operations that a limit is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operations {
    /// Reads and writes.
    All,
    /// Writes alone.
    Writes,
}

/// The most that an operation may take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limit {
    /// The pool, or [`VOLUME`].
    pub pool: &'static str,
    /// Which of its operations.
    pub operations: Operations,
    /// The part of the run.
    pub phase: Phase,
    /// Seconds.
    pub seconds: f64,
}

/// What is done and expected.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The fault; nothing: an order to take over.
    pub(crate) fault: Option<Kind>,
    pub(crate) target: Target,
    /// The time from the fault, or from the end of its takeover, until it is mended.
    pub(crate) lasts: Duration,
    /// Takeovers of a run.
    pub(crate) takeovers: u32,
    /// The partner can cut the power. Without, the reservation alone holds.
    pub(crate) power: bool,
    /// OSDs are started by agents.
    pub(crate) agents: bool,
    /// A write by the victim's path is tried after the takeover, and must be rejected.
    pub(crate) rejects: bool,
    /// OSDs that are marked out in a run.
    pub(crate) outs: u32,
    /// Operations on the volume fail with errors.
    pub(crate) errors: bool,
    /// The caches of volumes have mirrors, and are in step before the fault and in the end.
    pub(crate) mirror: bool,
}

impl Row {
    /// Its name, as `--rows` has it.
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What is done and expected. A freeze lasts as long as `freeze`.
    pub(crate) fn plan(self, freeze: Duration) -> Plan {
        let fault = |kind, target, seconds| Plan {
            fault: Some(kind),
            target,
            lasts: Duration::from_secs(seconds),
            takeovers: 0,
            power: true,
            agents: true,
            rejects: false,
            outs: 0,
            errors: false,
            mirror: false,
        };
        let taken = |plan: Plan| Plan { takeovers: 1, ..plan };
        let mirrored = |plan: Plan| Plan { mirror: true, ..plan };
        let by_reservation = |plan: Plan| Plan { power: false, ..taken(plan) };
        match self {
            Row::Controller => taken(fault(Kind::Controller, Target::Controller, 10)),
            Row::Stock => Plan { agents: false, ..fault(Kind::Controller, Target::Controller, 45) },
            Row::Osd => fault(Kind::Osd, Target::Osd, 10),
            Row::Disk => Plan { outs: 1, ..fault(Kind::Disk, Target::Osd, 20) },
            Row::DiskVolume => Plan { errors: true, ..fault(Kind::Disk, Target::Volume, 20) },
            Row::Mirror => mirrored(fault(Kind::Freeze, Target::Mirrors, 10)),
            Row::MirrorCache => mirrored(fault(Kind::Disk, Target::Volume, 10)),
            Row::Nic => Plan { rejects: true, ..by_reservation(fault(Kind::Nic, Target::Controller, 20)) },
            Row::Link => fault(Kind::Link, Target::Node, 20),
            Row::Freeze => {
                let plan = fault(Kind::Freeze, Target::Controller, 0);
                Plan { rejects: true, lasts: freeze, ..by_reservation(plan) }
            }
            Row::Power => fault(Kind::Power, Target::Node, 40),
            Row::Giveback => {
                Plan { fault: None, ..by_reservation(fault(Kind::Controller, Target::Controller, 5)) }
            }
            Row::ArrayCycle => fault(Kind::ArrayCycle, Target::Node, 10),
        }
    }

    /// The targets of issue and research: seconds by pool.
    pub(crate) fn limits(self) -> Vec<Limit> {
        let limit = |pool, seconds| Limit { pool, operations: Operations::All, phase: Phase::Fault, seconds };
        let writes = Limit { operations: Operations::Writes, ..limit(VOLUME, 3.0) };
        match self {
            Row::Controller => vec![limit("r3", 5.0), limit("r2", 6.0), writes, limit(VOLUME, 5.0)],
            Row::Osd => vec![limit("r3", 3.0), limit("r2", 3.0)],
            Row::Disk => vec![limit("r3", 2.0)],
            Row::DiskVolume => vec![limit(VOLUME, 5.0)],
            Row::Nic | Row::Freeze => vec![limit("r3", 6.0), limit("r2", 6.0), writes, limit(VOLUME, 5.0)],
            Row::Power => vec![limit("r3", 30.0)],
            Row::Giveback => {
                ["r2", VOLUME].map(|pool| Limit { phase: Phase::Giveback, ..limit(pool, 3.0) }).to_vec()
            }
            Row::Mirror | Row::MirrorCache => vec![limit(VOLUME, 2.0)],
            Row::Stock | Row::Link | Row::ArrayCycle => Vec::new(),
        }
    }
}
