//! A read of the core that failed: one bad sector is no reason to fail what lies beside it, or what the cache has.

use super::task::{Piece, Source};
use crate::api::Effect;
use crate::bug::{Bug, planted};
use crate::engine::Engine;
use crate::index::Meta;
use loligo_block::Buf;
use loligo_format::units::{BLOCK, sector_mask};
use smallvec::SmallVec;

/// Bytes of the volume, from one to before the other.
type Span = (u64, u64);

/// Adds the sectors `mask` of the block that begins at `start` to the runs.
fn extend(runs: &mut SmallVec<[Span; 4]>, start: u64, mask: u8) {
    for s in (0..8u64).filter(|s| mask & (1 << s) != 0) {
        let from = start + s * 512;
        match runs.last_mut() {
            Some(run) if run.1 == from => run.1 = from + 512,
            _ => runs.push((from, from + 512)),
        }
    }
}

impl Engine {
    /// Puts piece `sub`, which the core could not give in one go, together from what the cache has, from what is being written to
    /// the core and from runs of exactly what the request still lacks. False where that would be the same read again.
    pub(super) fn patch(&mut self, key: usize, sub: u32, fx: &mut Vec<Effect>) -> bool {
        let data_length = self.cfg.data_length;
        let task = self.intake.read(key);
        let piece = &task.pieces[sub as usize];
        let (first, blocks) = (piece.first, piece.blocks);
        let (offset, end, at) = (task.offset, task.offset + task.len, task.global(first));
        let len = (u64::from(blocks) * BLOCK).min(data_length - at * BLOCK);
        let mut runs: SmallVec<[Span; 4]> = SmallVec::new();
        let mut over: SmallVec<[(u32, Meta); 4]> = SmallVec::new();
        for (block, global) in (first..first + blocks).zip(at..) {
            let need = sector_mask(global, offset, end);
            let known = self.map.known(block);
            over.extend(known.map(|m| (block, m)));
            let lacks = need & !known.map_or(0, |m| m.valid);
            extend(&mut runs, global * BLOCK, lacks & !self.kept_for(key, block));
        }
        let same = runs.as_slice() == [(at * BLOCK, at * BLOCK + len)];
        if same || planted(self.cfg.bug, Bug::BridgedWithoutFallback) {
            return false;
        }
        let task = self.intake.read(key);
        let piece = &mut task.pieces[sub as usize];
        piece.source = Source::Patched;
        piece.buf = Some(Buf::zeroed(len as usize));
        let begun = task.pieces.len();
        for (from, to) in runs {
            let block = first + (from / BLOCK - at) as u32;
            task.pieces.push(Piece::new(block, Source::Missing { from, to }));
        }
        for (block, meta) in over {
            let source = Source::Overlay { meta, ticket: self.space.tickets.begin() };
            self.intake.read(key).pieces.push(Piece::new(block, source));
        }
        self.issue_from(key, begun, fx);
        true
    }

    /// The bytes `from` to `to`, which piece `sub` asked the core for in vain, once more: what the cache or memory has got since comes
    /// from there. False where they have nothing new.
    pub(super) fn patch_missing(
        &mut self,
        key: usize,
        sub: u32,
        (from, to): Span,
        fx: &mut Vec<Effect>,
    ) -> bool {
        let task = self.intake.read(key);
        let (first, first_global) = (task.first, task.first_global);
        let block_of = |global: u64| first + (global - first_global) as u32;
        let mut runs: SmallVec<[Span; 4]> = SmallVec::new();
        let mut pieces: SmallVec<[Piece; 4]> = SmallVec::new();
        let mut kept = 0;
        for global in from / BLOCK..to.div_ceil(BLOCK) {
            let (block, mut need) = (block_of(global), sector_mask(global, from, to));
            // What was kept when this was asked for was not asked for.
            let memory = need & self.kept_for(key, block);
            kept |= memory;
            need &= !memory;
            let known = self.map.known(block).filter(|m| m.valid & need != 0);
            // One that was tried is of no use, or this would not be missing.
            let known = known.filter(|m| !self.intake.read(key).has_over(block, m.slot));
            extend(&mut runs, global * BLOCK, need & !known.map_or(0, |m| m.valid));
            if let Some(meta) = known {
                let source = Source::Overlay { meta, ticket: self.space.tickets.begin() };
                pieces.push(Piece::new(block, source));
            }
        }
        if pieces.is_empty() && kept == 0 {
            return false;
        }
        let missing = |&(from, to): &Span| Piece::new(block_of(from / BLOCK), Source::Missing { from, to });
        pieces.extend(runs.iter().map(missing));
        if !pieces.is_empty() {
            self.replace_piece(key, sub, pieces, fx);
        }
        true
    }

    /// The clean version over `block` cannot be used: where nothing lies beneath it, its sectors `valid` are asked of the core.
    pub(super) fn patch_from_core(&mut self, key: usize, block: u32, valid: u8, fx: &mut Vec<Effect>) {
        let task = self.intake.read(key);
        let patched = |p: &Piece| matches!(p.source, Source::Patched);
        if !task.pieces.iter().any(|p| patched(p) && p.first <= block && block < p.first + p.blocks) {
            return;
        }
        let global = task.global(block);
        let mut runs: SmallVec<[Span; 4]> = SmallVec::new();
        let need = valid & sector_mask(global, task.offset, task.offset + task.len);
        extend(&mut runs, global * BLOCK, need & !self.kept_for(key, block));
        for (from, to) in runs {
            let task = self.intake.read(key);
            task.pieces.push(Piece::new(block, Source::Missing { from, to }));
            let sub = task.pieces.len() as u32 - 1;
            self.issue_piece(key, sub, fx);
        }
    }
}
