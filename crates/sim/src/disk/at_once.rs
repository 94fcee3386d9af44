//! Operations outside the event loop, which are over at once: recovery is not interleaved with anything.

use super::{Disk, Flight};
use loligo_block::{Buf, IoError, IoKind, Op, OpKind};

impl Disk {
    /// A read outside the event loop (recovery).
    pub fn read_now(&mut self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let op = Op { tag: 0, offset, kind: OpKind::Read(Buf::alloc(out.len())) };
        self.sync_op(op)?;
        self.live.read(offset, out);
        Ok(())
    }

    /// A write outside the event loop.
    pub fn write_now(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let data = Buf::copy_of(data).freeze();
        self.sync_op(Op { tag: 0, offset, kind: OpKind::Write { data, fua: false } })
    }

    /// A write outside the event loop that has not completed when the process ends.
    pub fn write_unfinished(&mut self, offset: u64, data: &[u8]) {
        let data = Buf::copy_of(data).freeze();
        self.submit(0, 0, Op { tag: 0, offset, kind: OpKind::Write { data, fua: false } });
    }

    /// A flush outside the event loop.
    pub fn flush_now(&mut self) -> Result<(), IoError> {
        self.sync_op(Op { tag: 0, offset: 0, kind: OpKind::Flush })
    }

    fn sync_op(&mut self, op: Op) -> Result<(), IoError> {
        if let Some(why) = self.refuses(&op) {
            return Err(IoError::new(IoKind::Invalid, why));
        }
        let fate = self.fate(&op);
        let key = self.next_key;
        self.next_key += 1;
        let captured = self.next_seq;
        let f = Flight { group: None, key, due: 0, owner: 0, op, early: Vec::new(), captured, fate };
        self.effect(&f)
    }
}
