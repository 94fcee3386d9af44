//! Reads of what is being written to the core, or could not be: nobody knows what the core holds there, and memory has it.

use super::task::{Piece, ReadTask, Source};
use crate::engine::Engine;
use crate::index::Meta;
use crate::intake::Task;
use loligo_block::{Buf, Shared};
use loligo_format::units::{BLOCK, Stripe, sector_mask};

impl ReadTask {
    /// The sectors of `block` that memory has.
    pub(super) fn kept_of(&self, block: u32) -> u8 {
        self.kept.iter().filter(|k| k.0 == block).map(|k| k.1).fold(0, |a, b| a | b)
    }
}

impl Engine {
    /// The content of `block` in memory, if that and the version that lies over it, `newest`, leave nothing
    /// of the sectors `need` to ask of the core.
    pub(super) fn memory_of(&self, block: u32, need: u8, newest: Option<Meta>) -> Option<(u8, Shared)> {
        let (mask, content) = self.destage.content_of(block, self.cfg.stripe)?;
        let over = newest.filter(|m| self.map.overlays(block, m)).map_or(0, |m| m.valid);
        (need & !(mask | over) == 0).then_some((mask, content))
    }

    /// A piece for which nothing is asked of the core.
    pub(super) fn patched(&self, block: u32) -> Piece {
        let len = BLOCK.min(self.cfg.data_length - self.cfg.stripe.global(block) * BLOCK);
        Piece { buf: Some(Buf::zeroed(len as usize)), ..Piece::new(block, Source::Patched) }
    }

    /// Has memory stand in for piece `sub`, one block. False where it has too little of it.
    pub(super) fn give_from_memory(&mut self, key: usize, sub: u32) -> bool {
        let task = self.intake.read(key);
        let block = task.pieces[sub as usize].first;
        let need = sector_mask(task.global(block), task.offset, task.offset + task.len);
        let Some((mask, content)) = self.memory_of(block, need, None) else { return false };
        let piece = self.patched(block);
        let task = self.intake.read(key);
        task.pieces[sub as usize] = piece;
        task.kept.push((block, mask, content));
        true
    }

    /// The sectors of `block` that memory has, now or when the core last failed beneath read `key`.
    pub(super) fn kept_for(&mut self, key: usize, block: u32) -> u8 {
        let content = self.destage.content_of(block, self.cfg.stripe);
        let task = self.intake.read(key);
        if let Some((mask, content)) = content.filter(|c| c.0 & !task.kept_of(block) != 0) {
            task.kept.push((block, mask, content));
        }
        task.kept_of(block)
    }

    /// Puts the content of memory over what the core said meanwhile.
    pub(super) fn keep_for_read(&self, task: &mut ReadTask) {
        self.destage.keep(self.cfg.stripe, task, 0, u32::MAX);
    }

    /// A write of these blocks has failed: reads of them that are under way get what was to be written. The core may have answered
    /// them already, and once it has taken the next write memory does not have it any more.
    pub(crate) fn keep_for_reads(&mut self, first: u32, last: u32) {
        for (_, task) in &mut self.intake.tasks {
            if let Task::Read(task) = task {
                self.destage.keep(self.cfg.stripe, task, first, last);
            }
        }
    }
}

impl crate::destage::Destage {
    /// Adds what memory has, of these blocks, to the read that asked the core for them.
    fn keep(&self, stripe: Stripe, task: &mut ReadTask, first: u32, last: u32) {
        for i in 0..task.pieces.len() {
            let p = &task.pieces[i];
            let (from, to) = (p.first.max(first), (p.first + p.blocks - 1).min(last));
            if !p.is_from_core() || from > to || !self.has_content(from, to) {
                continue;
            }
            for block in from..=to {
                if let Some((mask, content)) = self.content_of(block, stripe)
                    && mask & !task.kept_of(block) != 0
                {
                    task.kept.push((block, mask, content));
                }
            }
        }
    }
}
