//! The first block of a core whose content begins at byte 0: on the disk a label stands for it, with the block itself behind
//! that, and the cache keeps a copy of both.
//!
//! The copy is there, durably, before the first block is changed in place, and again before it is put back: whatever a loss of power
//! makes of a block of eight sectors, it can be told what it was to be ([`settle`]).

use anyhow::{Context, Result};
use loligo_block::masked_head::{HEAD, LABEL, body};
use loligo_block::{MaskedHead, SyncIo};
use loligo_format::core_label::CoreLabel;
use loligo_format::in_place_label::{SAVED, decode, encode, is_label};

/// A cache's copy of the first block of its core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The label.
    pub label: CoreLabel,
    /// The block on the core's disk.
    pub block: Vec<u8>,
    /// The block as the content has it.
    pub head: Vec<u8>,
}

impl Saved {
    /// The copy in `block`, if it is whole and the cache (any, if that is not known) is the label's.
    pub fn of(block: Vec<u8>, cache: Option<[u8; 16]>) -> Option<Saved> {
        let label = decode(&block).ok().filter(|label| cache.is_none_or(|c| label.cache == c))?;
        let head = body::unpack(&block)?;
        Some(Saved { label, block, head })
    }

    /// Reads what the cache `uuid` on `dev` keeps; nothing where it never kept anything.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load(dev: &mut dyn SyncIo, uuid: [u8; 16]) -> Result<Option<Saved>> {
        let mut best: Option<Saved> = None;
        for at in SAVED {
            let mut block = vec![0; HEAD as usize];
            dev.read_at(at, &mut block).context("the cache cannot be read")?;
            let found = Saved::of(block, Some(uuid));
            best = best.into_iter().chain(found).max_by_key(|s| s.label.generation);
        }
        Ok(best)
    }
}

/// Keeps `block` on the cache, durably, one copy after the other.
///
/// # Errors
/// Those of the device.
pub fn save(dev: &mut dyn SyncIo, block: &[u8]) -> Result<()> {
    for at in SAVED.into_iter().rev() {
        dev.write_at(at, block).and_then(|()| dev.flush()).context("the cache cannot be written")?;
    }
    Ok(())
}

/// The first block of a core as it is to be taken.
#[derive(Debug)]
pub struct Settled {
    /// The label, if it is on the disk.
    pub label: Option<CoreLabel>,
    /// The block.
    pub masked: MaskedHead,
    /// The damage that was found; the block is taken from the cache's copy.
    pub mended: Option<&'static str>,
}

/// The reason why a first block cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsettled {
    /// The label cannot be read, and no copy is there.
    #[error("its label is damaged ({0})")]
    Label(String),
    /// It is neither what the cache keeps nor a mixture of before and after.
    #[error("its first 4096 bytes are not those that the cache keeps a copy of: somebody wrote there")]
    Changed,
    /// It does not fit behind a label.
    #[error("its first 4096 bytes hold more than the {} that have room behind a label", body::MOST)]
    NoRoom,
}

/// Settles what the first block `raw` of a core means, given what its cache keeps of it.
///
/// # Errors
/// If that cannot be told.
pub fn settle(raw: &[u8], saved: Option<&Saved>) -> Result<Settled, Unsettled> {
    if !is_label(raw) {
        let Some(saved) = saved else {
            let masked = MaskedHead::before(raw.to_vec()).ok_or(Unsettled::NoRoom)?;
            return Ok(Settled { label: None, masked, mended: None });
        };
        let sectors = raw.chunks(LABEL).zip(saved.head.chunks(LABEL).zip(saved.block.chunks(LABEL)));
        // A write of it that was cut off leaves sectors of before and of after.
        let (mut torn, mut known) = (false, true);
        for (is, (head, block)) in sectors {
            torn |= is != head;
            known &= is == head || is == block;
        }
        if !known {
            return Err(Unsettled::Changed);
        }
        let mended = torn.then_some("half written");
        return Ok(Settled { label: None, masked: MaskedHead::of_block(saved.block.clone()), mended });
    }
    match (decode(raw), saved) {
        (Ok(label), saved) => {
            let mut settled =
                Settled { label: Some(label), masked: MaskedHead::of_block(raw.to_vec()), mended: None };
            if let (None, Some(saved)) = (settled.masked.head(), saved) {
                settled.masked = MaskedHead::of_block(saved.block.clone());
                settled.mended = Some("damaged behind its label");
            }
            Ok(settled)
        }
        (Err(_), Some(saved)) => Ok(Settled {
            // What the label said last is not in the copy: nothing is known.
            label: Some(CoreLabel { dirty_bytes: None, through: false, ..saved.label.clone() }),
            masked: MaskedHead::of_block(saved.block.clone()),
            mended: Some("damaged, its label too"),
        }),
        (Err(why), None) => Err(Unsettled::Label(why.to_string())),
    }
}

