//! Every decoder of bytes on disk as something to be fuzzed: good bytes, and what is asked of any others. The fuzzer in
//! `tests/fuzz_decoders.rs` and the targets in `fuzz/` share it.
//!
//! Each input is tried as it is and again with its checksum made right, since otherwise the checksum alone would meet
//! nearly all of it.

use loligo_block::masked_head::body;
use loligo_block::mirror::{Mark, MarkState};
use loligo_block::{MaskedHead, SyncIo, crc32c};
use loligo_engine::Meta;
use loligo_engine::open::{FormatOptions, OpenOptions, Opened, format, inspect, open};
use loligo_engine::params::Params;
use loligo_engine::pool::Pool;
use loligo_format::core_label::CoreLabel;
use loligo_format::in_place_label;
use loligo_format::layout::Layout;
use loligo_format::mirror_label;
use loligo_format::mode::Mode;
use loligo_format::page::{Directory, Entry, PAGE, Root, decode_page, encode_page};
use loligo_format::pool::Member;
use loligo_format::pool::format::{POOL_SUPERBLOCK, PoolSuper, decode_table};
use loligo_format::record::{FRAME_HEADER, FrameHeader, JournalId, Record, parse, seal};
use loligo_format::superblock::{CoreIdentity, Superblock, region_size};

const ID: JournalId = JournalId { cache: 0x1122_3344_5566_7788, shard: 1 };
/// Offset of the checksum of each.
const SUPERBLOCK_CRC: usize = 20;
const ROOT_CRC: usize = 8;
const FRAME_CRC: usize = 60;
/// Pages of [`directory`].
pub const PAGES: u32 = 40;
/// Slots that [`page`] may speak of.
pub const SLOTS: u32 = 400;

