//! The bytes of a pool: its superblock, and the table of members and extents. `docs/format.md`, section 12, draws them.

use super::PoolError;
use super::table::{Member, Owner, Table};
use crate::guard::{Form, Unsealed, newest};
use crate::record::{u32_at, u64_at};
use crate::units::is_counted;
use loligo_block::{SyncIo, keyed};

/// Bytes of a superblock.
pub const POOL_SUPERBLOCK: usize = 4096;
const FORM: Form =
    Form { magic: b"LOLIGOPL", title: "loligo pool, do not overwrite", len: POOL_SUPERBLOCK, near: 256 };
/// Version of the table.
const VERSION: u32 = 1;
/// The bytes of the superblocks: where those of a cache would be.
pub const POOL_SUPERBLOCKS: [u64; 2] = [0, 512 << 10];
/// The byte at which the two places of the table begin.
pub const TABLES: u64 = 1 << 20;
/// Member numbers are below this.
pub const MAX_MEMBERS: u16 = 4096;
/// Extents of a new pool at most: the table is written whole, and shall stay small.
pub const NEW_EXTENTS: u64 = 65_536;
/// Extents of a pool whose device grew, at most.
pub const MAX_EXTENTS: u64 = 4 * NEW_EXTENTS;
/// Smallest extent.
pub const MIN_EXTENT: u64 = 4 << 20;
/// Smallest pool.
pub const MIN_POOL: u64 = 64 << 20;
const TABLE_MAGIC: u32 = u32::from_le_bytes(*b"LGPT");
const HEADER: usize = 32;
const MEMBER: usize = 512;
const EXTENT: usize = 8;
const FREE: u16 = u16::MAX;
const NAME_AT: usize = 64;
/// Most bytes of a member's name.
pub const NAME_LEN: usize = 188;
const CORE_AT: usize = 256;
const CORE_LEN: usize = 252;

/// The division of a pool's device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// Bytes of the device in use.
    pub size: u64,
    /// Bytes of an extent, a power of two.
    pub extent: u64,
    /// The byte at which extent 0 begins.
    pub start: u64,
    /// Extents.
    pub extents: u32,
}

impl Division {
    /// For a device of `size` bytes: extents as small as may be.
    ///
    /// # Errors
    /// If it is too small.
    pub fn new(size: u64) -> Result<Division, PoolError> {
        Division::by(size, size.div_ceil(NEW_EXTENTS).next_power_of_two().max(MIN_EXTENT))
    }

    /// For a device of `size` bytes, with extents of `extent`.
    fn by(size: u64, extent: u64) -> Result<Division, PoolError> {
        if size < MIN_POOL {
            return Err(PoolError::TooSmall(size));
        }
        let size = size / 4096 * 4096;
        let extents = ((size - START) / extent).min(MAX_EXTENTS) as u32;
        Ok(Division { size, extent, start: START, extents })
    }

    /// The same extents and more, on a device that has `size` bytes by now.
    ///
    /// # Errors
    /// If it did not grow by an extent, or there would be too many.
    pub fn grown(&self, size: u64) -> Result<Division, PoolError> {
        let next = Division::by(size, self.extent)?;
        if next.extents <= self.extents {
            return Err(PoolError::Refused(keyed!(
                "the pool has {} bytes and the device {size}: it has not grown by an extent of {} bytes, or the pool has as \
                 many extents as there can be",
                self.size,
                self.extent
            )));
        }
        Ok(next)
    }

    /// The byte of place `which` of the table.
    pub fn table(&self, which: u8) -> u64 {
        TABLES + u64::from(which) * TABLE_ROOM
    }

    /// The byte of extent `n`.
    pub fn extent_at(&self, n: u32) -> u64 {
        self.start + u64::from(n) * self.extent
    }
}

