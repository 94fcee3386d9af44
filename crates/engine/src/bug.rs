//! Planted bugs: each breaks one rule of the design, and the simulator must catch it. Only compiled with the feature
//! `planted-bugs`; without it [`planted`] is `false` for the compiler.

/// A rule to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// Frames take effect as they complete, not in order.
    JournalOrderSwapped,
    /// Data is served without looking at its checksum.
    CrcCheckDropped,
    /// A slot is reused before the record that ended its mapping is durable.
    SlotReusedEarly,
    /// Blocks are marked clean before the core's flush.
    CleanBeforeCoreFlush,
    /// Recovery takes records without comparing their data.
    RecordWithoutData,
    /// A stop writes only one superblock and leaves its generation, so that recovery takes the older one.
    StaleSuperblock,
    /// A write goes to the core without an intent.
    CoreWriteWithoutIntent,
    /// Recovery keeps the epoch, so that a stale tail counts.
    StaleTailReplayed,
    /// FUA and FLUSH are answered at their own frame, whatever is missing before it.
    FuaPastGap,
    /// Recovery leaves the page as it is that names the older version of a block which the image names twice.
    OlderEntryKept,
    /// Versions go to the core before they are durable on the cache.
    DestagedBeforeDurable,
    /// While the core is frozen the newest version of a block goes there in place of the pinned one.
    NewestInsteadOfPinned,
    /// Changes go past the cache while the core is frozen.
    BypassWhileFrozen,
    /// The slot of a pinned version is reused as if nothing pinned it.
    PinnedSlotReused,
    /// A shrink is over before a checkpoint forgets the slots it gives away.
    ShrunkBeforeCheckpoint,
    /// A shrink is over while slots that it gives away are still read, or their records not durable.
    ShrunkWhileLeaving,
    /// Changes under way when the core goes on alone are answered although the core does not have them.
    FallbackUnwritten,
    /// Changes under way when the core goes on alone are made again as zeros.
    ReplayedWithoutPayload,
    /// A read of the core that spans cached blocks fails where one of them cannot be read there.
    BridgedWithoutFallback,
    /// Changes go to the core before it is noted that what the cache that is gone holds is void.
    FallbackUnnoted,
    /// Requests go on after an exchange that broke off, so that engines of two kinds answer.
    MixedEngines,
    /// A cache that was taken away keeps its superblocks.
    DetachedUnwiped,
    /// A pool gives its new member a first extent with the last owner's superblock in it.
    ExtentNotWiped,
    /// A change that finds no room in a jammed cache is answered, and written nowhere.
    PassedByUnwritten,
    /// A device that the array has fenced this controller from is taken for one that has failed.
    FencedTakenForFailed,
    /// A pool's table is written where the one in use is.
    TableInPlace,
}

/// True if `bug` is planted.
#[inline]
pub(crate) fn planted(have: Option<Bug>, bug: Bug) -> bool {
    cfg!(feature = "planted-bugs") && have == Some(bug)
}
