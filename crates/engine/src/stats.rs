//! The counters of a shard. Plain numbers: the runtime copies them out, nothing here is shared.

use hdrhistogram::Histogram;

/// The reason why a request, or part of one, did not use the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Bypass {
    /// The stream is longer than the sequential threshold.
    Sequential,
    /// The mode does not cache it.
    Mode,
    /// The admission policy wants to see it again first.
    Admission,
    /// No free slot for a fill, or for a write while nothing that is dirty can make room.
    NoSlot,
    /// The block was written while the core was read.
    Raced,
    /// Large discards and zeroes go to the core.
    Zeroes,
    /// A large write, which the core takes as well as the cache while that has no room to spare.
    Large,
    /// The cache is gone, and the core alone serves.
    Gone,
}

impl Bypass {
    /// Every reason, in order.
    pub const ALL: [(Bypass, &'static str); 8] = [
        (Bypass::Sequential, "sequential"),
        (Bypass::Mode, "mode"),
        (Bypass::Admission, "admission"),
        (Bypass::NoSlot, "no_slot"),
        (Bypass::Raced, "raced"),
        (Bypass::Zeroes, "zeroes"),
        (Bypass::Large, "large"),
        (Bypass::Gone, "gone"),
    ];
}

/// Counters and histograms of one shard; [`Stats::merge`] adds those of another.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Data capacity of the slots, bytes.
    pub cache_bytes: u64,
    /// Bytes of blocks mapped.
    pub occupied_bytes: u64,
    /// Bytes of blocks with a dirty sector.
    pub dirty_bytes: u64,
    /// Requests served wholly from the cache.
    pub read_hits: u64,
    /// Other reads.
    pub read_misses: u64,
    /// Writes whose every block was cached.
    pub write_hits: u64,
    /// Other writes.
    pub write_misses: u64,
    /// Bytes that reads asked for.
    pub read_bytes: u64,
    /// Bytes that writes carried; zeroes and discards carry none.
    pub write_bytes: u64,
    /// By [`Bypass`].
    pub bypass: [u64; 8],
    /// Blocks whose data did not match its checksum.
    pub crc_errors: u64,
    /// Of those, answered from the core.
    pub crc_repaired: u64,
    /// Dirty blocks that the core refuses now, with those that wait beside them untried.
    pub refused_blocks: u64,
    /// Device operations that failed.
    pub io_errors: u64,
    /// Bytes read from the cache device.
    pub cache_read_bytes: u64,
    /// Bytes written to it, journal and checkpoints included.
    pub cache_write_bytes: u64,
    /// Bytes read from the core.
    pub core_read_bytes: u64,
    /// Bytes written to it.
    pub core_write_bytes: u64,
    /// Groups of writes sent to the core.
    pub core_groups: u64,
    /// Writes in them.
    pub core_group_pieces: u64,
    /// Flushes of the cache device.
    pub cache_flushes: u64,
    /// Flushes of the core.
    pub core_flushes: u64,
    /// Blocks destaged.
    pub destaged_blocks: u64,
    /// Lines evicted.
    pub evictions: u64,
    /// Read misses promoted, blocks.
    pub fills: u64,
    /// Versions kept for a freeze although newer ones took effect.
    pub pinned_blocks: u64,
    /// Checkpoints committed.
    pub checkpoints: u64,
    /// Writes delayed by the pacer.
    pub paced: u64,
    /// Journal bytes that recovery would read now.
    pub journal_bytes: u64,
    /// Blocks a second the destager manages (its last second).
    pub destage_rate: u64,
    /// The cache stopped acknowledging after a failed durability step.
    pub poisoned: bool,
    /// Reads, ns from arrival to answer.
    pub read_ns: Histogram<u64>,
    /// Writes, discards and zeroes.
    pub write_ns: Histogram<u64>,
    /// Flushes.
    pub flush_ns: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 120_000_000_000, 2).expect("the bounds are in range")
}

impl Default for Stats {
    fn default() -> Stats {
        Stats {
            cache_bytes: 0,
            occupied_bytes: 0,
            dirty_bytes: 0,
            read_hits: 0,
            read_misses: 0,
            write_hits: 0,
            write_misses: 0,
            read_bytes: 0,
            write_bytes: 0,
            bypass: [0; 8],
            crc_errors: 0,
            crc_repaired: 0,
            refused_blocks: 0,
            io_errors: 0,
            cache_read_bytes: 0,
            cache_write_bytes: 0,
            core_read_bytes: 0,
            core_write_bytes: 0,
            core_groups: 0,
            core_group_pieces: 0,
            cache_flushes: 0,
            core_flushes: 0,
            destaged_blocks: 0,
            evictions: 0,
            fills: 0,
            pinned_blocks: 0,
            checkpoints: 0,
            paced: 0,
            journal_bytes: 0,
            destage_rate: 0,
            poisoned: false,
            read_ns: histogram(),
            write_ns: histogram(),
            flush_ns: histogram(),
        }
    }
}

macro_rules! counters {
    ($($f:ident),+ $(,)?) => {
        impl Stats {
            /// Every plain counter by name, in order.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($f), self.$f)),+]
            }

            fn add_counters(&mut self, o: &Stats) {
                // A field that the compiler misses here is a counter: its name goes into `counters!`.
                let Stats { $($f,)+ bypass: _, poisoned: _, read_ns: _, write_ns: _, flush_ns: _ } = o;
                $(self.$f += $f;)+
            }
        }
    };
}
counters!(
    cache_bytes,
    occupied_bytes,
    dirty_bytes,
    read_hits,
    read_misses,
    write_hits,
    write_misses,
    read_bytes,
    write_bytes,
    crc_errors,
    crc_repaired,
    refused_blocks,
    io_errors,
    cache_read_bytes,
    cache_write_bytes,
    core_read_bytes,
    core_write_bytes,
    core_groups,
    core_group_pieces,
    cache_flushes,
    core_flushes,
    destaged_blocks,
    evictions,
    fills,
    pinned_blocks,
    checkpoints,
    paced,
    journal_bytes,
    destage_rate,
);

impl Stats {
    /// Counts `n` bypasses for `why`.
    pub(crate) fn bypassed(&mut self, why: Bypass, n: u64) {
        self.bypass[why as usize] += n;
    }

    /// Adds another shard's numbers.
    pub fn merge(&mut self, o: &Stats) {
        self.add_counters(o);
        for (mine, theirs) in self.bypass.iter_mut().zip(o.bypass) {
            *mine += theirs;
        }
        self.poisoned |= o.poisoned;
        for (mine, theirs) in [
            (&mut self.read_ns, &o.read_ns),
            (&mut self.write_ns, &o.write_ns),
            (&mut self.flush_ns, &o.flush_ns),
        ] {
            mine.add(theirs).expect("same bounds");
        }
    }
}
