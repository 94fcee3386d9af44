//! The superblock: what cache this is, of which core, and how it was left. Two copies, written one after the other
//! with a flush between; the valid one of the higher generation counts.

use crate::guard::{Form, Says, Unsealed, newest, order};
use crate::layout::{Layout, MAX_SHARDS, SUPERBLOCKS};
use crate::mode::Mode;
use crate::record::{u32_at, u64_at};
use crate::units::{Striping, is_counted};
use loligo_block::{IoError, KeyedText, SyncIo, keyed};
use thiserror::Error;

/// Bytes of one copy.
pub const SUPERBLOCK: usize = 4096;
const FORM: Form = Form {
    magic: b"LOLIGOSB",
    title: "loligo cache, do not overwrite",
    len: SUPERBLOCK,
    near: CORE_RECORD_AT,
};
/// Most percent of a core that are kept back.
pub const MAX_RESERVE: u8 = 50;
/// Most intent regions that a checkpoint root has room for; new caches have at most 8,192.
pub const MAX_REGIONS: u64 = 30_000;
/// Incompatible feature: the core ended before the exported length, and what is cached behind that is void.
const CUT: u64 = 1;
/// Incompatible feature: the shards' stripes have more than one window.
const STRIPES: u64 = 2;
/// Incompatible features this version knows.
const KNOWN_INCOMPAT: u64 = CUT | STRIPES;
const FINALS_AT: usize = 1024;
const CORE_ID_AT: usize = 512;
const NAME_AT: usize = 768;
const CORE_RECORD_AT: usize = 256;
const TEXT: usize = 252;
/// The most bytes that are kept of [`Superblock::core_record`].
pub const CORE_RECORD: usize = TEXT;

/// The core as it was when the cache was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreIdentity {
    /// Bytes of the core device.
    pub size: u64,
    /// WWN or serial and offset of a device, empty for a file.
    pub id: String,
}

/// The superblock's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// One up with every write of it.
    pub generation: u64,
    /// Names the cache.
    pub uuid: [u8; 16],
    /// The volume's name when the cache was made.
    pub name: String,
    /// The core it belongs to.
    pub core: CoreIdentity,
    /// First byte of the core that is exported.
    pub data_start: u64,
    /// Bytes exported.
    pub data_length: u64,
    /// Cache line, bytes.
    pub line_size: u32,
    /// The mode it was last in.
    pub mode: Mode,
    /// Percent of the core left unexported.
    pub core_reserve: u8,
    /// Division of the device.
    pub layout: Layout,
    /// Exponent of the windows in a stripe of the volume.
    pub stripe: u8,
    /// Cleanly stopped: `finals` hold.
    pub clean: bool,
    /// Last journal frame of each shard at a clean stop.
    pub finals: Vec<u64>,
    /// Dirty blocks at a clean stop (what would be lost with the cache).
    pub dirty_blocks: u64,
    /// Regions of intents: bytes each.
    pub region: u64,
    /// The record of the cache's last hold on a core that others can have too, in the words of whoever took
    /// it, or of which file it was; empty: neither.
    pub core_record: String,
    /// The end of the core while the cache served it, if that was before the exported length: blocks cached
    /// behind it are void.
    pub cut: Option<u64>,
}

/// The reason why a device holds no usable superblock.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SuperError {
    /// Neither place holds the magic: not a cache.
    #[error("no Loligo superblock")]
    Absent,
    /// The magic is there and both copies are damaged.
    #[error("both superblocks are damaged: {0}")]
    Damaged(KeyedText),
    /// Made by a later version.
    #[error("the cache was made by a later version ({0}): upgrade before opening it")]
    TooNew(String),
    /// The device failed.
    #[error("cannot read the superblock: {0}")]
    Io(#[from] IoError),
}

impl SuperError {
    /// The weight of a copy that reads so beside another.
    pub fn says(&self) -> Says {
        match self {
            SuperError::Absent => Says::Nothing,
            SuperError::TooNew(_) => Says::Later,
            SuperError::Damaged(_) | SuperError::Io(_) => Says::Damage,
        }
    }

    /// The reason why a structure cannot be read, whose versions are called `what`.
    pub fn of(why: Unsealed, what: &str) -> SuperError {
        match why {
            Unsealed::Absent => SuperError::Absent,
            Unsealed::Damaged => SuperError::Damaged("checksum".into()),
            Unsealed::TooNew(n) => SuperError::TooNew(format!("{what} {n}")),
        }
    }
}

fn put_text(out: &mut [u8], at: usize, text: &str) {
    let mut n = text.len().min(TEXT);
    while !text.is_char_boundary(n) {
        n -= 1;
    }
    out[at..at + 4].copy_from_slice(&(n as u32).to_le_bytes());
    out[at + 4..at + 4 + n].copy_from_slice(&text.as_bytes()[..n]);
}

