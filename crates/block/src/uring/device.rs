//! A file or raw block device on a [`Ring`].

use super::flight::Flight;
use super::{DevId, Ring};
use crate::file::{DeviceFile, SyncFile};
use crate::op::{refuse_group, refuse_invalid};
use crate::{Completion, Device, Geometry, Op, OpKind, Submit, SyncIo};

/// Operations in flight on one device before it says busy; beyond this only memory is spent, no speed gained.
const MAX_IN_FLIGHT: usize = 1024;

/// A copy to or from memory of at least so many bytes is worth another thread.
const LARGE_COPY: u64 = 256 << 10;

/// An open file or block device whose I/O goes through a shared [`Ring`].
#[derive(Debug)]
pub struct UringFile {
    file: DeviceFile,
    id: DevId,
    in_flight: usize,
}

impl UringFile {
    /// Puts `file` on a ring as device `id`; every file device on one ring needs its own.
    pub fn new(file: DeviceFile, id: DevId) -> UringFile {
        UringFile { file: file.listening(), id, in_flight: 0 }
    }

    /// Carries out a read or write at once. tmpfs cannot do I/O without permission to block, so the kernel would hand
    /// every operation to a worker thread, which costs several times a short copy. Long ones are better off there: this thread
    /// has others to serve meanwhile.
    fn copy(&self, mut op: Op) -> Completion {
        let mut file = SyncFile::new(self.file.clone());
        let result = match &mut op.kind {
            OpKind::Read(buf) => file.read_at(op.offset, buf),
            OpKind::Write { data, fua } => {
                file.write_at(op.offset, data).and_then(|()| if *fua { file.flush() } else { Ok(()) })
            }
            _ => unreachable!("not a copy"),
        };
        op.complete(result)
    }

    /// The open file.
    pub fn file(&self) -> &DeviceFile {
        &self.file
    }
}

impl Device for UringFile {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn submit(&mut self, ring: &mut Ring, _now: u64, op: Op) -> Submit {
        let op = match refuse_invalid(op, self.file.geometry().size) {
            Ok(op) => op,
            Err(refused) => return Submit::Finished(refused),
        };
        if matches!(op.kind, OpKind::WriteMany(_)) {
            return Submit::Finished(refuse_group(op));
        }
        if let Err(silent) = self.file.silence().refuse() {
            return Submit::Finished(op.complete(Err(silent)));
        }
        let copy = matches!(op.kind, OpKind::Read(_) | OpKind::Write { .. }) && op.len() < LARGE_COPY;
        if copy && self.file.is_in_memory() {
            return Submit::Finished(self.copy(op));
        }
        if self.in_flight == MAX_IN_FLIGHT {
            return Submit::Busy(op);
        }
        self.in_flight += 1;
        ring.start(Flight::new(self.id, self.file.clone(), op));
        Submit::Taken
    }

    fn poll(&mut self, ring: &mut Ring, _now: u64, out: &mut Vec<Completion>) {
        self.in_flight -= ring.take(self.id, out);
    }

    fn next_deadline(&self) -> Option<u64> {
        None
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}
