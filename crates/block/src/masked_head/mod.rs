//! A device whose first 4,096 bytes, its *head*, are masked: in their place on the disk stands a label of
//! somebody's choice, and the head itself behind that in the same block, in a form that no other program
//! knows. A reader or writer through here sees the head where it belongs. A look at the raw disk finds
//! nobody's signature.
//!
//! The label's content is no matter here: it is one sector of its own, so that writing it can tear nothing else.

pub mod body;
mod device;
mod io;

pub use device::MaskedDevice;
pub use io::MaskedIo;

use crate::file::{DeviceFile, SyncFile};
use crate::silence::Silence;
use crate::uring::DevId;
use crate::{AnyDevice, DeviceSpec, Geometry, IoError, IoKind, SyncIo};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are masked.
pub const HEAD: u64 = 4096;
/// Bytes of the label, at the start of the block.
pub const LABEL: usize = 512;

/// A label that a failed write may have gone over is written so often, until that succeeds. After that it goes with the next
/// write of the head.
const LABEL_TRIES: u32 = 3;

/// The head of a device, and the block that stands for it on the disk.
#[derive(Debug)]
pub struct MaskedHead(Mutex<State>);

#[derive(Debug)]
struct State {
    /// As it is on the disk.
    block: Vec<u8>,
    /// Nothing where it cannot be told from that.
    head: Option<Vec<u8>>,
    /// The number of times that a label was written.
    labels: u64,
    /// A write of the head failed, and what it left was not looked at: this one's head or the one before.
    unsure: bool,
    /// A label was written beside a write of the head, which may have put the one before over it.
    doubtful: bool,
}

/// The effect of a write on the head.
#[derive(Debug)]
pub(crate) struct Change {
    /// The head afterwards.
    head: Vec<u8>,
    /// The block that stands for it.
    pub(crate) block: Vec<u8>,
    /// The number of times that a label had been written when this was composed.
    labels: u64,
}

impl MaskedHead {
    /// One whose block on the disk is `block` (4,096 bytes).
    ///
    /// # Panics
    /// If it is not one block.
    pub fn of_block(block: Vec<u8>) -> MaskedHead {
        assert_eq!(block.len() as u64, HEAD, "a block");
        let head = body::unpack(&block);
        MaskedHead(Mutex::new(State { block, head, labels: 0, unsure: false, doubtful: false }))
    }

    /// One that is to stand before `head`; nothing where that has no room behind a label.
    pub fn before(head: Vec<u8>) -> Option<MaskedHead> {
        let mut block = vec![0; HEAD as usize];
        body::pack(&head, &mut block).then(|| {
            MaskedHead(Mutex::new(State {
                block,
                head: Some(head),
                labels: 0,
                unsure: false,
                doubtful: false,
            }))
        })
    }

    /// Becomes what `other` is.
    pub fn become_like(&self, other: &MaskedHead) {
        let (block, head) = (other.block(), other.head());
        *self.lock() = State { block, head, labels: 0, unsure: false, doubtful: false };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// The head; nothing where it is damaged on the disk.
    pub fn head(&self) -> Option<Vec<u8>> {
        self.lock().head.clone()
    }

    /// The block as it belongs on the disk.
    pub fn block(&self) -> Vec<u8> {
        self.lock().block.clone()
    }

    /// Another label from now on; the block that is to be written.
    ///
    /// # Panics
    /// If it is not [`LABEL`] bytes.
    pub fn set_label(&self, label: &[u8]) -> Vec<u8> {
        let mut state = self.lock();
        state.block[..LABEL].copy_from_slice(label);
        state.block.clone()
    }

    /// Another label from now on, which `write` writes with the rest of the block, while heads may be written on the other side: once more
    /// where one was done meanwhile; and one that is still under way is written once more when it is done.
    ///
    /// # Errors
    /// Those of `write`.
    ///
    /// # Panics
    /// If it is not [`LABEL`] bytes.
    pub fn write_label<E>(
        &self,
        label: &[u8],
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let block = self.set_label(label);
            let written = write(&block);
            let mut state = self.lock();
            state.labels += 1;
            state.doubtful &= written.is_err();
            if written.is_err() || state.block == block {
                return written;
            }
        }
    }

    /// `to.len()` bytes of the head from `at` on.
    pub(crate) fn read(&self, at: usize, to: &mut [u8]) -> Result<(), IoError> {
        let state = self.lock();
        let head = state.head.as_ref().ok_or_else(unknown)?;
        to.copy_from_slice(&head[at..at + to.len()]);
        Ok(())
    }

    /// The head with `data` in `range`, zeros where there is no data; it counts once it is committed.
    pub(crate) fn change(&self, range: Range<usize>, data: Option<&[u8]>) -> Result<Change, IoError> {
        let state = self.lock();
        let mut head = match &state.head {
            Some(head) => head.clone(),
            None if range == (0..HEAD as usize) => vec![0; HEAD as usize],
            None => return Err(unknown()),
        };
        match data {
            Some(data) => head[range].copy_from_slice(data),
            None => head[range].fill(0),
        }
        let mut block = state.block.clone();
        if body::pack(&head, &mut block) {
            return Ok(Change { head, block, labels: state.labels });
        }
        let text = format!(
            "the first {HEAD} bytes of a masked device can hold {} before zeros, and this would be more",
            body::MOST
        );
        Err(IoError::new(IoKind::Io, text))
    }