/// The label of `masked` becomes `label`; the block that says so.
pub fn relabel(masked: &MaskedHead, label: &CoreLabel) -> Vec<u8> {
    masked.set_label(&encode(label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CACHE: [u8; 16] = [9; 16];

    fn label(generation: u64) -> CoreLabel {
        CoreLabel {
            generation,
            cache: CACHE,
            name: "osd3".into(),
            data_start: 0,
            dirty_bytes: None,
            through: false,
        }
    }

    /// A head of `used` bytes, zeros behind, and the block that stands for it.
    fn pair(seed: &[u8], used: usize) -> (Vec<u8>, Vec<u8>) {
        let mut head = vec![0; HEAD as usize];
        head.iter_mut().take(used).enumerate().for_each(|(i, b)| *b = seed[i % seed.len()]);
        head[..9].copy_from_slice(b"bluestore");
        let masked = MaskedHead::before(head.clone()).unwrap();
        let block = relabel(&masked, &label(4));
        (head, block)
    }

    /// `before`, of which the sectors in `mask` were written already.
    fn torn(before: &[u8], after: &[u8], mask: u8) -> Vec<u8> {
        let mut raw = before.to_vec();
        for sector in (0..8).filter(|s| mask & 1 << s != 0) {
            let range = sector * LABEL..(sector + 1) * LABEL;
            raw[range.clone()].copy_from_slice(&after[range]);
        }
        raw
    }

    fn head_of(raw: &[u8], saved: Option<&Saved>) -> Option<Vec<u8>> {
        settle(raw, saved).ok()?.masked.head()
    }

    proptest! {
        #[test]
        fn a_first_block_is_known_again_after_a_cut_off_replacement(
            seed in proptest::collection::vec(any::<u8>(), 1..300), used in 9usize..=body::MOST, mask: u8
        ) {
            let (head, block) = pair(&seed, used);
            let saved = Saved::of(block.clone(), Some(CACHE)).unwrap();
            // Adopting, and releasing.
            prop_assert_eq!(head_of(&torn(&head, &block, mask), Some(&saved)), Some(head.clone()));
            prop_assert_eq!(head_of(&torn(&block, &head, mask), Some(&saved)), Some(head.clone()));
            // Another label: its sector is there or not.
            let relabelled = relabel(&MaskedHead::of_block(block.clone()), &label(5));
            prop_assert_eq!(head_of(&torn(&block, &relabelled, mask), None), Some(head));
        }

        #[test]
        fn a_half_written_first_block_is_the_one_before_or_after(
            a in proptest::collection::vec(any::<u8>(), 1..300), b in proptest::collection::vec(any::<u8>(), 1..300), mask: u8
        ) {
            let ((before, old), (after, new)) = (pair(&a, 900), pair(&b, 2000));
            let saved = Saved::of(old.clone(), Some(CACHE)).unwrap();
            let is = head_of(&torn(&old, &new, mask), Some(&saved)).unwrap();
            prop_assert!(is == before || is == after);
        }

        #[test]
        fn anything_at_all_is_taken_or_refused_without_a_panic(
            mut raw in proptest::collection::vec(any::<u8>(), HEAD as usize), ours: bool, kept: bool
        ) {
            if ours {
                raw[..16].copy_from_slice(b"HM\x01\0\0\0\0\0LOLIGOVL");
            }
            let (_, block) = pair(b"x", 900);
            let saved = Saved::of(block, Some(CACHE));
            let _ = settle(&raw, saved.as_ref().filter(|_| kept));
        }
    }

    #[test]
    fn what_somebody_else_wrote_is_not_written_over() {
        let (mut head, block) = pair(b"abc", 900);
        let saved = Saved::of(block.clone(), Some(CACHE)).unwrap();
        head[700] ^= 1;
        assert_eq!(settle(&head, Some(&saved)).unwrap_err(), Unsettled::Changed);
        assert!(settle(&head, None).unwrap().label.is_none(), "new to everybody");
        assert_eq!(settle(&[1; 4096], None).unwrap_err(), Unsettled::NoRoom);
        let mut broken = block;
        broken[30] ^= 1;
        assert!(matches!(settle(&broken, None), Err(Unsettled::Label(_))));
        let mended = settle(&broken, Some(&saved)).unwrap();
        assert_eq!((mended.label, mended.masked.head()), (Some(label(4)), Some(saved.head)));
    }

    #[test]
    fn the_newer_whole_copy_of_two_in_a_cache_counts() {
        let mut dev = vec![0; 2 << 20];
        assert_eq!(Saved::load(&mut dev, CACHE).unwrap(), None);
        let (_, first) = pair(b"first", 900);
        save(&mut dev, &first).unwrap();
        let (head, _) = pair(b"second", 900);
        let second = relabel(&MaskedHead::before(head.clone()).unwrap(), &label(5));
        dev.write_at(SAVED[1], &second).unwrap();
        assert_eq!(Saved::load(&mut dev, CACHE).unwrap().unwrap().head, head);
        dev.write_at(SAVED[1] + 600, &[0; 512]).unwrap();
        assert_eq!(Saved::load(&mut dev, CACHE).unwrap().unwrap().block, first);
        assert_eq!(Saved::load(&mut dev, [1; 16]).unwrap(), None, "another cache's");
    }
}
