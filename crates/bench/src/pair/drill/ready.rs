//! The state in which a pair may be drilled: nothing is wrong anywhere.

use crate::pair::map::unclean;
use anyhow::Result;
use loligo_agent::status::Status;
use loligo_ceph::monitors::Monitors;
use loligo_pair::machine::RoleName;

/// The pair is not ready for a drill.
#[derive(Debug, thiserror::Error)]
#[error("no drill while {0}: nothing was done; see 'loligo pair status' and 'ceph status'")]
pub struct NotReady(String);

/// Refuses a drill where a role, a unit, a LUN or the cluster is not as it should be.
pub(super) fn check(status: &Status, monitors: &Monitors) -> Result<()> {
    match fault(status).or_else(|| unclean(monitors)) {
        None => Ok(()),
        Some(why) => Err(NotReady(why).into()),
    }
}

fn fault(status: &Status) -> Option<String> {
    if status.role != RoleName::Normal {
        return Some(format!("this controller is {} ({})", status.role, status.why));
    }
    match &status.partner {
        None => return Some("the partner was never heard".to_owned()),
        Some(partner) if !partner.heard => return Some("the partner is silent".to_owned()),
        Some(partner) if partner.role != RoleName::Normal => {
            return Some(format!("the partner is {}", partner.role));
        }
        Some(_) => {}
    }
    if let Some(unit) = status.stray(status.role) {
        return Some(format!("{} of {} is {} here", unit.name, unit.home, unit.state));
    }
    if !status.partner_runs_all() {
        return Some("the partner does not run all of its units".to_owned());
    }
    let half = status.luns.iter().find(|lun| lun.registered.len() != 2 && lun.name == "quorum");
    if let Some(lun) = half.or_else(|| status.luns.iter().find(|lun| !lun.strangers.is_empty())) {
        return Some(format!("the keys of LUN {} are not those of the pair", lun.name));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_agent::status::{LunStatus, PartnerStatus, UnitStatus};
    use loligo_pair::plan::Side;

    fn well() -> Status {
        let unit = |name: &str, home, state: &str| UnitStatus {
            name: name.to_owned(),
            home,
            state: state.to_owned(),
        };
        Status {
            pair: "n0".to_owned(),
            side: Side::A,
            role: RoleName::Normal,
            why: "started".to_owned(),
            monitor_age_ms: Some(10),
            partner: Some(PartnerStatus {
                heard: true,
                role: RoleName::Normal,
                stopped: false,
                running: vec!["osd.1".to_owned()],
                monitor_age_ms: Some(10),
            }),
            may_give_back: false,
            units: vec![unit("osd.0", Side::A, "running"), unit("osd.1", Side::B, "away")],
            luns: vec![LunStatus {
                name: "quorum".to_owned(),
                registered: vec![Side::A, Side::B],
                holder: None,
                strangers: Vec::new(),
            }],
        }
    }

    #[test]
    fn a_drill_needs_a_pair_that_is_well() {
        assert_eq!(fault(&well()), None);
        let with = |change: &dyn Fn(&mut Status)| {
            let mut status = well();
            change(&mut status);
            fault(&status).expect("it is refused")
        };
        assert!(with(&|s| s.role = RoleName::Dual).contains("this controller is DUAL"));
        assert!(with(&|s| s.partner = None).contains("never heard"));
        assert!(with(&|s| s.partner.as_mut().unwrap().heard = false).contains("silent"));
        assert!(with(&|s| s.partner.as_mut().unwrap().role = RoleName::Fenced).contains("FENCED"));
        assert!(with(&|s| s.partner.as_mut().unwrap().running.clear()).contains("does not run all"));
        assert!(with(&|s| s.units[0].state = "starting".to_owned()).contains("osd.0 of a is starting"));
        assert!(with(&|s| s.luns[0].registered.truncate(1)).contains("LUN quorum"));
        assert!(with(&|s| s.luns[0].strangers.push("0x1".to_owned())).contains("LUN quorum"));
    }
}
