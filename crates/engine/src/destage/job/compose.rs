//! The form of a window's blocks on their way to the core: runs of neighbours, or a span with the core's own content between them.

use super::{CoreWrite, Job, Piece};
use loligo_block::Buf;
use loligo_format::units::{ALL, BLOCK, Stripe};

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

impl Job {
    /// Joins neighbouring whole blocks into runs; a block with only some sectors goes by its sector runs. `order`: where the write of a
    /// block comes that goes by itself.
    pub(super) fn compose<K: Ord>(&mut self, (stripe, data_length): (Stripe, u64), order: impl Fn(u32) -> K) {
        let mut writes = Vec::new();
        let mut i = 0;
        while i < self.pieces.len() {
            let whole = |p: &Piece| p.usable() && (p.meta.valid == ALL || p.filler);
            let p = &self.pieces[i];
            let at = stripe.global(p.block) * BLOCK;
            if !p.usable() {
                i += 1;
            } else if whole(p) {
                let mut j = i + 1;
                while j < self.pieces.len()
                    && !self.apart
                    && whole(&self.pieces[j])
                    && self.pieces[j].block == self.pieces[j - 1].block + 1
                {
                    j += 1;
                }
                // Fillers at either end bridge nothing (what they led to may have turned out bad).
                let (mut a, mut b) = (i, j);
                while a < b && self.pieces[a].filler && !self.probe {
                    a += 1;
                }
                while b > a && self.pieces[b - 1].filler && !self.probe {
                    b -= 1;
                }
                if a < b {
                    let at = stripe.global(self.pieces[a].block) * BLOCK;
                    let mut run = joined(&mut self.pieces[a..b]);
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
        if self.apart {
            writes.sort_by_key(|w| order(stripe.local(w.at / BLOCK)));
        }
        self.writes = writes;
    }
}