/// Bytes kept for one place of the table: as many members and extents as there may be.
const TABLE_ROOM: u64 =
    (HEADER as u64 + MAX_MEMBERS as u64 * MEMBER as u64 + MAX_EXTENTS * EXTENT as u64).next_multiple_of(4096);
/// The byte at which extent 0 begins.
const START: u64 = (TABLES + 2 * TABLE_ROOM).next_multiple_of(1 << 20);

/// The superblock's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSuper {
    /// One up with every write of it.
    pub generation: u64,
    /// Names the pool.
    pub uuid: [u8; 16],
    /// The division of the device.
    pub division: Division,
    /// The place that the table is in.
    pub which: u8,
    /// Bytes of the table.
    pub table_len: u32,
    /// CRC32C of those.
    pub table_crc: u32,
}

/// The state in which a pool was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Here it is.
    Pool(Box<PoolSuper>),
    /// Neither place holds the magic.
    Absent,
    /// One that was never finished: nothing was ever in it.
    Unfinished,
}

impl PoolSuper {
    /// Tells what lies on `dev`.
    ///
    /// # Errors
    /// If a pool is damaged or of a later version, or the device fails.
    pub fn look(dev: &mut dyn SyncIo) -> Result<Found, PoolError> {
        let mut copies = Vec::new();
        let (mut blank, mut first) = (false, true);
        for at in POOL_SUPERBLOCKS {
            if at + POOL_SUPERBLOCK as u64 > dev.size() {
                continue;
            }
            let mut raw = vec![0; POOL_SUPERBLOCK];
            match dev.read_at(at, &mut raw) {
                Ok(()) => {}
                Err(e) if e.is_final() => return Err(e.into()),
                Err(e) => {
                    first = false;
                    copies.push((0, Err(e.into())));
                    continue;
                }
            }
            blank |= raw.iter().all(|b| *b == 0);
            let claimed = PoolSuper::claimed_generation(&raw);
            first &= claimed <= 1;
            copies.push((claimed, PoolSuper::decode(&raw)));
        }
        match newest(copies, PoolError::says).unwrap_or(Err(PoolError::Absent)) {
            Ok(sb) => Ok(Found::Pool(Box::new(sb))),
            Err(PoolError::Absent) => Ok(Found::Absent),
            // Torn beside one that was never written: the first commit was cut off, so nobody was ever in it.
            Err(PoolError::Damaged(_)) if blank && first => Ok(Found::Unfinished),
            Err(e) => Err(e),
        }
    }

    /// The id that the table carries to show whose it is.
    pub fn pool_id(&self) -> u64 {
        u64_at(&self.uuid, 0).unwrap_or(0)
    }

