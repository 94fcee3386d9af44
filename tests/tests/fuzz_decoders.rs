//! Every decoder of bytes on disk, fed damage. None may panic, whatever it is given; and none may take damaged bytes for
//! good ones. `FUZZ_S` seconds in total (10 without it), `FUZZ_SEED` repeats a run.
//!
//! Each input is tried as it is and again with its checksum made right, since otherwise the checksum alone would meet
//! nearly all of it.

use loligo_block::{IoError, IoKind, SyncIo, crc32c};
use loligo_cache::Meta;
use loligo_cache::layout::Layout;
use loligo_cache::mode::Mode;
use loligo_cache::open::{FormatOptions, OpenOptions, format, inspect, open};
use loligo_cache::page::{Directory, Entry, PAGE, Root, decode_page, encode_page};
use loligo_cache::params::Params;
use loligo_cache::record::{FRAME_HEADER, FrameHeader, JournalId, Record, parse, seal};
use loligo_cache::superblock::{CoreIdentity, Superblock, region_size};
use loligo_tests::fuzz::{Dice, budget, for_a_while};

const ID: JournalId = JournalId { cache: 0x1122_3344_5566_7788, shard: 1 };
/// Fuzzers in this file, which share the time.
const FUZZERS: u32 = 5;

/// Puts the right CRC32C of `bytes` at `at` (the field itself counts as zero).
fn mend(bytes: &mut [u8], at: usize) {
    if bytes.len() >= at + 4 {
        bytes[at..at + 4].fill(0);
        let crc = crc32c(bytes);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn superblock() -> Superblock {
    Superblock {
        generation: 9,
        uuid: *b"0123456789abcdef",
        name: "volume".into(),
        core: CoreIdentity { size: 1 << 30, id: "wwn-0x5000".into() },
        home_start: 0,
        home_length: 1 << 30,
        line_size: 4096,
        mode: Mode::Wb,
        core_reserve: 0,
        layout: Layout::new(64 << 20, 2, 0).expect("fits"),
        clean: true,
        finals: vec![5, 6],
        dirty_blocks: 9,
        region: region_size(1 << 30),
    }
}

#[test]
fn damaged_superblocks_are_refused_and_never_panic() {
    let good = superblock().encode();
    let mut dice = Dice::from_env("superblock");
    let (mut taken, mut mended) = (0u64, 0u64);
    let n = for_a_while(budget(FUZZERS), || {
        let mut bytes = good.clone();
        dice.damage(&mut bytes);
        if bytes != good && bytes.len() == good.len() {
            assert!(Superblock::decode(&bytes).is_err(), "damage was taken for a superblock");
        }
        let _ = Superblock::decode(&bytes);
        mend(&mut bytes, 12);
        mended += 1;
        if let Ok(sb) = Superblock::decode(&bytes) {
            taken += 1;
            // What is taken must say the same when written again.
            assert_eq!(Superblock::decode(&sb.encode()).expect("what was read can be written"), sb);
        }
    });
    println!("superblock: {n} inputs, {mended} with a mended checksum, {taken} of those taken");
    assert!(taken > 0 && taken < n, "the mended inputs reach behind the checksum");
}

#[test]
fn damaged_roots_are_refused_and_never_panic() {
    let root = Root {
        seq: 4,
        epoch: 2,
        cut: 99,
        durable: 101,
        journal_pos: 512,
        dir: 1,
        dir_crc: 5,
        intents: vec![1, 0, 0x80],
    };
    let good = root.encode(ID);
    let mut dice = Dice::from_env("root");
    let mut taken = 0u64;
    let n = for_a_while(budget(FUZZERS), || {
        let mut bytes = good.clone();
        dice.damage(&mut bytes);
        if bytes != good && bytes.len() == good.len() {
            assert!(Root::decode(&bytes, ID).is_err(), "damage was taken for a root");
        }
        mend(&mut bytes, 8);
        taken += u64::from(Root::decode(&bytes, ID).is_ok());
    });
    println!("root: {n} inputs, {taken} taken once their checksum was mended");
    assert!(taken > 0 && taken < n);
}

#[test]
fn damaged_directories_and_pages_are_refused_and_never_panic() {
    let mut directory = Directory::new(40);
    (0..40).for_each(|p| directory.set(p, (p % 2) as u8, p * 7));
    let mut dir = vec![0; 512];
    let dir_crc = directory.encode(ID, 4, &mut dir);
    let mut page = vec![0; PAGE];
    let entry = |slot: u32| {
        let meta = Meta { slot, crc: slot * 3, valid: 0xff, dirty: slot as u8 };
        Some(Entry { block: u64::from(slot) << 20, meta, policy: 1 })
    };
    let page_crc = encode_page(&mut page, ID, 1, 400, entry);
    let mut dice = Dice::from_env("directory and page");
    let mut taken = [0u64; 2];
    let n = for_a_while(budget(FUZZERS), || {
        let mut bytes = dir.clone();
        dice.damage(&mut bytes);
        if bytes != dir {
            assert!(Directory::decode(&bytes, ID, 40, dir_crc).is_err(), "damage was taken for a directory");
        }
        let crc = crc32c(&bytes);
        let pages = if dice.below(4) == 0 { dice.draw() as u32 } else { 40 };
        taken[0] += u64::from(Directory::decode(&bytes, ID, pages, crc).is_ok());

        let mut bytes = page.clone();
        dice.damage(&mut bytes);
        if bytes != page {
            assert!(
                decode_page(&bytes, ID, 1, 400, page_crc, |_| ()).is_err(),
                "damage was taken for a page"
            );
        }
        let crc = crc32c(&bytes);
        let slots = if dice.below(4) == 0 { dice.draw() as u32 } else { 400 };
        taken[1] +=
            u64::from(decode_page(&bytes, ID, 1, slots, crc, |e| assert!(e.meta.slot < slots)).is_ok());
    });
    println!("directory and page: {} inputs, {taken:?} taken once their checksum was mended", 2 * n);
    assert!(taken.iter().all(|t| *t > 0 && *t < n));
}

fn frame() -> Vec<u8> {
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

#[test]
fn damaged_frames_are_refused_and_never_panic() {
    let good = frame();
    let mut dice = Dice::from_env("frame");
    let mut taken = 0u64;
    let n = for_a_while(budget(FUZZERS), || {
        let mut bytes = good.clone();
        dice.damage(&mut bytes);
        if bytes != good {
            assert!(parse(&bytes, ID, |_| ()).is_err(), "damage was taken for a frame");
        }
        mend(&mut bytes, 60);
        taken += u64::from(parse(&bytes, ID, |_| ()).is_ok());
    });
    println!("frame: {n} inputs, {taken} taken once their checksum was mended");
    assert!(taken > 0 && taken < n);
}

/// A device in memory.
#[derive(Clone)]
struct Ram(Vec<u8>);

impl SyncIo for Ram {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let end = offset.checked_add(buf.len() as u64).filter(|e| *e <= self.size());
        let end = end.ok_or_else(|| IoError::new(IoKind::Invalid, "past the end"))?;
        buf.copy_from_slice(&self.0[offset as usize..end as usize]);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), IoError> {
        let end = offset.checked_add(data.len() as u64).filter(|e| *e <= self.size());
        let end = end.ok_or_else(|| IoError::new(IoKind::Invalid, "past the end"))?;
        self.0[offset as usize..end as usize].copy_from_slice(data);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// A cache that was in use, with frames behind its checkpoint.
fn used_cache() -> (Ram, Ram) {
    let (mut cache, core) = (Ram(vec![0; 24 << 20]), Ram(vec![0; 64 << 20]));
    let options = FormatOptions {
        uuid: *b"0123456789abcdef",
        name: "volume".into(),
        cache_size: 24 << 20,
        core: CoreIdentity { size: 64 << 20, id: String::new() },
        line_size: 4096,
        shards: 1,
        mode: Mode::Wb,
        core_reserve: 0,
        journal_len: 0,
    };
    let mut sb = format(&mut cache, &options).expect("the cache fits");
    sb.clean = false;
    sb.store(&mut cache).expect("written");
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
    (cache, core)
}

/// Opening and inspecting a cache whose metadata is damaged ends in an answer.
#[test]
fn a_damaged_cache_opens_or_is_refused_and_never_panics() {
    let (cache, mut core) = used_cache();
    let sb = Superblock::load(&mut cache.clone()).expect("good");
    let shard = sb.layout.shard(0);
    let opened =
        open(&mut cache.clone(), &mut core, sb.clone(), &options(false)).expect("undamaged, it opens");
    assert_eq!((opened.report.frames, opened.dirty_blocks()), (20, 160), "the frames are replayed");
    // Superblocks, roots, the head of the directories, the first page and the first frames; with their checksums.
    let places: [(u64, usize, Option<usize>); 8] = [
        (0, 4096, Some(12)),
        (512 << 10, 4096, Some(12)),
        (shard.roots[0], 4096, Some(8)),
        (shard.roots[1], 4096, Some(8)),
        (shard.dirs[0], 4096, None),
        (shard.journal, 512, Some(60)),
        (shard.journal + 512, 512, Some(60)),
        (shard.journal + 19 * 512, 512, Some(60)),
    ];
    let mut dice = Dice::from_env("whole cache");
    let (mut opens, mut refused) = (0u64, 0u64);
    // One copy, damaged and put back: only what was written since differs from the original.
    let mut damaged = cache.clone();
    let n = for_a_while(budget(FUZZERS), || {
        damaged.0[..shard.data as usize].copy_from_slice(&cache.0[..shard.data as usize]);
        for _ in 0..=dice.below(3) {
            let (at, len, crc) = places[dice.below(places.len())];
            let mut bytes = damaged.0[at as usize..at as usize + len].to_vec();
            dice.damage(&mut bytes);
            bytes.resize(len, 0);
            if let Some(crc) = crc.filter(|_| dice.below(4) > 0) {
                mend(&mut bytes, crc);
            }
            damaged.0[at as usize..at as usize + len].copy_from_slice(&bytes);
        }
        let found = inspect(&mut damaged, |_, _| ());
        let force = dice.below(2) == 0;
        let result = Superblock::load(&mut damaged)
            .map_err(Into::into)
            .and_then(|sb| open(&mut damaged, &mut core, sb, &options(force)));
        match result {
            Ok(_) => opens += 1,
            Err(_) => refused += 1,
        }
        drop(found);
    });
    println!("whole cache: {n} inputs, {opens} opened, {refused} refused");
    assert!(opens > 0 && refused > 0);
}

fn options(force: bool) -> OpenOptions {
    OpenOptions { force, params: Params::default(), bug: None }
}
