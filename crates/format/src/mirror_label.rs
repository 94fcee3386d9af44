//! The label at the start of each leg of a mirrored device, which says what the leg may be believed (docs/format.md, section
//! 16).

use crate::core_label::word;
use crate::guard::{Form, newest, order};
use crate::superblock::{SUPERBLOCK, SuperError};
use crate::units::{BLOCK, is_counted};
use loligo_block::{IoError, Mark, MarkState, SyncIo};

/// Bytes of one copy.
const LABEL: usize = SUPERBLOCK;
const FORM: Form =
    Form { magic: b"LOLIGOMR", title: "loligo mirror, do not overwrite", len: LABEL, near: 256 };
/// The bytes at which the two copies lie.
const COPIES: [u64; 2] = [0, 512 << 10];
/// The byte of a leg at which its content begins.
pub const CONTENT: u64 = 1 << 20;

/// The bytes of the copy for `mark`.
pub fn encode(mark: &Mark) -> Vec<u8> {
    let mut o = vec![0; LABEL];
    let (state, clean) = match mark.state {
        MarkState::InStep { clean } => (1, clean),
        MarkState::Alone => (2, false),
        MarkState::Stale => (3, false),
    };
    o[16..24].copy_from_slice(&mark.generation.to_le_bytes());
    o[24..40].copy_from_slice(&mark.set);
    o[40..48].copy_from_slice(&mark.line.to_le_bytes());
    o[48..56].copy_from_slice(&mark.parent.to_le_bytes());
    o[56..64].copy_from_slice(&mark.size.to_le_bytes());
    o[64] = state;
    o[65] = u8::from(clean);
    FORM.seal(&o)
}

/// Reads one copy.
///
/// # Errors
/// [`SuperError`]; `raw` may be anything.
pub fn decode(raw: &[u8]) -> Result<Mark, SuperError> {
    let raw = FORM.unseal(raw).map_err(|why| SuperError::of(why, "label of a mirror"))?;
    let state = match (raw[64], raw[65]) {
        (1, clean @ (0 | 1)) => MarkState::InStep { clean: clean == 1 },
        (2, 0) => MarkState::Alone,
        (3, 0) => MarkState::Stale,
        _ => return Err(damaged("state")),
    };
    let generation = Some(word(&raw, 16)).filter(|n| is_counted(*n)).ok_or_else(|| damaged("generation"))?;
    let size = Some(word(&raw, 56)).filter(|n| n.is_multiple_of(BLOCK)).ok_or_else(|| damaged("size"))?;
    let mut set = [0; 16];
    set.copy_from_slice(&raw[24..40]);
    Ok(Mark { set, generation, line: word(&raw, 40), parent: word(&raw, 48), state, size })
}

/// The newest valid copy on a device.
///
/// # Errors
/// [`SuperError::Absent`] only where neither place holds the magic.
pub fn load(dev: &mut dyn SyncIo) -> Result<Mark, SuperError> {
    let mut copies = Vec::new();
    let size = dev.size();
    for at in COPIES.into_iter().filter(|at| at + LABEL as u64 <= size) {
        let mut raw = vec![0; LABEL];
        match dev.read_at(at, &mut raw) {
            Ok(()) => copies.push((word(&FORM.spread(&raw), 16), decode(&raw))),
            Err(e) if e.is_final() => return Err(e.into()),
            Err(e) => copies.push((0, Err(e.into()))),
        }
    }
    newest(copies, SuperError::says).unwrap_or(Err(SuperError::Absent))
}

/// Flushes the leg, then writes both copies, one after the other, each flushed: the one that counts is the last.
///
/// # Errors
/// Those of the device.
pub fn store(dev: &mut dyn SyncIo, mark: &Mark) -> Result<(), IoError> {
    // What was written before is to be there if the label says so.
    dev.flush()?;
    let places = order(dev, COPIES, LABEL, |raw| Some(decode(raw).ok()?.generation));
    places.into_iter().try_for_each(|at| FORM.put(dev, at, &encode(mark)))
}

/// True if a device that begins with `raw` is a leg, sound or not.
pub fn is_label(raw: &[u8]) -> bool {
    FORM.begins(raw)
}

fn damaged(what: &str) -> SuperError {
    SuperError::Damaged(what.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mark(generation: u64) -> Mark {
        let state = MarkState::InStep { clean: true };
        Mark { set: *b"0123456789abcdef", generation, line: 5, parent: 4, state, size: 1 << 30 }
    }

    proptest! {
        #[test]
        fn a_label_reads_back_as_it_was(
            set: [u8; 16], generation in 0u64..1 << 51, line: u64, parent: u64, state in 0usize..4, blocks in 0u64..1 << 40,
        ) {
            let states = [MarkState::InStep { clean: false }, MarkState::InStep { clean: true }, MarkState::Alone, MarkState::Stale];
            let mark = Mark { set, generation, line, parent, state: states[state], size: blocks * BLOCK };
            prop_assert_eq!(decode(&encode(&mark)).unwrap(), mark);
        }

        #[test]
        fn a_changed_byte_is_no_other_label(at in 0usize..LABEL, flip in 1u8..) {
            let mut raw = encode(&mark(3));
            raw[at] ^= flip;
            prop_assert!(decode(&raw).is_err());
        }
    }

    #[test]
    fn the_higher_generation_counts_and_one_copy_is_enough() {
        let mut dev = vec![0; 2 << 20];
        assert!(matches!(load(&mut dev), Err(SuperError::Absent)));
        store(&mut dev, &mark(1)).unwrap();
        let older = dev.clone();
        store(&mut dev, &mark(2)).unwrap();
        assert_eq!(load(&mut dev).unwrap(), mark(2));
        for at in COPIES {
            let (mut torn, at) = (dev.clone(), at as usize);
            torn[at + 100] ^= 1;
            assert_eq!(load(&mut torn).unwrap(), mark(2), "the copy at {at} is torn");
            torn.copy_from_slice(&dev);
            torn[at..at + LABEL].copy_from_slice(&older[at..at + LABEL]);
            assert_eq!(load(&mut torn).unwrap(), mark(2), "the copy at {at} is old");
        }
        dev[100] ^= 1;
        dev[COPIES[1] as usize + 100] ^= 1;
        assert!(matches!(load(&mut dev), Err(SuperError::Damaged(_))));
    }
}
