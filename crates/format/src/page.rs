//! The checkpoint's parts on the device: image pages, their directory, and the root that commits them.
//!
//! A page holds [`PER_PAGE`] slots' entries and has two places; the directory says which is current and what its
//! checksum is; the root (two copies, written one after the other with a flush between) names the directory.

use crate::record::{CLASS_SLOT, JournalId, u32_at, u64_at};
use loligo_block::crc32c;
use thiserror::Error;

/// Entries in a page.
pub const PER_PAGE: usize = 255;
/// Bytes of a page or root.
pub const PAGE: usize = 4096;
const ENTRY: usize = 16;
const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"LGPG");
/// First bytes of a directory.
pub const DIR_MAGIC: u32 = u32::from_le_bytes(*b"LGDR");
/// First bytes of a root.
pub const ROOT_MAGIC: u32 = u32::from_le_bytes(*b"LGRT");
const ROOT_VERSION: u32 = 1;
const DIR_HEADER: usize = 32;

/// The reason why a part of a checkpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PageError {
    /// Bytes that are not what they should be.
    #[error("{0} is damaged (checksum, magic or number does not match)")]
    Damaged(String),
    /// A section of the root that must be understood and is not.
    #[error("checkpoint section {0} is unknown to this version: upgrade before opening the cache")]
    UnknownSection(u32),
}

fn damaged(what: impl Into<String>) -> PageError {
    PageError::Damaged(what.into())
}

/// One version of a block: its slot, and what of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// The slot of its data.
    pub slot: u32,
    /// CRC32C of the slot's 4,096 bytes.
    pub crc: u32,
    /// Sectors present, a bit each.
    pub valid: u8,
    /// Sectors newer than the core.
    pub dirty: u8,
}

/// One slot's entry: the block of the volume it holds, and the policy's byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// 4 KiB block of the volume.
    pub block: u64,
    /// Its version.
    pub meta: Meta,
    /// Replacement state (a hint).
    pub policy: u8,
}

/// Fills `page` with the entries of page `number`; `entry(slot)` gives each slot's. Returns the page's checksum.
pub fn encode_page(
    page: &mut [u8],
    id: JournalId,
    number: u32,
    slots: u32,
    entry: impl Fn(u32) -> Option<Entry>,
) -> u32 {
    page.fill(0);
    page[0..4].copy_from_slice(&PAGE_MAGIC.to_le_bytes());
    page[4..8].copy_from_slice(&number.to_le_bytes());
    page[8..12].copy_from_slice(&(id.cache as u32 ^ u32::from(id.shard)).to_le_bytes());
    let first = number * PER_PAGE as u32;
    for slot in first..slots.min(first + PER_PAGE as u32) {
        let Some(e) = entry(slot) else { continue };
        let at = ENTRY * (1 + (slot - first) as usize);
        let raw = &mut page[at..at + ENTRY];
        raw[0..6].copy_from_slice(&e.block.to_le_bytes()[..6]);
        raw[6] = e.policy;
        raw[7] = CLASS_SLOT;
        raw[8..12].copy_from_slice(&e.meta.crc.to_le_bytes());
        raw[12] = e.meta.valid;
        raw[13] = e.meta.dirty;
    }
    crc32c(page)
}

