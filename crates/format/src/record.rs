//! Journal records and frames: the bytes, their encoder, and a decoder that survives garbage.
//!
//! A frame is written once, at a multiple of the journal unit, and never rewritten:
//!
//! ```text
//! 0   magic "LGJF"   4   version 1      6   header length 64   8   total bytes (multiple of the unit)
//! 12  record bytes   16  cache id       24  shard, 26 zero     32  epoch
//! 40  sequence       48  watermark      56  records            60  CRC32C of the whole frame, this field as zero
//! 64  records, then zero padding
//! ```
//!
//! A record is {kind u8, flags u8, length u16, payload}. Flag bit 0: a reader that does not know the kind must refuse;
//! without it the record is skipped by its length.

use crate::units::is_counted;
use loligo_block::crc32c;
use thiserror::Error;

/// First bytes of a frame.
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"LGJF");
/// Bytes of a frame before its records.
pub const FRAME_HEADER: usize = 64;
/// Largest frame, header included, bytes.
pub const FRAME_MAX: usize = 16 << 10;
/// Format version of frames.
pub const FRAME_VERSION: u16 = 1;
/// Bytes of a record before its payload.
const RECORD_HEADER: usize = 4;
/// Largest record of this version.
pub const RECORD_MAX: usize = RECORD_HEADER + 20;
/// Record flag: unknown kinds with it stop the reader.
pub const MUST_UNDERSTAND: u8 = 1;

/// Location class of a placed block. Only flash slots exist in version 1; 2 to 4 are set aside for staged, home and
/// zero locations.
pub const CLASS_SLOT: u8 = 1;

/// One fact about the mapping. Blocks and sectors are numbers within the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// `slot` holds the newest version of `block`.
    Put {
        /// 4 KiB block of the volume.
        block: u64,
        /// Slot of the shard.
        slot: u32,
        /// CRC32C of the slot's data.
        crc: u32,
        /// Sectors present.
        valid: u8,
        /// Sectors newer than the core.
        dirty: u8,
    },
    /// The version in `slot` has reached the core, durably.
    Clean {
        /// 4 KiB block of the volume.
        block: u64,
        /// The version meant.
        slot: u32,
    },
    /// The version in `slot` is no longer cached.
    Drop {
        /// 4 KiB block of the volume.
        block: u64,
        /// The version meant.
        slot: u32,
    },
    /// Before a write goes to the core beside clean blocks of this region: at recovery they are not to be trusted.
    IntentOpen {
        /// Region number.
        region: u32,
    },
    /// The core has been flushed since; clean blocks of the region are good again.
    IntentClose {
        /// Region number.
        region: u32,
    },
}

const PUT: u8 = 1;
const CLEAN: u8 = 2;
const DROP: u8 = 3;
const INTENT_OPEN: u8 = 4;
const INTENT_CLOSE: u8 = 5;
// Kinds from 16 on are set aside for staging on the core and for consistency epochs.

/// The reason why bytes are not a frame, or a frame is not for this reader.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FrameError {
    /// No frame here: never written, torn, or of another cache.
    #[error("no valid journal frame")]
    NotAFrame,
    /// A record that must be understood is of an unknown kind.
    #[error("journal record kind {0} is unknown to this version: upgrade before opening the cache")]
    Unknown(u8),
    /// The checksum holds but the records do not parse.
    #[error("journal frame {0} is malformed")]
    Malformed(u64),
}

/// The identity of the journal that a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalId {
    /// First eight bytes of the cache's UUID.
    pub cache: u64,
    /// Shard number.
    pub shard: u16,
}

/// A frame's header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes on the device, padding included.
    pub total: u32,
    /// Cache-wide epoch.
    pub epoch: u64,
    /// Sequence number, one up from frame to frame.
    pub seq: u64,
    /// Highest frame known durable, data included, when this one was closed.
    pub watermark: u64,
    /// Number of records.
    pub records: u32,
}