    /// `change` was written, or not: the disk then holds its head or the one before, which stays the known
    /// one until the block is [looked at](MaskedHead::looked). True if a label was written beside it: nobody
    /// knows which of the two came last, so the block must be written once more, as a change of nothing.
    #[must_use]
    pub(crate) fn changed(&self, change: Change, written: bool) -> bool {
        let mut state = self.lock();
        state.unsure = !written;
        let beside = change.labels != state.labels;
        // One that failed without a label beside it has the right one, and may still not have gone to the disk.
        state.doubtful = beside || (state.doubtful && !written);
        if written {
            state.head = Some(change.head);
            state.block[LABEL..].copy_from_slice(&change.block[LABEL..]);
        }
        written && beside
    }

    /// True if the disk may hold a label from before the last one: the block must be written once more, as a change of nothing.
    pub(crate) fn label_is_doubtful(&self) -> bool {
        self.lock().doubtful
    }

    /// The number of labels written by now, if the block is to be looked at before the head is read.
    pub(crate) fn unsure(&self) -> Option<u64> {
        let state = self.lock();
        state.unsure.then_some(state.labels)
    }

    /// The disk held `block` after a write of the head that failed, when `labels` had been written. A torn one is no reason to forget
    /// the head before: outside of what was to change both are the same.
    pub(crate) fn looked(&self, block: &[u8], labels: u64) {
        let mut state = self.lock();
        if let Some(head) = body::unpack(block).filter(|_| state.unsure && state.labels == labels) {
            state.head = Some(head);
            state.block[LABEL..].copy_from_slice(&block[LABEL..]);
        }
        state.unsure = false;
    }
}

fn unknown() -> IoError {
    IoError::new(IoKind::Io, "the first 4096 bytes of this device are damaged: writing them whole heals them")
}

/// The part of `len` bytes from `offset` on that lies in the head.
fn in_head(offset: u64, len: u64) -> usize {
    HEAD.saturating_sub(offset).min(len) as usize
}

/// A file or device that is a core, with its masked if it has one. Clones share the descriptors, the lock and the masked.
#[derive(Debug, Clone)]
pub struct CoreFile {
    file: DeviceFile,
    masked: Option<Arc<MaskedHead>>,
}

impl CoreFile {
    /// `file` behind `masked`.
    pub fn masked(file: DeviceFile, masked: Arc<MaskedHead>) -> CoreFile {
        CoreFile { file, masked: Some(masked) }
    }

    /// The same, silent with all others that `silence` was given to.
    pub fn silenced_by(self, silence: &Silence) -> CoreFile {
        CoreFile { file: self.file.silenced_by(silence), ..self }
    }

    /// The file itself: its size and its descriptors, and not its content.
    pub fn file(&self) -> &DeviceFile {
        &self.file
    }

    /// Size and traits.
    pub fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    /// Blocking access.
    pub fn sync_io(&self) -> Box<dyn SyncIo> {
        let io = SyncFile::new(self.file.clone());
        match &self.masked {
            Some(masked) => Box::new(MaskedIo::new(io, masked.clone())),
            None => Box::new(io),
        }
    }

    /// Access through the ring of a thread, as its device `id`, at the pace of `spec`. Of several threads only one may write the
    /// head. The thread is a user of its own.
    ///
    /// # Errors
    /// If the file cannot be opened once more.
    pub fn on_ring(&self, spec: &DeviceSpec, id: DevId) -> Result<AnyDevice, IoError> {
        let device = spec.device(self.file.separate()?, id);
        Ok(match &self.masked {
            Some(masked) => AnyDevice::Masked(Box::new(MaskedDevice::new(device, masked.clone()))),
            None => device,
        })
    }
}

impl From<DeviceFile> for CoreFile {
    fn from(file: DeviceFile) -> CoreFile {
        CoreFile { file, masked: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_written_beside_a_head_survives_it_and_the_head_it() {
        // What lands last on the disk, when the head's completion is seen, and how much of the disk is right without a further write.
        for (head_lands_last, seen_late) in [(false, false), (false, true), (true, true)] {
            let masked =
                MaskedHead::before(vec![1; 100].into_iter().chain([0; 3996]).collect()).expect("room");
            let mut disk = masked.block();
            let under_way = masked.change(0..4, Some(&[2; 4])).expect("room");
            let (composed, mut under_way, mut writes) = (under_way.block.clone(), Some(under_way), 0);
            let label = [7; LABEL];
            let done: Result<(), ()> = masked.write_label(&label, |block| {
                writes += 1;
                if !head_lands_last && writes == 1 {
                    disk.copy_from_slice(&composed);
                }
                disk.copy_from_slice(block);
                if let Some(change) = under_way.take_if(|_| !seen_late) {
                    assert!(!masked.changed(change, true), "the label is written after it");
                }
                Ok(())
            });
            done.expect("written");
            assert_eq!(writes, if seen_late { 1 } else { 2 });
            if head_lands_last {
                disk.copy_from_slice(&composed);
            }
            if let Some(change) = under_way {
                assert!(masked.changed(change, true), "nobody knows which of them is on the disk");
                let again = masked.change(0..0, None).expect("room");
                disk.copy_from_slice(&again.block);
                assert!(!masked.changed(again, true));
            }
            assert_eq!(
                (&disk[..LABEL], &disk),
                (&label[..], &masked.block()),
                "{head_lands_last} {seen_late}"
            );
            assert_eq!(body::unpack(&disk).expect("whole")[..5], [2, 2, 2, 2, 1]);
        }
    }
}
