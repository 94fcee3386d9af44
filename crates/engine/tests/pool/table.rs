//! Requests that a pool takes, and those that it refuses.

use crate::rig::{Dev, MIB, member};
use loligo_engine::pool::Pool;
use loligo_format::pool::format::{Division, MIN_EXTENT, PoolSuper, decode_table};
use loligo_format::pool::share::{MIN_SLOTS, count, needed};
use loligo_format::pool::{Member, PoolError};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn empty() -> (Dev, Pool) {
    let mut dev = Dev::new(256 * MIB);
    let pool = Pool::format(&mut dev, [9; 16], 256 * MIB).unwrap();
    (dev, pool)
}

fn why(result: Result<(), PoolError>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn every_size_has_at_most_65536_extents_behind_the_table() {
    for size in [64 * MIB, 1 << 30, 256 << 30, (256 << 30) + 4096, 1 << 40, (7 << 40) + 8191, 64 << 40] {
        let d = Division::new(size).unwrap();
        assert!(d.extents >= 1 && d.extents <= 65_536 && d.extent >= MIN_EXTENT, "{d:?}");
        assert!(d.extent_at(d.extents) <= size && d.size - d.extent_at(d.extents) < d.extent);
        assert!(d.table(1) > d.table(0) && d.start > d.table(1));
        let grown = d.grown(size * 3).unwrap();
        assert_eq!((grown.extent, grown.extent_at(7)), (d.extent, d.extent_at(7)));
        assert!(grown.extents > 2 * d.extents && d.grown(size).is_err());
    }
    assert_eq!(Division::new(64 * MIB - 1), Err(PoolError::TooSmall(64 * MIB - 1)));
}

#[test]
fn a_number_a_name_or_a_core_is_not_attached_twice() {
    let (mut dev, mut pool) = empty();
    pool.attach(&mut dev, Member { core: "wwn-1".into(), ..member(1, 64 * MIB) }).unwrap();
    assert!(why(pool.attach(&mut dev, member(1, 64 * MIB))).contains("attached already, as 'vol1'"));
    let same_name = Member { name: "vol1".into(), ..member(2, 64 * MIB) };
    assert!(why(pool.attach(&mut dev, same_name)).contains("has the name"));
    let same_core = Member { core: "wwn-1".into(), ..member(2, 64 * MIB) };
    assert!(why(pool.attach(&mut dev, same_core)).contains("is core 1 of this pool already"));
    // Cores that nothing is known of do not count as the same.
    pool.attach(&mut dev, member(2, 64 * MIB)).unwrap();
    pool.attach(&mut dev, member(4095, 64 * MIB)).unwrap();
    assert!(why(pool.attach(&mut dev, member(4096, 64 * MIB))).contains("0 to 4095"));
    assert!(why(pool.detach(&mut dev, 3)).contains("no core 3"));
}

#[test]
fn what_is_promised_is_never_given_away_twice() {
    let (mut dev, mut pool) = empty();
    let mut attached = 0;
    for n in 0.. {
        match pool.attach(&mut dev, member(n, 64 * MIB)) {
            Ok(()) => attached += 1,
            Err(e) => {
                assert!(e.to_string().contains("promised to nobody"), "{e}");
                break;
            }
        }
    }
    // 246 MiB of extents, 28 MiB each.
    assert_eq!(attached, 8);
    let more = why(pool.promise(&mut dev, 0, 60 * MIB, 1));
    let theirs = "205520896 are promised to others (core 1 ('vol1') has";
    assert!(more.contains(theirs) && more.contains("is promised 29360128; core 2"), "{more}");
    assert!(more.contains("Give 50331648 at most"), "{more}");
    let limit = pool.limit_for(0, 60 * MIB).unwrap();
    let more = why(pool.resize(&mut dev, 0, limit));
    assert!(more.contains("of the pool are free (core 1 ('vol1') has") && !more.contains("vol0"), "{more}");
    assert!(why(pool.promise(&mut dev, 0, 4 * MIB, 1)).contains("a minimum is"));
}

#[test]
fn shares_grow_and_shrink_and_an_extent_has_one_owner() {
    let (mut dev, mut pool) = empty();
    (0..3).for_each(|n| pool.attach(&mut dev, member(n, 128 * MIB)).unwrap());
    let mut x = 1u64;
    for _ in 0..60 {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        let (n, bytes) = ((x >> 33) as u16 % 3, (28 + (x >> 40) % 100) * MIB);
        let limit = pool.limit_for(n, bytes).unwrap();
        if pool.resize(&mut dev, n, limit).is_ok() {
            assert_eq!(pool.table().limit(n), Ok(limit));
            let layout = pool.table().member(n).unwrap().layout().unwrap();
            let have: Vec<u32> = pool.table().extents_of(n).into_keys().collect();
            assert_eq!(have, needed(&layout, pool.extent(), limit));
            assert!(have.len() as u64 * pool.extent() <= bytes.next_multiple_of(pool.extent()));
        }
        let table = pool.table();
        let owned: BTreeSet<u32> = (0..3).flat_map(|n| table.extents_of(n).into_values()).collect();
        let sum: usize = (0..3).map(|n| table.extents_of(n).len()).sum();
        assert_eq!(owned.len(), sum);
        assert_eq!(table.owners().len() - sum, table.free() as usize);
    }
    let layout = pool.table().member(0).unwrap().layout().unwrap();
    let least = count(&layout, pool.extent(), MIN_SLOTS);
    assert!(
        why(pool.limit_for(0, u64::from(least - 1) * pool.extent()).map(drop)).contains("needs at least")
    );
}

#[test]
fn a_pool_on_a_grown_device_takes_the_rest_and_keeps_its_shares() {
    let (mut dev, mut pool) = empty();
    (0..8).for_each(|n| pool.attach(&mut dev, member(n, 64 * MIB)).unwrap());
    assert!(why(pool.grow(&mut dev)).contains("has not grown"));
    assert!(pool.attach(&mut dev, member(8, 64 * MIB)).is_err());
    dev.grow(512 * MIB);
    pool.grow(&mut dev).unwrap();
    pool.attach(&mut dev, member(8, 64 * MIB)).unwrap();
    let read = Pool::load(&mut dev).unwrap();
    assert_eq!(read.table(), pool.table());
    assert_eq!(read.superblock().division.size, 512 * MIB);
}

#[test]
fn neighbours_in_a_share_are_neighbours_on_the_device() {
    let (mut dev, mut pool) = empty();
    pool.attach(&mut dev, member(0, 128 * MIB)).unwrap();
    let there: Vec<u32> = pool.table().extents_of(0).into_values().collect();
    assert!(there.is_sorted_by(|a, b| a + 1 == *b), "{there:?}");
}

proptest! {
    #[test]
    fn a_table_of_garbage_is_refused_or_consistent(at in 0usize..4096, byte in any::<u8>(), whole in any::<Vec<u8>>()) {
        let (mut dev, mut pool) = empty();
        (0..3).for_each(|n| pool.attach(&mut dev, member(n, 64 * MIB)).unwrap());
        let mut raw = vec![0; pool.superblock().table_len as usize];
        let place = pool.superblock().division.table(pool.superblock().which);
        loligo_block::SyncIo::read_at(&mut dev, place, &mut raw).unwrap();
        prop_assert_eq!(&decode_table(&raw, pool.superblock()).unwrap(), pool.table());
        let at = at % raw.len();
        raw[at] = byte;
        let _ = decode_table(&raw, pool.superblock());
        prop_assert!(decode_table(&whole, pool.superblock()).is_err());
        let _ = PoolSuper::decode(&whole);
    }
}
