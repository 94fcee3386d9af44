//! The settings of an experiment.

use super::rows::{ROWS, Row};
use loligo_lab::config::key_value;
use std::num::ParseIntError;
use std::time::Duration;

fn seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// The settings by which it is played
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The rows to play [default: all]
    #[arg(long, value_name = "ROW,...", value_delimiter = ',', requires = "failures")]
    pub rows: Vec<Row>,
    /// Runs of each; the worst is reported
    #[arg(long, value_name = "N", default_value_t = 5, requires = "failures")]
    pub runs: u32,
    /// Nodes of two controllers; with two there is no pool of three copies
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=8))]
    pub pairs: u32,
    /// Monitors: one lies on none of the controllers, several on the first controllers of nodes [default: with --failures 3, or 1 with two nodes; else 1]
    #[arg(long, value_name = "N")]
    pub mons: Option<u32>,
    /// Operations a second on each image and volume
    #[arg(long, value_name = "N", default_value_t = 30, requires = "failures")]
    pub rate: u32,
    /// Bytes of the volume that each controller serves, or off
    #[arg(long, value_name = "SIZE|off", default_value = "1g")]
    pub volumes: String,
    /// Seconds of a freeze
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds, requires = "failures")]
    pub freeze: Duration,
    /// The number that choices and contents come from [default: the time]
    #[arg(long, value_name = "N", requires = "failures")]
    pub seed: Option<u64>,
    /// Check the stores of the OSDs of a row once it is over: on or off
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"], requires = "failures")]
    pub fsck: String,
    /// Put each OSD behind a cache of so many bytes, which keeps what is written as long as it can
    #[arg(long, value_name = "SIZE")]
    pub osd_cache: Option<String>,
    /// An option of Ceph in the labs, as mon.mon_lease=1 (repeatable)
    #[arg(long, value_name = "SECTION.OPTION=VALUE", value_parser = key_value)]
    pub set: Vec<(String, String)>,
    /// Leave the labs behind, stopped
    #[arg(long, requires = "failures")]
    pub keep: bool,
}

impl Options {
    /// Bytes of each volume; nothing: there are none.
    pub(crate) fn volumes(&self) -> Option<String> {
        Some(self.volumes.clone()).filter(|bytes| bytes != "off")
    }

    /// The rows, in the order in which they are played.
    pub(crate) fn rows(&self) -> Vec<Row> {
        ROWS.into_iter().filter(|row| self.rows.is_empty() || self.rows.contains(row)).collect()
    }
}
