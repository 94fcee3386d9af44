//! The form of a window's blocks on their way to the core: runs of neighbours, or a span with the core's own content between them.

use super::{CoreWrite, Piece};
use crate::engine::Engine;
use loligo_block::Buf;
use loligo_format::units::{ALL, BLOCK};

/// The content of neighbouring blocks; that of a single one is not copied.
fn joined(pieces: &mut [Piece]) -> Buf {
    if let [only] = pieces {
        return only.buf.take().expect("read and good");
    }
    let mut run = Buf::alloc(pieces.len() * BLOCK as usize);
    for (chunk, p) in run.chunks_exact_mut(BLOCK as usize).zip(pieces) {
        chunk.copy_from_slice(p.buf.as_deref().expect("read and good"));
    }
    run
}

impl Engine {
    /// Joins neighbouring whole blocks into runs; a block with only some sectors goes by its sector runs.
    pub(super) fn compose_runs(&mut self, key: usize) {
        let (stripe, data_length) = (self.cfg.stripe, self.cfg.data_length);
        let waited = self.intake.waited_by(&self.destage.jobs[key].tasks);
        let stuck = &self.destage.stuck;
        let job = &mut self.destage.jobs[key];
        // One that is being evicted would not be there any more if the core refused it.
        for p in job.pieces.iter_mut().filter(|p| p.filler && self.space.policy.state(p.meta.slot) == 0) {
            p.superseded = true;
        }
        let mut writes = Vec::new();
        let mut i = 0;
        while i < job.pieces.len() {
            let whole = |p: &Piece| p.usable() && (p.meta.valid == ALL || p.filler);
            let p = &job.pieces[i];
            let at = stripe.global(p.block) * BLOCK;
            if !p.usable() {
                i += 1;
            } else if whole(p) {
                let mut j = i + 1;
                while j < job.pieces.len()
                    && !job.apart
                    && whole(&job.pieces[j])
                    && job.pieces[j].block == job.pieces[j - 1].block + 1
                {
                    j += 1;
                }
                // Fillers at either end bridge nothing (what they led to may have turned out bad).
                let (mut a, mut b) = (i, j);
                while a < b && job.pieces[a].filler && !job.probe {
                    a += 1;
                }
                while b > a && job.pieces[b - 1].filler && !job.probe {
                    b -= 1;
                }
                if a < b {
                    let at = stripe.global(job.pieces[a].block) * BLOCK;
                    let mut run = joined(&mut job.pieces[a..b]);
                    run.truncate((data_length - at).min(run.len() as u64) as usize);
                    writes.push(CoreWrite::new(at, run.freeze()));
                }
                i = j;
            } else {
                let data = p.buf.as_deref().expect("read and good");
                let mut s = 0usize;
                while s < 8 {
                    let mut e = s;
                    while e < 8 && p.meta.dirty & (1 << e) != 0 {
                        e += 1;
                    }
                    if e > s {
                        let sectors = Buf::copy_of(&data[s * 512..e * 512]).freeze();
                        writes.push(CoreWrite::new(at + s as u64 * 512, sectors));
                    }
                    s = e.max(s + 1);
                }
                i += 1;
            }
        }
        if job.apart {
            // Those that somebody waits for come first, those that failed before last: the others are not to wait behind them where
            // the job is given up.
            let is_waited = |b: u32| waited.iter().any(|blocks| blocks.contains(&b));
            let place = |block: u32| (!is_waited(block), stuck.is_refused(block));
            writes.sort_by_key(|w| place(stripe.local(w.at / BLOCK)));
        }
        job.writes = writes;
    }
}
