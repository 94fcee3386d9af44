//! The extents of its share that a cache needs. Its layout is that of the largest share. The part before the
//! slots is always there. Of the slots, and of the index pages that speak of them, only as many are there as
//! are in use.

use crate::layout::{Layout, SHARD_BASE};
use crate::page::PER_PAGE;
use crate::units::BLOCK;
use std::collections::BTreeSet;
use std::ops::Range;

/// Fewest slots of a shard: below, what is kept free for overwrites leaves too little.
pub const MIN_SLOTS: u32 = 2048;

/// The stretches of shard `shard` that are there with `limit` slots.
fn stretches(layout: &Layout, shard: u16, limit: u32) -> [Range<u64>; 4] {
    let l = layout.shard(shard);
    let limit = limit.min(l.slots);
    let pages = u64::from(limit).div_ceil(PER_PAGE as u64) * BLOCK;
    [
        l.roots[0]..l.pages[0],
        l.pages[0]..l.pages[0] + pages,
        l.pages[1]..l.pages[1] + pages,
        l.journal..l.slot(limit),
    ]
}

/// The extents that a cache needs with `limit` slots in each shard, as ranges, ascending and apart.
fn ranges(layout: &Layout, extent: u64, limit: u32) -> Vec<Range<u32>> {
    let shards = (0..layout.shards).flat_map(|s| stretches(layout, s, limit));
    let mut apart: Vec<Range<u32>> = Vec::new();
    for r in std::iter::once(0..SHARD_BASE).chain(shards).filter(|r| !r.is_empty()) {
        let (start, end) = ((r.start / extent) as u32, r.end.div_ceil(extent) as u32);
        match apart.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => apart.push(start..end),
        }
    }
    apart
}

/// The extents that a cache needs with `limit` slots in each shard, of `extent` bytes each, in ascending order.
pub fn needed(layout: &Layout, extent: u64, limit: u32) -> Vec<u32> {
    ranges(layout, extent, limit).into_iter().flatten().collect()
}

/// The number of extents that are needed.
pub fn count(layout: &Layout, extent: u64, limit: u32) -> u32 {
    ranges(layout, extent, limit).iter().map(|r| r.end - r.start).sum()
}

/// Most slots a shard of this layout may have.
pub fn most(layout: &Layout) -> u32 {
    // All shards are alike.
    layout.shard(0).slots
}

/// The most slots that each shard can have with `extents` extents; `None` below [`MIN_SLOTS`].
pub fn limit_for(layout: &Layout, extent: u64, extents: u32) -> Option<u32> {
    let (mut low, mut high) = (MIN_SLOTS, most(layout));
    if high < low || count(layout, extent, low) > extents {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if count(layout, extent, middle) <= extents { low = middle } else { high = middle - 1 }
    }
    Some(low)
}

/// The most slots that each shard can have with exactly these extents (ascending); `None` below [`MIN_SLOTS`].
pub fn limit_with(layout: &Layout, extent: u64, have: &BTreeSet<u32>) -> Option<u32> {
    let there = |r: &Range<u32>| {
        let n = (r.end - r.start) as usize;
        n <= have.len() && have.range(r.clone()).count() == n
    };
    let fits = |limit| ranges(layout, extent, limit).iter().all(there);
    let (mut low, mut high) = (MIN_SLOTS, most(layout));
    if high < low || !fits(low) {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn more_slots_need_no_fewer_extents_and_all_need_the_whole() {
        for shards in [1, 3] {
            let l = Layout::new(512 * MIB, shards, 2 * MIB).unwrap();
            let mut before: BTreeSet<u32> = BTreeSet::new();
            for limit in (0..=most(&l)).step_by(509).chain([most(&l)]) {
                let now: BTreeSet<u32> = needed(&l, 4 * MIB, limit).into_iter().collect();
                assert!(before.is_subset(&now), "{limit}");
                before = now;
            }
            assert_eq!(before.into_iter().collect::<Vec<_>>(), (0..128).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_limit_for_some_extents_is_the_limit_with_those_it_needs() {
        let l = Layout::new(2048 * MIB, 2, 2 * MIB).unwrap();
        for extents in 1..=600 {
            let Some(limit) = limit_for(&l, 4 * MIB, extents) else { continue };
            let have: BTreeSet<u32> = needed(&l, 4 * MIB, limit).into_iter().collect();
            assert!(have.len() <= extents as usize);
            assert_eq!(limit_with(&l, 4 * MIB, &have), Some(limit), "{extents}");
            assert!(limit == most(&l) || count(&l, 4 * MIB, limit + 1) > extents);
        }
        assert_eq!(limit_for(&l, 4 * MIB, 4), None);
    }

    #[test]
    fn a_small_share_of_a_large_layout_adds_little_to_its_slots() {
        // 64 GiB at most, 1 GiB now.
        let l = Layout::new(65_536 * MIB, 1, 16 * MIB).unwrap();
        let extents = count(&l, 4 * MIB, 262_144);
        assert!((256..=266).contains(&extents), "{extents}");
    }
}