impl Record {
    /// The block that it speaks of.
    pub fn block(&self) -> Option<u64> {
        match *self {
            Record::Put { block, .. } | Record::Clean { block, .. } | Record::Drop { block, .. } => {
                Some(block)
            }
            Record::IntentOpen { .. } | Record::IntentClose { .. } => None,
        }
    }

    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, len) = match self {
            Record::Put { .. } => (PUT, 20u16),
            Record::Clean { .. } => (CLEAN, 12),
            Record::Drop { .. } => (DROP, 12),
            Record::IntentOpen { .. } => (INTENT_OPEN, 4),
            Record::IntentClose { .. } => (INTENT_CLOSE, 4),
        };
        out.extend_from_slice(&[kind, MUST_UNDERSTAND]);
        out.extend_from_slice(&len.to_le_bytes());
        match *self {
            Record::Put { block, slot, crc, valid, dirty } => {
                out.extend_from_slice(&block.to_le_bytes());
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&crc.to_le_bytes());
                out.extend_from_slice(&[valid, dirty, CLASS_SLOT, 0]);
            }
            Record::Clean { block, slot } | Record::Drop { block, slot } => {
                out.extend_from_slice(&block.to_le_bytes());
                out.extend_from_slice(&slot.to_le_bytes());
            }
            Record::IntentOpen { region } | Record::IntentClose { region } => {
                out.extend_from_slice(&region.to_le_bytes());
            }
        }
    }

    fn decode(kind: u8, p: &[u8]) -> Option<Record> {
        let pair = || Some((u64_at(p, 0)?, u32_at(p, 8)?));
        Some(match kind {
            PUT if *p.get(18)? == CLASS_SLOT => Record::Put {
                block: u64_at(p, 0)?,
                slot: u32_at(p, 8)?,
                crc: u32_at(p, 12)?,
                valid: *p.get(16)?,
                dirty: *p.get(17)?,
            },
            CLEAN => pair().map(|(block, slot)| Record::Clean { block, slot })?,
            DROP => pair().map(|(block, slot)| Record::Drop { block, slot })?,
            INTENT_OPEN => Record::IntentOpen { region: u32_at(p, 0)? },
            INTENT_CLOSE => Record::IntentClose { region: u32_at(p, 0)? },
            _ => return None,
        })
    }
}

/// The little-endian number at byte `at`, if `p` reaches so far.
pub fn u64_at(p: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(p.get(at..at + 8)?.try_into().ok()?))
}

/// The little-endian number at byte `at`, if `p` reaches so far.
pub fn u32_at(p: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(p.get(at..at + 4)?.try_into().ok()?))
}

/// The little-endian number at byte `at`, if `p` reaches so far.
pub fn u16_at(p: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(p.get(at..at + 2)?.try_into().ok()?))
}

