//! Claims about bit rot: one bit of a stopped or killed cache is flipped, anywhere; `loligo inspect` names it, and the service repairs
//! what the core has, answers EIO for exactly what it has not, or refuses to start. Never wrong data.
//!
//! `LOLIGO_SEED=n` repeats a run, `LOLIGO_FLIPS=n` sets the number of flips at arbitrary places.

#![allow(clippy::print_stdout)]

use loligo_block::{IoError, IoKind, SyncIo};
use loligo_engine::open::{OpenOptions, open};
use loligo_engine::params::Params;
use loligo_engine::policy::Kind as Replacement;
use loligo_engine::recover::{Plan, load_root};
use loligo_format::layout::SUPERBLOCKS;
use loligo_format::page::Directory;
use loligo_format::record::{JournalId, parse};
use loligo_format::superblock::Superblock;
use loligo_sim::rng::Rng;
use loligo_tests::history::{History, SECTOR};
use loligo_tests::load::Load;
use loligo_tests::server::Volume;
use std::ops::Range;
use std::path::Path;

const CORE: u64 = 32 << 20;
const CACHE: u64 = 24 << 20;
const BLOCK: u64 = 4096;
/// Bytes that are clean in the cache, and bytes that are dirty.
const CLEAN: Range<u64> = 0..4 << 20;
const DIRTY: Range<u64> = 8 << 20..11 << 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is no number")))
}

/// A copy of the cache in memory, to look at.
#[derive(Clone)]
/// The core, which looking at the cache must not need.
struct NoCore;

impl SyncIo for NoCore {
    fn size(&self) -> u64 {
        CORE
    }
    fn read_at(&mut self, _: u64, _: &mut [u8]) -> Result<(), IoError> {
        Err(IoError::new(IoKind::Gone, "no core"))
    }
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), IoError> {
        Err(IoError::new(IoKind::Gone, "no core"))
    }
    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// The wanted outcome of a flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Everything reads right.
    Repaired,
    /// This block of the volume answers EIO, all others read right.
    Lost(u64),
    /// The service does not start.
    Refused,
}

/// The places of things in the stopped cache.
struct Places {
    /// Slots with clean and with dirty data: where each is, and the block of the volume it holds.
    clean: Vec<(u64, u64)>,
    dirty: Vec<(u64, u64)>,
    free: Vec<u64>,
    /// Frames that a start would replay and that are known to have been durable: rot there can be told from power loss.
    frames: Vec<Range<u64>>,
    pages: Vec<u64>,
    directory: Range<u64>,
    roots: [u64; 2],
}

fn places(image: &[u8]) -> Places {
    let mut mem = image.to_vec();
    let sb = Superblock::load(&mut mem).expect("a superblock");
    let (layout, stripe) = (sb.layout.shard(0), sb.striping().of(0));
    let id = JournalId { cache: sb.cache_id(), shard: 0 };
    let plan = Plan {
        stripe,
        layout,
        id,
        data_length: sb.data_length,
        region: sb.region,
        final_seq: None,
        force: false,
        replacement: Replacement::Lru,
        bug: None,
    };
    let root = load_root(&mut mem, &plan).expect("a root");
    let at = layout.dirs[usize::from(root.dir)];
    let directory = at..at + layout.dir_len;
    let raw = &image[directory.start as usize..directory.end as usize];
    let pages = Directory::decode(raw, id, layout.page_count, root.dir_crc).expect("a directory");
    let pages = (0..layout.page_count).filter_map(|p| pages.current(p).map(|c| layout.page(p, c))).collect();
    let (mut frames, mut pos, mut seq, mut known) = (Vec::new(), root.journal_pos, root.cut, root.durable);
    while let Some((at, h)) = [pos, 0].into_iter().find_map(|p| {
        let at = layout.journal + p % layout.journal_len;
        let h =
            parse(&image[at as usize..(layout.journal + layout.journal_len) as usize], id, |_| ()).ok()?;
        (h.seq == seq + 1 && h.epoch == root.epoch).then_some((at, h))
    }) {
        frames.push((h.seq, at..at + u64::from(h.total)));
        (pos, seq, known) = (at + u64::from(h.total) - layout.journal, h.seq, known.max(h.watermark));
    }
    let frames = frames.into_iter().filter(|(n, _)| *n <= known).map(|(_, bytes)| bytes).collect();
    let options = OpenOptions { force: false, params: Params::default(), bug: None };
    let opened = open(&mut mem, &mut NoCore, sb, &options).expect("a sound cache");
    let mut free: std::collections::BTreeSet<u32> = (0..layout.slots).collect();
    let (mut clean, mut dirty) = (Vec::new(), Vec::new());
    for (block, meta) in opened.shards[0].blocks(stripe, 1) {
        free.remove(&meta.slot);
        if meta.dirty == 0 { &mut clean } else { &mut dirty }.push((layout.slot(meta.slot), block));
    }
    let free = free.into_iter().map(|s| layout.slot(s)).collect();
    Places { clean, dirty, free, frames, pages, directory, roots: layout.roots }
}

