//! The bytes of a virtual medium, kept sparsely: a page exists once something was written to it.

const PAGE: usize = 16 << 10;

/// A run of bytes, zeros where never written.
#[derive(Debug, Clone)]
pub struct Store {
    pages: Vec<Option<Box<[u8]>>>,
}

impl Store {
    /// `size` zero bytes.
    pub fn new(size: u64) -> Store {
        Store { pages: vec![None; (size as usize).div_ceil(PAGE)] }
    }

    fn each(offset: u64, len: usize, mut f: impl FnMut(usize, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < len {
            let at = offset as usize + done;
            let n = (PAGE - at % PAGE).min(len - done);
            f(at / PAGE, at % PAGE, done..done + n);
            done += n;
        }
    }

    /// Fills `out` from `offset`.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        Store::each(offset, out.len(), |page, at, part| {
            let out = &mut out[part];
            match &self.pages[page] {
                Some(p) => out.copy_from_slice(&p[at..at + out.len()]),
                None => out.fill(0),
            }
        });
    }

    /// Writes `data` at `offset`.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        Store::each(offset, data.len(), |page, at, part| {
            let page = self.pages[page].get_or_insert_with(|| vec![0; PAGE].into());
            page[at..at + part.len()].copy_from_slice(&data[part]);
        });
    }

    /// Makes `len` bytes at `offset` zero.
    pub fn zero(&mut self, offset: u64, len: u64) {
        Store::each(offset, len as usize, |page, at, part| match &mut self.pages[page] {
            slot if part.len() == PAGE => *slot = None,
            Some(p) => p[at..at + part.len()].fill(0),
            None => {}
        });
    }

    /// Inverts bit `bit` of the byte at `offset`.
    pub fn flip(&mut self, offset: u64, bit: u32) {
        let mut b = [0];
        self.read(offset, &mut b);
        self.write(offset, &[b[0] ^ (1 << (bit % 8))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_across_pages_are_read_back_and_the_rest_is_zero() {
        let mut s = Store::new(1 << 20);
        let data: Vec<u8> = (0..40_000).map(|i| (i % 251) as u8 + 1).collect();
        s.write(16_000, &data);
        let mut got = vec![9; 60_000];
        s.read(10_000, &mut got);
        assert!(
            got[..6000].iter().all(|b| *b == 0)
                && got[6000..46_000] == data[..]
                && got[46_000..].iter().all(|b| *b == 0)
        );
        s.zero(16_384, 20_000);
        s.read(10_000, &mut got);
        assert!(got[6384..26_384].iter().all(|b| *b == 0) && got[6000..6384] == data[..384]);
        assert_eq!(got[26_384..46_000], data[20_384..]);
    }
}
