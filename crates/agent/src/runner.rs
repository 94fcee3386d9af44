//! The way a unit is run on this side: an OSD as a process, a volume by the daemon.

use crate::cancel::Cancel;
use crate::config::{PairConfig, UnitConfig};
use crate::osd::Osd;
use crate::volume::Volume;
use anyhow::Result;
use loligo_pair::machine::{Answer, Cause};
use loligo_pair::plan::Side;
use std::time::Instant;

/// A unit on one side.
#[derive(Debug)]
pub enum Runner {
    /// An OSD.
    Osd(Box<Osd>),
    /// A volume.
    Volume(Box<Volume>),
}

impl Runner {
    /// The unit as `side` has it.
    ///
    /// # Errors
    /// If its part of the file makes no sense.
    pub fn new(pair: &PairConfig, unit: UnitConfig<'_>, side: Side) -> Result<Runner> {
        Ok(match unit {
            UnitConfig::Osd(osd) => Runner::Osd(Box::new(Osd::new(pair, osd, side)?)),
            UnitConfig::Volume(volume) => Runner::Volume(Box::new(Volume::new(pair, volume, side)?)),
        })
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Runner::Osd(osd) => format!("osd.{}", osd.id()),
            Runner::Volume(volume) => volume.name(),
        }
    }

    /// True if it runs here.
    pub fn is_here(&self) -> bool {
        match self {
            Runner::Osd(osd) => osd.is_here(),
            Runner::Volume(volume) => volume.is_here(),
        }
    }

    /// True if it was started by another hand: a daemon that comes back starts what it had.
    pub fn has_come(&mut self) -> bool {
        match self {
            Runner::Osd(_) => false,
            Runner::Volume(volume) => volume.has_come(),
        }
    }

    /// Starts it; one that runs already is this side's, and is taken on. Clients of a volume come at `open_at`, if there is such a
    /// time; an OSD asks the other OSDs whether the partner's may still answer.
    pub fn start(&mut self, cancel: &Cancel, open_at: Option<Instant>) -> Answer {
        match self {
            Runner::Osd(osd) => osd.start(cancel),
            Runner::Volume(volume) => volume.start(cancel, open_at),
        }
    }

    /// Looks whether it has ended by itself, and why.
    pub fn has_ended(&mut self) -> Option<Cause> {
        match self {
            Runner::Osd(osd) => osd.has_ended(),
            Runner::Volume(volume) => volume.has_ended(),
        }
    }

    /// True if it runs and clients cannot come: [`Runner::open`] mends that, on the side that holds its LUNs.
    pub fn is_shut(&mut self) -> bool {
        match self {
            Runner::Osd(_) => false,
            Runner::Volume(volume) => volume.is_shut(),
        }
    }

    /// Takes away what an agent before this one has left of a unit that does not run here.
    pub fn clear(&self) {
        match self {
            Runner::Osd(_) => {}
            Runner::Volume(volume) => volume.clear(),
        }
    }

    /// Has clients come.
    pub fn open(&self) {
        match self {
            Runner::Osd(_) => {}
            Runner::Volume(volume) => volume.open(),
        }
    }

    /// Ends it at once, and returns once it is gone.
    pub fn kill(&mut self) -> Answer {
        match self {
            Runner::Osd(osd) => osd.kill(),
            Runner::Volume(volume) => volume.kill(),
        }
    }

    /// Ends it in peace, or at once if it takes too long.
    pub fn stop(&mut self) -> Answer {
        match self {
            Runner::Osd(osd) => osd.stop(),
            Runner::Volume(volume) => volume.stop(),
        }
    }
}