/// Hands the entries of page `number` to `each`, after checking it against the directory's checksum.
///
/// # Errors
/// [`PageError::Damaged`] for anything but the page that was written.
pub fn decode_page(
    page: &[u8],
    id: JournalId,
    number: u32,
    slots: u32,
    crc: u32,
    mut each: impl FnMut(Entry),
) -> Result<(), PageError> {
    let ours = id.cache as u32 ^ u32::from(id.shard);
    let ok = page.len() == PAGE
        && crc32c(page) == crc
        && u32_at(page, 0) == Some(PAGE_MAGIC)
        && u32_at(page, 4) == Some(number)
        && u32_at(page, 8) == Some(ours);
    if !ok {
        return Err(damaged(format!("index page {number}")));
    }
    let first = number * PER_PAGE as u32;
    for slot in first..slots.min(first.saturating_add(PER_PAGE as u32)) {
        let at = ENTRY * (1 + (slot - first) as usize);
        let raw = &page[at..at + ENTRY];
        match raw[7] {
            0 => {}
            CLASS_SLOT => {
                let mut block = [0u8; 8];
                block[..6].copy_from_slice(&raw[0..6]);
                let crc = u32_at(raw, 8).unwrap_or(0);
                let meta = Meta { slot, crc, valid: raw[12], dirty: raw[13] };
                each(Entry { block: u64::from_le_bytes(block), meta, policy: raw[6] });
            }
            _ => return Err(damaged(format!("index page {number}, slot {slot}: location class {}", raw[7]))),
        }
    }
    // A slot that does not exist holds nothing: data there would be in an extent that is somebody else's by now.
    let behind = PER_PAGE.min(slots.saturating_sub(first) as usize);
    match page[ENTRY * (1 + behind)..].chunks_exact(ENTRY).position(|e| e[7] != 0) {
        Some(n) => Err(damaged(format!(
            "index page {number}, slot {}: it does not exist",
            first as usize + behind + n
        ))),
        None => Ok(()),
    }
}

/// The copy of each page that is current, and its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Checksum of each page; 0 with `written` unset: never written, holds nothing.
    pub crc: Vec<u32>,
    /// Per page: bit 0 the copy, bit 1 whether it was ever written.
    pub place: Vec<u8>,
}

/// Bytes of a directory of `pages` pages.
pub fn directory_len(pages: u32) -> u64 {
    DIR_HEADER as u64 + u64::from(pages) * 5
}

impl Directory {
    /// A directory of pages never written.
    pub fn new(pages: u32) -> Directory {
        Directory { crc: vec![0; pages as usize], place: vec![0; pages as usize] }
    }

    /// The current copy of `page`, if it was ever written.
    pub fn current(&self, page: u32) -> Option<u8> {
        let p = self.place[page as usize];
        (p & 2 != 0).then_some(p & 1)
    }

    /// The copy to write `page` to next.
    pub fn other(&self, page: u32) -> u8 {
        self.current(page).map_or(0, |c| 1 - c)
    }

    /// Names `copy` as the current one of `page`.
    pub fn set(&mut self, page: u32, copy: u8, crc: u32) {
        self.crc[page as usize] = crc;
        self.place[page as usize] = copy | 2;
    }

    /// `page` holds nothing, and has no place.
    pub fn clear(&mut self, page: u32) {
        self.crc[page as usize] = 0;
        self.place[page as usize] = 0;
    }

    /// The directory's bytes, padded to `len`.
    pub fn encode(&self, id: JournalId, root_seq: u64, out: &mut [u8]) -> u32 {
        out.fill(0);
        out[0..4].copy_from_slice(&DIR_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&(self.crc.len() as u32).to_le_bytes());
        out[8..16].copy_from_slice(&id.cache.to_le_bytes());
        out[16..24].copy_from_slice(&u64::from(id.shard).to_le_bytes());
        out[24..32].copy_from_slice(&root_seq.to_le_bytes());
        let (crcs, places) = out[DIR_HEADER..].split_at_mut(self.crc.len() * 4);
        for (raw, crc) in crcs.chunks_exact_mut(4).zip(&self.crc) {
            raw.copy_from_slice(&crc.to_le_bytes());
        }
        places[..self.place.len()].copy_from_slice(&self.place);
        crc32c(out)
    }

    /// Reads a directory of `pages` pages.
    ///
    /// # Errors
    /// [`PageError::Damaged`] for anything but what was written.
    pub fn decode(bytes: &[u8], id: JournalId, pages: u32, crc: u32) -> Result<Directory, PageError> {
        let n = pages as usize;
        let ok = crc32c(bytes) == crc
            && bytes.len() as u64 >= directory_len(pages)
            && u32_at(bytes, 0) == Some(DIR_MAGIC)
            && u32_at(bytes, 4) == Some(pages)
            && u64_at(bytes, 8) == Some(id.cache)
            && u64_at(bytes, 16) == Some(u64::from(id.shard));
        if !ok {
            return Err(damaged("checkpoint directory"));
        }
        let (crcs, places) = bytes[DIR_HEADER..].split_at(n * 4);
        Ok(Directory {
            crc: crcs.chunks_exact(4).map(|c| u32_at(c, 0).unwrap_or(0)).collect(),
            place: places[..n].to_vec(),
        })
    }
}

