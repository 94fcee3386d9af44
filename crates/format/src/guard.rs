//! The start of every structure that can stand at the start of a device: marks by which other programs leave the device
//! alone (docs/format.md, "The guard").
//!
//! A structure is composed and read in its *plain* form, that of format version 1. On a device it has been *sealed* since
//! version 2: the guard, with its fields around it.

use loligo_block::{IoError, SECTOR, SyncIo, crc32c};

/// First bytes: what LVM1 wrote at the start of its members. No program uses such a device any more, and all that look for
/// free ones know it.
const LVM1: [u8; 4] = [b'H', b'M', 1, 0];
const MAGIC_AT: usize = 8;
const VERSION_AT: usize = 16;
const CRC_AT: usize = 20;
/// The byte at which programs that list devices look for LVM1's UUID: a word for people.
const TITLE_AT: usize = 44;
const TITLE: usize = 32;
/// The byte at which the plain form's fields begin.
const FIELDS: usize = 16;
/// Their byte when sealed.
const NEAR_AT: usize = 80;
/// The byte of those fields that have no room in the first sector.
const FAR_AT: usize = 512;
/// The first entry of a partition table: 7 sectors from sector 1 on, of a type that means no file system.
const ENTRY_AT: usize = 446;
const ENTRY: [u8; 16] = [0, 0, 2, 0, 0xda, 0, 8, 0, 1, 0, 0, 0, 7, 0, 0, 0];
const TABLE_MARK: [u8; 2] = [0x55, 0xaa];
/// Version of the sealed form.
const VERSION: u32 = 2;
/// Of the plain form where nothing is sealed: version 1, which wrote only that one.
const PLAIN_VERSION: u32 = 1;
const PLAIN_VERSION_AT: usize = 8;
const PLAIN_CRC_AT: usize = 12;

/// A kind of structure.
#[derive(Debug)]
pub struct Form {
    /// Its magic.
    pub magic: &'static [u8; 8],
    /// The name of the device's kind, for people, at most 32 bytes.
    pub title: &'static str,
    /// Bytes of it.
    pub len: usize,
    /// The plain form's fields up to here stay in the first sector; those behind follow it.
    pub near: usize,
}

/// The reason why bytes are none.
#[derive(Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// Without the magic.
    Absent,
    /// With a wrong checksum.
    Damaged,
    /// Of this later version.
    TooNew(u32),
}

/// The word of an unreadable copy about its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Says {
    /// Nothing: it was never written.
    Nothing,
    /// There was one.
    Damage,
    /// A later version wrote it.
    Later,
}

/// The copy that counts: the first of the highest generation, each with the one that it claims. A copy of a later version
/// counts like a sound one: what that version wrote last must not give way to what was there before it.
///
/// Nothing where there are no copies.
pub fn newest<T, E>(
    copies: impl IntoIterator<Item = (u64, Result<T, E>)>,
    says: impl Fn(&E) -> Says,
) -> Option<Result<T, E>> {
    let rank = |(claimed, copy): &(u64, Result<T, E>)| match copy {
        Ok(_) => (Says::Later, *claimed, false),
        Err(e) if says(e) == Says::Later => (Says::Later, *claimed, true),
        Err(e) => (says(e), 0, false),
    };
    let best = copies.into_iter().reduce(|best, next| if rank(&next) > rank(&best) { next } else { best });
    best.map(|(_, copy)| copy)
}

/// The places of two copies in the order in which they are written: the one that counts last, by the generation of each that
/// is sound. A write that is cut off, and one that fails again and again, must not meet the only sound copy. Of equals the one
/// at the start of the device is the last.
pub fn order(
    dev: &mut dyn SyncIo,
    places: [u64; 2],
    len: usize,
    generation: impl Fn(&[u8]) -> Option<u64>,
) -> [u64; 2] {
    let [start, end] = places;
    let mut sound = |at| {
        let mut raw = vec![0; len];
        dev.read_at(at, &mut raw).ok()?;
        generation(&raw)
    };
    if sound(end) > sound(start) { [start, end] } else { [end, start] }
}

