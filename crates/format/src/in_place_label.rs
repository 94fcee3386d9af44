//! The label of a core whose content begins at byte 0: it stands in the content's first sector, and the content's first block behind
//! it in the same block, in a form that nobody else knows (docs/format.md, section 13).

use crate::core_label::{Common, CoreLabel, begin, common, named, word};
use crate::guard::Form;
use crate::superblock::SuperError;

/// Bytes of the label: a sector, which disks write whole or not at all.
pub const LABEL: usize = 512;
/// Bytes of the block that it begins.
pub const BLOCK: usize = 4096;
/// The bytes at which the cache of such a core keeps copies of that block: in the room before the first shard
/// that nothing else uses.
pub const SAVED: [u64; 2] = [384 << 10, 896 << 10];
const NAME_AT: usize = 64;
/// The byte at which the name ends.
const END: usize = 320;
const FORM: Form = Form { magic: b"LOLIGOVL", title: "loligo core, do not overwrite", len: LABEL, near: END };

/// True if a device that begins with `raw` has a label in the place of its first block, sound or not.
pub fn is_label(raw: &[u8]) -> bool {
    FORM.begins(raw)
}

/// The bytes of `label`, whose content begins at byte 0.
pub fn encode(label: &CoreLabel) -> Vec<u8> {
    let mut o = begin(LABEL, label);
    o[40..48].copy_from_slice(&label.dirty_bytes.unwrap_or(0).to_le_bytes());
    o[48] = u8::from(label.dirty_bytes.is_some());
    o[49] = u8::from(label.through);
    FORM.seal(&named(o, NAME_AT, &label.name))
}

/// Reads a label.
///
/// # Errors
/// [`SuperError`]; `raw` may be anything.
pub fn decode(raw: &[u8]) -> Result<CoreLabel, SuperError> {
    let Common { raw, generation, cache, name } = common(raw, &FORM, NAME_AT)?;
    let dirty_bytes = (raw[48] != 0).then(|| word(&raw, 40));
    Ok(CoreLabel { generation, cache, name, data_start: 0, dirty_bytes, through: raw[49] != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label() -> CoreLabel {
        CoreLabel {
            generation: 4,
            cache: [7; 16],
            name: "osd3".to_owned(),
            data_start: 0,
            dirty_bytes: Some(12_288),
            through: false,
        }
    }

    #[test]
    fn a_label_comes_back_as_it_was_and_damage_anywhere_is_seen() {
        let raw = encode(&label());
        assert_eq!(raw.len(), LABEL);
        assert_eq!(decode(&raw).unwrap(), label());
        let unknown = CoreLabel { dirty_bytes: None, through: true, ..label() };
        assert_eq!(decode(&encode(&unknown)).unwrap(), unknown);
        for at in 0..raw.len() {
            let mut broken = raw.clone();
            broken[at] ^= 1;
            assert!(decode(&broken).is_err(), "byte {at}");
        }
        // The longest name leaves the guard's partition table alone.
        let long = CoreLabel { name: "x".repeat(300), ..label() };
        assert_eq!(encode(&long)[384..446], [0; 62]);
        assert_eq!(decode(&encode(&long)).unwrap().name, "x".repeat(252));
        assert_eq!(decode(&FORM.plain(&raw)).unwrap(), label(), "as version 1 wrote it");
    }

    proptest! {
        #[test]
        fn garbage_with_a_right_checksum_is_no_reason_to_panic(mut raw in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = decode(&raw);
            raw.resize(LABEL, 0);
            raw = FORM.seal(&raw);
            if let Ok(label) = decode(&raw) {
                prop_assert_eq!(label.data_start, 0);
                prop_assert_eq!(decode(&encode(&label)).unwrap(), label);
            }
        }
    }
}