/// Section types of a root. From 16 on they are set aside for later versions.
const SECTION_INTENTS: u32 = 1;
const SECTION_EPOCHS: u32 = 2;
const SECTION_MUST: u32 = 1;
const ROOT_HEADER: usize = 96;

/// The content that a root commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// One up with every checkpoint; the higher valid copy counts.
    pub seq: u64,
    /// Cache-wide epoch of the frames behind the cut, but for those that `earlier` names.
    pub epoch: u64,
    /// Epochs that crashes ended since the cut, oldest first, each with its last frame: of an earlier epoch, frames up to
    /// that one count and no others.
    pub earlier: Vec<(u64, u64)>,
    /// The image holds every frame up to this one.
    pub cut: u64,
    /// No page holds anything of a later frame than this one, and it is durable, data included.
    pub durable: u64,
    /// The byte of the ring at which frame `cut + 1` begins.
    pub journal_pos: u64,
    /// The number of the directory.
    pub dir: u8,
    /// Its checksum.
    pub dir_crc: u32,
    /// Regions with an open intent, a bit each.
    pub intents: Vec<u8>,
}

impl Root {
    /// The epoch that frame `seq`, behind the cut, must be of.
    pub fn epoch_of(&self, seq: u64) -> u64 {
        self.earlier.iter().find(|(_, end)| seq <= *end).map_or(self.epoch, |(epoch, _)| *epoch)
    }