/// Puts the right CRC32C of `bytes` at `at` (the field itself counts as zero).
fn mend(bytes: &mut [u8], at: usize) {
    if bytes.len() >= at + 4 {
        bytes[at..at + 4].fill(0);
        let crc = crc32c(bytes);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// `good` where `input` is zero, something else where it is not: so that a fuzzer begins with what is right.
pub fn differing(good: &[u8], input: &[u8]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    bytes.iter_mut().zip(input).for_each(|(b, i)| *b ^= i);
    bytes
}

/// A good superblock.
pub fn superblock() -> Vec<u8> {
    let superblock = Superblock {
        generation: 9,
        uuid: *b"0123456789abcdef",
        name: "volume".into(),
        core: CoreIdentity { size: 1 << 30, id: "wwn-0x5000".into() },
        data_start: 0,
        data_length: 1 << 30,
        line_size: 4096,
        mode: Mode::Wb,
        core_reserve: 0,
        layout: Layout::new(64 << 20, 2, 0).expect("fits"),
        stripe: 5,
        clean: true,
        finals: vec![5, 6],
        dirty_blocks: 9,
        core_record: "held".into(),
        cut: None,
        region: region_size(1 << 30),
    };
    superblock.encode()
}

/// True if these bytes are taken for a superblock.
pub fn takes_superblock(bytes: &[u8]) -> bool {
    Superblock::decode(bytes).is_ok()
}

/// Anything for a superblock; whether it is taken once its checksum is right.
///
/// # Panics
/// If what is taken does not say the same when written again.
pub fn fuzz_superblock(mut bytes: Vec<u8>) -> bool {
    takes_superblock(&bytes);
    mend(&mut bytes, SUPERBLOCK_CRC);
    let Ok(sb) = Superblock::decode(&bytes) else { return false };
    assert_eq!(Superblock::decode(&sb.encode()).expect("what was read can be written"), sb);
    true
}

/// A good first block of a core whose content begins at byte 0: its label, and the head behind it.
///
/// # Panics
/// Never: the head has room.
pub fn masked_block() -> Vec<u8> {
    let mut head = vec![0; 4096];
    head[..900].iter_mut().enumerate().for_each(|(i, b)| *b = i as u8);
    let label = CoreLabel {
        generation: 3,
        cache: *b"0123456789abcdef",
        name: "osd3".into(),
        data_start: 0,
        dirty_bytes: Some(4096),
        through: false,
    };
    MaskedHead::before(head).expect("it has room").set_label(&in_place_label::encode(&label))
}

/// True if these bytes are taken for a whole first block.
pub fn takes_masked_block(bytes: &[u8]) -> bool {
    in_place_label::decode(bytes).is_ok() && body::unpack(bytes).is_some()
}

/// Anything for a first block; whether it is taken once its checksums are right.
///
/// # Panics
/// If what is taken does not say the same when written again.
pub fn fuzz_masked_block(mut bytes: Vec<u8>) -> bool {
    takes_masked_block(&bytes);
    if bytes.len() >= in_place_label::LABEL {
        mend(&mut bytes[..in_place_label::LABEL], SUPERBLOCK_CRC);
    }
    let (Ok(label), Some(head)) = (in_place_label::decode(&bytes), body::unpack(&bytes)) else {
        return false;
    };
    let again =
        MaskedHead::before(head.clone()).expect("it had room").set_label(&in_place_label::encode(&label));
    assert_eq!((in_place_label::decode(&again).expect("written"), body::unpack(&again)), (label, Some(head)));
    true
}

/// A good label of a mirror's leg.
pub fn mirror_label() -> Vec<u8> {
    mirror_label::encode(&Mark {
        set: *b"0123456789abcdef",
        generation: 7,
        line: 5,
        parent: 4,
        state: MarkState::InStep { clean: true },
        size: 64 << 20,
    })
}

/// True if these bytes are taken for one.
pub fn takes_mirror_label(bytes: &[u8]) -> bool {
    mirror_label::decode(bytes).is_ok()
}

/// Anything for one; whether it is taken once its checksum is right.
///
/// # Panics
/// If what is taken does not say the same when written again.
pub fn fuzz_mirror_label(mut bytes: Vec<u8>) -> bool {
    takes_mirror_label(&bytes);
    mend(&mut bytes, SUPERBLOCK_CRC);
    let Ok(mark) = mirror_label::decode(&bytes) else { return false };
    assert_eq!(mirror_label::decode(&mirror_label::encode(&mark)).expect("written"), mark);
    true
}

/// A pool with two members, its superblock and its table.
fn pool() -> (Vec<u8>, Vec<u8>) {
    let mut dev = vec![0; 96 << 20];
    let mut pool = Pool::format(&mut dev, *b"0123456789abcdef", 96 << 20).expect("fits");
    for number in [0, 4095] {
        let member = Member {
            number,
            shards: 1,
            weight: 100,
            min: 28 << 20,
            max: 64 << 20,
            journal_len: 512 << 10,
            name: format!("vol{number}"),
            core: format!("wwn-{number}"),
        };
        pool.attach(&mut dev, member).expect("fits");
    }
    let sb = pool.superblock();
    let table = sb.division.table(sb.which) as usize;
    (dev[..POOL_SUPERBLOCK].to_vec(), dev[table..table + sb.table_len as usize].to_vec())
}

/// A good pool superblock.
pub fn pool_superblock() -> Vec<u8> {
    pool().0
}

/// True if these bytes are taken for a pool superblock.
pub fn takes_pool_superblock(bytes: &[u8]) -> bool {
    PoolSuper::decode(bytes).is_ok()
}

/// Anything for a pool superblock; whether it is taken once its checksum is right.
///
/// # Panics
/// If what is taken does not say the same when written again.
pub fn fuzz_pool_superblock(mut bytes: Vec<u8>) -> bool {
    takes_pool_superblock(&bytes);
    mend(&mut bytes, SUPERBLOCK_CRC);
    let Ok(sb) = PoolSuper::decode(&bytes) else { return false };
    assert_eq!(PoolSuper::decode(&sb.encode()).expect("what was read can be written"), sb);
    true
}

/// A good pool table, and the superblock that names it.
pub fn pool_table() -> (Vec<u8>, PoolSuper) {
    let (superblock, table) = pool();
    (table, PoolSuper::decode(&superblock).expect("it is good"))
}

/// Anything for the table that `superblock` names; whether it is taken.
///
/// # Panics
/// If an extent of what is taken belongs to nobody, or a member lacks what it cannot be without.
pub fn fuzz_pool_table(bytes: &[u8], superblock: &PoolSuper) -> bool {
    let Ok(table) = decode_table(bytes, superblock) else { return false };
    for owner in table.owners().iter().flatten() {
        assert!(table.member(owner.member).is_some());
    }
    table.members().iter().for_each(|m| assert!(table.limit(m.number).is_ok()));
    true
}

/// A good root.
pub fn root() -> Vec<u8> {
    let root = Root {
        seq: 4,
        epoch: 2,
        cut: 99,
        durable: 101,
        journal_pos: 512,
        dir: 1,
        dir_crc: 5,
        intents: vec![1, 0, 0x80],
        earlier: vec![(1, 120)],
    };
    root.encode(ID)
}

/// True if these bytes are taken for a root.
pub fn takes_root(bytes: &[u8]) -> bool {
    Root::decode(bytes, ID).is_ok()
}

/// Anything for a root; whether it is taken once its checksum is right.
pub fn fuzz_root(mut bytes: Vec<u8>) -> bool {
    takes_root(&bytes);
    mend(&mut bytes, ROOT_CRC);
    takes_root(&bytes)
}

/// A good directory of [`PAGES`] pages, and its checksum.
pub fn directory() -> (Vec<u8>, u32) {
    let mut directory = Directory::new(PAGES);
    (0..PAGES).for_each(|p| directory.set(p, (p % 2) as u8, p * 7));
    let mut bytes = vec![0; 512];
    let crc = directory.encode(ID, 4, &mut bytes);
    (bytes, crc)
}

/// True if these bytes, that should have this checksum, are taken for a directory of `pages`.
pub fn takes_directory(bytes: &[u8], pages: u32, crc: u32) -> bool {
    Directory::decode(bytes, ID, pages, crc).is_ok()
}

/// Anything for a directory of `pages`; whether it is taken once its checksum is right.
pub fn fuzz_directory(bytes: &[u8], pages: u32) -> bool {
    takes_directory(bytes, pages, crc32c(bytes))
}

/// A good index page, number 1 of a shard of [`SLOTS`], and its checksum.
pub fn page() -> (Vec<u8>, u32) {
    let mut bytes = vec![0; PAGE];
    let entry = |slot: u32| {
        let meta = Meta { slot, crc: slot * 3, valid: 0xff, dirty: slot as u8 };
        Some(Entry { block: u64::from(slot) << 20, meta, policy: 1 })
    };
    let crc = encode_page(&mut bytes, ID, 1, SLOTS, entry);
    (bytes, crc)
}

/// True if these bytes, that should have this checksum, are taken for page 1 of a shard of `slots`.
///
/// # Panics
/// If an entry speaks of a slot that is not there.
pub fn takes_page(bytes: &[u8], slots: u32, crc: u32) -> bool {
    decode_page(bytes, ID, 1, slots, crc, |e| assert!(e.meta.slot < slots)).is_ok()
}

/// Anything for a page; whether it is taken once its checksum is right.
///
/// # Panics
/// As [`takes_page`].
pub fn fuzz_page(bytes: &[u8], slots: u32) -> bool {
    takes_page(bytes, slots, crc32c(bytes))
}

/// A good journal frame with a record of every kind.
pub fn frame() -> Vec<u8> {
    let mut f = vec![0; FRAME_HEADER];
    let records = [
        Record::Put { block: 1 << 40, slot: 7, crc: 0xdead_beef, valid: 0xff, dirty: 3 },
        Record::Clean { block: 5, slot: 6 },
        Record::Drop { block: 5, slot: 6 },
        Record::IntentOpen { region: 12 },
        Record::IntentClose { region: 12 },
    ];
    records.iter().for_each(|r| r.encode(&mut f));
    let used = f.len() - FRAME_HEADER;
    f.resize(f.len().next_multiple_of(512), 0);
    let h =
        FrameHeader { total: f.len() as u32, epoch: 3, seq: 9, watermark: 8, records: records.len() as u32 };
    seal(&mut f, ID, h, used);
    f
}

/// True if these bytes are taken for a journal frame.
pub fn takes_frame(bytes: &[u8]) -> bool {
    parse(bytes, ID, |_| ()).is_ok()
}

/// Anything for a journal frame; whether it is taken once its checksum is right.
pub fn fuzz_frame(mut bytes: Vec<u8>) -> bool {
    takes_frame(&bytes);
    mend(&mut bytes, FRAME_CRC);
    takes_frame(&bytes)
}

fn options(force: bool) -> OpenOptions {
    OpenOptions { force, params: Params::default(), bug: None }
}

/// A whole cache that was in use, with 20 frames of 8 blocks behind its checkpoint, to be damaged again and again.
#[derive(Debug)]
pub struct UsedCache {
    good: Vec<u8>,
    /// The same, damaged and put back: only what was written since differs.
    damaged: Vec<u8>,
    core: Vec<u8>,
    /// Offset, length, and where in it a checksum of its own stands.
    places: [(u64, usize, Option<usize>); 8],
    metadata: usize,
}

/// An empty cache of one shard as after a crash, and its core, both in memory: 24 and 64 MiB.
///
/// # Panics
/// Never, unless formatting is broken.
pub fn unclean_cache() -> (Vec<u8>, Vec<u8>, Superblock) {
    let (mut cache, core) = (vec![0; 24 << 20], vec![0; 64 << 20]);
    let options = FormatOptions {
        uuid: *b"0123456789abcdef",
        name: "volume".into(),
        cache_size: 24 << 20,
        core: CoreIdentity { size: 64 << 20, id: String::new() },
        line_size: 4096,
        shards: 1,
        stripe: 0,
        mode: Mode::Wb,
        core_reserve: 0,
        journal_len: 0,
    };
    let mut sb = format(&mut cache, &options).expect("the cache fits");
    sb.clean = false;
    sb.store(&mut cache).expect("written");
    (cache, core, sb)
}

impl Default for UsedCache {
    fn default() -> UsedCache {
        UsedCache::new()
    }
}

impl UsedCache {
    /// Makes it.
    pub fn new() -> UsedCache {
        let (mut cache, core, sb) = unclean_cache();
        let shard = sb.layout.shard(0);
        let id = JournalId { cache: sb.cache_id(), shard: 0 };
        let mut at = shard.journal;
        for seq in 1..=20u64 {
            let mut f = vec![0; FRAME_HEADER];
            for slot in 0..8u32 {
                let block = seq * 8 + u64::from(slot);
                let slot = seq as u32 * 8 + slot;
                let data = vec![slot as u8; 4096];
                cache.write_at(shard.slot(slot), &data).expect("written");
                Record::Put { block, slot, crc: crc32c(&data), valid: 0xff, dirty: 0xff }.encode(&mut f);
            }
            let used = f.len() - FRAME_HEADER;
            f.resize(f.len().next_multiple_of(512), 0);
            let h = FrameHeader { total: f.len() as u32, epoch: 1, seq, watermark: seq - 1, records: 8 };
            seal(&mut f, id, h, used);
            cache.write_at(at, &f).expect("written");
            at += f.len() as u64;
        }
        // Superblocks, roots, the head of the directories, the first page and the first frames; with their checksums.
        let places = [
            (0, 4096, Some(SUPERBLOCK_CRC)),
            (512 << 10, 4096, Some(SUPERBLOCK_CRC)),
            (shard.roots[0], 4096, Some(ROOT_CRC)),
            (shard.roots[1], 4096, Some(ROOT_CRC)),
            (shard.dirs[0], 4096, None),
            (shard.journal, 512, Some(FRAME_CRC)),
            (shard.journal + 512, 512, Some(FRAME_CRC)),
            (shard.journal + 19 * 512, 512, Some(FRAME_CRC)),
        ];
        UsedCache { damaged: cache.clone(), good: cache, core, places, metadata: shard.data as usize }
    }

    /// Opens it undamaged.
    ///
    /// # Panics
    /// If that fails.
    pub fn open_good(&mut self) -> Opened {
        let mut cache = self.good.clone();
        let sb = Superblock::load(&mut cache).expect("good");
        open(&mut cache, &mut self.core, sb, &options(false)).expect("undamaged, it opens")
    }

    /// The number of places that can be damaged.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Puts it back as it was.
    pub fn restore(&mut self) {
        self.damaged[..self.metadata].copy_from_slice(&self.good[..self.metadata]);
    }

    /// Damages place number `place` (of [`UsedCache::places`]); its checksum is made right if `mended`.
    pub fn damage(&mut self, place: usize, mended: bool, how: impl FnOnce(&mut Vec<u8>)) {
        let (at, len, crc) = self.places[place % self.places.len()];
        let there = &mut self.damaged[at as usize..at as usize + len];
        let mut bytes = there.to_vec();
        how(&mut bytes);
        bytes.resize(len, 0);
        if let Some(crc) = crc.filter(|_| mended) {
            mend(&mut bytes, crc);
        }
        there.copy_from_slice(&bytes);
    }

    /// Inspects and opens what the damage left; whether it opens.
    pub fn try_open(&mut self, force: bool) -> bool {
        let found = inspect(&mut self.damaged, |_, _| ());
        let opened = Superblock::load(&mut self.damaged)
            .map_err(Into::into)
            .and_then(|sb| open(&mut self.damaged, &mut self.core, sb, &options(force)));
        drop(found);
        opened.is_ok()
    }

    /// Damage as `input` says: a byte whose lowest bit is for force, then for each of up to eight changes a place (with
    /// 0x80: checksum mended), an offset of 16 bits, a length below 32 and so many bytes to XOR.
    pub fn fuzz(&mut self, input: &[u8]) -> bool {
        self.restore();
        let Some((&first, mut rest)) = input.split_first() else { return self.try_open(false) };
        for _ in 0..8 {
            let [place, a, b, len, more @ ..] = rest else { break };
            let (xor, more) = more.split_at(usize::from(len % 32).min(more.len()));
            rest = more;
            let from = usize::from(u16::from_le_bytes([*a, *b]));
            self.damage(usize::from(place & 0x7f), place & 0x80 != 0, |bytes| {
                let at = from % bytes.len();
                bytes[at..].iter_mut().zip(xor).for_each(|(b, x)| *b ^= x);
            });
        }
        self.try_open(first & 1 == 1)
    }
}
