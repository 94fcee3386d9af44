//! The label of a core whose content begins at byte 0: it stands in the content's first sector, and the content's first block behind
//! it in the same block, in a form that nobody else knows (docs/format.md, section 13).

use crate::home::HomeLabel;
use crate::superblock::SuperError;
use loligo_block::crc32c;

/// First bytes of a label.
pub const MAGIC: &[u8; 8] = b"LOLIGOVL";
const VERSION: u32 = 1;
/// Bytes of the label: a sector, which disks write whole or not at all.
pub const LABEL: usize = 512;
/// Bytes of the block that it begins.
pub const BLOCK: usize = 4096;
/// Where the cache of such a core keeps copies of that block: in the room before the first shard that nothing else uses.
pub const SAVED: [u64; 2] = [384 << 10, 896 << 10];
const NAME_AT: usize = 64;
/// Longest name.
const TEXT: usize = 252;

/// The bytes of `label`, whose content begins at byte 0.
pub fn encode(label: &HomeLabel) -> Vec<u8> {
    let mut o = vec![0u8; LABEL];
    o[0..8].copy_from_slice(MAGIC);
    o[8..12].copy_from_slice(&VERSION.to_le_bytes());
    // 12: checksum.
    o[16..24].copy_from_slice(&label.generation.to_le_bytes());
    o[24..40].copy_from_slice(&label.cache);
    o[40..48].copy_from_slice(&label.dirty_bytes.unwrap_or(0).to_le_bytes());
    o[48] = u8::from(label.dirty_bytes.is_some());
    let name = label.name.as_bytes();
    let n = name.len().min(TEXT);
    o[NAME_AT..NAME_AT + 4].copy_from_slice(&(n as u32).to_le_bytes());
    o[NAME_AT + 4..NAME_AT + 4 + n].copy_from_slice(&name[..n]);
    let crc = crc32c(&o);
    o[12..16].copy_from_slice(&crc.to_le_bytes());
    o
}

/// Reads a label.
///
/// # Errors
/// [`SuperError`]; `raw` may be anything.
pub fn decode(raw: &[u8]) -> Result<HomeLabel, SuperError> {
    let raw = raw.get(..LABEL).ok_or(SuperError::Absent)?;
    if &raw[0..8] != MAGIC {
        return Err(SuperError::Absent);
    }
    let word = |at: usize| raw[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    let half = |at: usize| raw[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let bad = |what: &str| SuperError::Damaged(what.to_owned());
    let mut zeroed = raw.to_vec();
    zeroed[12..16].fill(0);
    if half(12) != crc32c(&zeroed) {
        return Err(bad("checksum"));
    }
    if half(8) != VERSION {
        return Err(SuperError::TooNew(format!("label {}", half(8))));
    }
    let mut cache = [0; 16];
    cache.copy_from_slice(&raw[24..40]);
    let n = half(NAME_AT) as usize;
    let name = (n <= TEXT).then(|| raw[NAME_AT + 4..NAME_AT + 4 + n].to_vec());
    let name = name.and_then(|n| String::from_utf8(n).ok()).ok_or_else(|| bad("name"))?;
    let dirty_bytes = (raw[48] != 0).then(|| word(40));
    Ok(HomeLabel { generation: word(16), cache, name, home_start: 0, dirty_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label() -> HomeLabel {
        HomeLabel {
            generation: 4,
            cache: [7; 16],
            name: "osd3".to_owned(),
            home_start: 0,
            dirty_bytes: Some(12_288),
        }
    }

    #[test]
    fn a_label_comes_back_as_it_was_and_damage_anywhere_is_seen() {
        let raw = encode(&label());
        assert_eq!(raw.len(), LABEL);
        assert_eq!(decode(&raw).unwrap(), label());
        let unknown = HomeLabel { dirty_bytes: None, ..label() };
        assert_eq!(decode(&encode(&unknown)).unwrap(), unknown);
        for at in 0..raw.len() {
            let mut broken = raw.clone();
            broken[at] ^= 1;
            assert!(decode(&broken).is_err(), "byte {at}");
        }
        // No partition table, whatever the name.
        let long = HomeLabel { name: "x".repeat(300), ..label() };
        assert_eq!(encode(&long)[320..], [0; 192]);
    }

    proptest! {
        #[test]
        fn garbage_with_a_right_checksum_is_no_reason_to_panic(mut raw in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decode(&raw);
            raw.resize(LABEL, 0);
            raw[0..8].copy_from_slice(MAGIC);
            raw[8..12].copy_from_slice(&VERSION.to_le_bytes());
            raw[12..16].fill(0);
            let crc = crc32c(&raw);
            raw[12..16].copy_from_slice(&crc.to_le_bytes());
            if let Ok(label) = decode(&raw) {
                prop_assert_eq!(label.home_start, 0);
                prop_assert_eq!(decode(&encode(&label)).unwrap(), label);
            }
        }
    }
}
