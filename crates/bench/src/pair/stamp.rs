//! The content of a block: it says which it is and which write wrote it, with a sum over everything.

use crate::rng::SplitMix64;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;
const MAGIC: [u8; 8] = *b"LoliStmp";
/// Bytes before the filling.
const HEAD: usize = 40;
/// Bytes before the sum.
const SUMMED: usize = BLOCK - 4;

/// The name of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The client's run.
    pub(crate) run: u64,
    /// The number of the image in it.
    pub(crate) image: u64,
    /// The block of the image.
    pub(crate) block: u64,
    /// The number of the write to this block, from 1.
    pub(crate) sequence: u64,
}

impl Stamp {
    /// The block's content.
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        bytes[..8].copy_from_slice(&MAGIC);
        let words = [self.run, self.image, self.block, self.sequence];
        for (at, word) in words.into_iter().enumerate() {
            bytes[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_le_bytes());
        }
        let mut rng = SplitMix64::new(
            self.run ^ self.block.rotate_left(20) ^ self.sequence.rotate_left(44) ^ self.image,
        );
        for piece in bytes[HEAD..SUMMED].chunks_mut(8) {
            piece.copy_from_slice(&rng.next_u64().to_le_bytes()[..piece.len()]);
        }
        let sum = crc32c::crc32c(&bytes[..SUMMED]);
        bytes[SUMMED..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The write that wrote `bytes`; nothing: none has, or not whole.
    pub(crate) fn of(bytes: &[u8]) -> Option<Stamp> {
        let sum = crc32c::crc32c(bytes.get(..SUMMED)?);
        if bytes.len() != BLOCK || bytes[..8] != MAGIC || bytes[SUMMED..] != sum.to_le_bytes() {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Some(Stamp { run: word(8), image: word(16), block: word(24), sequence: word(32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_names_its_write_and_a_changed_one_none() {
        let stamp = Stamp { run: 7, image: 1, block: 4711, sequence: 3 };
        let bytes = stamp.content();
        assert_eq!(Stamp::of(&bytes), Some(stamp));
        for at in [0, 9, 33, 2000, BLOCK - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Stamp::of(&changed), None, "byte {at}");
        }
        let mut torn = bytes.clone();
        torn[2048..].copy_from_slice(&Stamp { sequence: 4, ..stamp }.content()[2048..]);
        assert_eq!(Stamp::of(&torn), None, "half of another write");
        assert_eq!(Stamp::of(&vec![0; BLOCK]), None);
    }
}