/// Writes the header of a frame whose records already stand at `frame[FRAME_HEADER..]`, and seals it.
///
/// `frame.len()` is the total on the device; what lies behind the records must be zero.
pub fn seal(frame: &mut [u8], id: JournalId, h: FrameHeader, record_bytes: usize) {
    let total = frame.len() as u32;
    frame[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
    frame[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
    frame[6..8].copy_from_slice(&(FRAME_HEADER as u16).to_le_bytes());
    frame[8..12].copy_from_slice(&total.to_le_bytes());
    frame[12..16].copy_from_slice(&(record_bytes as u32).to_le_bytes());
    frame[16..24].copy_from_slice(&id.cache.to_le_bytes());
    frame[24..32].copy_from_slice(&u64::from(id.shard).to_le_bytes());
    frame[32..40].copy_from_slice(&h.epoch.to_le_bytes());
    frame[40..48].copy_from_slice(&h.seq.to_le_bytes());
    frame[48..56].copy_from_slice(&h.watermark.to_le_bytes());
    frame[56..60].copy_from_slice(&h.records.to_le_bytes());
    frame[60..64].fill(0);
    let crc = crc32c(frame);
    frame[60..64].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the frame at the start of `bytes`, handing each known record to `each`.
///
/// # Errors
/// [`FrameError`]; `bytes` may be anything.
pub fn parse(bytes: &[u8], id: JournalId, mut each: impl FnMut(Record)) -> Result<FrameHeader, FrameError> {
    let header = header(bytes, id).ok_or(FrameError::NotAFrame)?;
    let frame = &bytes[..header.total as usize];
    let record_bytes = u32_at(frame, 12).unwrap_or(0) as usize;
    let mut rest =
        frame.get(FRAME_HEADER..FRAME_HEADER + record_bytes).ok_or(FrameError::Malformed(header.seq))?;
    let mut seen = 0;
    while !rest.is_empty() {
        let malformed = FrameError::Malformed(header.seq);
        let (kind, flags) = (rest[0], *rest.get(1).ok_or(malformed.clone())?);
        let len = usize::from(u16_at(rest, 2).ok_or(malformed.clone())?);
        let payload = rest.get(RECORD_HEADER..RECORD_HEADER + len).ok_or(malformed.clone())?;
        match Record::decode(kind, payload) {
            Some(r) => each(r),
            None if (PUT..=INTENT_CLOSE).contains(&kind) => return Err(malformed),
            None if flags & MUST_UNDERSTAND != 0 => return Err(FrameError::Unknown(kind)),
            None => {}
        }
        seen += 1;
        rest = &rest[RECORD_HEADER + len..];
    }
    if seen == header.records { Ok(header) } else { Err(FrameError::Malformed(header.seq)) }
}

/// The header of a whole, sealed frame of this journal at the start of `bytes`.
fn header(bytes: &[u8], id: JournalId) -> Option<FrameHeader> {
    let claimed = claim(bytes, id)?;
    let frame = bytes.get(..claimed.total as usize)?;
    let stored = u32_at(frame, 60)?;
    // The checksum field counts as zero: sum around it.
    let mut head = [0u8; FRAME_HEADER];
    head.copy_from_slice(&frame[..FRAME_HEADER]);
    head[60..64].fill(0);
    let crc = crc32c_append(crc32c(&head), &frame[FRAME_HEADER..]);
    let counted = [claimed.epoch, claimed.seq, claimed.watermark].into_iter().all(is_counted);
    (crc == stored && counted).then_some(claimed)
}

/// The header of a frame of this journal at the start of the bytes, whether or not the rest of it is sound.
pub fn claim(bytes: &[u8], id: JournalId) -> Option<FrameHeader> {
    let total = u32_at(bytes, 8)?;
    let ok = u32_at(bytes, 0)? == FRAME_MAGIC
        && u16_at(bytes, 4)? == FRAME_VERSION
        && usize::from(u16_at(bytes, 6)?) == FRAME_HEADER
        && u64_at(bytes, 16)? == id.cache
        && u64_at(bytes, 24)? == u64::from(id.shard)
        && (FRAME_HEADER..=FRAME_MAX).contains(&(total as usize));
    Some(FrameHeader {
        total,
        epoch: u64_at(bytes, 32)?,
        seq: u64_at(bytes, 40)?,
        watermark: u64_at(bytes, 48)?,
        records: u32_at(bytes, 56)?,
    })
    .filter(|_| ok)
}

fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    loligo_block::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: JournalId = JournalId { cache: 77, shard: 2 };

    fn frame(records: &[Record], extra: &[u8]) -> Vec<u8> {
        let mut f = vec![0; FRAME_HEADER];
        records.iter().for_each(|r| r.encode(&mut f));
        f.extend_from_slice(extra);
        let used = f.len() - FRAME_HEADER;
        f.resize(f.len().next_multiple_of(512), 0);
        let h = FrameHeader {
            total: f.len() as u32,
            epoch: 3,
            seq: 9,
            watermark: 8,
            records: records.len() as u32 + u32::from(!extra.is_empty()),
        };
        seal(&mut f, ID, h, used);
        f
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, FrameError> {
        let mut out = Vec::new();
        parse(bytes, ID, |r| out.push(r)).map(|_| out)
    }

    const RECORDS: [Record; 4] = [
        Record::Put { block: 1 << 40, slot: 7, crc: 0xdead_beef, valid: 0xff, dirty: 3 },
        Record::Clean { block: 5, slot: 6 },
        Record::Drop { block: 5, slot: 6 },
        Record::IntentOpen { region: 12 },
    ];

    #[test]
    fn what_is_sealed_is_read_back() {
        assert_eq!(read(&frame(&RECORDS, &[])).unwrap(), RECORDS);
    }

    #[test]
    fn an_unknown_kind_is_refused_if_required_and_skipped_if_not() {
        assert_eq!(read(&frame(&RECORDS, &[17, MUST_UNDERSTAND, 2, 0, 9, 9])), Err(FrameError::Unknown(17)));
        assert_eq!(read(&frame(&RECORDS, &[200, 0, 2, 0, 9, 9])).unwrap(), RECORDS);
    }

    #[test]
    fn any_flipped_bit_makes_it_no_frame_and_never_panics() {
        let good = frame(&RECORDS, &[]);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(read(&good[..len]).is_err());
        }
        assert!(parse(&good, JournalId { cache: 77, shard: 1 }, |_| ()).is_err(), "another shard's frame");
    }
}
