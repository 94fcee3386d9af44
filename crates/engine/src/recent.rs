//! The dirty versions that may not be durable on the cache yet.

/// In which journal frame blocks last became dirty. A block may seem newer than it is, never older.
#[derive(Debug)]
pub(crate) struct Recent {
    frames: Vec<u64>,
}

impl Recent {
    /// For `slots` slots, with `most` places, hashed, so that two blocks may share one: nothing is recent, as after recovery,
    /// which makes durable what it finds.
    pub(crate) fn new(slots: u32, most: usize) -> Recent {
        Recent { frames: vec![0; (slots as usize).next_power_of_two().min(most)] }
    }

    fn place(&self, block: u32) -> usize {
        // Neighbours keep apart.
        block as usize & (self.frames.len() - 1)
    }

    /// A version of `block` that frame `seq` speaks of became the newest.
    #[inline]
    pub(crate) fn note(&mut self, block: u32, seq: u64) {
        let place = self.place(block);
        self.frames[place] = seq;
    }

    /// No version of `block` is of a later frame than this one.
    pub(crate) fn frame(&self, block: u32) -> u64 {
        self.frames[self.place(block)]
    }

    /// RAM held, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.len() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn a_block_may_seem_newer_than_it_is_but_never_older() {
        let mut r = Recent::new(1000, 1 << 18);
        for seq in 1..5000u64 {
            let block = (seq * 7919 % 100_000) as u32;
            r.note(block, seq);
            assert_eq!(r.frame(block), seq);
            assert!(r.frame(block + 1024) >= seq);
        }
        assert_eq!(Recent::new(1000, 8).frame(77), 0);
    }
}