    /// The root's 4,096 bytes.
    pub fn encode(&self, id: JournalId) -> Vec<u8> {
        let mut out = vec![0u8; PAGE];
        out[0..4].copy_from_slice(&ROOT_MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&ROOT_VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&id.cache.to_le_bytes());
        out[24..32].copy_from_slice(&u64::from(id.shard).to_le_bytes());
        out[32..40].copy_from_slice(&self.seq.to_le_bytes());
        out[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        out[48..56].copy_from_slice(&self.cut.to_le_bytes());
        out[56..64].copy_from_slice(&self.journal_pos.to_le_bytes());
        out[80..88].copy_from_slice(&self.durable.to_le_bytes());
        out[64..68].copy_from_slice(&u32::from(self.dir).to_le_bytes());
        out[68..72].copy_from_slice(&self.dir_crc.to_le_bytes());
        let epochs: Vec<u8> =
            self.earlier.iter().flat_map(|(e, end)| [e.to_le_bytes(), end.to_le_bytes()].concat()).collect();
        let sections = [(SECTION_INTENTS, &self.intents), (SECTION_EPOCHS, &epochs)];
        let count = if epochs.is_empty() { 1 } else { 2 };
        out[72..76].copy_from_slice(&(count as u32).to_le_bytes());
        let mut at = ROOT_HEADER;
        for (kind, body) in &sections[..count] {
            let s = &mut out[at..];
            s[0..4].copy_from_slice(&kind.to_le_bytes());
            s[4..8].copy_from_slice(&SECTION_MUST.to_le_bytes());
            s[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
            s[12..12 + body.len()].copy_from_slice(body);
            at += 12 + body.len();
        }
        let crc = crc32c(&out);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a root.
    ///
    /// # Errors
    /// [`PageError::Damaged`] for anything but a root of this shard, [`PageError::UnknownSection`] for one of a later
    /// version that must be understood.
    pub fn decode(bytes: &[u8], id: JournalId) -> Result<Root, PageError> {
        let bad = || damaged("checkpoint root");
        let page: &[u8] = bytes.get(..PAGE).ok_or_else(bad)?;
        let mut zeroed = page.to_vec();
        zeroed[8..12].fill(0);
        let field = |at| u64_at(page, at).ok_or_else(bad);
        let ok = u32_at(page, 0) == Some(ROOT_MAGIC)
            && u32_at(page, 4) == Some(ROOT_VERSION)
            && u32_at(page, 8) == Some(crc32c(&zeroed))
            && field(16)? == id.cache
            && field(24)? == u64::from(id.shard);
        if !ok {
            return Err(bad());
        }
        let (mut intents, mut earlier) = (Vec::new(), Vec::new());
        let mut rest = &page[ROOT_HEADER..];
        for _ in 0..u32_at(page, 72).ok_or_else(bad)? {
            let (kind, must) = (u32_at(rest, 0).ok_or_else(bad)?, u32_at(rest, 4).ok_or_else(bad)?);
            let len = u32_at(rest, 8).ok_or_else(bad)? as usize;
            let body = rest.get(12..12 + len).ok_or_else(bad)?;
            match kind {
                SECTION_INTENTS => intents = body.to_vec(),
                SECTION_EPOCHS => {
                    let pairs = body.chunks_exact(16).map(|c| Some((u64_at(c, 0)?, u64_at(c, 8)?)));
                    earlier = pairs.collect::<Option<_>>().ok_or_else(bad)?;
                }
                _ if must & SECTION_MUST != 0 => return Err(PageError::UnknownSection(kind)),
                _ => {}
            }
            rest = &rest[12 + len..];
        }
        Ok(Root {
            seq: field(32)?,
            epoch: field(40)?,
            cut: field(48)?,
            durable: field(80)?,
            journal_pos: field(56)?,
            dir: (u32_at(page, 64).ok_or_else(bad)? & 1) as u8,
            dir_crc: u32_at(page, 68).ok_or_else(bad)?,
            intents,
            earlier,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: JournalId = JournalId { cache: 1, shard: 0 };

    fn root() -> Root {
        Root {
            seq: 4,
            epoch: 2,
            cut: 99,
            durable: 101,
            journal_pos: 512,
            dir: 1,
            dir_crc: 5,
            intents: vec![1, 0, 0x80],
            earlier: Vec::new(),
        }
    }

    #[test]
    fn root_directory_and_page_read_back_and_refuse_flipped_bits() {
        let bytes = root().encode(ID);
        assert_eq!(Root::decode(&bytes, ID).unwrap(), root());
        let several = Root { earlier: vec![(1, 90), (2, 99)], ..root() };
        assert_eq!(Root::decode(&several.encode(ID), ID).unwrap(), several);
        let mut dir = Directory::new(3);
        dir.set(1, 1, 42);
        let mut d = vec![0; 512];
        let dcrc = dir.encode(ID, 4, &mut d);
        assert_eq!(Directory::decode(&d, ID, 3, dcrc).unwrap(), dir);
        let meta = Meta { slot: 300, crc: 7, valid: 0xff, dirty: 1 };
        let mut p = vec![0; PAGE];
        let pcrc = encode_page(&mut p, ID, 1, 400, |s| {
            (s == 300).then_some(Entry { block: 1 << 33, meta, policy: 3 })
        });
        let mut got = Vec::new();
        decode_page(&p, ID, 1, 400, pcrc, |e| got.push(e)).unwrap();
        assert_eq!(got, [Entry { block: 1 << 33, meta, policy: 3 }]);
        for bit in (0..PAGE * 8).step_by(7) {
            let flip = |b: &[u8]| {
                let mut b = b.to_vec();
                let n = b.len() * 8;
                b[bit % n / 8] ^= 1 << (bit % 8);
                b
            };
            assert!(Root::decode(&flip(&bytes), ID).is_err());
            assert!(Directory::decode(&flip(&d), ID, 3, dcrc).is_err());
            assert!(decode_page(&flip(&p), ID, 1, 400, pcrc, |_| ()).is_err());
        }
    }

    #[test]
    fn an_unknown_section_is_refused_if_required_else_skipped() {
        for must in [0u32, 1] {
            let mut bytes = root().encode(ID);
            bytes[72..76].copy_from_slice(&2u32.to_le_bytes());
            let at = ROOT_HEADER + 12 + 3;
            bytes[at..at + 4].copy_from_slice(&33u32.to_le_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&must.to_le_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&8u32.to_le_bytes());
            bytes[8..12].fill(0);
            let crc = crc32c(&bytes);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            let got = Root::decode(&bytes, ID);
            if must == 1 {
                assert_eq!(got, Err(PageError::UnknownSection(33)));
            } else {
                assert_eq!(got.unwrap(), root());
            }
        }
    }
}
