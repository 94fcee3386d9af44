//! A core that gets another size: larger while it is served, or found smaller at a start.
//!
//! The engine never gets smaller while it runs: its reach stays, and whoever asks it keeps within the core. The superblock notes
//! where the core ended meanwhile ([`loligo_format::superblock::Superblock::cut`]); what is cached behind that is forgotten at the next start
//! ([`Opened::cut_off`]), also where the core has grown again since: it has zeros there.

use crate::engine::Engine;
use crate::open::{OpenError, OpenOptions, Opened, plan};
use crate::recover::commit;
use loligo_block::{IoError, IoKind, SECTOR, SyncIo, crc32c};
pub use loligo_format::size::TooLarge;
use loligo_format::size::check;
use loligo_format::units::{BLOCK, Striping};

/// The blocks that [`Opened::cut_off`] forgot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CutOff {
    /// Blocks that the core had too.
    pub clean: u64,
    /// Blocks that only the cache had.
    pub dirty: u64,
}

impl Opened {
    /// Dirty blocks that begin in `from..to` of the volume.
    pub fn dirty_between(&self, from: u64, to: u64) -> u64 {
        let by = self.superblock.striping();
        let within = |at: u64| (from..to).contains(&at);
        let of = |(shard, rec): (u16, &crate::recover::Recovered)| {
            rec.blocks(by.of(shard), 1).filter(|(b, m)| m.dirty != 0 && within(b * BLOCK)).count()
        };
        (0u16..).zip(&self.shards).map(of).sum::<usize>() as u64
    }

    /// Forgets what is cached behind `end`, durably. A dirty block that lies across it is written to the core up to there.
    ///
    /// # Errors
    /// Those of the devices, or a dirty block across the end whose data does not match its checksum.
    pub fn cut_off(
        &mut self,
        cache: &mut dyn SyncIo,
        core: &mut dyn SyncIo,
        end: u64,
        o: &OpenOptions,
    ) -> Result<CutOff, OpenError> {
        let mut cut = CutOff::default();
        for shard in 0..self.superblock.layout.shards {
            let p = plan(&self.superblock, shard, o);
            let rec = &mut self.shards[usize::from(shard)];
            let behind: Vec<(u64, crate::index::Meta)> =
                rec.blocks(p.stripe, 1).filter(|(b, _)| (b + 1) * BLOCK > end).collect();
            for (block, meta) in &behind {
                let at = block * BLOCK;
                if meta.dirty == 0 {
                    cut.clean += 1;
                } else if at >= end {
                    cut.dirty += 1;
                } else {
                    let mut data = vec![0; BLOCK as usize];
                    cache.read_at(p.layout.slot(meta.slot), &mut data)?;
                    if crc32c(&data) != meta.crc {
                        let text = format!("the dirty block at byte {at}, the core's last, is damaged");
                        return Err(IoError::new(IoKind::Io, text).into());
                    }
                    let volume_start = self.superblock.data_start;
                    for s in (0..(end - at) / SECTOR).filter(|s| meta.dirty & (1 << s) != 0) {
                        let from = (s * SECTOR) as usize;
                        core.write_at(volume_start + at + s * SECTOR, &data[from..from + SECTOR as usize])?;
                    }
                    core.flush()?;
                }
            }
            for (block, meta) in behind {
                rec.forget(p.stripe.local(block), meta.slot);
            }
            // Also where there was nothing: no frame that speaks of a block behind the end is replayed again.
            commit(cache, &p, rec).map_err(|e| OpenError::Shard(shard, e))?;
        }
        Ok(cut)
    }
}

impl Engine {
    /// The division of the volume among the shards of its cache.
    pub fn striping(&self) -> Striping {
        self.cfg.stripe.by
    }

    /// Requests may reach up to `bytes` from now on. The superblock on the device says so already: recovery refuses what it
    /// finds behind the exported length. An engine that reaches further keeps its reach.
    ///
    /// # Errors
    /// If the cache cannot follow; nothing is changed then.
    pub fn reach(&mut self, bytes: u64) -> Result<(), TooLarge> {
        if bytes <= self.cfg.data_length {
            return Ok(());
        }
        check(bytes, self.cfg.stripe.by, self.cfg.region)?;
        self.map.index.grow(self.cfg.stripe.windows(bytes));
        self.commit.intents.grow(bytes);
        self.cfg.data_length = bytes;
        Ok(())
    }
}
