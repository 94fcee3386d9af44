//! The parameters of a volume for the block layer.

use super::uapi::{self, Parameters};
use crate::nbd::Export;

/// The largest read or write, bytes: a window of the engine.
pub(super) const MOST_BYTES: u32 = 1 << 20;
/// The largest discard or zeroing, bytes: larger ones come in pieces, so that one of a whole disk does not fill the queues of
/// its volume.
const MOST_CLEARED: u32 = 256 << 20;
const SECTOR_SHIFT: u32 = 9;

/// A volume as a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traits {
    /// Bytes.
    pub size: u64,
    /// Smallest unit of a request, bytes: 512 to 4,096.
    pub logical_block: u32,
    /// Bytes that are written without reading first.
    pub physical_block: u32,
    /// Seeks are slow.
    pub rotational: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// Answered writes may be lost with the power until a flush: the kernel drops the flushes of a device that does not
    /// say so.
    pub volatile: bool,
}

impl Traits {
    /// Those of `export`, over blocks of `physical` bytes.
    pub fn new(export: &Export, physical: u32, volatile: bool) -> Traits {
        let logical_block = export.min_block;
        Traits {
            size: export.size,
            logical_block,
            physical_block: physical.next_power_of_two().max(logical_block),
            rotational: export.rotational,
            read_only: export.read_only,
            volatile,
        }
    }

    /// Bytes that its users see.
    pub(super) fn bytes(&self) -> u64 {
        self.size >> SECTOR_SHIFT << SECTOR_SHIFT
    }

    pub(super) fn parameters(&self) -> Parameters {
        let attrs = [
            (self.read_only, uapi::ATTR_READ_ONLY),
            (self.rotational, uapi::ATTR_ROTATIONAL),
            (self.volatile, uapi::ATTR_VOLATILE_CACHE | uapi::ATTR_FUA),
        ];
        let shift = |bytes: u32| bytes.trailing_zeros() as u8;
        let cleared = if self.read_only { 0 } else { MOST_CLEARED >> SECTOR_SHIFT };
        Parameters {
            len: size_of::<Parameters>() as u32,
            types: uapi::PARAM_BASIC | uapi::PARAM_DISCARD,
            attrs: attrs.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag),
            logical_shift: shift(self.logical_block),
            physical_shift: shift(self.physical_block),
            io_opt_shift: shift(self.physical_block),
            io_min_shift: shift(self.physical_block),
            max_sectors: MOST_BYTES >> SECTOR_SHIFT,
            sectors: self.size >> SECTOR_SHIFT,
            discard_granularity: self.logical_block,
            max_discard_sectors: cleared,
            max_zero_sectors: cleared,
            max_discard_segments: 1,
            ..Parameters::default()
        }
    }

    /// The changes that users of a device made with `then` would find; nothing where that is nothing they rely on.
    pub(super) fn differs(&self, then: &Parameters) -> Option<String> {
        let now = self.parameters();
        let bytes = then.sectors << SECTOR_SHIFT;
        if now.sectors < then.sectors {
            return Some(format!("it has {bytes} bytes and the volume {} now", self.size));
        }
        if now.logical_shift > then.logical_shift {
            return Some(format!(
                "its blocks have {} bytes and those of the volume {} now",
                1u32 << then.logical_shift,
                self.logical_block
            ));
        }
        // Its users' flushes would not arrive.
        if self.volatile && then.attrs & uapi::ATTR_VOLATILE_CACHE == 0 {
            return Some("it was made for a cache device without a volatile cache of its own".to_owned());
        }
        None
    }

    /// True if a device made with `then` is the same in everything.
    pub(super) fn same(&self, then: &Parameters) -> bool {
        let now = self.parameters();
        (now.attrs, now.sectors, now.logical_shift, now.physical_shift)
            == (then.attrs, then.sectors, then.logical_shift, then.physical_shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits() -> Traits {
        Traits::new(&Export::new("vol", 1 << 30).with_min_block(512), 4096, true)
    }

    #[test]
    fn a_volume_says_whether_it_may_lose_what_it_answered() {
        let flags = uapi::ATTR_VOLATILE_CACHE | uapi::ATTR_FUA;
        assert_eq!(traits().parameters().attrs, flags);
        assert_eq!(Traits { volatile: false, ..traits() }.parameters().attrs, 0);
        assert_eq!(Traits { rotational: true, ..traits() }.parameters().attrs, flags | uapi::ATTR_ROTATIONAL);
        let p = traits().parameters();
        assert_eq!((p.logical_shift, p.physical_shift, p.sectors), (9, 12, 1 << 21));
    }

    #[test]
    fn a_device_whose_users_would_be_deceived_is_not_taken_up_again() {
        let then = traits().parameters();
        assert_eq!(traits().differs(&then), None);
        assert!(traits().same(&then));
        let grown = Traits { size: 2 << 30, ..traits() };
        assert_eq!(grown.differs(&then), None);
        assert!(!grown.same(&then));
        let shrunk = Traits { size: 1 << 29, ..traits() };
        assert!(shrunk.differs(&then).is_some_and(|why| why.contains("536870912")));
        let coarse = Traits { logical_block: 4096, ..traits() };
        assert!(coarse.differs(&then).is_some_and(|why| why.contains("4096")));
        let steady = Traits { volatile: false, ..traits() }.parameters();
        assert!(traits().differs(&steady).is_some_and(|why| why.contains("volatile")));
    }
}