/// A stopped volume with clean and dirty data, as bytes, to be rotted again and again.
struct Specimen {
    volume: Volume,
    cache: Vec<u8>,
    core: Vec<u8>,
    history: History,
    places: Places,
}

fn sectors(bytes: Range<u64>) -> Range<u64> {
    bytes.start / SECTOR as u64..bytes.end / SECTOR as u64
}

impl Specimen {
    /// Stopped cleanly or, after a moment without load, killed.
    fn make(dir: &Path, killed: bool) -> Specimen {
        let core = dir.join("core");
        std::fs::File::create(&core).and_then(|f| f.set_len(CORE)).expect("a core");
        let volume = Volume {
            dir: dir.to_owned(),
            cache: dir.join("cache"),
            cache_size: CACHE,
            core,
            mode: "wb",
            more: Vec::new(),
        };
        let mut history = History::new(CORE);
        let fill = |history: &mut History, bytes: Range<u64>| {
            let mut load = Load::connect(&volume.socket(), Volume::NAME, 1).expect("a connection");
            for at in bytes.step_by(32 << 10) {
                load.write(history, sectors(at..at + (32 << 10)), false).expect("a write");
            }
            load.flush(history).expect("a flush");
        };
        let server = volume.serve().expect("a first start");
        fill(&mut history, CLEAN);
        let flushed = volume.loligo(&["flush", Volume::NAME]).expect("loligo flush");
        assert!(flushed.status.success(), "flush: {}", String::from_utf8_lossy(&flushed.stderr));
        // The next start writes a checkpoint, so that index, journal and data all hold something.
        server.stop().expect("a clean stop");
        let server = volume.serve().expect("a second start");
        let slow =
            volume.loligo(&["param", "set", Volume::NAME, "destage-rate", "20"]).expect("loligo param");
        assert!(slow.status.success(), "param set: {}", String::from_utf8_lossy(&slow.stderr));
        fill(&mut history, DIRTY);
        if killed {
            // Within a second an idle journal says how far it is durable.
            std::thread::sleep(std::time::Duration::from_millis(1_500));
            server.kill().expect("a kill");
        } else {
            server.stop().expect("a clean stop");
        }
        let cache = std::fs::read(&volume.cache).expect("the cache");
        let core = std::fs::read(&volume.core).expect("the core");
        let places = places(&cache);
        assert!(
            !places.clean.is_empty() && !places.dirty.is_empty() && !places.free.is_empty(),
            "too little to rot"
        );
        Specimen { volume, cache, core, history, places }
    }

    /// Puts the specimen back as it was, but for the bits in `flips`: byte on the cache, and bit.
    fn rot(&self, flips: &[(u64, u8)]) {
        let mut cache = self.cache.clone();
        for (at, bit) in flips {
            cache[*at as usize] ^= 1 << bit;
        }
        std::fs::write(&self.volume.cache, cache).expect("the cache written");
        std::fs::write(&self.volume.core, &self.core).expect("the core written");
    }

