//! The label at the start of a core whose content begins behind it: a raw disk that shows nobody's signature but ours, and
//! remembers which cache may hold what it lacks (docs/format.md, section 11).

use crate::guard::{Form, newest, order};
use crate::in_place_label;
use crate::record::u32_at;
use crate::superblock::{SUPERBLOCK, SuperError};
use crate::units::is_counted;
use loligo_block::{IoError, SyncIo};

/// Bytes of one copy.
const LABEL: usize = SUPERBLOCK;
const FORM: Form =
    Form { magic: b"LOLIGOHM", title: "loligo core, do not overwrite", len: LABEL, near: NAME_AT };
/// The bytes at which the two copies lie. The first is where signatures of file systems, LVM and BlueStore
/// would lie.
const COPIES: [u64; 2] = [0, 512 << 10];
/// Least bytes before the content: both copies and room for more.
pub const MIN_HOME: u64 = 1 << 20;
/// Most of them.
pub const MAX_HOME: u64 = 1 << 30;
/// Longest name.
const TEXT: usize = 252;
const NAME_AT: usize = 256;

/// A label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreLabel {
    /// One up with every write of it.
    pub generation: u64,
    /// The cache that the core belongs to.
    pub cache: [u8; 16],
    /// The volume's name.
    pub name: String,
    /// First byte of the content; 0 where the label stands in its first sector ([`crate::in_place_label`]).
    pub data_start: u64,
    /// Bytes that the core lacks; nothing: not known, because it is served, or was not stopped cleanly.
    pub dirty_bytes: Option<u64>,
    /// While that is not known: the core has everything all the same. The cache had nothing for itself when it was opened, and has been in
    /// a mode ever since in which it gets nothing.
    pub through: bool,
}

