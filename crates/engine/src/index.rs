//! The index: which block is in which slot, what of it is valid and dirty, and its checksum.
//!
//! One entry a slot in a flat array: 4 B block number, 4 B CRC32C, 2 B sector masks; and 6.3 B in the
//! [`Buckets`]. Its content is that of the journal's contiguous, completed prefix, no more and no less:
//! recovery and checkpoints rest on that.

use crate::buckets::Buckets;
use crate::huge::{HugeVec, Region};
pub use loligo_format::page::Meta;
use loligo_format::units::WINDOW_BLOCKS;

/// The entry of one slot: ten bytes, together, for they are wanted together.
#[derive(Clone, Copy)]
#[repr(C, packed(2))]
struct SlotEntry {
    /// Block + 1; 0: the slot holds no newest version.
    owner: u32,
    crc: u32,
    valid: u8,
    dirty: u8,
}

const _: () = assert!(size_of::<SlotEntry>() == 10);

impl SlotEntry {
    fn block(&self) -> u32 {
        self.owner.wrapping_sub(1)
    }

    fn meta(&self, slot: u32) -> Meta {
        Meta { slot, crc: self.crc, valid: self.valid, dirty: self.dirty }
    }
}

/// Block to slot and back, for one shard. Blocks are the shard's own numbers.
#[derive(Debug)]
pub struct Index {
    map: Buckets,
    lines: HugeVec<SlotEntry>,
    /// Per window: dirty blocks, and a hint which sixteenths of it may hold them.
    windows: Vec<WindowDirt>,
    dirty_blocks: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct WindowDirt {
    count: u16,
    groups: u16,
}

const GROUP: u64 = WINDOW_BLOCKS / 16;

impl Index {
    /// For `slots` slots over `windows` windows.
    pub fn new(slots: u32, windows: u64) -> Index {
        let n = slots as usize;
        Index {
            map: Buckets::new(n),
            lines: HugeVec::zeroed(n),
            windows: vec![WindowDirt::default(); windows as usize],
            dirty_blocks: 0,
        }
    }

    /// Space for so many windows.
    pub(crate) fn grow(&mut self, windows: u64) {
        if windows as usize > self.windows.len() {
            self.windows.resize(windows as usize, WindowDirt::default());
        }
    }

    /// Brings the bucket of `block` towards the processor.
    #[inline]
    pub fn prefetch(&self, block: u32) {
        self.map.prefetch(block);
    }

    /// Brings the line of `block` towards the processor, once its bucket is there; returns the likely slot.
    #[inline]
    pub fn prefetch_line(&self, block: u32) -> Option<u32> {
        let slot = self.map.likely(block)?;
        self.lines.prefetch(slot as usize);
        Some(slot)
    }

    /// The entry of `block`, if there is one.
    #[inline]
    pub fn get(&self, block: u32) -> Option<Meta> {
        let slot = self.map.get(block, |s| self.lines[s as usize].block())?;
        Some(self.lines[slot as usize].meta(slot))
    }

    /// The block whose newest version is in `slot`.
    pub fn block_in(&self, slot: u32) -> Option<u32> {
        { self.lines[slot as usize].owner }.checked_sub(1)
    }

    /// The content of `slot`, for a checkpoint.
    pub fn entry(&self, slot: u32) -> Option<(u32, Meta)> {
        let block = self.block_in(slot)?;
        Some((block, self.lines[slot as usize].meta(slot)))
    }

    /// True if the block in `slot` has a dirty sector.
    pub fn slot_is_dirty(&self, slot: u32) -> bool {
        self.lines[slot as usize].dirty != 0
    }

    /// Makes `meta` the newest version of `block`; returns the slot it replaces.
    pub fn put(&mut self, block: u32, meta: Meta) -> Option<u32> {
        let lines = &self.lines;
        let old = self.map.put(block, meta.slot, |s| lines[s as usize].block());
        if let Some(old) = old {
            self.undirty(block, old);
            self.lines[old as usize].owner = 0;
        }
        self.lines[meta.slot as usize] =
            SlotEntry { owner: block + 1, crc: meta.crc, valid: meta.valid, dirty: meta.dirty };
        if meta.dirty != 0 {
            self.dirty_blocks += 1;
            let w = &mut self.windows[(u64::from(block) / WINDOW_BLOCKS) as usize];
            w.count += 1;
            w.groups |= 1 << (u64::from(block) % WINDOW_BLOCKS / GROUP);
        }
        old.filter(|o| *o != meta.slot)
    }

