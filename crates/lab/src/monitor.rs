//! A monitor, as it is written down.

use serde::{Deserialize, Serialize};

/// A monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitor {
    /// Its id, a letter.
    pub id: String,
    /// Its address.
    pub address: String,
    /// Its ports: protocol 2, protocol 1.
    pub ports: [u16; 2],
    /// The host that it runs on, and dies with; nothing: the machine itself.
    pub host: Option<String>,
}

impl Monitor {
    /// Its name as a daemon.
    pub fn name(&self) -> String {
        format!("mon.{}", self.id)
    }

    /// Its addresses, as `mon_host` has them.
    pub fn addresses(&self) -> String {
        let (address, [v2, v1]) = (&self.address, self.ports);
        format!("[v2:{address}:{v2},v1:{address}:{v1}]")
    }
}

/// The monitors of a lab that a program without several of them made.
pub(crate) fn only_one() -> Vec<Monitor> {
    vec![Monitor { id: "a".to_owned(), address: String::new(), ports: [0, 0], host: None }]
}