impl CoreLabel {
    /// The cache's name in hexadecimal digits.
    pub fn cache_text(&self) -> String {
        self.cache.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Bytes that the core lacks, by what is known of them and by the mode; nothing: not known.
    pub fn lacks(&self) -> Option<u64> {
        self.dirty_bytes.or(self.through.then_some(0))
    }

    /// The bytes of the copy at the start.
    pub fn encode(&self) -> Vec<u8> {
        FORM.seal(&self.fields())
    }

    /// The bytes of one at `at`. Only those at the start are where other programs look.
    fn copy_at(&self, at: u64) -> Vec<u8> {
        if at == 0 { self.encode() } else { FORM.unguarded(&self.fields()) }
    }

    fn fields(&self) -> Vec<u8> {
        let mut o = begin(LABEL, self);
        o[40..48].copy_from_slice(&self.data_start.to_le_bytes());
        o[48..56].copy_from_slice(&self.dirty_bytes.unwrap_or(0).to_le_bytes());
        o[56] = u8::from(self.dirty_bytes.is_some());
        o[57] = u8::from(self.through);
        named(o, NAME_AT, &self.name)
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// [`SuperError`]; `raw` may be anything.
    pub fn decode(raw: &[u8]) -> Result<CoreLabel, SuperError> {
        let Common { raw, generation, cache, name } = common(raw, &FORM, NAME_AT)?;
        let data_start = word(&raw, 40);
        if !(MIN_HOME..=MAX_HOME).contains(&data_start) || !data_start.is_multiple_of(MIN_HOME) {
            return Err(damaged("home"));
        }
        let dirty_bytes = (raw[56] != 0).then(|| word(&raw, 48));
        Ok(CoreLabel { generation, cache, name, data_start, dirty_bytes, through: raw[57] != 0 })
    }

    /// The newest valid copy on a core, or the label of one whose content begins at byte 0.
    ///
    /// # Errors
    /// [`SuperError::Absent`] only where neither place holds the magic.
    pub fn load(core: &mut dyn SyncIo) -> Result<CoreLabel, SuperError> {
        let mut copies = Vec::new();
        for at in COPIES {
            if at + LABEL as u64 > core.size() {
                continue;
            }
            let mut raw = vec![0; LABEL];
            match core.read_at(at, &mut raw) {
                Ok(()) => {}
                // Without the first nobody knows whether the other is a copy or content.
                Err(e) if at == 0 || e.is_final() => return Err(e.into()),
                Err(e) => {
                    copies.push((0, Err(e.into())));
                    continue;
                }
            }
            if at == 0 && in_place_label::is_label(&raw) {
                // The other place is the content's.
                return in_place_label::decode(&raw);
            }
            copies.push((word(&FORM.spread(&raw), 16), CoreLabel::decode(&raw)));
        }
        newest(copies, SuperError::says).unwrap_or(Err(SuperError::Absent))
    }

    /// Writes both copies, one after the other, so that one of them is whole at any time: the one that counts
    /// is the last.
    ///
    /// # Errors
    /// Those of the device.
    pub fn store(&mut self, core: &mut dyn SyncIo) -> Result<(), IoError> {
        let places = order(core, COPIES, LABEL, |raw| Some(CoreLabel::decode(raw).ok()?.generation));
        self.generation += 1;
        places.into_iter().try_for_each(|at| FORM.put(core, at, &self.copy_at(at)))
    }

    /// Takes the label away from a core; with that of a core whose content begins at byte 0, its first block.
    ///
    /// # Errors
    /// Those of the device.
    pub fn wipe(core: &mut dyn SyncIo) -> Result<(), IoError> {
        let mut first = vec![0; LABEL];
        core.read_at(0, &mut first)?;
        let copies = if in_place_label::is_label(&first) { &COPIES[..1] } else { &COPIES };
        for at in copies {
            core.write_at(*at, &[0; LABEL])?;
            core.flush()?;
        }
        Ok(())
    }
}

/// True if a device that begins with `raw` has a label before its content, sound or not.
pub fn is_label(raw: &[u8]) -> bool {
    FORM.begins(raw)
}

/// The start of every kind of label, in its plain form.
pub(crate) fn begin(len: usize, label: &CoreLabel) -> Vec<u8> {
    let mut o = vec![0u8; len];
    o[16..24].copy_from_slice(&label.generation.to_le_bytes());
    o[24..40].copy_from_slice(&label.cache);
    o
}

/// The label with the volume's name, as much of it as has room.
pub(crate) fn named(mut o: Vec<u8>, name_at: usize, name: &str) -> Vec<u8> {
    let name = name.as_bytes();
    let n = name.len().min(TEXT);
    o[name_at..name_at + 4].copy_from_slice(&(n as u32).to_le_bytes());
    o[name_at + 4..name_at + 4 + n].copy_from_slice(&name[..n]);
    o
}

/// The fields of every kind of label.
pub(crate) struct Common {
    /// Its plain form.
    pub(crate) raw: Vec<u8>,
    pub(crate) generation: u64,
    pub(crate) cache: [u8; 16],
    pub(crate) name: String,
}

/// Reads that, after a look at magic, checksum and version; `raw` may be anything.
pub(crate) fn common(raw: &[u8], form: &Form, name_at: usize) -> Result<Common, SuperError> {
    let raw = form.unseal(raw).map_err(|why| SuperError::of(why, "label"))?;
    let mut cache = [0; 16];
    cache.copy_from_slice(&raw[24..40]);
    let n = u32_at(&raw, name_at).unwrap_or(0) as usize;
    let name = (n <= TEXT).then(|| raw[name_at + 4..name_at + 4 + n].to_vec());
    let name = name.and_then(|n| String::from_utf8(n).ok()).ok_or_else(|| damaged("name"))?;
    let generation = Some(word(&raw, 16)).filter(|n| is_counted(*n)).ok_or_else(|| damaged("generation"))?;
    Ok(Common { raw, generation, cache, name })
}

pub(crate) fn word(raw: &[u8], at: usize) -> u64 {
    raw[at..at + 8].try_into().map_or(0, u64::from_le_bytes)
}

fn damaged(what: &str) -> SuperError {
    SuperError::Damaged(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use loligo_block::RamDevice;
    use proptest::prelude::*;

    fn label() -> CoreLabel {
        CoreLabel {
            generation: 4,
            cache: [7; 16],
            name: "osd.3".to_owned(),
            data_start: 1 << 20,
            dirty_bytes: Some(12_288),
            through: false,
        }
    }

    #[test]
    fn a_label_comes_back_as_it_was_and_damage_anywhere_is_seen() {
        let raw = label().encode();
        assert_eq!(CoreLabel::decode(&raw).unwrap(), label());
        let unknown = CoreLabel { dirty_bytes: None, through: true, ..label() };
        assert_eq!(CoreLabel::decode(&unknown.encode()).unwrap(), unknown);
        for at in 0..raw.len() {
            let mut broken = raw.clone();
            broken[at] ^= 1;
            assert!(CoreLabel::decode(&broken).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_generation_that_could_not_go_on_is_none() {
        assert!(CoreLabel::decode(&CoreLabel { generation: u64::MAX, ..label() }.encode()).is_err());
        assert!(CoreLabel::decode(&CoreLabel { generation: 1 << 50, ..label() }.encode()).is_ok());
    }

    #[test]
    fn a_write_cut_off_between_copies_leaves_the_old_or_new_label() {
        let mut core = RamDevice::new(2 << 20).unwrap();
        assert!(matches!(CoreLabel::load(&mut core), Err(SuperError::Absent)));
        let mut first = label();
        first.store(&mut core).unwrap();
        let second = CoreLabel { generation: 9, dirty_bytes: None, ..label() };
        core.write_at(COPIES[1], &second.encode()).unwrap();
        assert_eq!(CoreLabel::load(&mut core).unwrap(), second);
        core.write_at(COPIES[1], &[1; 4096]).unwrap();
        assert_eq!(CoreLabel::load(&mut core).unwrap(), first);
        core.write_at(0, &[1; 4096]).unwrap();
        assert!(matches!(CoreLabel::load(&mut core), Err(SuperError::Absent)));
    }

    /// A program of version 1 looks for its magic at byte 0 of either copy, a right checksum at byte 12, and then its version.
    #[test]
    fn a_program_of_version_1_finds_a_label_of_a_later_one() {
        let mut core = RamDevice::new(2 << 20).unwrap();
        label().store(&mut core).unwrap();
        let mut raw = vec![0; LABEL];
        core.read_at(COPIES[1], &mut raw).unwrap();
        assert_eq!((&raw[..8], u32_at(&raw, 8)), (&b"LOLIGOHM"[..], Some(2)));
        let crc = u32_at(&raw, 12);
        raw[12..16].fill(0);
        assert_eq!(crc, Some(loligo_block::crc32c(&raw)));
    }

    #[test]
    fn a_label_before_content_at_byte_0_is_found_and_goes_alone() {
        let mut core = RamDevice::new(2 << 20).unwrap();
        label().store(&mut core).unwrap();
        // An older label's second copy is content by now.
        let adopted = CoreLabel { data_start: 0, ..label() };
        core.write_at(0, &in_place_label::encode(&adopted)).unwrap();
        assert_eq!(CoreLabel::load(&mut core).unwrap(), adopted);
        CoreLabel::wipe(&mut core).unwrap();
        let mut raw = vec![0; LABEL];
        core.read_at(COPIES[1], &mut raw).unwrap();
        assert!(CoreLabel::decode(&raw).is_ok(), "what is content was written over");
    }

    #[test]
    fn a_cut_rewrite_of_the_first_format_loses_nothing() {
        let mut before = vec![0; (512 << 10) + LABEL];
        let old = FORM.plain(&label().encode());
        COPIES.into_iter().for_each(|at| before.write_at(at, &old).unwrap());
        assert_eq!(CoreLabel::load(&mut before).unwrap(), label());
        let mut next = label();
        let store = |dev: &mut crate::guard::power::Noted| next.store(dev).unwrap();
        crate::guard::power::cuts(&before, store, |dev| {
            let found = CoreLabel::load(dev).unwrap();
            assert_eq!(CoreLabel { generation: 4, ..found }, label());
        });
    }

    #[test]
    fn a_store_that_is_cut_off_spares_the_only_copy_that_counts() {
        let mut sound = vec![0; (512 << 10) + LABEL];
        label().store(&mut sound).unwrap();
        let was = CoreLabel::load(&mut sound).unwrap();
        let older = CoreLabel { generation: was.generation - 1, ..was.clone() };
        for at in COPIES {
            for other in [vec![1; LABEL], older.copy_at(at)] {
                let mut before = sound.clone();
                before.write_at(at, &other).unwrap();
                // The name reaches into the second sector.
                let mut next = CoreLabel { name: "y".repeat(252), dirty_bytes: None, ..was.clone() };
                let after = CoreLabel { generation: was.generation + 1, ..next.clone() };
                let store = |dev: &mut crate::guard::power::Noted| next.store(dev).unwrap();
                crate::guard::power::cuts(&before, store, |dev| {
                    let found = CoreLabel::load(dev).unwrap();
                    assert!(found == was || found == after, "{found:?}");
                });
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_with_a_right_checksum_is_no_reason_to_panic(mut raw in proptest::collection::vec(any::<u8>(), 4096)) {
            raw = FORM.seal(&raw);
            if let Ok(label) = CoreLabel::decode(&raw) {
                prop_assert!(label.data_start >= MIN_HOME);
            }
        }
    }
}