    /// As [`Index::put`], but for replay, where the slot may still stand for another block: that one is forgotten.
    pub fn replay(&mut self, block: u32, meta: Meta) -> Option<u32> {
        if let Some(other) = self.block_in(meta.slot).filter(|o| *o != block) {
            self.drop_version(other, meta.slot);
        }
        self.put(block, meta)
    }

    fn undirty(&mut self, block: u32, slot: u32) {
        if self.lines[slot as usize].dirty != 0 {
            self.lines[slot as usize].dirty = 0;
            self.dirty_blocks -= 1;
            self.windows[(u64::from(block) / WINDOW_BLOCKS) as usize].count -= 1;
        }
    }

    /// Marks `block` clean if `slot` still holds its newest version.
    pub fn clean(&mut self, block: u32, slot: u32) -> bool {
        let same = self.block_in(slot) == Some(block);
        if same {
            self.undirty(block, slot);
        }
        same
    }

    /// Forgets `block` if `slot` holds its newest version; true when it did.
    pub fn drop_version(&mut self, block: u32, slot: u32) -> bool {
        if self.block_in(slot) != Some(block) {
            return false;
        }
        self.undirty(block, slot);
        let lines = &self.lines;
        self.map.remove(block, |s| lines[s as usize].block());
        self.lines[slot as usize].owner = 0;
        true
    }

    /// Blocks with a dirty sector.
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// Blocks mapped.
    pub fn occupied(&self) -> u64 {
        self.map.len() as u64
    }

    /// Dirty blocks of window `w`.
    pub fn window_dirty(&self, w: u32) -> u16 {
        self.windows[w as usize].count
    }

    /// The first window at or after `from` with a dirty block, looking at `most` windows at the most; wraps once.
    /// `Err(next)` when none was found in that many.
    pub fn next_dirty_window(&self, from: u32, most: u32) -> Result<u32, u32> {
        let n = self.windows.len() as u32;
        let mut w = from % n.max(1);
        for _ in 0..most.min(n) {
            if self.windows[w as usize].count > 0 {
                return Ok(w);
            }
            w = if w + 1 == n { 0 } else { w + 1 };
        }
        Err(w)
    }

    /// Windows of this shard.
    pub fn windows(&self) -> u32 {
        self.windows.len() as u32
    }

    /// The dirty blocks of window `w` in ascending order.
    pub fn dirty_in(&mut self, w: u32, out: &mut Vec<(u32, Meta)>) {
        let dirt = self.windows[w as usize];
        let mut groups = 0u16;
        if dirt.count > 0 {
            for g in (0..16).filter(|g| dirt.groups & (1 << g) != 0) {
                let first = u64::from(w) * WINDOW_BLOCKS + g * GROUP;
                for block in first..first + GROUP {
                    self.prefetch(block as u32);
                }
                for block in first..first + GROUP {
                    if let Some(meta) = self.get(block as u32).filter(|m| m.dirty != 0) {
                        out.push((block as u32, meta));
                        groups |= 1 << g;
                    }
                }
            }
        }
        self.windows[w as usize].groups = groups;
    }

    /// The regions of the two large arrays: the one that is filled in no order, and the one that is filled
    /// slot by slot.
    pub(crate) fn regions(&self) -> [Region; 2] {
        [self.map.region(), self.lines.region()]
    }

    /// RAM held, in bytes, by part.
    pub fn bytes(&self) -> [(&'static str, usize); 3] {
        [
            ("map", self.map.bytes()),
            ("block numbers, checksums, sector masks", self.lines.len() * size_of::<SlotEntry>()),
            ("dirty counts by window", self.windows.len() * size_of::<WindowDirt>()),
        ]
    }
}
