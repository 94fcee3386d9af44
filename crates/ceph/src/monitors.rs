//! A client of the monitors alone: it asks and tells, and has no image.

use crate::CephError;
use crate::cluster::{Cluster, Purpose};
use crate::spec::ImageSpec;
use std::path::Path;

/// A connection to the monitors of a cluster.
#[derive(Debug)]
pub struct Monitors(Cluster);

impl Monitors {
    /// Connects by the configuration `conf` as `name` (`client.admin`). It gives up after 15 s where no monitor answers.
    ///
    /// # Errors
    /// If Ceph's libraries are missing, the configuration cannot be read, or no monitor lets the client in.
    pub fn connect(conf: &Path, name: &str, keyring: Option<&Path>) -> Result<Monitors, CephError> {
        let spec = ImageSpec::of_none(conf, name, keyring);
        Ok(Monitors(Cluster::connect(&spec, Purpose::Ask)?))
    }

    /// Asks or tells by a command in JSON, and gives the answer's text. Any thread may, and several at once.
    ///
    /// # Errors
    /// If no majority answers within 2 s, or the monitors refuse.
    pub fn ask(&self, command: &str) -> Result<String, CephError> {
        self.0.ask_monitor(command)
    }
}
