//! The content that a volume may have: for each 4 KiB block the newest version that was acknowledged and the newest that was sent.

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;

/// Versions of all blocks; 0: never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shadow {
    pub(crate) acked: Vec<u32>,
    pub(crate) sent: Vec<u32>,
}

impl Shadow {
    /// Of a volume of `bytes` zeros.
    pub(crate) fn new(bytes: u64) -> Shadow {
        let blocks = bytes as usize / BLOCK;
        Shadow { acked: vec![0; blocks], sent: vec![0; blocks] }
    }

    /// The volume has so many bytes from now on: what is new are zeros, and what is gone is forgotten.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let blocks = bytes as usize / BLOCK;
        self.acked.resize(blocks, 0);
        self.sent.resize(blocks, 0);
    }

    /// Checks that each block of `image` is whole, no older than `from` had acknowledged and no newer than `to` had sent.
    /// Gives the versions that are there.
    pub(crate) fn check(image: &[u8], from: &Shadow, to: &Shadow) -> Result<Vec<u32>, String> {
        if image.len() != from.acked.len() * BLOCK {
            return Err(format!("{} bytes, {} blocks expected", image.len(), from.acked.len()));
        }
        let mut wrong = Vec::new();
        let mut versions = Vec::new();
        for (n, data) in image.chunks_exact(BLOCK).enumerate() {
            let (oldest, newest) = (from.acked[n], to.sent[n]);
            match version(n, data) {
                Ok(v) if (oldest..=newest).contains(&v) => versions.push(v),
                Ok(v) => wrong.push(format!("block {n}: version {v}, {oldest} to {newest} allowed")),
                Err(why) => wrong.push(format!("block {n}: {why}")),
            }
        }
        if wrong.is_empty() {
            return Ok(versions);
        }
        Err(format!(
            "{} of {} blocks: {}",
            wrong.len(),
            from.acked.len(),
            wrong[..wrong.len().min(4)].join("; ")
        ))
    }

    /// Checks an image that holds what this shadow allows.
    pub(crate) fn holds(&self, image: &[u8]) -> Result<Vec<u32>, String> {
        Shadow::check(image, self, self)
    }

    /// Checks an image that may lack any of what was written. Gives what is there.
    pub(crate) fn holds_at_most(&self, image: &[u8]) -> Vec<u32> {
        let nothing = Shadow::new(image.len() as u64);
        Shadow::check(image, &nothing, self).unwrap_or_else(|e| panic!("{e}"))
    }

    /// From now on exactly these versions.
    pub(crate) fn settle(&mut self, versions: Vec<u32>) {
        self.acked.clone_from(&versions);
        self.sent = versions;
    }
}

/// The content of a version of a block.
pub(crate) fn content(block: usize, version: u32) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK];
    }
    let mut word = (block as u64) << 32 | u64::from(version);
    let mut out = Vec::with_capacity(BLOCK);
    out.extend_from_slice(&word.to_le_bytes());
    while out.len() < BLOCK {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(&(word ^ word >> 29).to_le_bytes());
    }
    out
}

fn version(block: usize, data: &[u8]) -> Result<u32, String> {
    let first = u64::from_le_bytes(data[..8].try_into().expect("of 8"));
    let (whose, version) = ((first >> 32) as usize, first as u32);
    if data == content(block, version) {
        return Ok(version);
    }
    Err(format!("torn or misplaced (begins as version {version} of block {whose})"))
}
