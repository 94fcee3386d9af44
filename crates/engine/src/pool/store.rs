//! The life of a pool on its device. Every change of the table is one commit: the table goes to the place that is not in use,
//! then the superblocks name it, one after the other with a flush between. Cut off anywhere, the table is the old or the new
//! one.
//!
//! An extent that changes hands must never show its last owner's content as the new one's. Slots, index pages and journal
//! frames are believed only where something that carries the member's own cache id, and a checksum, speaks of them. Only a
//! superblock is believed for its own sake: so the first extent of a member is wiped before the table gives it away, and
//! an extent is given away only by a commit that follows the one that took it from its last owner, or is the same.

use crate::bug::{Bug, planted};
use crate::copies::write_missing;
use loligo_block::{SyncIo, crc32c, keyed};
use loligo_format::layout::SHARD_BASE;
use loligo_format::pool::format::{
    Division, Found, POOL_SUPERBLOCK, POOL_SUPERBLOCKS, PoolSuper, decode_table, encode_table,
};
use loligo_format::pool::{Member, PoolError, Table, share};

/// A pool, as its device has it.
#[derive(Debug)]
pub struct Pool {
    superblock: PoolSuper,
    table: Table,
    /// A commit failed: what the device holds is the old table or the new one.
    stuck: bool,
    bug: Option<Bug>,
}

impl Pool {
    /// Makes an empty pool on the first `size` bytes of `dev`. Data there is overwritten. A format that is
    /// cut off anywhere leaves no pool.
    ///
    /// # Errors
    /// If it is too small, or the device fails.
    pub fn format(dev: &mut dyn SyncIo, uuid: [u8; 16], size: u64) -> Result<Pool, PoolError> {
        let division = Division::new(size)?;
        if division.size > dev.size() {
            return Err(PoolError::Cut(dev.size(), division.size));
        }
        for at in POOL_SUPERBLOCKS {
            dev.write_at(at, &vec![0; POOL_SUPERBLOCK])?;
            dev.flush()?;
        }
        let superblock = PoolSuper { generation: 0, uuid, division, which: 1, table_len: 0, table_crc: 0 };
        let mut pool = Pool { superblock, table: Table::empty(division), stuck: false, bug: None };
        pool.commit(dev, Table::empty(division))?;
        Ok(pool)
    }

    /// Reads a pool, changing nothing.
    ///
    /// # Errors
    /// If there is none, or it cannot be used.
    pub fn load(dev: &mut dyn SyncIo) -> Result<Pool, PoolError> {
        let superblock = match PoolSuper::look(dev)? {
            Found::Pool(sb) => *sb,
            Found::Absent | Found::Unfinished => return Err(PoolError::Absent),
        };
        if dev.size() < superblock.division.size {
            return Err(PoolError::Cut(dev.size(), superblock.division.size));
        }
        let mut raw = vec![0; superblock.table_len as usize];
        dev.read_at(superblock.division.table(superblock.which), &mut raw)?;
        if crc32c(&raw) != superblock.table_crc {
            return Err(PoolError::Damaged("table: checksum".into()));
        }
        let table = decode_table(&raw, &superblock)?;
        Ok(Pool { superblock, table, stuck: false, bug: None })
    }

    /// Opens a pool for changes: both superblocks are made alike, so that the place which the older one names may be written.
    ///
    /// # Errors
    /// As [`Pool::load`].
    pub fn open(dev: &mut dyn SyncIo, bug: Option<Bug>) -> Result<Pool, PoolError> {
        let mut pool = Pool::load(dev)?;
        pool.bug = bug;
        let raw = pool.superblock.encode();
        write_missing(dev, POOL_SUPERBLOCKS, &raw)?;
        // What was read may not be durable yet: from here on it counts as such.
        dev.flush()?;
        Ok(pool)
    }

    /// The superblock's content.
    pub fn superblock(&self) -> &PoolSuper {
        &self.superblock
    }

    /// The table of who has what.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Bytes of an extent.
    pub fn extent(&self) -> u64 {
        self.superblock.division.extent
    }

    /// Adds a member with the share it is promised, which holds no cache yet.
    ///
    /// # Errors
    /// [`PoolError::Refused`] with the reason, or the device's.
    pub fn attach(&mut self, dev: &mut dyn SyncIo, member: Member) -> Result<(), PoolError> {
        let number = member.number;
        let mut next = self.table.clone();
        next.attach(member)?;
        if !planted(self.bug, Bug::ExtentNotWiped) {
            self.wipe_first(dev, &next, number)?;
        }
        self.commit(dev, next)
    }

