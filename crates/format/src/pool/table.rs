//! The owners of extents: the table of a pool, and what may be changed in it.

use super::format::{Division, MAX_MEMBERS, NAME_LEN};
use super::{PoolError, share};
use crate::layout::Layout;
use crate::units::BLOCK;
use loligo_block::keyed;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Members that a refusal tells of by name.
const TOLD: usize = 8;

/// A core that has a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The core's number, below [`MAX_MEMBERS`].
    pub number: u16,
    /// Shards of its cache.
    pub shards: u16,
    /// Its weight when what several want is divided.
    pub weight: u32,
    /// Bytes that nobody takes from it.
    pub min: u64,
    /// Bytes that it may have; its cache is laid out for so many.
    pub max: u64,
    /// Bytes of the journal of each shard.
    pub journal_len: u64,
    /// Its volume.
    pub name: String,
    /// WWN or serial of the core, empty where that is not known.
    pub core: String,
}

impl Member {
    /// The layout of its cache.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn layout(&self) -> Result<Layout, PoolError> {
        let layout = Layout::new(self.max, self.shards, self.journal_len)
            .map_err(|e| PoolError::Refused(keyed!("member {}: {e}", self.number)))?;
        if layout.shard_len / BLOCK > u64::from(u32::MAX) {
            return Err(PoolError::Refused(keyed!(
                "member {}: more than 16 TiB a shard; give more shards, or a smaller maximum",
                self.number
            )));
        }
        if layout.cache_size != self.max || layout.journal_len != self.journal_len {
            return Err(PoolError::Refused(keyed!("member {}: sizes that are not rounded", self.number)));
        }
        Ok(layout)
    }
}

/// The owner of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The member's number.
    pub member: u16,
    /// Its index among the extents of the share.
    pub index: u32,
}

/// Members and extents, in order of number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    members: Vec<Member>,
    owners: Vec<Option<Owner>>,
    extent: u64,
}

impl Table {
    /// A pool without members.
    pub fn empty(division: Division) -> Table {
        Table { members: Vec::new(), owners: vec![None; division.extents as usize], extent: division.extent }
    }

    /// A table read from a device.
    ///
    /// # Errors
    /// If it contradicts itself.
    pub fn new(
        members: Vec<Member>,
        owners: Vec<Option<Owner>>,
        division: Division,
    ) -> Result<Table, PoolError> {
        let bad = |what: String| Err(PoolError::Damaged(format!("table: {what}")));
        if !members.is_sorted_by(|a, b| a.number < b.number) {
            return bad("members out of order".into());
        }
        for m in &members {
            let sizes = m.min <= m.max && m.max / division.extent <= u64::from(u32::MAX - 1);
            if m.number >= MAX_MEMBERS || m.weight == 0 || !sizes || m.layout().is_err() {
                return bad(format!("member {}", m.number));
            }
        }
        let table = Table { members, owners, extent: division.extent };
        let mut seen = BTreeSet::new();
        for (n, owner) in table.owners.iter().enumerate() {
            let Some(owner) = owner else { continue };
            let fits = table
                .member(owner.member)
                .is_some_and(|m| u64::from(owner.index) < m.max.div_ceil(division.extent));
            if !fits || !seen.insert(*owner) {
                return bad(format!("extent {n} as number {} of member {}", owner.index, owner.member));
            }
        }
        let mut have: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        for owner in seen {
            have.entry(owner.member).or_default().insert(owner.index);
        }
        for m in &table.members {
            let have = have.remove(&m.number).unwrap_or_default();
            if share::limit_with(&m.layout()?, table.extent, &have).is_none() {
                return bad(format!("member {} lacks extents that it cannot be without", m.number));
            }
        }
        Ok(table)
    }

    /// The same with the extents of a device that grew.
    pub fn grown(mut self, division: Division) -> Table {
        self.owners.resize(division.extents as usize, None);
        self
    }

    /// Says what the core of a member is, which was not known.
    ///
    /// # Errors
    /// If it is none, or another member has that core.
    pub fn identify(&mut self, number: u16, core: &str) -> Result<(), PoolError> {
        if let Some(have) = self.members.iter().find(|m| m.number != number && m.core == core) {
            return Err(PoolError::Refused(keyed!(
                "{core} is core {} of this pool already, '{}'",
                have.number,
                have.name
            )));
        }
        let at = self.members.binary_search_by_key(&number, |m| m.number);
        self.members[at.map_err(|_| PoolError::NoMember(number))?].core = core.to_owned();
        Ok(())
    }

    /// Every member.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The owner of each extent.
    pub fn owners(&self) -> &[Option<Owner>] {
        &self.owners
    }

