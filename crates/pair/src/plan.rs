//! The plan of a pair: two sides, their keys, and the units that move between them. Both sides have the same plan.

use crate::omit::{Omitted, Step};
use crate::reservation::Key;
use serde::{Deserialize, Serialize};

/// Milliseconds of a clock that only goes forward. No decision reads another clock.
pub type Millis = u64;

/// One of the two controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The first.
    A,
    /// The second.
    B,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// The partner's side.
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// Its place in a table of two.
    pub fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::A => "a",
            Side::B => "b",
        })
    }
}

impl std::str::FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Side, String> {
        match text {
            "a" => Ok(Side::A),
            "b" => Ok(Side::B),
            _ => Err(format!("'{text}' is no side of a pair: write a or b")),
        }
    }
}

/// A LUN of the pair's array, as a number of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LunId(pub u32);

/// The quorum LUN: it holds the heartbeats on the disk, and the race for it decides a takeover. Nobody reserves it in normal
/// times.
pub const QUORUM: LunId = LunId(0);

/// A unit, as a number of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnitId(pub u32);

/// The kind of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitKind {
    /// An OSD with this number.
    Osd(u32),
    /// A volume with a journal on the array.
    Volume,
}

/// Something that one side runs at a time: it moves as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: UnitKind,
    /// The side that runs it in normal times.
    pub home: Side,
    /// The LUNs that it writes to. No other unit has them.
    pub luns: Vec<LunId>,
    /// The use of each, in the same order, as people call it: data, cache.
    pub uses: Vec<&'static str>,
}

impl Unit {
    /// Its LUNs, each with its name: that of the unit, and the use where it has several.
    pub fn named_luns(&self) -> impl Iterator<Item = (LunId, String)> + '_ {
        let is_one = self.luns.len() == 1;
        self.luns.iter().zip(&self.uses).map(move |(lun, used)| match is_one {
            true => (*lun, self.name.clone()),
            false => (*lun, format!("{} ({used})", self.name)),
        })
    }

    /// True if it is an OSD.
    pub fn is_osd(&self) -> bool {
        matches!(self.kind, UnitKind::Osd(_))
    }
}

/// The times of decisions, milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Timings {
    /// Between two heartbeats.
    pub beat: Millis,
    /// Both links silent for so long: the partner may be dead.
    pub links_silent: Millis,
    /// Its sector on the quorum LUN unchanged for so long: likewise.
    pub sector_silent: Millis,
    /// The partner lives, no link brings its heartbeats, and it has had no monitor for so long: it is cut off.
    pub no_monitor: Millis,
    /// The same while a link brings its heartbeats: monitors that choose a leader are away for some, and not for others.
    pub no_monitor_heard: Millis,
    /// A monitor's answer counts for so long.
    pub monitor_fresh: Millis,
    /// Between two questions to the monitors, and two looks at keys.
    pub look: Millis,
    /// After a takeover that failed; doubled up to sixteen times.
    pub backoff: Millis,
    /// A partner that was never heard has so long to come.
    pub first_contact: Millis,
    /// A write stays in the array no longer. Where it is not known that the partner's have ended, that long is waited.
    pub drain: Millis,
    /// After a failed start of a unit.
    pub restart: Millis,
    /// Two failures of the array within this time: its OSD is out.
    pub array_window: Millis,
    /// After that nothing is started for so long.
    pub array_pause: Millis,
    /// A partner that is well again for so long gets its units back; 0: on request alone.
    pub giveback_after: Millis,
}

impl Default for Timings {
    /// As in the measured takeovers of 2.3 to 4.0 s (docs/pair.md).
    fn default() -> Timings {
        Timings {
            beat: 100,
            links_silent: 800,
            sector_silent: 1200,
            no_monitor: 1500,
            no_monitor_heard: 15_000,
            monitor_fresh: 1000,
            look: 300,
            backoff: 3000,
            first_contact: 20_000,
            drain: 10_000,
            restart: 1000,
            array_window: 60_000,
            array_pause: 30_000,
            giveback_after: 0,
        }
    }
}

/// The plan as one side has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// This side.
    pub me: Side,
    /// The key that each side registers with.
    pub keys: [Key; 2],
    /// Links between the two, as many as there are.
    pub links: usize,
    /// The units, by [`UnitId`].
    pub units: Vec<Unit>,
    /// The partner's power can be cut.
    pub power: bool,
    /// The times.
    pub timings: Timings,
    /// Steps that are left out, so that tests can show what each is for.
    pub omitted: Omitted,
}

impl Plan {
    /// True if the step is left out.
    pub(crate) fn leaves_out(&self, step: Step) -> bool {
        self.omitted.has(step)
    }

    /// This side's key.
    pub fn mine(&self) -> Key {
        self.keys[self.me.index()]
    }

    /// The partner's key.
    pub fn theirs(&self) -> Key {
        self.keys[self.me.other().index()]
    }

    /// The numbers of all units.
    pub fn ids(&self) -> impl Iterator<Item = UnitId> + use<> {
        (0..self.units.len() as u32).map(UnitId)
    }

    /// The unit.
    pub fn unit(&self, id: UnitId) -> &Unit {
        &self.units[id.0 as usize]
    }

    /// The LUN as people know it.
    pub fn lun_name(&self, lun: LunId) -> String {
        let named = self.units.iter().flat_map(Unit::named_luns).find(|(id, _)| *id == lun);
        match named {
            Some((_, name)) => format!("the LUN of {name}"),
            None => "the quorum LUN".to_owned(),
        }
    }

    /// Every LUN but [`QUORUM`], with the home of its unit.
    pub fn luns(&self) -> Vec<(LunId, Side)> {
        let of = |unit: &Unit| unit.luns.iter().map(|lun| (*lun, unit.home)).collect::<Vec<_>>();
        self.units.iter().flat_map(of).collect()
    }
}
