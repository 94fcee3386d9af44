//! Comparison of the core with the clean blocks of its cache.

use super::{Comparison, Opened};
use crate::index::Meta;
use loligo_block::{IoError, SyncIo, crc32c};
use loligo_format::units::{BLOCK, WINDOW, WINDOW_BLOCKS};
use std::collections::BTreeMap;

/// Failed reads after which comparing ends: a disk may try for half a minute before it says that it cannot read a sector.
const MOST_UNREADABLE: u64 = 16;
/// And after which the rest of a window is passed over.
const MOST_IN_WINDOW: u64 = 4;

impl Opened {
    /// Compares up to `samples` clean blocks with the core, those of its first and last MiB first. A block that the core
    /// cannot read is counted and says nothing. After 4 of them the rest of their MiB is not tried, after 16 nothing is, nor
    /// once `patient`, which is asked after each of them, says no: a disk decides how long it takes to give a sector up.
    ///
    /// # Errors
    /// If the core is gone.
    pub fn compare(
        &self,
        core: &mut dyn SyncIo,
        samples: usize,
        mut patient: impl FnMut() -> bool,
    ) -> Result<Comparison, IoError> {
        let superblock = &self.superblock;
        let blocks = superblock.data_length.div_ceil(BLOCK);
        let edge = WINDOW.div_ceil(BLOCK).min(blocks);
        let clean = |m: &Meta| m.dirty == 0 && m.valid != 0;
        let by = superblock.striping();
        let mut chosen: BTreeMap<u64, Meta> = BTreeMap::new();
        for block in (0..edge).chain(blocks - edge..blocks) {
            let shard = by.owner(block * BLOCK);
            let local = by.of(shard).local(block);
            let meta = self.shards[usize::from(shard)].index.get(local);
            chosen.extend(meta.filter(clean).map(|m| (block, m)));
        }
        // Evenly over all slots first; where too few of those are clean, more are looked at, and every slot in the end.
        let slots: u64 = self.shards.iter().map(|r| u64::from(r.slots.count())).sum();
        let wanted = chosen.len().saturating_add(samples);
        let even = (slots / samples.max(1) as u64).max(1);
        for step in [even, (even / 16).max(1), 1] {
            for (shard, rec) in (0u16..).zip(&self.shards) {
                let of_shard = rec.blocks(by.of(shard), step as usize).filter(|(_, m)| clean(m));
                chosen.extend(of_shard.take(wanted.saturating_sub(chosen.len())));
            }
            if chosen.len() >= wanted {
                break;
            }
        }
        let mut c = Comparison::default();
        let mut raw = vec![0u8; BLOCK as usize];
        let (mut failed, mut given_up) = ((0, 0), false);
        for (block, meta) in chosen {
            let window = block / WINDOW_BLOCKS;
            if given_up || c.unreadable >= MOST_UNREADABLE || failed == (window, MOST_IN_WINDOW) {
                c.untried += 1;
                continue;
            }
            let at = block * BLOCK;
            let len = BLOCK.min(superblock.data_length - at) as usize;
            raw.fill(0);
            match core.read_at(superblock.data_start + at, &mut raw[..len]) {
                Err(e) if e.is_final() => return Err(e),
                Err(_) => {
                    c.unreadable += 1;
                    failed = if failed.0 == window { (window, failed.1 + 1) } else { (window, 1) };
                    c.first_unreadable.get_or_insert(at);
                    given_up = !patient();
                    continue;
                }
                Ok(()) => {}
            }
            for s in (0..8).filter(|s| meta.valid & (1 << s) == 0) {
                raw[s * 512..s * 512 + 512].fill(0);
            }
            c.compared += 1;
            c.different += u64::from(crc32c(&raw) != meta.crc);
        }
        Ok(c)
    }
}
