//! The pair that is simulated.

use loligo_pair::machine::{Omitted, Step};
use loligo_pair::plan::{LunId, Plan, Side, Timings, Unit, UnitId, UnitKind};
use loligo_pair::reservation::Key;

/// Milliseconds of the world.
pub type Time = u64;

/// The keys of the two sides.
pub(crate) const KEYS: [Key; 2] = [Key(0xa), Key(0xb)];

/// All units.
pub(crate) const UNITS: [UnitId; 3] = [UnitId(0), UnitId(1), UnitId(2)];
/// LUNs, the quorum LUN among them.
pub(crate) const LUNS: usize = 5;

/// OSD 0 is at home on side a, OSD 1 on side b, and a volume of two LUNs on side a.
pub(crate) fn plan(me: Side, omitted: &[Step], power: bool) -> Plan {
    let unit = |id: UnitId| Unit {
        name: name_of(id),
        kind: if id == UNITS[2] { UnitKind::Volume } else { UnitKind::Osd(id.0) },
        home: home_of(id),
        luns: luns_of(id).to_vec(),
        uses: ["cache", "core"][..luns_of(id).len()].to_vec(),
    };
    Plan {
        me,
        keys: KEYS,
        links: 2,
        units: UNITS.map(unit).to_vec(),
        power,
        timings: Timings::default(),
        omitted: Omitted::of(omitted),
    }
}

/// The LUNs of a unit.
pub(crate) fn luns_of(unit: UnitId) -> &'static [LunId] {
    match unit.0 {
        0 => &[LunId(1)],
        1 => &[LunId(2)],
        _ => &[LunId(3), LunId(4)],
    }
}

/// The unit of a LUN; nothing: it is the quorum LUN.
pub(crate) fn unit_of(lun: LunId) -> Option<UnitId> {
    UNITS.into_iter().find(|unit| luns_of(*unit).contains(&lun))
}

/// The side that runs a unit in normal times.
pub(crate) fn home_of(unit: UnitId) -> Side {
    if unit == UNITS[1] { Side::B } else { Side::A }
}

/// Its name.
pub(crate) fn name_of(unit: UnitId) -> String {
    if unit == UNITS[2] { "the volume".to_owned() } else { format!("osd.{}", unit.0) }
}