fn half(raw: &[u8], at: usize) -> u32 {
    raw.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The bytes' checksum, the field at `at` counted as zero.
fn checksum(raw: &[u8], at: usize) -> u32 {
    let mut zeroed = raw.to_vec();
    zeroed[at..at + 4].fill(0);
    crc32c(&zeroed)
}

impl Form {
    /// True if `raw` begins as one of this kind does, in either form.
    pub fn begins(&self, raw: &[u8]) -> bool {
        raw.starts_with(self.magic) || self.is_sealed(raw)
    }

    fn is_sealed(&self, raw: &[u8]) -> bool {
        // By the magic alone: `wipefs` zeroes the mark of LVM1, and what is left is a damaged one of ours, not nobody's.
        raw.get(MAGIC_AT..MAGIC_AT + 8) == Some(self.magic)
    }

    /// Moves fields between the forms: how many bytes, where they are in the plain form, and where in the sealed one.
    fn moves(&self) -> [(usize, usize, usize); 2] {
        let far = self.len.saturating_sub(FAR_AT);
        [(self.near - FIELDS, FIELDS, NEAR_AT), (far, self.near, FAR_AT)]
    }

    /// A structure whose fields are in their places in `plain`, as it belongs on the device.
    pub fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let mut o = vec![0; self.len];
        o[..4].copy_from_slice(&LVM1);
        o[MAGIC_AT..MAGIC_AT + 8].copy_from_slice(self.magic);
        o[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
        o[TITLE_AT..TITLE_AT + TITLE].fill(b' ');
        o[TITLE_AT..TITLE_AT + self.title.len()].copy_from_slice(self.title.as_bytes());
        o[ENTRY_AT..ENTRY_AT + 16].copy_from_slice(&ENTRY);
        o[510..512].copy_from_slice(&TABLE_MARK);
        for (n, from, to) in self.moves() {
            o[to..to + n].copy_from_slice(&plain[from..from + n]);
        }
        let crc = checksum(&o, CRC_AT);
        o[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        o
    }

    /// The same for a place where no other program looks: in the plain form, which programs of version 1 find there, and refuse.
    pub fn unguarded(&self, plain: &[u8]) -> Vec<u8> {
        self.plain_of(plain, VERSION)
    }

    fn plain_of(&self, plain: &[u8], version: u32) -> Vec<u8> {
        let mut o = plain.to_vec();
        o[..8].copy_from_slice(self.magic);
        o[PLAIN_VERSION_AT..PLAIN_CRC_AT].copy_from_slice(&version.to_le_bytes());
        let crc = checksum(&o, PLAIN_CRC_AT);
        o[PLAIN_CRC_AT..FIELDS].copy_from_slice(&crc.to_le_bytes());
        o
    }

    /// Writes the copy `raw` to `at`, durably. If nothing of its kind is there, it appears whole or not at
    /// all: the sector with its magic comes last.
    ///
    /// # Errors
    /// Those of the device.
    pub fn put(&self, dev: &mut dyn SyncIo, at: u64, raw: &[u8]) -> Result<(), IoError> {
        let mut there = vec![0; raw.len()];
        if dev.read_at(at, &mut there).is_err() || !self.begins(&there) {
            let mut headless = raw.to_vec();
            headless[..SECTOR as usize].fill(0);
            dev.write_at(at, &headless)?;
            dev.flush()?;
        }
        dev.write_at(at, raw)?;
        dev.flush()
    }

    /// The plain form of what is on a device; `raw` may be anything.
    pub fn unseal(&self, raw: &[u8]) -> Result<Vec<u8>, Unsealed> {
        let raw = raw.get(..self.len).ok_or(Unsealed::Absent)?;
        let (crc_at, version_at, oldest) = if self.is_sealed(raw) {
            (CRC_AT, VERSION_AT, VERSION)
        } else if raw.starts_with(self.magic) {
            (PLAIN_CRC_AT, PLAIN_VERSION_AT, PLAIN_VERSION)
        } else {
            return Err(Unsealed::Absent);
        };
        if half(raw, crc_at) != checksum(raw, crc_at) {
            return Err(Unsealed::Damaged);
        }
        if !(oldest..=VERSION).contains(&half(raw, version_at)) {
            return Err(Unsealed::TooNew(half(raw, version_at)));
        }
        Ok(self.spread(raw))
    }

    /// The fields of `raw` at the places of the plain form, whether or not it is sound.
    pub fn spread(&self, raw: &[u8]) -> Vec<u8> {
        if !self.is_sealed(raw) {
            return raw.to_vec();
        }
        let mut plain = vec![0; self.len];
        for (n, to, from) in self.moves() {
            let bytes = raw.get(from..from + n).unwrap_or_default();
            plain[to..to + bytes.len()].copy_from_slice(bytes);
        }
        plain
    }

    /// A structure as version 1 wrote it.
    #[cfg(test)]
    pub fn plain(&self, sealed: &[u8]) -> Vec<u8> {
        self.plain_of(&self.unseal(sealed).expect("a sealed one"), PLAIN_VERSION)
    }
}

#[cfg(test)]
pub mod power {
    //! Loss of power at any moment of a change.

    use loligo_block::{IoError, SyncIo};

    /// A device that remembers what was written to it.
    #[derive(Debug)]
    pub struct Noted {
        bytes: Vec<u8>,
        writes: Vec<(usize, Vec<u8>)>,
    }

    impl SyncIo for Noted {
        fn size(&self) -> u64 {
            self.bytes.size()
        }
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
            self.bytes.read_at(offset, buf)
        }
        fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
            self.writes.push((offset as usize, data.to_vec()));
            self.bytes.write_at(offset, data)
        }
        fn flush(&mut self) -> Result<(), IoError> {
            Ok(())
        }
    }

    /// Changes `before`, and calls `see` with each device that a loss of power could leave: the writes up to one, and any of the sectors
    /// of that.
    pub fn cuts(before: &[u8], change: impl FnOnce(&mut Noted), mut see: impl FnMut(&mut Vec<u8>)) {
        let mut dev = Noted { bytes: before.to_vec(), writes: Vec::new() };
        change(&mut dev);
        let mut now = before.to_vec();
        for (at, data) in dev.writes {
            let was = now.clone();
            for mask in 0..1u32 << (data.len() / 512) {
                for (n, sector) in data.chunks(512).enumerate() {
                    let old = &was[at + n * 512..][..512];
                    let is = if mask & 1 << n != 0 { sector } else { old };
                    now[at + n * 512..][..512].copy_from_slice(is);
                }
                see(&mut now);
            }
            now[at..at + data.len()].copy_from_slice(&data);
        }
        assert!(now == dev.bytes, "the writes are the change");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: Form = Form { magic: b"LOLIGOXX", title: "loligo test", len: 4096, near: 256 };
    const SMALL: Form = Form { magic: b"LOLIGOYY", title: "loligo test", len: 512, near: 320 };

    #[test]
    fn every_field_comes_back_from_either_form() {
        for (form, fields) in [(LARGE, 16..3840), (SMALL, 16..320)] {
            let mut plain = vec![0; form.len];
            fields.for_each(|at| plain[at] = (at % 251) as u8 + 1);
            let sealed = form.seal(&plain);
            assert_eq!(form.unseal(&sealed).unwrap(), plain);
            let old = form.plain(&sealed);
            assert_eq!(form.unseal(&old).unwrap()[16..], plain[16..]);
            let unguarded = form.unguarded(&plain);
            assert_eq!(form.unseal(&unguarded).unwrap()[16..], plain[16..]);
            for other in [&old, &unguarded] {
                assert_eq!(form.seal(&form.unseal(other).unwrap()), sealed);
            }
            assert!(form.begins(&sealed) && form.begins(&old) && !form.begins(&plain));
            for at in 0..form.len {
                for good in [&sealed, &old, &unguarded] {
                    let mut broken = good.clone();
                    broken[at] ^= 1;
                    assert!(form.unseal(&broken).is_err(), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn marks_stand_where_others_look_for_them() {
        let sealed = SMALL.seal(&[0xff; 512]);
        assert_eq!(sealed[..16], *b"HM\x01\0\0\0\0\0LOLIGOYY");
        assert_eq!(&sealed[44..76], format!("{:32}", "loligo test").as_bytes());
        assert_eq!((&sealed[446..462], &sealed[510..]), (&ENTRY[..], &[0x55, 0xaa][..]));
    }

    #[test]
    fn a_true_lvm1_member_is_none_of_ours() {
        let mut raw = vec![0; 4096];
        raw[..4].copy_from_slice(&LVM1);
        assert_eq!(LARGE.unseal(&raw), Err(Unsealed::Absent));
        assert_eq!(LARGE.unseal(&[]), Err(Unsealed::Absent));
    }

    #[test]
    fn a_later_version_is_no_damage() {
        let mut raw = LARGE.seal(&[0; 4096]);
        raw[VERSION_AT] = 3;
        let crc = checksum(&raw, CRC_AT);
        raw[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(LARGE.unseal(&raw), Err(Unsealed::TooNew(3)));
        assert_eq!(LARGE.unseal(&LARGE.plain_of(&[0; 4096], 3)), Err(Unsealed::TooNew(3)));
    }
}
