//! One shard without clients: whoever holds it hands requests in and takes the answers out, on the same ring as in a
//! service but without sockets. For measuring what a transport adds.

use crate::devices::Devices;
use crate::engine_driver::{EngineDriver, Parts};
use crate::message::ThreadMailbox;
use crate::start::{CORE_ID, RING_ENTRIES, cache_id};
use loligo_block::{CacheDevice, DeviceFile, DeviceSpec, IoError, Reply, Request, Ring};
use loligo_engine::stats::Stats;
use loligo_engine::{Engine, Router};
use std::time::Instant;

/// A turn waits no longer than this, nanoseconds: its caller may have something to look at.
const LONGEST: u64 = 1_000_000_000;

/// A shard of a volume with one shard, run by the thread that made it.
#[derive(Debug)]
pub struct StandaloneShard {
    engine: EngineDriver,
    ring: Ring,
    origin: Instant,
}

impl StandaloneShard {
    /// A shard over open devices; `size` bytes of the core from `data_start` on are the volume.
    ///
    /// # Errors
    /// If there is no ring to be had.
    pub fn new(
        engine: Engine,
        cache: CacheDevice,
        (spec, disk): (&DeviceSpec, DeviceFile),
        (data_start, size): (u64, u64),
    ) -> Result<StandaloneShard, IoError> {
        let ring = Ring::new(RING_ENTRIES)?;
        let block = disk.geometry().logical_block;
        let engine = EngineDriver::new(Parts {
            me: 0,
            router: Router::new(size, block, engine.striping(), engine.params().seq_promotion),
            engines: vec![engine],
            devices: Devices::new([cache.on_ring(cache_id(0))?], spec.device(disk, CORE_ID)),
            data_start,
            boxes: [ThreadMailbox::new()?].into(),
        });
        Ok(StandaloneShard { engine, ring, origin: Instant::now() })
    }

    /// Takes `requests`, does everything that can be done now, hands the devices' work to the kernel and waits for its next
    /// completion, for a second at most, if `answers` got nothing.
    ///
    /// # Errors
    /// If the ring fails.
    pub fn turn(
        &mut self,
        requests: impl Iterator<Item = Request>,
        answers: &mut Vec<Reply>,
    ) -> Result<(), IoError> {
        self.ring.reap(|_| ());
        let now = self.now();
        for request in requests {
            self.engine.request(request, answers);
        }
        self.engine.run(&mut self.ring, now, answers);
        let deadline = match self.engine.next_deadline(now) {
            _ if self.engine.has_work() => 0,
            Some(t) => t.saturating_sub(self.now()).max(1),
            None => LONGEST,
        };
        self.ring.submit_and_wait(usize::from(answers.is_empty()), Some(deadline.min(LONGEST)))
    }

    /// The shard's numbers.
    pub fn stats(&self) -> Stats {
        self.engine.engines()[0].stats()
    }

    fn now(&self) -> u64 {
        // The engine takes 0 for "never".
        self.origin.elapsed().as_nanos() as u64 + 1
    }
}
