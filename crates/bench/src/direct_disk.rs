//! A device in this process, driven without a volume and without any transport: what there is to be had from it.

use crate::drive::scatter;
use crate::interrupt::Interrupt;
use anyhow::{Result, bail, ensure};
use loligo_block::{
    AnyDevice, Buf, DevId, Device, DeviceFile, DeviceSpec, Op, OpKind, OpenOptions, Ring, Submit,
};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
/// A wait is no longer than this, nanoseconds, so that an interrupt is seen.
const LONGEST: u64 = 100_000_000;

/// The device and its ring.
pub(crate) struct DirectDisk {
    device: AnyDevice,
    ring: Ring,
    origin: Instant,
    runs: u64,
}

impl DirectDisk {
    /// The disk that `spec` names.
    pub(crate) fn open(spec: &DeviceSpec) -> Result<DirectDisk> {
        let file = DeviceFile::open(spec.path(), &OpenOptions::default())?;
        let device = spec.device(file, DevId(0));
        Ok(DirectDisk { device, ring: Ring::new(64)?, origin: Instant::now(), runs: 0 })
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Requests a second of 4 KiB at random places, `depth` at a time, for `time`.
    pub(crate) fn random(
        &mut self,
        writes: bool,
        depth: usize,
        time: Duration,
        stop: &Interrupt,
    ) -> Result<f64> {
        self.runs += 1;
        let blocks = self.device.geometry().size / BLOCK;
        let (begun, mut sent) = (Instant::now(), 0u64);
        let mut done = Vec::new();
        while begun.elapsed() < time || self.device.in_flight() > 0 {
            stop.check()?;
            while begun.elapsed() < time && self.device.in_flight() < depth {
                sent += 1;
                let buf = Buf::alloc(BLOCK as usize);
                let kind = match writes {
                    true => OpKind::Write { data: buf.freeze(), fua: false },
                    false => OpKind::Read(buf),
                };
                let offset = scatter(self.runs << 40 | sent, blocks) * BLOCK;
                let now = self.now();
                match self.device.submit(&mut self.ring, now, Op { tag: sent, offset, kind }) {
                    Submit::Taken => {}
                    Submit::Finished(c) => done.push(c),
                    Submit::Busy(_) => bail!("the device takes fewer than {depth} at a time"),
                }
            }
            let wait = self.device.next_deadline().map_or(LONGEST, |at| at.saturating_sub(self.now()).max(1));
            self.ring.submit_and_wait(1, Some(wait.min(LONGEST)))?;
            self.ring.reap(|_| ());
            let now = self.now();
            self.device.poll(&mut self.ring, now, &mut done);
            for c in done.drain(..) {
                ensure!(c.result.is_ok(), "an operation failed: {:?}", c.result);
            }
        }
        Ok(sent as f64 / begun.elapsed().as_secs_f64())
    }
}
