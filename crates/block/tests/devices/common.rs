//! Driving one device as the shard's thread does, and waiting for each operation.

use loligo_block::{
    Buf, Completion, DevId, Device, DeviceFile, IoError, Op, OpKind, OpenOptions, Ring, Submit, UringFile,
};
use std::path::Path;

/// A device with its own ring, and a clock that stands at 0.
pub struct Rig<D> {
    pub dev: D,
    pub ring: Ring,
}

impl Rig<UringFile> {
    pub fn open(path: &Path, options: &OpenOptions) -> Self {
        let file = DeviceFile::open(path, options).unwrap();
        Rig { dev: UringFile::new(file, DevId(3)), ring: Ring::new(8).unwrap() }
    }
}

impl<D: Device> Rig<D> {
    /// Carries out all of `ops` at once and returns their completions by tag.
    pub fn all(&mut self, ops: Vec<Op>) -> Vec<Completion> {
        let mut out = Vec::new();
        for mut op in ops {
            loop {
                match self.dev.submit(&mut self.ring, 0, op) {
                    Submit::Taken => break,
                    Submit::Finished(c) => {
                        out.push(c);
                        break;
                    }
                    Submit::Busy(back) => {
                        op = back;
                        self.wait(&mut out);
                    }
                }
            }
        }
        while self.dev.in_flight() > 0 {
            self.wait(&mut out);
        }
        out.sort_by_key(|c| c.tag);
        out
    }

    fn wait(&mut self, out: &mut Vec<Completion>) {
        assert!(
            self.dev.next_deadline().is_none_or(|at| at == 0),
            "a Rig's clock stands at 0: drive a device that waits for a time with submit and poll"
        );
        self.ring.submit_and_wait(1, Some(1_000_000_000)).unwrap();
        self.ring.reap(|_| ());
        self.dev.poll(&mut self.ring, 0, out);
    }

    pub fn one(&mut self, offset: u64, kind: OpKind) -> Completion {
        self.all(vec![Op { tag: 7, offset, kind }]).pop().unwrap()
    }

    pub fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<(), IoError> {
        self.one(offset, OpKind::Write { data: Buf::copy_of(data).freeze(), fua }).result
    }

    pub fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let done = self.one(offset, OpKind::Read(Buf::alloc(len)));
        done.result.unwrap();
        done.buf.unwrap().to_vec()
    }
}

/// Bytes that differ from sector to sector and from seed to seed.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 32) as u8
        })
        .collect()
}