    /// Exit status and words of `loligo inspect`.
    fn inspect(&self) -> (Option<i32>, String) {
        let path = self.volume.cache.to_string_lossy();
        let out = self.volume.loligo(&["inspect", &path]).expect("loligo inspect");
        let words = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8_lossy(&words).into_owned())
    }

    /// Starts the service on what is there and reads everything; wrong data panics.
    fn outcome(&mut self, what: &str) -> Fate {
        let mut server = self.volume.launch().expect("the program runs");
        if let Err(e) = server.ready() {
            let words = format!("{e:?}");
            assert!(words.contains("refused to start (exit status: 1)"), "{what}: {words}");
            return Fate::Refused;
        }
        let mut load = Load::connect(&self.volume.socket(), Volume::NAME, 1).expect("a connection");
        let mut lost = Vec::new();
        let mut read = |bytes: Range<u64>| {
            load.read(&mut self.history, sectors(bytes))
                .unwrap_or_else(|e| panic!("{what}: wrong data: {e}"))
                .is_some()
        };
        for chunk in (0..CORE).step_by(256 << 10) {
            if !read(chunk..chunk + (256 << 10)) {
                let blocks = (chunk..chunk + (256 << 10)).step_by(BLOCK as usize);
                lost.extend(blocks.filter(|at| !read(*at..at + BLOCK)).map(|at| at / BLOCK));
            }
        }
        server.stop().unwrap_or_else(|e| panic!("{what}: {e:?}"));
        match lost[..] {
            [] => Fate::Repaired,
            [block] => Fate::Lost(block),
            _ => panic!("{what}: one bit made {} blocks unreadable: {lost:?}", lost.len()),
        }
    }
}

#[test]
fn a_bit_flipped_in_a_stopped_cache_is_named_and_never_served() {
    flip_everywhere(false);
}

#[test]
fn a_bit_flipped_in_a_killed_cache_is_named_and_never_served() {
    flip_everywhere(true);
}

