//! Content that names the write it came from: every sector of every write is unlike any other sector ever written.

/// Bytes in a sector.
pub const SECTOR: usize = 512;

/// Names a write of the workload; 0 is "zeros", never a write.
pub type WriteId = u32;

/// The content of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing but zeros.
    Zero,
    /// All of what write `id` put at `sector`.
    Write {
        /// The write.
        id: WriteId,
        /// The sector of the volume it was meant for.
        sector: u32,
    },
    /// Neither: mixed, flipped or foreign bytes.
    Garbage,
}

fn word(head: u64, i: u64) -> u64 {
    (head ^ i).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ head
}

/// Fills one sector with the content of write `id` at `sector`.
pub fn fill(out: &mut [u8], id: WriteId, sector: u32) {
    let head = u64::from(id) << 32 | u64::from(sector);
    for (i, w) in out.chunks_exact_mut(8).enumerate() {
        let v = if i == 0 { head } else { word(head, i as u64) };
        w.copy_from_slice(&v.to_le_bytes());
    }
}

/// Reads what one sector holds.
pub fn read(raw: &[u8]) -> Content {
    let at = |i: usize| raw[i * 8..i * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
    let head = at(0);
    let words = raw.len() / 8;
    if head == 0 {
        return if (1..words).all(|i| at(i) == 0) { Content::Zero } else { Content::Garbage };
    }
    if (1..words).all(|i| at(i) == word(head, i as u64)) {
        Content::Write { id: (head >> 32) as WriteId, sector: head as u32 }
    } else {
        Content::Garbage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_names_its_write_and_a_flipped_bit_makes_it_garbage() {
        let mut s = [0u8; SECTOR];
        assert_eq!(read(&s), Content::Zero);
        fill(&mut s, 9, 1234);
        assert_eq!(read(&s), Content::Write { id: 9, sector: 1234 });
        for bit in 64..SECTOR * 8 {
            s[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&s), Content::Garbage);
            s[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
