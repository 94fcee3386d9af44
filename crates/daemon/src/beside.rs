//! A volume beside the others: what they have, it cannot have.

use crate::daemon::Daemon;
use crate::device_ids::DeviceIds;
use crate::exclusive::Exclusive;
use crate::remembered::with_overrides;
use crate::supervisor::Supervisor;
use crate::volumes::Turn;
use anyhow::Result;
use loligo_client::api::definition::VolumeConfig;
use std::sync::Arc;

impl Daemon {
    /// The current definition of each volume that `counts`, with what was set by command.
    fn definitions(&self, counts: impl Fn(&Supervisor) -> bool) -> Vec<VolumeConfig> {
        let of = |e: &Arc<Supervisor>| with_overrides(&e.config(), &self.memory.of(&e.name));
        self.supervisors().iter().filter(|e| counts(e)).map(of).collect()
    }

    /// The turn, and the devices of all volumes and of `more` as they were just before. A path that hangs hangs whoever
    /// asks, who has no turn meanwhile.
    pub(super) fn turn_beside<'a>(
        &self,
        more: impl IntoIterator<Item = &'a VolumeConfig>,
    ) -> (Turn<'_>, DeviceIds) {
        let mut looked = DeviceIds::at(more);
        loop {
            let turn = self.volumes.turn();
            let lacks = looked.lacks(&self.definitions(|_| true));
            if lacks.is_empty() {
                return (turn, looked);
            }
            drop(turn);
            looked.look(lacks);
        }
    }

    /// The devices of those volumes that `counts` says, and of `volume`.
    pub(super) fn look_beside(
        &self,
        volume: &VolumeConfig,
        counts: impl Fn(&Supervisor) -> bool,
    ) -> DeviceIds {
        DeviceIds::at(self.definitions(counts).iter().chain([volume]))
    }

    /// Refuses `volume` where it is wrong, or has what another has that `counts`, by the devices that were `device_ids` at.
    pub fn refuse_taken(
        &self,
        name: &str,
        volume: &VolumeConfig,
        device_ids: &DeviceIds,
        counts: impl Fn(&Supervisor) -> bool,
    ) -> Result<()> {
        let mut exclusive = Exclusive::default();
        for other in self.supervisors().iter().filter(|other| other.name != name && counts(other)) {
            // What is wrong with another is no matter here.
            let of = with_overrides(&other.config(), &self.memory.of(&other.name));
            let _ = exclusive.add_whole(&other.name, &of, device_ids);
        }
        exclusive.add_whole(name, volume, device_ids)
    }
}
