//! Options of an RBD image as a core.

use loligo_ceph::attach::Destage;
use std::time::Duration;

/// Seconds that a snapshot waits for dirty data where there is no limit to it.
const LONGEST: u32 = 3600;

/// The options by which an image is taken and held.
#[derive(Debug, Clone)]
pub struct RbdOptions {
    /// Take it away from who has it.
    pub steal: bool,
    /// Open one whose dirty data another cache holds.
    pub without_cache: bool,
    /// The way of dirty data to the image.
    pub destage: Destage,
    /// Answers leave while the last word that the image is ours is younger.
    pub lease: Duration,
    /// The longest that a snapshot by others should wait for dirty data; zero: no matter.
    pub snapshot_deadline: Duration,
}

impl RbdOptions {
    /// Attempts of 5 s that whoever takes a snapshot makes to hear that the image is ready: twice the time it should take.
    pub(crate) fn quiesce_attempts(&self) -> u32 {
        let seconds = match self.snapshot_deadline.as_secs() as u32 {
            0 => LONGEST,
            n => n,
        };
        (2 * seconds).div_ceil(5).max(2)
    }
}
