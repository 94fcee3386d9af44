//! The pair that is simulated.

use loligo_pair::machine::{Omitted, Step};
use loligo_pair::plan::{LunId, Plan, Side, Timings, Unit, UnitId, UnitKind};
use loligo_pair::reservation::Key;

/// Milliseconds of the world.
pub type Time = u64;

/// The keys of the two sides.
pub(crate) const KEYS: [Key; 2] = [Key(0xa), Key(0xb)];

/// OSD 0 is at home on side a, OSD 1 on side b; the LUN of each.
pub(crate) fn plan(me: Side, omitted: &[Step], power: bool) -> Plan {
    let unit = |id: u32, home| Unit {
        name: format!("osd.{id}"),
        kind: UnitKind::Osd(id),
        home,
        luns: vec![LunId(id + 1)],
    };
    Plan {
        me,
        keys: KEYS,
        links: 2,
        units: vec![unit(0, Side::A), unit(1, Side::B)],
        power,
        timings: Timings::default(),
        omitted: Omitted::of(omitted),
    }
}

/// The LUN of a unit.
pub(crate) fn lun_of(unit: UnitId) -> LunId {
    LunId(unit.0 + 1)
}
