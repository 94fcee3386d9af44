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
    pub fn order(&self, name: &str, mut order: Order) -> Result<Vec<Found>, String> {
        if name == self.here {
            order.conf.clone_from(&self.conf);
            return carry_out(&self.root, &order);
        }
        let Some(remote) = self.remote.get(name) else {
            return Err(format!("{name} cannot be reached: add --host {name}"));
        };
        order.conf.clone_from(&self.remote_conf);
        let text = serde_json::to_string(&order).map_err(|why| why.to_string())?;
        let said = remote.order("tune on-host", &text).map_err(|why| format!("{name}: {why}"))?;
        let found: Result<Vec<Found>, String> =
            serde_json::from_str(&said).map_err(|why| format!("{name} answers in other words: {why}"))?;
        found.map_err(|why| format!("{name}: {why}"))
    }
}
