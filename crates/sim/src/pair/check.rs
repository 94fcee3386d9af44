//! The end of a run.

use super::setting::{UNITS, name_of};
use super::world::World;
use loligo_pair::machine::RoleName;
use loligo_pair::plan::Side;

impl World {
    /// All faults have ended long ago: both sides are at rest, and each unit runs once.
    pub(super) fn check(&mut self) {
        let roles = Side::BOTH.map(|side| self.hosts[side.index()].machine.as_ref().map(|m| m.role()));
        self.checked = true;
        use RoleName::{Dual, Fenced, Normal};
        let is_at_rest = match roles {
            [Some(Normal), Some(Normal)] | [Some(Dual), Some(Fenced)] | [Some(Fenced), Some(Dual)] => true,
            [Some(Fenced), Some(Fenced)] => self.keys_lost,
            _ => false,
        };
        if !is_at_rest {
            let keys = self.quorum_keys();
            return self.violate(format!("the end is {roles:?} with {keys} keys on the quorum LUN"));
        }
        if roles == [Some(Fenced); 2] {
            return;
        }
        for unit in UNITS {
            let running: Vec<Side> = Side::BOTH
                .into_iter()
                .filter(|side| self.hosts[side.index()].process(unit).is_some_and(|p| p.writes))
                .collect();
            if running.len() != 1 {
                self.violate(format!("{} runs on {running:?} at the end", name_of(unit)));
            }
        }
    }
}
