//! One write. What covers whole blocks is the volume's own write. What does not is read, changed and written back, alone
//! at the gate: programs expect that of a file, and the kernel cuts large writes from unaligned memory at any byte.

use super::gate::{Gate, Pass};
use super::{errno, joined};
use crate::local::Volume;
use fuser::{Errno, ReplyWrite};
use loligo_block::{Answer, ReqKind, Request, Segments, Shared};
use std::sync::Arc;

/// A write that fits into the volume.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) data: Shared,
    /// Durable before the answer.
    pub(super) fua: bool,
    pub(super) reply: ReplyWrite,
}

impl Write {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// Hands it to `volume`, whose blocks have `block` bytes.
    pub(super) fn go(self, volume: Arc<dyn Volume>, block: u64, gate: &Arc<Gate>) {
        let whole = self.offset.is_multiple_of(block) && self.end().is_multiple_of(block);
        gate.enter(!whole, move |pass| {
            if whole {
                let len = self.data.len();
                self.put(&*volume, len, pass);
            } else {
                self.merge(volume, block, pass);
            }
        });
    }

    /// Writes it, and answers that `len` bytes are written.
    fn put(self, volume: &dyn Volume, len: usize, pass: Pass) {
        let Write { offset, data, fua, reply } = self;
        let size = data.len() as u64;
        volume.ask(
            Request { id: 0, kind: ReqKind::Write(data), offset, len: size, fua },
            Box::new(move |answer| {
                match answer {
                    Ok(_) => reply.written(len as u32),
                    Err(e) => reply.error(errno(e)),
                }
                drop(pass);
            }),
        );
    }

    /// Reads the blocks it touches, puts its bytes over theirs and writes them.
    fn merge(self, volume: Arc<dyn Volume>, block: u64, pass: Pass) {
        let from = self.offset - self.offset % block;
        let len = self.end().next_multiple_of(block) - from;
        let back = volume.clone();
        volume.ask(
            Request { id: 0, kind: ReqKind::Read, offset: from, len, fua: false },
            Box::new(move |answer| match answer {
                Ok(Answer::Data(pieces)) => {
                    let data = over(&pieces, len as usize, (self.offset - from) as usize, &self.data);
                    let written = self.data.len();
                    Write { offset: from, data, ..self }.put(&*back, written, pass);
                }
                Ok(_) => self.reply.error(Errno::EIO),
                Err(e) => self.reply.error(errno(e)),
            }),
        );
    }
}

/// The `len` bytes of `pieces` with `data` over them from `start` on.
fn over(pieces: &Segments, len: usize, start: usize, data: &[u8]) -> Shared {
    let mut blocks = joined(pieces, len);
    blocks[start..start + data.len()].copy_from_slice(data);
    blocks.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::Buf;

    #[test]
    fn bytes_go_over_the_blocks_that_were_read_and_nothing_else_changes() {
        let pieces: Segments = [[1u8; 512], [2; 512]].iter().map(|p| Buf::copy_of(p).freeze()).collect();
        let merged = over(&pieces, 1024, 510, &[7; 4]);
        let expected: Vec<u8> = [vec![1; 510], vec![7; 4], vec![2; 510]].concat();
        assert_eq!(&merged[..], &expected[..]);
    }
}