    /// Takes a member out. The content of its cache is lost.
    ///
    /// # Errors
    /// If it is none, or the device's.
    pub fn detach(&mut self, dev: &mut dyn SyncIo, number: u16) -> Result<(), PoolError> {
        let mut next = self.table.clone();
        next.detach(number)?;
        self.commit(dev, next)
    }

    /// Gives a member room for `limit` slots in each shard, or takes what is above. Nothing of what is taken may be in use any
    /// more.
    ///
    /// # Errors
    /// If there is no room, it would have too few, or the device's.
    pub fn resize(&mut self, dev: &mut dyn SyncIo, number: u16, limit: u32) -> Result<(), PoolError> {
        let mut next = self.table.clone();
        next.resize(number, limit)?;
        self.commit(dev, next)
    }

    /// Changes what a member is promised, and its weight.
    ///
    /// # Errors
    /// If that cannot be, or the device's.
    pub fn promise(
        &mut self,
        dev: &mut dyn SyncIo,
        number: u16,
        min: u64,
        weight: u32,
    ) -> Result<(), PoolError> {
        let mut next = self.table.clone();
        next.promise(number, min, weight)?;
        self.commit(dev, next)
    }

    /// Notes what the core of a member is; nothing is written where that is known.
    ///
    /// # Errors
    /// If another member has that core, or the device's.
    pub fn identify(&mut self, dev: &mut dyn SyncIo, number: u16, core: &str) -> Result<(), PoolError> {
        if core.is_empty() || self.table.known(number)?.core == core {
            return Ok(());
        }
        let mut next = self.table.clone();
        next.identify(number, core)?;
        self.commit(dev, next)
    }

    /// Takes in what a device that grew has more.
    ///
    /// # Errors
    /// If it has not grown, or the device's.
    pub fn grow(&mut self, dev: &mut dyn SyncIo) -> Result<(), PoolError> {
        let division = self.superblock.division.grown(dev.size())?;
        let before = std::mem::replace(&mut self.superblock.division, division);
        let result = self.commit(dev, self.table.clone().grown(division));
        if result.is_err() {
            self.superblock.division = before;
        }
        result
    }

    /// Slots that each shard of a member would have with `bytes`, as near as its extents allow.
    ///
    /// # Errors
    /// If it is none, or they are too few.
    pub fn limit_for(&self, number: u16, bytes: u64) -> Result<u32, PoolError> {
        let member = self.table.known(number)?;
        let layout = member.layout()?;
        share::limit_for(&layout, self.extent(), self.table.extents_in(bytes)).ok_or_else(|| {
            let least = u64::from(share::count(&layout, self.extent(), share::MIN_SLOTS)) * self.extent();
            PoolError::Refused(keyed!("core {number} needs at least {least} bytes, {bytes} are given"))
        })
    }

    /// Zeros where a member's superblocks and its first shard's roots will be.
    fn wipe_first(&self, dev: &mut dyn SyncIo, next: &Table, number: u16) -> Result<(), PoolError> {
        let first = next.extents_of(number).get(&0).copied();
        let Some(there) = first else {
            return Err(PoolError::Damaged(format!("table: member {number} lacks its start")));
        };
        let zeros = vec![0; (2 * SHARD_BASE).min(self.extent()) as usize];
        dev.write_at(self.superblock.division.extent_at(there), &zeros)?;
        dev.flush()?;
        Ok(())
    }

    fn commit(&mut self, dev: &mut dyn SyncIo, next: Table) -> Result<(), PoolError> {
        if self.stuck {
            return Err(PoolError::Stuck);
        }
        self.stuck = true;
        let mut sb = self.superblock.clone();
        sb.generation += 1;
        sb.which = 1 - sb.which;
        let raw = encode_table(&next, sb.pool_id(), sb.generation);
        (sb.table_len, sb.table_crc) = (raw.len() as u32, crc32c(&raw));
        let at = if planted(self.bug, Bug::TableInPlace) { 1 - sb.which } else { sb.which };
        sb.which = at;
        dev.write_at(sb.division.table(at), &raw)?;
        dev.flush()?;
        let raw = sb.encode();
        for at in POOL_SUPERBLOCKS.into_iter().rev() {
            dev.write_at(at, &raw)?;
            dev.flush()?;
        }
        (self.superblock, self.table, self.stuck) = (sb, next, false);
        Ok(())
    }
}

/// Makes the device no pool any more: both superblocks become zeros, durably.
///
/// # Errors
/// Those of the device.
pub fn wipe(dev: &mut dyn SyncIo) -> Result<(), PoolError> {
    for at in POOL_SUPERBLOCKS {
        dev.write_at(at, &vec![0; POOL_SUPERBLOCK])?;
        dev.flush()?;
    }
    Ok(())
}
