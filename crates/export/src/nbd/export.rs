//! The server's description of the volume it serves.

use super::proto::{MAX_PAYLOAD, export};

/// One export: a volume under its name.
#[derive(Debug, Clone)]
pub struct Export {
    /// Its name; the empty name leads to it as well.
    pub name: String,
    /// Text for people.
    pub description: String,
    /// Bytes.
    pub size: u64,
    /// Smallest and only granularity of a request, in bytes: a power of two from 512 to 65,536.
    pub min_block: u32,
    /// The preferred size of a request, in bytes.
    pub preferred_block: u32,
    /// Largest read or write, in bytes.
    pub max_block: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Seeks are slow.
    pub rotational: bool,
    /// Zeroing costs less than writing zeros.
    pub fast_zero: bool,
}

impl Export {
    /// An export of `size` bytes with blocks of 512 B, 4 KiB preferred, and reads and writes up to 32 MiB.
    pub fn new(name: &str, size: u64) -> Export {
        Export {
            name: name.to_owned(),
            description: String::new(),
            size,
            min_block: 512,
            preferred_block: 4096,
            max_block: MAX_PAYLOAD,
            read_only: false,
            rotational: false,
            fast_zero: false,
        }
    }

    /// Raises the minimum to the core's logical block (bytes) and cuts the size to a multiple of it.
    pub fn with_min_block(mut self, min: u32) -> Export {
        self.min_block = min.next_power_of_two().clamp(512, 64 << 10);
        self.preferred_block = self.preferred_block.max(self.min_block);
        self.size -= self.size % u64::from(self.min_block);
        self
    }

    /// True if a client that asks for `name` means this export.
    pub fn answers_to(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }

    /// Transmission flags; `structured`: structured replies were negotiated.
    pub fn flags(&self, structured: bool) -> u16 {
        let mut f = export::HAS_FLAGS | export::SEND_FLUSH | export::CAN_MULTI_CONN | export::SEND_CACHE;
        if self.read_only {
            f |= export::READ_ONLY;
        } else {
            f |= export::SEND_FUA | export::SEND_TRIM | export::SEND_WRITE_ZEROES | export::SEND_FAST_ZERO;
        }
        if self.rotational {
            f |= export::ROTATIONAL;
        }
        if structured {
            f |= export::SEND_DF;
        }
        f
    }
}