    /// The member with this number.
    pub fn member(&self, number: u16) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&number, |m| m.number).ok()?;
        Some(&self.members[at])
    }

    /// The same, or a refusal.
    ///
    /// # Errors
    /// If there is none.
    pub fn known(&self, number: u16) -> Result<&Member, PoolError> {
        self.member(number).ok_or(PoolError::NoMember(number))
    }

    /// Extents that nobody has.
    pub fn free(&self) -> u32 {
        self.owners.iter().filter(|o| o.is_none()).count() as u32
    }

    /// The extents of a member: which of its own, and which of the device.
    pub fn extents_of(&self, number: u16) -> BTreeMap<u32, u32> {
        let all = (0u32..).zip(&self.owners);
        all.filter_map(|(n, o)| o.filter(|o| o.member == number).map(|o| (o.index, n))).collect()
    }

    /// Slots in use in each shard of a member.
    ///
    /// # Errors
    /// If it is none, or lacks what it cannot be without.
    pub fn limit(&self, number: u16) -> Result<u32, PoolError> {
        let layout = self.known(number)?.layout()?;
        let have = self.extents_of(number).into_keys().collect();
        share::limit_with(&layout, self.extent, &have)
            .ok_or_else(|| PoolError::Damaged(format!("table: member {number} lacks extents")))
    }

    /// Extents that `bytes` are at the least.
    pub fn extents_in(&self, bytes: u64) -> u32 {
        bytes.div_ceil(self.extent).try_into().unwrap_or(u32::MAX)
    }

    /// Extents that a member gets for its promise. They may be some fewer than the bytes are: at times one more would be of no use
    /// without another.
    pub fn entitled(&self, m: &Member) -> u32 {
        self.useful(m, self.extents_in(m.min))
    }

    /// Extents that a member can use at the most.
    pub fn most(&self, m: &Member) -> u32 {
        self.useful(m, self.extents_in(m.max))
    }

    fn useful(&self, m: &Member, extents: u32) -> u32 {
        let Ok(layout) = m.layout() else { return 0 };
        let limit = share::limit_for(&layout, self.extent, extents);
        limit.map_or(0, |limit| share::count(&layout, self.extent, limit))
    }

    /// Extents that members have been promised and have not got.
    pub fn promised(&self) -> u32 {
        let mut has = BTreeMap::new();
        for owner in self.owners.iter().flatten() {
            *has.entry(owner.member).or_insert(0u32) += 1;
        }
        let missing =
            |m: &Member| self.extents_in(m.min).saturating_sub(has.get(&m.number).copied().unwrap_or(0));
        self.members.iter().map(missing).sum()
    }

    /// The extents that members beside `number` have and are promised, in words, those with most first; empty
    /// where there are none.
    fn others(&self, number: u16) -> String {
        let mut has = BTreeMap::new();
        for owner in self.owners.iter().flatten() {
            *has.entry(owner.member).or_insert(0u64) += self.extent;
        }
        let has = |m: &Member| has.get(&m.number).copied().unwrap_or(0);
        let mut others: Vec<&Member> = self.members.iter().filter(|m| m.number != number).collect();
        others.sort_by_key(|m| Reverse(has(m).max(m.min)));
        let words = |m: &&Member| {
            format!("core {} ('{}') has {} bytes and is promised {}", m.number, m.name, has(m), m.min)
        };
        let mut told: Vec<String> = others.iter().take(TOLD).map(words).collect();
        if others.len() > TOLD {
            told.push(format!("{} more cores", others.len() - TOLD));
        }
        if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) }
    }

    /// Adds a member with what it is promised. Its extents of the device.
    ///
    /// # Errors
    /// If its number, name or core is taken, its sizes cannot be, or there is no room.
    pub fn attach(&mut self, m: Member) -> Result<Vec<u32>, PoolError> {
        let refused = |what: String| Err(PoolError::Refused(what.into()));
        if m.number >= MAX_MEMBERS {
            return refused(format!("core {}: numbers go from 0 to {}", m.number, MAX_MEMBERS - 1));
        }
        if let Some(have) = self.member(m.number) {
            return refused(format!(
                "core {} is attached already, as '{}': detach it first, or give another number",
                m.number, have.name
            ));
        }
        if m.name.is_empty() || m.name.len() > NAME_LEN {
            return refused(format!("a name has 1 to {NAME_LEN} bytes, '{}' has {}", m.name, m.name.len()));
        }
        if let Some(have) = self.members.iter().find(|h| h.name == m.name) {
            return refused(format!(
                "core {} has the name '{}' already: give another one",
                have.number, m.name
            ));
        }
        if let Some(have) = self.members.iter().find(|h| !m.core.is_empty() && h.core == m.core) {
            return refused(format!(
                "{} is core {} of this pool already, '{}'",
                m.core, have.number, have.name
            ));
        }
        if m.weight == 0 || m.min > m.max {
            return refused("a weight is 1 or more, and a minimum not above the maximum".into());
        }
        let layout = m.layout()?;
        let wanted = self.extents_in(m.min);
        let Some(limit) = share::limit_for(&layout, self.extent, wanted) else {
            let least = u64::from(share::count(&layout, self.extent, share::MIN_SLOTS)) * self.extent;
            return refused(format!(
                "a share that may grow to {} bytes with {} shard(s) has at least {least}: give a larger --min or a smaller --max",
                m.max, m.shards
            ));
        };
        let free = self.free().saturating_sub(self.promised());
        if wanted > free {
            return refused(format!(
                "{} bytes are wanted and {} of the pool are free and promised to nobody{}: give a smaller --min, or detach or \
                 resize others",
                u64::from(wanted) * self.extent,
                u64::from(free) * self.extent,
                self.others(m.number)
            ));
        }
        let number = m.number;
        let at = self.members.partition_point(|h| h.number < number);
        self.members.insert(at, m);
        self.take(number, &share::needed(&layout, self.extent, limit))
    }

    /// Takes a member out; all its extents are free.
    ///
    /// # Errors
    /// If it is none.
    pub fn detach(&mut self, number: u16) -> Result<(), PoolError> {
        self.known(number)?;
        self.members.retain(|m| m.number != number);
        self.owners.iter_mut().filter(|o| o.is_some_and(|o| o.member == number)).for_each(|o| *o = None);
        Ok(())
    }

    /// Changes what a member is promised, and what it gets of the rest.
    ///
    /// # Errors
    /// If it is none, or that cannot be.
    pub fn promise(&mut self, number: u16, min: u64, weight: u32) -> Result<(), PoolError> {
        let mut next = self.clone();
        let at = next.members.binary_search_by_key(&number, |m| m.number);
        let member = &mut next.members[at.map_err(|_| PoolError::NoMember(number))?];
        let least = share::count(&member.layout()?, self.extent, share::MIN_SLOTS);
        (member.min, member.weight) = (min, weight);
        if weight == 0 || min > member.max || self.extents_in(min) < least {
            return Err(PoolError::Refused(keyed!(
                "core {number}: a minimum is {} to {} bytes, a weight 1 or more",
                u64::from(least) * self.extent,
                member.max
            )));
        }
        let promised = |m: &Member| u64::from(self.extents_in(m.min));
        let others: u64 = next.members.iter().filter(|m| m.number != number).map(promised).sum();
        let whole = self.owners.len() as u64;
        if others + u64::from(self.extents_in(min)) > whole {
            return Err(PoolError::Refused(keyed!(
                "core {number} cannot be promised {min} bytes: the pool has {}, and {} are promised to others{}. Give {} at most, or \
                 others a smaller --min first",
                whole * self.extent,
                others * self.extent,
                self.others(number),
                whole.saturating_sub(others) * self.extent
            )));
        }
        *self = next;
        Ok(())
    }

    /// Gives a member what it needs for `limit` slots in each shard, or takes what it does not.
    ///
    /// # Errors
    /// If it is none, there are not so many free, or it would have too few.
    pub fn resize(&mut self, number: u16, limit: u32) -> Result<(), PoolError> {
        let layout = self.known(number)?.layout()?;
        if limit < share::MIN_SLOTS || limit > share::most(&layout) {
            return Err(PoolError::Refused(keyed!(
                "core {number}: {limit} slots a shard; there can be {} to {}",
                share::MIN_SLOTS,
                share::most(&layout)
            )));
        }
        if share::count(&layout, self.extent, limit) as usize > self.owners.len() {
            return Err(PoolError::Refused(keyed!(
                "core {number}: {limit} slots a shard are more than the pool has"
            )));
        }
        let wanted: BTreeSet<u32> = share::needed(&layout, self.extent, limit).into_iter().collect();
        let have = self.extents_of(number);
        let missing: Vec<u32> = wanted.iter().filter(|e| !have.contains_key(e)).copied().collect();
        if missing.len() as u32 > self.free() {
            return Err(PoolError::Refused(keyed!(
                "core {number} would need {} bytes more, and {} of the pool are free{}: give a smaller size, or others one first",
                missing.len() as u64 * self.extent,
                u64::from(self.free()) * self.extent,
                self.others(number)
            )));
        }
        for (index, there) in have {
            if !wanted.contains(&index) {
                self.owners[there as usize] = None;
            }
        }
        self.take(number, &missing).map(drop)
    }

    /// Finds free extents for those of a member: neighbours beside neighbours where that can be.
    fn take(&mut self, number: u16, indices: &[u32]) -> Result<Vec<u32>, PoolError> {
        let mut have = self.extents_of(number);
        let (mut hand, mut taken) = (0, Vec::new());
        for &index in indices {
            let beside = index.checked_sub(1).and_then(|i| have.get(&i)).map(|n| n + 1);
            let is_free = |n: u32| self.owners.get(n as usize) == Some(&None);
            let there = match beside.filter(|n| is_free(*n)) {
                Some(n) => n,
                None => {
                    let next = (hand..self.owners.len() as u32).find(|n| is_free(*n));
                    next.ok_or_else(|| PoolError::Refused("the pool has no free extent".into()))?
                }
            };
            if beside != Some(there) {
                hand = there;
            }
            self.owners[there as usize] = Some(Owner { member: number, index });
            have.insert(index, there);
            taken.push(there);
        }
        Ok(taken)
    }
}
