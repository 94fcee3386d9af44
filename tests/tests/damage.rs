//! Damage that a checksum alone does not show.

use loligo_block::{SyncIo, crc32c};
use loligo_engine::open::{OpenOptions, open};
use loligo_engine::params::Params;
use loligo_format::page::{Directory, Root};
use loligo_format::record::{FRAME_HEADER, FrameHeader, JournalId, Record, seal};
use loligo_tests::decoders::unclean_cache;

/// A checkpoint cut at frame 10 that vouches for frames up to 20, of which those behind 10 are damaged.
#[test]
fn a_journal_that_ends_before_its_checkpoints_claim_is_refused() {
    let (mut cache, mut core, sb) = unclean_cache();
    let shard = sb.layout.shard(0);
    let id = JournalId { cache: sb.cache_id(), shard: 0 };
    for seq in 1..=20u64 {
        let data = vec![seq as u8; 4096];
        cache.write_at(shard.slot(seq as u32), &data).expect("written");
        let mut f = vec![0; FRAME_HEADER];
        Record::Put { block: seq, slot: seq as u32, crc: crc32c(&data), valid: 0xff, dirty: 0xff }
            .encode(&mut f);
        let used = f.len() - FRAME_HEADER;
        f.resize(512, 0);
        seal(&mut f, id, FrameHeader { total: 512, epoch: 1, seq, watermark: seq - 1, records: 1 }, used);
        if seq > 10 {
            f.fill(0xaa);
        }
        cache.write_at(shard.journal + (seq - 1) * 512, &f).expect("written");
    }
    let mut raw = vec![0; shard.dir_len as usize];
    let dir_crc = Directory::new(shard.page_count).encode(id, 1, &mut raw);
    cache.write_at(shard.dirs[1], &raw).expect("written");
    let root = Root {
        seq: 1,
        epoch: 1,
        cut: 10,
        durable: 20,
        journal_pos: 10 * 512,
        dir: 1,
        dir_crc,
        intents: Vec::new(),
        earlier: Vec::new(),
    };
    for at in shard.roots {
        cache.write_at(at, &root.encode(id)).expect("written");
    }
    let o = OpenOptions { force: false, params: Params::default(), bug: None };
    let refused =
        open(&mut cache, &mut core, sb.clone(), &o).expect_err("ten durable frames are gone").to_string();
    assert!(refused.contains("ends at frame 10 but frame 20 was durable"), "{refused}");
    let forced = open(&mut cache, &mut core, sb, &OpenOptions { force: true, ..o }).expect("forced");
    assert_eq!(forced.report.frames_lost, 10);
}

/// Whole and sealed, but with numbers that no shard of this size can have.
#[test]
fn a_root_that_points_outside_its_shard_is_refused() {
    let good = Root {
        seq: 1,
        epoch: 1,
        cut: 10,
        durable: 20,
        journal_pos: 0,
        dir: 1,
        dir_crc: 0,
        intents: Vec::new(),
        earlier: Vec::new(),
    };
    for bad in [
        Root { journal_pos: 1 << 40, ..good.clone() },
        Root { journal_pos: u64::MAX, ..good.clone() },
        Root { seq: u64::MAX, ..good.clone() },
        Root { epoch: u64::MAX, ..good.clone() },
        Root { durable: u64::MAX, ..good },
    ] {
        let (mut cache, mut core, sb) = unclean_cache();
        let id = JournalId { cache: sb.cache_id(), shard: 0 };
        for at in sb.layout.shard(0).roots {
            cache.write_at(at, &bad.encode(id)).expect("written");
        }
        let o = OpenOptions { force: false, params: Params::default(), bug: None };
        let refused = open(&mut cache, &mut core, sb, &o).expect_err("it points outside").to_string();
        assert!(refused.contains("root"), "{refused}");
    }
}
