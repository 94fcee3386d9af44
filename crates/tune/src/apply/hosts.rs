//! The hosts that a run may change: this one, and others over ssh by the same program there.

use super::on_host::{Found, Order, carry_out};
use crate::gather::remote::Remote;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The hosts, by the names that OSDs have for them.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// The name of this host.
    pub here: String,
    /// The root of this host's files.
    pub root: PathBuf,
    /// Ceph's file on this host.
    pub conf: PathBuf,
    /// Ceph's file on the others.
    pub remote_conf: PathBuf,
    /// The others.
    pub remote: BTreeMap<String, Remote>,
}

/// The reason why an order has no good answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unheard {
    /// The host itself said it, or was sent nothing.
    #[error("{0}")]
    Refused(String),
    /// The order may still be on its way, or under way.
    #[error("{0}")]
    Lost(String),
}

impl Hosts {
    /// True if this host can be changed.
    pub fn reaches(&self, name: &str) -> bool {
        name == self.here || self.remote.contains_key(name)
    }

    /// Has a host carry an order out. The path of Ceph's file is filled in.
    ///
    /// # Errors
    /// If the host is not among these, cannot be reached, refuses, or has not answered within a minute. The words say if the order may have
    /// been carried out.
    pub fn order(&self, name: &str, order: Order) -> Result<Vec<Found>, String> {
        self.heard(name, order).map_err(|why| why.to_string())
    }

    /// The same, and whether the host itself has answered.
    ///
    /// # Errors
    /// As those of [`Hosts::order`].
    pub(super) fn heard(&self, name: &str, mut order: Order) -> Result<Vec<Found>, Unheard> {
        if name == self.here {
            order.conf.clone_from(&self.conf);
            return carry_out(&self.root, &order).map_err(Unheard::Refused);
        }
        let Some(remote) = self.remote.get(name) else {
            return Err(Unheard::Refused(format!("{name} cannot be reached: add --host {name}")));
        };
        order.conf.clone_from(&self.remote_conf);
        let text = serde_json::to_string(&order).map_err(|why| Unheard::Refused(why.to_string()))?;
        let said =
            remote.order("tune on-host", &text).map_err(|why| Unheard::Lost(format!("{name}: {why}")))?;
        let found: Result<Vec<Found>, String> = serde_json::from_str(&said)
            .map_err(|why| Unheard::Lost(format!("{name} answers in other words: {why}")))?;
        found.map_err(|why| Unheard::Refused(format!("{name}: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Target;

    #[test]
    fn an_order_without_an_answer_may_be_on_its_way() {
        // ssh runs this command here, and reaches nobody.
        let options = vec!["ProxyCommand=false".to_owned()];
        let remote = Remote { destination: "n2".into(), program: "loligo".into(), options };
        let hosts = Hosts {
            here: "n1".into(),
            root: "/".into(),
            remote: BTreeMap::from([("n2".to_owned(), remote)]),
            ..Hosts::default()
        };
        let of = |name| {
            let order =
                Order { target: Target::Nic, key: "e0/x".into(), conf: "/x".into(), put: None, trial: None };
            hosts.heard(name, order).expect_err("no such place")
        };
        assert!(matches!(of("n2"), Unheard::Lost(_)));
        assert!(matches!(of("n1"), Unheard::Refused(_)) && matches!(of("n3"), Unheard::Refused(_)));
    }
}