fn get_text(raw: &[u8], at: usize) -> Option<String> {
    let n = u32_at(raw, at)? as usize;
    if n > TEXT {
        return None;
    }
    String::from_utf8(raw.get(at + 4..at + 4 + n)?.to_vec()).ok()
}

impl Superblock {
    /// The id that journals, pages and roots carry to show whose they are.
    pub fn cache_id(&self) -> u64 {
        u64_at(&self.uuid, 0).unwrap_or(0)
    }

    /// The division of the volume among its shards.
    pub fn striping(&self) -> Striping {
        Striping { shards: self.layout.shards, exponent: self.stripe }
    }

    /// The cache's name in hexadecimal digits.
    pub fn uuid_text(&self) -> String {
        self.uuid.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// The 4,096 bytes of one copy.
    pub fn encode(&self) -> Vec<u8> {
        let mut o = vec![0u8; SUPERBLOCK];
        // 16, 24: compatible and read-only compatible feature words.
        let mut features = 0;
        if let Some(end) = self.cut {
            features |= CUT;
            o[148..156].copy_from_slice(&end.to_le_bytes());
        }
        if self.stripe > 0 {
            features |= STRIPES;
            o[156] = self.stripe;
        }
        o[32..40].copy_from_slice(&features.to_le_bytes());
        o[40..48].copy_from_slice(&self.generation.to_le_bytes());
        o[48..64].copy_from_slice(&self.uuid);
        let words: [(usize, u64); 8] = [
            (64, self.core.size),
            (72, self.data_start),
            (80, self.data_length),
            (88, self.layout.cache_size),
            (96, self.layout.shard_len),
            (104, self.layout.journal_len),
            (112, self.dirty_blocks),
            (120, self.region),
        ];
        for (at, v) in words {
            o[at..at + 8].copy_from_slice(&v.to_le_bytes());
        }
        o[128..132].copy_from_slice(&self.line_size.to_le_bytes());
        o[132..134].copy_from_slice(&self.layout.shards.to_le_bytes());
        o[134] = self.mode as u8;
        o[135] = self.core_reserve;
        o[136] = u8::from(self.clean);
        // 140: number of entries of the extent table (none yet), 144: exponent of the staging partitions (none yet).
        put_text(&mut o, CORE_ID_AT, &self.core.id);
        put_text(&mut o, NAME_AT, &self.name);
        put_text(&mut o, CORE_RECORD_AT, &self.core_record);
        for (i, f) in self.finals.iter().take(usize::from(MAX_SHARDS)).enumerate() {
            o[FINALS_AT + i * 8..FINALS_AT + i * 8 + 8].copy_from_slice(&f.to_le_bytes());
        }
        FORM.seal(&o)
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// [`SuperError`]; `raw` may be anything.
    pub fn decode(raw: &[u8]) -> Result<Superblock, SuperError> {
        let plain = FORM.unseal(raw).map_err(|why| SuperError::of(why, "format"))?;
        let raw = plain.as_slice();
        let word = |at| u64_at(raw, at).unwrap_or(0);
        if word(24) != 0 {
            return Err(SuperError::TooNew(format!(
                "features this version must not write with {:#x}",
                word(24)
            )));
        }
        if word(32) & !KNOWN_INCOMPAT != 0 {
            return Err(SuperError::TooNew(format!("incompatible features {:#x}", word(32))));
        }
        let bad = |what: &str| SuperError::Damaged(what.into());
        if u32_at(raw, 140) != Some(0) {
            return Err(SuperError::TooNew("an extent table".into()));
        }
        let shards = u16::from_le_bytes([raw[132], raw[133]]);
        let layout =
            Layout::new(word(88), shards, word(104)).map_err(|e| SuperError::Damaged(keyed!("{e}")))?;
        if layout.shard_len != word(96) || layout.journal_len != word(104) {
            return Err(bad("layout"));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&raw[48..64]);
        let finals: Vec<u64> = (0..usize::from(shards)).map(|i| word(FINALS_AT + i * 8)).collect();
        if !is_counted(word(40)) || !is_counted(word(112)) || !finals.iter().all(|n| is_counted(*n)) {
            return Err(bad("a count"));
        }
        let sb = Superblock {
            generation: word(40),
            uuid,
            name: get_text(raw, NAME_AT).ok_or_else(|| bad("name"))?,
            core: CoreIdentity {
                size: word(64),
                id: get_text(raw, CORE_ID_AT).ok_or_else(|| bad("core id"))?,
            },
            data_start: word(72),
            data_length: word(80),
            line_size: u32_at(raw, 128).unwrap_or(0),
            mode: Mode::from_number(raw[134]).ok_or_else(|| bad("mode"))?,
            core_reserve: raw[135],
            layout,
            stripe: if word(32) & STRIPES != 0 { raw[156] } else { 0 },
            clean: raw[136] != 0,
            finals,
            dirty_blocks: word(112),
            region: word(120),
            core_record: get_text(raw, CORE_RECORD_AT).ok_or_else(|| bad("witness"))?,
            cut: (word(32) & CUT != 0).then(|| word(148)),
        };
        let fits = sb.data_start.checked_add(sb.data_length).is_some_and(|end| end <= sb.core.size);
        // As at the format: blocks of a shard have numbers of 32 bits, and tables are made for all of them.
        if !fits
            || sb.stripe > Striping::MOST
            || !sb.striping().can_count(sb.data_length)
            || sb.cut.is_some_and(|end| end >= sb.data_length)
            || !valid_line_size(sb.line_size)
            || sb.core_reserve > MAX_RESERVE
            || !sb.region.is_power_of_two()
        {
            return Err(bad("geometry"));
        }
        Ok(sb)
    }

    /// The generation that `raw` says it is of, whether or not it is sound; 0 for zeros.
    pub fn claimed_generation(raw: &[u8]) -> u64 {
        u64_at(&FORM.spread(raw), 40).unwrap_or(0)
    }

    /// The newest valid copy on the device. One that cannot be read is a damaged one, unless the device is gone.
    ///
    /// # Errors
    /// [`SuperError::Absent`] only where neither place holds the magic.
    pub fn load(dev: &mut dyn SyncIo) -> Result<Superblock, SuperError> {
        let mut copies = Vec::new();
        for at in SUPERBLOCKS {
            if at + SUPERBLOCK as u64 > dev.size() {
                continue;
            }
            let mut raw = vec![0; SUPERBLOCK];
            copies.push(match dev.read_at(at, &mut raw) {
                Ok(()) => (Superblock::claimed_generation(&raw), Superblock::decode(&raw)),
                Err(e) if e.is_final() => return Err(e.into()),
                Err(e) => (0, Err(e.into())),
            });
        }
        newest(copies, SuperError::says).unwrap_or(Err(SuperError::Absent))
    }

    /// Writes both copies, one after the other with a flush behind each; the generation goes up by one. The one at the
    /// start of the device comes last: a format cut off while the first is written leaves a start without a trace. It
    /// comes first where the other one counts.
    ///
    /// # Errors
    /// Those of the device.
    pub fn store(&mut self, dev: &mut dyn SyncIo) -> Result<(), IoError> {
        let places =
            order(dev, SUPERBLOCKS, SUPERBLOCK, |raw| Some(Superblock::decode(raw).ok()?.generation));
        self.generation += 1;
        let raw = self.encode();
        places.into_iter().try_for_each(|at| FORM.put(dev, at, &raw))
    }
}

/// True if `n` is a cache line size: 4, 8, 16, 32 or 64 KiB.
pub fn valid_line_size(n: u32) -> bool {
    n.is_power_of_two() && (4096..=65536).contains(&n)
}

/// Bytes of an intent region for an exported length: a power of two so that at most 8,192 cover it.
pub fn region_size(data_length: u64) -> u64 {
    data_length.div_ceil(8192).max(1 << 20).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sb() -> Superblock {
        Superblock {
            generation: 3,
            uuid: *b"0123456789abcdef",
            name: "vol".into(),
            core: CoreIdentity { size: 1 << 30, id: "wwn".into() },
            data_start: 0,
            data_length: 1 << 30,
            line_size: 4096,
            mode: Mode::Wb,
            core_reserve: 0,
            layout: Layout::new(64 << 20, 2, 0).unwrap(),
            stripe: 5,
            clean: true,
            finals: vec![5, 6],
            dirty_blocks: 9,
            region: region_size(1 << 30),
            core_record: "held".into(),
            cut: Some(1 << 20),
        }
    }

    #[test]
    fn reads_back_what_was_written_and_refuses_every_flipped_bit() {
        let raw = sb().encode();
        assert_eq!(Superblock::decode(&raw).unwrap(), sb());
        for bit in 0..SUPERBLOCK * 8 {
            let mut bad = raw.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_core_too_large_for_tables_is_refused_before_they_are_made() {
        let sized = |size| {
            let core = CoreIdentity { size, id: String::new() };
            Superblock::decode(&Superblock { core, data_length: size, ..sb() }.encode())
        };
        // Two shards of nearly 16 TiB each.
        assert!(sized(2 * ((16 << 40) - (64 << 20))).is_ok());
        assert!(sized(2 * (16 << 40)).is_err());
        assert!(sized(u64::MAX / 512 * 512).is_err());
    }

    #[test]
    fn a_count_that_could_not_go_on_is_no_count() {
        let most = (1 << 51) - 1;
        let counts = |n| {
            [
                Superblock { generation: n, ..sb() },
                Superblock { dirty_blocks: n, ..sb() },
                Superblock { finals: vec![5, n], ..sb() },
            ]
        };
        for (fits, larger) in counts(most).into_iter().zip(counts(most + 1)) {
            assert_eq!(Superblock::decode(&fits.encode()).unwrap(), fits);
            assert!(Superblock::decode(&larger.encode()).is_err(), "{larger:?}");
        }
    }

    /// A device that fails at its first flush.
    struct CutOff(Vec<u8>);

    impl SyncIo for CutOff {
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
            self.0.write_at(offset, data)
        }
        fn flush(&mut self) -> Result<(), IoError> {
            Err(IoError::new(loligo_block::IoKind::Gone, "power"))
        }
    }

    #[test]
    fn a_cut_off_first_superblock_leaves_the_devices_start_blank() {
        let mut dev = CutOff(vec![0; 1 << 20]);
        assert!(sb().store(&mut dev).is_err());
        assert!(dev.0[..256 << 10].iter().all(|b| *b == 0));
        // Without the sector that holds its magic nothing is left that could be taken for anything.
        dev.0[512 << 10..(512 << 10) + 512].fill(0);
        assert_eq!(Superblock::load(&mut dev), Err(SuperError::Absent));
    }

    #[test]
    fn a_cut_rewrite_of_the_first_format_loses_nothing() {
        let mut before = vec![0; (512 << 10) + SUPERBLOCK];
        let old = FORM.plain(&sb().encode());
        assert!(old.starts_with(FORM.magic) && old[8] == 1);
        SUPERBLOCKS.into_iter().for_each(|at| before.write_at(at, &old).unwrap());
        assert_eq!(Superblock::load(&mut before).unwrap(), sb());
        let mut next = sb();
        let store = |dev: &mut crate::guard::power::Noted| next.store(dev).unwrap();
        crate::guard::power::cuts(&before, store, |dev| {
            let found = Superblock::load(dev).unwrap();
            assert_eq!(Superblock { generation: sb().generation, ..found }, sb());
        });
    }

    #[test]
    fn a_store_that_is_cut_off_spares_the_only_copy_that_counts() {
        let mut sound = vec![0; (512 << 10) + SUPERBLOCK];
        sb().store(&mut sound).unwrap();
        let was = Superblock::load(&mut sound).unwrap();
        let older = Superblock { generation: 2, clean: false, ..sb() }.encode();
        for at in SUPERBLOCKS {
            for other in [vec![1; SUPERBLOCK], older.clone()] {
                let mut before = sound.clone();
                before.write_at(at, &other).unwrap();
                // Both sectors of it change.
                let mut next = Superblock { finals: vec![7, 8], clean: false, ..was.clone() };
                let after = Superblock { generation: 5, ..next.clone() };
                let store = |dev: &mut crate::guard::power::Noted| next.store(dev).unwrap();
                crate::guard::power::cuts(&before, store, |dev| {
                    let found = Superblock::load(dev).unwrap();
                    assert!(found == was || found == after, "{found:?}");
                });
            }
        }
    }

    #[test]
    fn a_new_superblock_is_there_or_not_at_any_time() {
        for junk in [0, 1] {
            let before = vec![junk; (512 << 10) + SUPERBLOCK];
            let mut next = sb();
            let store = |dev: &mut crate::guard::power::Noted| next.store(dev).unwrap();
            crate::guard::power::cuts(&before, store, |dev| match Superblock::load(dev) {
                Ok(found) => assert_eq!(Superblock { generation: 3, ..found }, sb()),
                Err(why) => assert_eq!(why, SuperError::Absent),
            });
        }
    }

    #[test]
    fn stripes_of_more_than_one_window_need_a_feature() {
        let words = |stripe| {
            let plain = FORM.unseal(&Superblock { stripe, cut: None, ..sb() }.encode()).unwrap();
            (u64_at(&plain, 32), plain[156])
        };
        assert_eq!(words(0), (Some(0), 0));
        assert_eq!(words(5), (Some(STRIPES), 5));
        let with = |stripe| Superblock::decode(&Superblock { stripe, ..sb() }.encode());
        assert!(with(Striping::MOST).is_ok() && with(Striping::MOST + 1).is_err());
    }

    #[test]
    fn a_later_format_is_refused_by_name_not_taken_for_damage() {
        let mut plain = FORM.unseal(&sb().encode()).unwrap();
        plain[32] = 4;
        let raw = FORM.seal(&plain);
        assert!(matches!(Superblock::decode(&raw), Err(SuperError::TooNew(_))));
    }
}
