//! One seed: what goes wrong in it, and how it must end.

use super::faults::{Fault, FaultKind};
use super::setting::Time;
use super::world::{Happening, Violation, World};
use loligo_pair::lun::Defects;
use loligo_pair::machine::{Order, RoleName, Step};
use loligo_pair::plan::Side;
use std::collections::BTreeMap;

/// After the last fault has ended both sides have so long to come to rest.
const REST: Time = 45_000;

/// A run to be made.
#[derive(Debug, Clone, Default)]
pub struct Scenario {
    /// Everything is drawn from it.
    pub seed: u64,
    /// Steps that the agents and the world leave out.
    pub omitted: Vec<Step>,
    /// Faults in place of drawn ones.
    pub faults: Option<Vec<Fault>>,
    /// Defects of the array in place of drawn ones.
    pub defects: Option<Defects>,
    /// Calls to an array that fails may hang, and go on once it answers, after their agent has given them up.
    pub hangs: bool,
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What must not happen and did.
    pub violation: Option<Violation>,
    /// What happened how often.
    pub marks: BTreeMap<&'static str, u64>,
    /// The course of the run.
    pub log: Vec<String>,
    /// The roles at the end.
    pub roles: [Option<RoleName>; 2],
}

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Outcome {
    let mut rng = crate::rng::Rng::new(scenario.seed);
    let drawn = Defects {
        abort_misses_registrants: rng.chance(1, 3),
        preempts_without_effect: rng.chance(1, 3),
        forgets_at_power_cycle: rng.chance(1, 4),
        ..Defects::default()
    };
    let defects = scenario.defects.unwrap_or(drawn);
    let power = rng.chance(1, 2);
    let faults = scenario.faults.clone().unwrap_or_else(|| draw_faults(&mut rng));
    let mut world = World::new(rng.draw(), &scenario.omitted, power, defects);
    world.hangs = scenario.hangs;
    let mut end = 0;
    for fault in &faults {
        end = end.max(fault.at + fault.lasts);
        world.later(fault.at, Happening::Fault(fault.kind));
        world.later(fault.at + fault.lasts, Happening::Mend(fault.kind));
    }
    if scenario.faults.is_none() && rng.chance(1, 2) {
        world.troubles_until = end + 5_000;
        end += 20_000;
    }
    // An operator gives everything back once all is well, on both sides: one of them has it.
    for side in Side::BOTH {
        world.later(end + REST / 3, Happening::Fault(FaultKind::Order(side, Order::Giveback)));
    }
    world.later(end + REST, Happening::Check);
    world.run(end + REST + 1);
    let roles = [0, 1].map(|n| world.hosts[n].machine.as_ref().map(|m| m.role()));
    Outcome { violation: world.violations.first().cloned(), marks: world.marks, log: world.log, roles }
}

fn draw_faults(rng: &mut crate::rng::Rng) -> Vec<Fault> {
    let mut at = rng.range(6_000..12_000);
    let mut faults = Vec::new();
    for _ in 0..rng.range(1..4) {
        let kind = FaultKind::draw(rng);
        // No host is up again before the array has ended what it had written.
        let least = if matches!(kind, FaultKind::Crash(_)) { 7000 } else { 100 };
        let lasts = rng.skewed(least..40_000);
        faults.push(Fault { at, lasts, kind });
        // Often within a takeover.
        at += if rng.chance(2, 3) { rng.range(50..4_000) } else { rng.range(4_000..20_000) };
    }
    faults
}
