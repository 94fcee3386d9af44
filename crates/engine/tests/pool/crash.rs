//! The power goes in every step of every change, and in the start that follows.

use crate::rig::{Dev, MIB, cache_in, member, with_cache};
use loligo_block::SyncIo;
use loligo_engine::Bug;
use loligo_engine::pool::Pool;
use loligo_format::pool::PoolSuper;
use loligo_format::pool::format::Found;
use loligo_format::pool::{PoolError, Table};

type Change = fn(&mut Pool, &mut Dev) -> Result<(), PoolError>;

/// Of an old member with a cache, and of new ones.
const CHANGES: [(&str, Change); 7] = [
    ("attach", |p, d| p.attach(d, member(7, 64 * MIB))),
    ("detach", |p, d| p.detach(d, 1)),
    ("grow", |p, d| p.limit_for(2, 48 * MIB).and_then(|limit| p.resize(d, 2, limit))),
    ("shrink", |p, d| p.limit_for(3, 28 * MIB).and_then(|limit| p.resize(d, 3, limit))),
    ("promise", |p, d| p.promise(d, 2, 32 * MIB, 7)),
    ("identify", |p, d| p.identify(d, 2, "wwn-0x2")),
    ("grow the pool", |p, d| {
        d.grow(256 * MIB);
        p.grow(d)
    }),
];

/// Members 1, 2 and 3 with caches; 3 has more than it is promised.
fn pool(bug: Option<Bug>) -> (Dev, Pool) {
    let mut dev = Dev::new(228 * MIB);
    Pool::format(&mut dev, *b"the pool's uuid!", 228 * MIB).unwrap();
    let mut pool = Pool::open(&mut dev, bug).unwrap();
    for n in 1..=3 {
        pool.attach(&mut dev, member(n, 64 * MIB)).unwrap();
        dev = with_cache(&dev, &pool, n);
    }
    let limit = pool.limit_for(3, 48 * MIB).unwrap();
    pool.resize(&mut dev, 3, limit).unwrap();
    dev.done = 0;
    (dev, pool)
}

/// Cuts `change` off after every step; what each pool opens to afterwards, cut off in its opening as well.
fn cut_everywhere(bug: Option<Bug>, change: Change) -> Result<(), String> {
    let (dev, before) = pool(bug);
    let (mut whole, mut after) = (dev.clone(), Pool::open(&mut dev.clone(), bug).unwrap());
    change(&mut after, &mut whole).map_err(|e| e.to_string())?;
    let steps = whole.done;
    assert!(steps >= 6, "table, flush, two superblocks with a flush each: {steps}");
    for left in 0..=steps {
        for chance in 0..6 {
            let (mut cut, mut p) = (dev.clone(), Pool::open(&mut dev.clone(), bug).unwrap());
            cut.left = left;
            let done = change(&mut p, &mut cut).is_ok();
            if !done {
                assert!(p.promise(&mut cut, 1, 28 * MIB, 1).is_err(), "nobody knows which table is there");
            }
            for again in [0, 1, 2, usize::MAX] {
                let mut start = cut.clone().restarted(chance);
                start.left = again;
                let _ = Pool::open(&mut start, bug);
                let mut start = start.restarted(chance + 1);
                let open = Pool::open(&mut start, bug).map_err(|e| format!("{left}, {chance}: {e}"))?;
                let table: &Table = open.table();
                if table != before.table() && table != after.table() || done && table != after.table() {
                    return Err(format!("{left}, {chance}: the table is neither"));
                }
                // It can be changed, and is what it was changed to.
                let mut next = Pool::open(&mut start, bug).unwrap();
                next.promise(&mut start, 2, 28 * MIB, 3).map_err(|e| e.to_string())?;
                let read = Pool::load(&mut start.restarted(0)).map_err(|e| e.to_string())?;
                assert_eq!(read.table().member(2).map(|m| m.weight), Some(3));
            }
        }
    }
    Ok(())
}

#[test]
fn a_change_cut_off_anywhere_leaves_the_old_or_the_new_table() {
    for (name, change) in CHANGES {
        cut_everywhere(None, change).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_table_written_over_the_one_in_use_is_caught() {
    assert!(cut_everywhere(Some(Bug::TableInPlace), CHANGES[0].1).is_err());
}

/// True if a member finds a cache in its share that is not its own: number 7 comes where 1 was, and is cut off in every step.
fn takes_over_what_was_anothers(bug: Option<Bug>) -> bool {
    let (mut dev, mut p) = pool(bug);
    p.detach(&mut dev, 1).unwrap();
    dev.done = 0;
    let mut whole = dev.clone();
    p.attach(&mut whole, member(7, 64 * MIB)).unwrap();
    let mut found = false;
    for left in 0..=whole.done {
        for chance in 0..6 {
            let mut cut = dev.clone();
            let mut p = Pool::open(&mut cut, bug).unwrap();
            cut.left = left;
            let _ = p.attach(&mut cut, member(7, 64 * MIB));
            let mut start = cut.restarted(chance);
            let open = Pool::open(&mut start, bug).unwrap();
            found |= open.table().member(7).is_some() && cache_in(&start, &open, 7).is_some();
            for other in [2, 3] {
                assert_eq!(
                    cache_in(&start, &open, other).expect("it is there still").uuid,
                    [other as u8; 16]
                );
            }
        }
    }
    found
}

#[test]
fn a_new_member_never_finds_the_cache_of_the_one_before() {
    assert!(!takes_over_what_was_anothers(None));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_first_extent_that_is_not_wiped_is_caught() {
    assert!(takes_over_what_was_anothers(Some(Bug::ExtentNotWiped)));
}

#[test]
fn a_format_cut_off_anywhere_leaves_no_pool_or_an_empty_one() {
    let mut whole = Dev::new(64 * MIB);
    Pool::format(&mut whole, [1; 16], 64 * MIB).unwrap();
    let (mut none, mut some) = (0, 0);
    for left in 0..=whole.done {
        for chance in 0..6 {
            let mut dev = Dev::new(64 * MIB);
            dev.left = left;
            let _ = Pool::format(&mut dev, [1; 16], 64 * MIB);
            let mut start = dev.restarted(chance);
            match PoolSuper::look(&mut start).unwrap() {
                Found::Pool(_) => {
                    assert!(Pool::open(&mut start, None).unwrap().table().members().is_empty());
                    some += 1;
                }
                Found::Absent | Found::Unfinished => none += 1,
            }
        }
    }
    assert!(none > 0 && some > 0, "{none}, {some}");
}

#[test]
fn one_damaged_superblock_is_no_loss_and_two_are_a_refusal() {
    let (dev, _) = pool(None);
    for hit in [0u64, 512 << 10] {
        let mut dev = dev.clone();
        dev.write_at(hit + 64, &[0xff; 512]).unwrap();
        assert_eq!(Pool::open(&mut dev, None).unwrap().table().members().len(), 3);
    }
    let mut dev = dev.clone();
    [0u64, 512 << 10].into_iter().for_each(|at| dev.write_at(at + 64, &[0xff; 512]).unwrap());
    assert!(matches!(Pool::open(&mut dev, None), Err(PoolError::Damaged(_))));
}
