//! The health of a cluster while it is changed.

use crate::gather::asked::{ask, command};
use crate::{counted, is_or_are};
use loligo_ceph::commands::{CommandClient, Recipient};
use serde_json::Value;
use std::collections::BTreeSet;

/// The check that this program causes itself while an OSD restarts: flags of single OSDs.
const OURS: [&str; 1] = ["OSD_FLAGS"];

/// The health of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Checks that complain, each with its words.
    pub checks: Vec<(String, String)>,
    /// Placement groups that are not active and clean.
    pub unclean: i64,
    /// Work of the cluster's own beside its clients: `active+clean+scrubbing`.
    pub busy: Option<String>,
}

/// Parts of the states of placement groups that are at work for themselves.
const BUSY: [&str; 5] = ["scrubbing", "recovering", "backfilling", "snaptrim", "peering"];

impl Health {
    /// Asks for it.
    ///
    /// # Errors
    /// If no monitor answers.
    pub fn ask(client: &CommandClient) -> Result<Health, String> {
        Ok(Health::of(&ask(client, Recipient::Monitors, &command("status"))?))
    }

    fn of(status: &Value) -> Health {
        let checks = status["health"]["checks"].as_object().into_iter().flatten();
        let words = |it: &Value| it["summary"]["message"].as_str().unwrap_or_default().to_owned();
        let checks = checks.filter(|(_, it)| it["muted"] != true);
        let checks = checks.map(|(name, it)| (name.clone(), words(it))).collect();
        let states = status["pgmap"]["pgs_by_state"].as_array().into_iter().flatten();
        let is_clean =
            |name: &str| name.split('+').any(|it| it == "active") && name.split('+').any(|it| it == "clean");
        let is_busy = |name: &&str| name.split('+').any(|it| BUSY.contains(&it));
        let busy = states.clone().filter_map(|it| it["state_name"].as_str()).find(is_busy).map(str::to_owned);
        let unclean = states.filter(|it| !it["state_name"].as_str().is_some_and(is_clean));
        Health { checks, unclean: unclean.filter_map(|it| it["count"].as_i64()).sum(), busy }
    }

    /// The first check that is not among `accepted`, in words.
    pub fn complaint(&self, accepted: &BTreeSet<String>) -> Option<String> {
        let new =
            self.checks.iter().find(|(name, _)| !accepted.contains(name) && !OURS.contains(&name.as_str()));
        if let Some((name, words)) = new {
            return Some(format!("{name}: {words}"));
        }
        let is_unclean = self.unclean > 0 && !accepted.contains("PG_DEGRADED");
        let count = usize::try_from(self.unclean).unwrap_or_default();
        let words =
            || format!("{} {} not active and clean", counted(count, "placement group"), is_or_are(count));
        is_unclean.then(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unaccepted_checks_and_unclean_groups_are_complaints() {
        let status = json!({
            "health": {"checks": {
                "POOL_NO_REDUNDANCY": {"summary": {"message": "1 pool has no replicas"}},
                "OSD_FLAGS": {"summary": {"message": "1 OSD has noout"}},
                "MON_DOWN": {"summary": {"message": "1/3 mons down"}, "muted": true}
            }},
            "pgmap": {"pgs_by_state": [
                {"state_name": "active+clean+scrubbing", "count": 3}, {"state_name": "active+undersized", "count": 2}
            ]}
        });
        let health = Health::of(&status);
        assert_eq!(health.unclean, 2);
        assert_eq!(health.busy.as_deref(), Some("active+clean+scrubbing"));
        let none = BTreeSet::new();
        assert_eq!(health.complaint(&none).as_deref(), Some("POOL_NO_REDUNDANCY: 1 pool has no replicas"));
        let accepted = BTreeSet::from(["POOL_NO_REDUNDANCY".to_owned()]);
        assert!(health.complaint(&accepted).is_some_and(|it| it.starts_with("2 placement groups")));
        let flags = vec![("OSDMAP_FLAGS".to_owned(), "noout flag(s) set".to_owned())];
        let said = Health { checks: flags, unclean: 0, busy: None }.complaint(&none);
        assert!(
            said.is_some_and(|it| it.starts_with("OSDMAP_FLAGS")),
            "a flag of the whole cluster is somebody's"
        );
        let calm = Health { unclean: 0, ..health };
        assert_eq!(calm.complaint(&accepted), None);
    }
}