    /// The pool's name in hexadecimal digits.
    pub fn uuid_text(&self) -> String {
        self.uuid.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The 4,096 bytes of one copy.
    pub fn encode(&self) -> Vec<u8> {
        let mut o = vec![0u8; POOL_SUPERBLOCK];
        // 16, 24, 32: compatible, read-only compatible and incompatible feature words.
        o[40..48].copy_from_slice(&self.generation.to_le_bytes());
        o[48..64].copy_from_slice(&self.uuid);
        o[64..72].copy_from_slice(&self.division.size.to_le_bytes());
        o[72..80].copy_from_slice(&self.division.extent.to_le_bytes());
        o[80..88].copy_from_slice(&self.division.start.to_le_bytes());
        o[88..92].copy_from_slice(&self.division.extents.to_le_bytes());
        o[92] = self.which;
        o[96..100].copy_from_slice(&self.table_len.to_le_bytes());
        o[100..104].copy_from_slice(&self.table_crc.to_le_bytes());
        FORM.seal(&o)
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// [`PoolError`]; `raw` may be anything.
    pub fn decode(raw: &[u8]) -> Result<PoolSuper, PoolError> {
        let bad = |what: &str| PoolError::Damaged(format!("superblock: {what}"));
        let plain = FORM.unseal(raw).map_err(|why| match why {
            Unsealed::Absent => PoolError::Absent,
            Unsealed::Damaged => bad("checksum"),
            Unsealed::TooNew(n) => PoolError::TooNew(format!("format {n}")),
        })?;
        let raw = plain.as_slice();
        let word = |at| u64_at(raw, at).unwrap_or(0);
        let half = |at| u32_at(raw, at).unwrap_or(0);
        if word(24) | word(32) != 0 {
            return Err(PoolError::TooNew(format!("features {:#x}, {:#x}", word(24), word(32))));
        }
        let division = Division { size: word(64), extent: word(72), start: word(80), extents: half(88) };
        let extent = division.extent.is_power_of_two() && division.extent >= MIN_EXTENT;
        if !extent || Division::by(division.size, division.extent) != Ok(division) || raw[92] > 1 {
            return Err(bad("geometry"));
        }
        if u64::from(half(96)) > TABLE_ROOM {
            return Err(bad("table length"));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&raw[48..64]);
        if !is_counted(word(40)) {
            return Err(bad("generation"));
        }
        Ok(PoolSuper {
            generation: word(40),
            uuid,
            division,
            which: raw[92],
            table_len: half(96),
            table_crc: half(100),
        })
    }

    /// The generation that `raw` says it is of, whether or not it is sound; 0 for zeros.
    pub fn claimed_generation(raw: &[u8]) -> u64 {
        u64_at(&FORM.spread(raw), 40).unwrap_or(0)
    }
}

fn put_text(o: &mut [u8], text: &str) {
    let mut n = text.len().min(o.len() - 4);
    while !text.is_char_boundary(n) {
        n -= 1;
    }
    o[..4].copy_from_slice(&(n as u32).to_le_bytes());
    o[4..4 + n].copy_from_slice(&text.as_bytes()[..n]);
}

fn get_text(raw: &[u8]) -> Option<String> {
    let n = u32_at(raw, 0)? as usize;
    let (text, rest) = raw.get(4..)?.split_at_checked(n)?;
    // One text, one encoding: what was read is written again as it was.
    if rest.iter().any(|b| *b != 0) {
        return None;
    }
    String::from_utf8(text.to_vec()).ok()
}

/// The bytes of `table`, as the table of pool `id` in generation `generation`.
pub fn encode_table(table: &Table, id: u64, generation: u64) -> Vec<u8> {
    let mut o = vec![0u8; HEADER];
    o[0..4].copy_from_slice(&TABLE_MAGIC.to_le_bytes());
    o[4..8].copy_from_slice(&VERSION.to_le_bytes());
    o[8..16].copy_from_slice(&id.to_le_bytes());
    o[16..24].copy_from_slice(&generation.to_le_bytes());
    o[24..28].copy_from_slice(&(table.members().len() as u32).to_le_bytes());
    o[28..32].copy_from_slice(&(table.owners().len() as u32).to_le_bytes());
    for m in table.members() {
        let at = o.len();
        o.resize(at + MEMBER, 0);
        let e = &mut o[at..];
        e[0..2].copy_from_slice(&m.number.to_le_bytes());
        e[2..4].copy_from_slice(&m.shards.to_le_bytes());
        e[4..8].copy_from_slice(&m.weight.to_le_bytes());
        e[8..16].copy_from_slice(&m.min.to_le_bytes());
        e[16..24].copy_from_slice(&m.max.to_le_bytes());
        e[24..32].copy_from_slice(&m.journal_len.to_le_bytes());
        put_text(&mut e[NAME_AT..NAME_AT + 4 + NAME_LEN], &m.name);
        put_text(&mut e[CORE_AT..CORE_AT + 4 + CORE_LEN], &m.core);
    }
    for owner in table.owners() {
        let (number, index) = owner.map_or((FREE, 0), |o| (o.member, o.index));
        o.extend_from_slice(&number.to_le_bytes());
        o.extend_from_slice(&[0, 0]);
        o.extend_from_slice(&index.to_le_bytes());
    }
    o.resize(o.len().next_multiple_of(4096), 0);
    o
}

/// Reads a table whose checksum was found right; `raw` may be anything all the same.
///
/// # Errors
/// [`PoolError::Damaged`].
pub fn decode_table(raw: &[u8], sb: &PoolSuper) -> Result<Table, PoolError> {
    let bad = |what: &str| PoolError::Damaged(format!("table: {what}"));
    let half = |at| u32_at(raw, at).unwrap_or(0);
    if half(0) != TABLE_MAGIC || half(4) != VERSION {
        return Err(bad("it is none"));
    }
    if u64_at(raw, 8) != Some(sb.pool_id()) || u64_at(raw, 16) != Some(sb.generation) {
        return Err(bad("of another pool or generation"));
    }
    let (members, extents) = (half(24) as usize, half(28) as usize);
    if members > usize::from(MAX_MEMBERS) || extents != sb.division.extents as usize {
        return Err(bad("counts"));
    }
    let behind = raw.get(HEADER..).and_then(|r| r.split_at_checked(members * MEMBER));
    let (entries, rest) = behind.ok_or_else(|| bad("it ends early"))?;
    let owners = rest.get(..extents * EXTENT).ok_or_else(|| bad("it ends early"))?;
    let members = entries.chunks_exact(MEMBER).map(|e| member(e).ok_or_else(|| bad("a member")));
    let owners = owners.chunks_exact(EXTENT).map(|e| {
        let number = u16::from_le_bytes([e[0], e[1]]);
        let owner = Owner { member: number, index: u32_at(e, 4).unwrap_or(0) };
        match (number, owner.index, &e[2..4]) {
            (FREE, 0, [0, 0]) => Ok(None),
            (FREE, ..) => Err(bad("a free extent with a place")),
            (_, _, [0, 0]) => Ok(Some(owner)),
            _ => Err(bad("an extent")),
        }
    });
    Table::new(members.collect::<Result<_, _>>()?, owners.collect::<Result<_, _>>()?, sb.division)
}

fn member(e: &[u8]) -> Option<Member> {
    if e[32..NAME_AT].iter().any(|b| *b != 0) {
        return None;
    }
    Some(Member {
        number: u16::from_le_bytes([e[0], e[1]]),
        shards: u16::from_le_bytes([e[2], e[3]]),
        weight: u32_at(e, 4)?,
        min: u64_at(e, 8)?,
        max: u64_at(e, 16)?,
        journal_len: u64_at(e, 24)?,
        name: get_text(&e[NAME_AT..NAME_AT + 4 + NAME_LEN])?,
        core: get_text(&e[CORE_AT..CORE_AT + 4 + CORE_LEN])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::power::cuts;
    use loligo_block::SyncIo;

    #[test]
    fn a_cut_rewrite_of_the_first_format_loses_nothing() {
        let mut dev = vec![0; MIN_POOL as usize];
        let division = Division::new(MIN_POOL).unwrap();
        let pool = PoolSuper { generation: 1, uuid: [5; 16], division, which: 0, table_len: 0, table_crc: 0 };
        let old = FORM.plain(&pool.encode());
        POOL_SUPERBLOCKS.into_iter().for_each(|at| dev.write_at(at, &old).unwrap());
        // Nothing behind the superblocks is looked at.
        let mut start = dev[..(512 << 10) + POOL_SUPERBLOCK].to_vec();
        assert_eq!(PoolSuper::look(&mut start).unwrap(), Found::Pool(Box::new(pool.clone())));
        let rewrite = |dev: &mut crate::guard::power::Noted| {
            for at in POOL_SUPERBLOCKS {
                dev.write_at(at, &pool.encode()).unwrap();
            }
        };
        cuts(&start, rewrite, |dev| {
            assert_eq!(PoolSuper::look(dev).unwrap(), Found::Pool(Box::new(pool.clone())));
        });
    }
}
