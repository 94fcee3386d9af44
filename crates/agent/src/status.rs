//! How a side is, as operators are told.

use loligo_pair::machine::{Machine, Notice, RoleName};
use loligo_pair::plan::{Millis, QUORUM, Side, Unit};
use serde::{Deserialize, Serialize};

/// A side of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The name of the pair.
    pub pair: String,
    /// This side.
    pub side: Side,
    /// Its role.
    pub role: RoleName,
    /// The reason.
    pub why: String,
    /// Milliseconds since a monitor answered.
    pub monitor_age_ms: Option<Millis>,
    /// The partner as it says of itself; nothing: it was never heard.
    pub partner: Option<PartnerStatus>,
    /// This side has the partner's units, and the partner is ready to have them back.
    pub may_give_back: bool,
    /// The units.
    pub units: Vec<UnitStatus>,
    /// The LUNs, the quorum LUN first.
    pub luns: Vec<LunStatus>,
}

impl Status {
    /// The first unit that is not where `role` wants it: all run here as DUAL, and otherwise those that are at home here alone.
    pub fn stray(&self, role: RoleName) -> Option<&UnitStatus> {
        let is_wanted = |unit: &UnitStatus| role == RoleName::Dual || unit.home == self.side;
        self.units.iter().find(|unit| unit.state != if is_wanted(unit) { "running" } else { "away" })
    }

    /// True if this side has the role, and the units that it wants.
    pub fn is_settled_as(&self, role: RoleName) -> bool {
        self.role == role && self.stray(role).is_none()
    }

    /// True if the partner says that all units run there that are at home there.
    pub fn partner_runs_all(&self) -> bool {
        let runs = |name: &String| self.partner.as_ref().is_some_and(|p| p.running.contains(name));
        self.units.iter().filter(|unit| unit.home != self.side).all(|unit| runs(&unit.name))
    }
}

/// The partner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartnerStatus {
    /// A link brings its heartbeats.
    pub heard: bool,
    /// Its role, as it said last.
    pub role: RoleName,
    /// It says that nothing runs there.
    pub stopped: bool,
    /// Names of the units that run there, as it said last.
    pub running: Vec<String>,
    /// Milliseconds since a monitor had answered it, as it said last.
    pub monitor_age_ms: Option<Millis>,
}

/// A unit on this side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitStatus {
    /// Its name.
    pub name: String,
    /// The side that runs it in normal times.
    pub home: Side,
    /// Its state here: `away`, `securing`, `draining`, `telling`, `starting`, `running`, `stopping`, `killing`, `leaving`.
    pub state: String,
}

/// A LUN as it was last read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LunStatus {
    /// Its name.
    pub name: String,
    /// The sides that are registered.
    pub registered: Vec<Side>,
    /// The side that holds it.
    pub holder: Option<Side>,
    /// Keys of strangers.
    pub strangers: Vec<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Milliseconds since 1970. For people: no decision reads it.
    pub at_ms: u64,
    /// What.
    pub notice: Notice,
}

/// The status of `machine`.
pub fn of(pair: &str, machine: &Machine) -> Status {
    let plan = machine.plan();
    let (beat, heard) = machine.partner();
    let partner = beat.map(|beat| PartnerStatus {
        heard,
        role: beat.role,
        stopped: beat.stopped,
        running: plan
            .ids()
            .filter(|id| beat.running & 1u64 << (id.0 & 63) != 0)
            .map(|id| plan.unit(id).name.clone())
            .collect(),
        monitor_age_ms: beat.monitor_age,
    });
    let units = plan.ids().map(|id| {
        let unit = plan.unit(id);
        UnitStatus {
            name: unit.name.clone(),
            home: unit.home,
            state: format!("{:?}", machine.unit(id)).to_lowercase(),
        }
    });
    let side = |key| Side::BOTH.into_iter().find(|side| plan.keys[side.index()] == key);
    let names = plan.units.iter().flat_map(Unit::named_luns);
    let luns = std::iter::once((QUORUM, "quorum".to_owned())).chain(names).filter_map(|(lun, name)| {
        let view = machine.view(lun)?;
        Some(LunStatus {
            name,
            registered: view.keys.iter().filter_map(|key| side(*key)).collect(),
            holder: view.holder.and_then(side),
            strangers: view
                .keys
                .iter()
                .filter(|key| side(**key).is_none())
                .map(|k| format!("{:#x}", k.0))
                .collect(),
        })
    });
    Status {
        pair: pair.to_owned(),
        side: plan.me,
        role: machine.role(),
        why: machine.why().to_owned(),
        monitor_age_ms: machine.monitor_age(),
        partner,
        may_give_back: machine.may_give_back(),
        units: units.collect(),
        luns: luns.collect(),
    }
}
