//! The phases that make a locked image a core.

use super::machine::{Machine, Phase, Progress, Undo};
use super::step::{Adoption, Step};
use crate::lock_record::LockRecord;

impl Machine {
    pub(super) fn watch_ended(&mut self) -> Progress {
        let adoption = Adoption {
            identity: self.view().identity.clone(),
            size: self.size,
            holder: self.holder.take().expect("the lock is held"),
            lease: self.lease,
            asked: self.asked,
            why_librbd: (!self.why_librbd.is_empty()).then(|| self.why_librbd.join("; ")),
        };
        // The end of the attach closes image and client.
        self.undo = vec![Undo::EndAttach];
        Ok(self.ask(Phase::Adopt, Step::Adopt(Box::new(adoption))))
    }

    pub(super) fn adopted(&mut self) -> Progress {
        Ok(self.ask(Phase::Refresh, Step::Refresh))
    }

    pub(super) fn refreshed(&mut self) -> Progress {
        Ok(self.ask(Phase::Inherited, Step::DropInheritedMarker))
    }

    pub(super) fn inherited_dropped(&mut self) -> Progress {
        Ok(self.ask(Phase::Gate, Step::OpenGate))
    }

    pub(super) fn gate_opened(&mut self, record: LockRecord) -> Progress {
        let record = Box::new(LockRecord { suspect: self.changed, ..record });
        Ok(self.ask(Phase::NoteHeld, Step::Note(record)))
    }
}