fn flip_everywhere(killed: bool) {
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.as_nanos() as u64 % 1_000_000);
    let seed = number("LOLIGO_SEED").unwrap_or_else(clock);
    let flips = number("LOLIGO_FLIPS").unwrap_or(12);
    println!("LOLIGO_SEED={seed} LOLIGO_FLIPS={flips}");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut s = Specimen::make(dir.path(), killed);
    s.rot(&[]);
    assert_eq!(s.inspect().0, Some(0), "before anything is flipped: {}", s.inspect().1);
    assert_eq!(s.outcome("nothing"), Fate::Repaired);

    let p = &s.places;
    let within = |rng: &mut Rng, from: u64, len: u64| from + rng.below(len);
    let mut cases: Vec<(String, u64, Fate, &str)> = Vec::new();
    for (i, at) in SUPERBLOCKS.into_iter().enumerate() {
        cases.push((format!("superblock {i}"), within(&mut rng, at, BLOCK), Fate::Repaired, "superblock"));
    }
    for (i, at) in p.roots.into_iter().enumerate() {
        cases.push((format!("root {i}"), within(&mut rng, at, BLOCK), Fate::Repaired, "root"));
    }
    let at = within(&mut rng, p.directory.start, p.directory.end - p.directory.start);
    cases.push(("directory".into(), at, Fate::Refused, "directory"));
    for page in [p.pages[0], rng.pick(&p.pages)] {
        cases.push(("index page".into(), within(&mut rng, page, BLOCK), Fate::Refused, "index page"));
    }
    for _ in 0..p.frames.len().min(3) {
        let f = p.frames[rng.below(p.frames.len() as u64) as usize].clone();
        cases.push((
            "journal frame".into(),
            within(&mut rng, f.start, f.end - f.start),
            Fate::Refused,
            "journal",
        ));
    }
    if let Some(f) = p.frames.last() {
        cases.push(("last durable journal frame".into(), f.start + 40, Fate::Refused, "journal"));
    }
    assert!(!killed || p.frames.len() > 1, "a killed cache has frames to replay");
    for _ in 0..3 {
        let (slot, _) = rng.pick(&p.clean);
        cases.push(("clean data".into(), within(&mut rng, slot, BLOCK), Fate::Repaired, "clean data"));
        let (slot, block) = rng.pick(&p.dirty);
        cases.push(("dirty data".into(), within(&mut rng, slot, BLOCK), Fate::Lost(block), "dirty data"));
    }
    println!("{} clean, {} dirty, {} frames to replay", p.clean.len(), p.dirty.len(), p.frames.len());
    for (what, at, fate, word) in cases {
        let what = format!("LOLIGO_SEED={seed}: {what}, byte {at}");
        s.rot(&[(at, rng.below(8) as u8)]);
        let (status, words) = s.inspect();
        assert_eq!(status, Some(1), "{what}: inspect does not see it: {words}");
        assert!(words.contains(word), "{what}: inspect does not name it: {words}");
        assert_eq!(s.outcome(&what), fate, "{what}");
        if fate == Fate::Repaired {
            assert_eq!(s.inspect().0, Some(0), "{what}: not mended after a start: {}", s.inspect().1);
        }
    }
    for _ in 0..flips {
        let at = rng.below(CACHE);
        let what = format!("LOLIGO_SEED={seed}: byte {at}");
        s.rot(&[(at, rng.below(8) as u8)]);
        let (status, words) = s.inspect();
        let hit = |slots: &[(u64, u64)]| {
            slots.iter().find(|(slot, _)| (*slot..slot + BLOCK).contains(&at)).map(|x| x.1)
        };
        let (clean, dirty) = (hit(&s.places.clean), hit(&s.places.dirty));
        let fate = s.outcome(&what);
        match (status, dirty, clean) {
            (Some(1), Some(block), _) => assert_eq!(fate, Fate::Lost(block), "{what}: {words}"),
            (Some(1), None, Some(_)) => assert_eq!(fate, Fate::Repaired, "{what}: {words}"),
            (Some(1), None, None) => {
                assert!(matches!(fate, Fate::Repaired | Fate::Refused), "{what}: {fate:?} {words}")
            }
            (Some(0), None, None) => assert_eq!(fate, Fate::Repaired, "{what}: nothing is damaged"),
            _ => panic!("{what}: inspect exits {status:?}: {words}"),
        }
    }
}

#[test]
fn a_rotten_dirty_block_refuses_parts_until_written_whole() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut s = Specimen::make(dir.path(), false);
    let (slot, block) = s.places.dirty[s.places.dirty.len() / 2];
    s.rot(&[(slot + 700, 3)]);
    let server = s.volume.serve().expect("a start");
    let mut load = Load::connect(&s.volume.socket(), Volume::NAME, 1).expect("a connection");
    let bytes = block * BLOCK..(block + 1) * BLOCK;
    assert_eq!(load.read(&mut s.history, sectors(bytes.clone())).expect("right data"), None, "EIO");
    let mut scratch = History::new(CORE);
    let part = bytes.start..bytes.start + SECTOR as u64;
    assert!(
        load.write(&mut scratch, sectors(part), false).is_err(),
        "a part cannot be merged into what is unreadable"
    );
    let flush = s.volume.loligo(&["flush", Volume::NAME]).expect("loligo flush");
    let words = String::from_utf8_lossy(&flush.stderr).into_owned();
    assert_eq!(flush.status.code(), Some(1), "{words}");
    assert!(words.contains(&bytes.start.to_string()), "flush names byte {}: {words}", bytes.start);
    load.write(&mut s.history, sectors(bytes.clone()), true).expect("a whole write heals it");
    assert_eq!(load.read(&mut s.history, sectors(bytes)).expect("right data"), Some(()));
    let flush = s.volume.loligo(&["flush", Volume::NAME]).expect("loligo flush");
    assert!(flush.status.success(), "{}", String::from_utf8_lossy(&flush.stderr));
    server.stop().expect("a clean stop");
    assert_eq!(s.inspect().0, Some(0), "{}", s.inspect().1);
}
