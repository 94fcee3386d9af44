//! The head of a masked device in its own place: behind the label's sector, and so that nobody who looks for its words
//! finds them.

use super::{HEAD, LABEL};
use crate::crc32c;

/// Offset of the head's bytes in the block.
const BYTES_AT: usize = LABEL + 8;
/// Most bytes of a head, not counting the zeros at its end.
pub const MOST: usize = HEAD as usize - BYTES_AT;

/// Puts `head` into `block`, behind the label. True if it has room there: of its 4,096 bytes all beyond [`MOST`] must be zero.
///
/// # Panics
/// If either is not 4,096 bytes.
pub fn pack(head: &[u8], block: &mut [u8]) -> bool {
    assert!(head.len() == HEAD as usize && block.len() == HEAD as usize, "a head is one block");
    let used = head.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    if used > MOST {
        return false;
    }
    block[LABEL..].fill(0);
    block[LABEL..LABEL + 4].copy_from_slice(&(used as u32).to_le_bytes());
    block[LABEL + 4..BYTES_AT].copy_from_slice(&crc32c(head).to_le_bytes());
    block[BYTES_AT..].iter_mut().zip(&head[..used]).for_each(|(to, from)| *to = !from);
    true
}

/// The head in `block`; nothing where it is damaged, or there is none.
pub fn unpack(block: &[u8]) -> Option<Vec<u8>> {
    let half = |at: usize| Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?));
    let (used, sum) = (half(LABEL)? as usize, half(LABEL + 4)?);
    if used > MOST || block.len() != HEAD as usize {
        return None;
    }
    let mut head = vec![0; HEAD as usize];
    head.iter_mut().zip(&block[BYTES_AT..BYTES_AT + used]).for_each(|(to, from)| *to = !from);
    let rest = block[BYTES_AT + used..].iter().all(|b| *b == 0);
    (rest && crc32c(&head) == sum).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SIGNATURE_PROBE, foreign_signature};

    fn head(used: usize) -> Vec<u8> {
        let mut head = vec![0; HEAD as usize];
        head[..used].iter_mut().zip(1u8..=255).for_each(|(b, n)| *b = n.max(1));
        (0..used).for_each(|i| head[i] = (i % 251) as u8 + 1);
        head
    }

    #[test]
    fn a_head_comes_back_as_it_was_and_damage_anywhere_is_seen() {
        for used in [0, 1, 900, MOST] {
            let mut block = vec![7; HEAD as usize];
            assert!(pack(&head(used), &mut block));
            assert_eq!(block[..LABEL], [7; LABEL], "the label is somebody else's");
            assert_eq!(unpack(&block).unwrap(), head(used));
            for at in LABEL..HEAD as usize {
                let mut broken = block.clone();
                broken[at] ^= 1;
                assert_eq!(unpack(&broken), None, "{used} bytes, byte {at}");
            }
        }
        assert!(!pack(&head(MOST + 1), &mut vec![0; HEAD as usize]), "it has no room");
        assert_eq!(unpack(&[0; 600]), None);
    }

    #[test]
    fn nobody_who_looks_for_the_heads_words_finds_them() {
        let mut full = head(MOST);
        full[..22].copy_from_slice(b"bluestore block device");
        full[512..520].copy_from_slice(b"LABELONE");
        full[1024..1032].copy_from_slice(b"LABELONE");
        let mut block = vec![0; HEAD as usize];
        assert!(pack(&full, &mut block));
        assert!(!block.windows(8).any(|w| w == b"LABELONE" || w == b"bluestor"));
        block.resize(SIGNATURE_PROBE, 0);
        assert_eq!(foreign_signature(&block), Some("unknown data"));
    }
}
