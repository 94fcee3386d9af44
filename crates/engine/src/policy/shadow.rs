//! A miniature of the cache that sees a sample of the keys: what another share of the small queue would miss.

use super::s3::S3;

const EMPTY: u16 = u16::MAX;

/// A cache of keys alone.
#[derive(Debug)]
pub struct Shadow {
    policy: S3,
    keys: Vec<u32>,
    /// Open addressing, twice as many places as keys or more.
    table: Vec<u16>,
    used: u32,
    /// Misses since [`Shadow::take_misses`].
    misses: u32,
}

impl Shadow {
    /// A cache of `capacity` keys (below 32,768), of which the small queue takes `share_permille`.
    pub fn new(capacity: u32, share_permille: u32) -> Shadow {
        Shadow {
            policy: S3::new(capacity, share_permille),
            keys: vec![0; capacity as usize],
            table: vec![EMPTY; (2 * capacity as usize).next_power_of_two()],
            used: 0,
            misses: 0,
        }
    }

    fn slot(&self, key: u32) -> usize {
        (key.wrapping_mul(0x9e37_79b1) >> 8) as usize & (self.table.len() - 1)
    }

    fn find(&self, key: u32) -> Result<u32, usize> {
        let mut at = self.slot(key);
        loop {
            match self.table[at] {
                EMPTY => return Err(at),
                id if self.keys[usize::from(id)] == key => return Ok(u32::from(id)),
                _ => at = (at + 1) & (self.table.len() - 1),
            }
        }
    }

    fn forget(&mut self, key: u32) {
        let mask = self.table.len() - 1;
        let mut hole = self.slot(key);
        while self.table[hole] == EMPTY || self.keys[usize::from(self.table[hole])] != key {
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let id = self.table[at];
            if id == EMPTY {
                break;
            }
            // Entries that may not sit before their own place stay; the others close the hole.
            let home = self.slot(self.keys[usize::from(id)]);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.table[hole] = id;
                hole = at;
            }
        }
        self.table[hole] = EMPTY;
    }

    /// One access.
    pub fn access(&mut self, key: u32) {
        if let Ok(id) = self.find(key) {
            self.policy.hit(id);
            return;
        }
        self.misses += 1;
        let id = if (self.used as usize) < self.keys.len() {
            self.used += 1;
            self.used - 1
        } else {
            let keys = &self.keys;
            let Some(id) = self.policy.victim(|id| Some(u64::from(keys[id as usize]))) else { return };
            self.forget(self.keys[id as usize]);
            id
        };
        if let Err(at) = self.find(key) {
            self.keys[id as usize] = key;
            self.table[at] = id as u16;
            self.policy.insert(id, u64::from(key));
        }
    }

    /// Misses since the last call.
    pub fn take_misses(&mut self) -> u32 {
        std::mem::take(&mut self.misses)
    }

    /// RAM held, in bytes.
    pub fn bytes(&self) -> usize {
        self.policy.bytes() + self.keys.len() * 4 + self.table.len() * 2 + size_of::<Shadow>()
    }
}
