//! The outcomes that faults may explain, and the core judged by itself.

use super::{World, Wrong};
use crate::faults::{FaultKind, block_of};
use crate::stamp;
use crate::subject::Subject;
use loligo_engine::api::Dev;

impl<E: Subject> World<E> {
    /// Looks at the faults that have fired.
    pub(super) fn take_fired(&mut self) {
        let cache = self.cache.fired();
        let of_no_matter = cache.len() * usize::from(self.alone);
        let core = self.core.fired();
        let of = |dev| move |f| (dev, f);
        let fired = cache.into_iter().map(of(Dev::Cache)).chain(core.into_iter().map(of(Dev::Core)));
        for (dev, f) in fired.skip(of_no_matter).collect::<Vec<_>>() {
            self.trace.say(|| format!("fault {:?} at {}", f.kind, f.offset));
            self.marks.hit(match f.kind {
                FaultKind::Error => "fault: error",
                FaultKind::Gone => "fault: gone",
                FaultKind::Fenced => "fault: fenced",
                FaultKind::Lost => "fault: lost write",
                FaultKind::Torn => "fault: torn write",
                FaultKind::Misdirected => "fault: misdirected write",
            });
            let data = f.data.as_deref().unwrap_or(&[]);
            let blocks: Vec<u32> =
                data.chunks(4096).chain(f.destroyed.chunks(4096)).filter_map(block_of).collect();
            if f.kind.is_loud() {
                self.broken = true;
                self.core_broken |= dev == Dev::Core;
                self.loud.get_or_insert(self.now);
                // A record may name what the slot could not take. Where it cannot be read either, nothing tells the next start that
                // nobody was told of it: it may not serve what was there before.
                let sectors = f.offset / 512..(f.offset + data.len() as u64).div_ceil(512);
                let mut bad = self.cache.bad_in(sectors.start, sectors.end - sectors.start);
                if dev == Dev::Cache && bad.next().is_some() {
                    drop(bad);
                    self.let_loose(&blocks);
                }
                continue;
            }
            self.silent = Some(self.now);
            self.let_loose(&blocks);
        }
    }

    /// Blocks that a silent fault has hit may fail until they are written anew.
    pub fn let_loose(&mut self, blocks: &[u32]) {
        self.lied = true;
        for block in blocks {
            (*block..*block + 8).for_each(|s| self.oracle.suspect(s));
            self.loose.push(*block);
        }
    }

    /// Compares the core alone with the oracle; nothing may be under way.
    ///
    /// # Errors
    /// The first sector that is not as it may be.
    pub fn check_core(&mut self) -> Result<(), Wrong> {
        let mut raw = [0; 512];
        for s in 0..self.exported {
            if self.oracle.is_interesting(s) {
                self.core.peek(u64::from(s) * 512, &mut raw);
                if let Some(v) = self.oracle.see(s, stamp::read(&raw)) {
                    return Err(format!(
                        "the core alone holds {} in sector {}: {}",
                        v.got, v.sector, v.history
                    ));
                }
            }
        }
        self.marks.hit("core alone checked");
        Ok(())
    }
}
