//! The reason why the engine does not do what management asks, and why a cache is not in use any more.

use loligo_block::IoError;
use loligo_format::mode::Mode;
use loligo_format::pool::share::MIN_SLOTS;
use thiserror::Error;

/// A step that durability rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Step {
    /// Data of a change, or of a fill.
    #[error("writing data to the cache")]
    Data,
    /// A frame of the journal.
    #[error("writing the journal")]
    Journal,
    /// A page, a directory or a root.
    #[error("writing a checkpoint")]
    Checkpoint,
    /// A flush of the cache device.
    #[error("flushing the cache")]
    CacheFlush,
    /// A flush of the core.
    #[error("flushing the core")]
    CoreFlush,
}

/// The reason why a cache is not in use any more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// It was stopped.
    #[error("stopped")]
    Stopped,
    /// A device failed in a step that durability rests on.
    #[error("{0} failed: {1}")]
    Device(Step, Box<IoError>),
    /// It was given up from outside, for this reason.
    #[error("{0}")]
    GivenUp(String),
    /// The devices are somebody else's, in these words: nothing is written to either of them any more.
    #[error("{0}")]
    Expelled(String),
}

/// The error with which the core refused a write.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("writing to the core failed: {0}")]
pub struct CoreWriteError(Box<IoError>);

impl From<IoError> for CoreWriteError {
    fn from(why: IoError) -> CoreWriteError {
        CoreWriteError(Box::new(why))
    }
}

impl Failure {
    /// `step` failed like this.
    pub fn device(step: Step, why: IoError) -> Failure {
        Failure::Device(step, Box::new(why))
    }
}

#[cfg(test)]
impl CoreWriteError {
    /// One that says `text`.
    pub(crate) fn saying(text: &str) -> CoreWriteError {
        IoError::new(loligo_block::IoKind::Io, text).into()
    }
}

/// The reason why the core alone could not go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NeedsCache {
    /// The mode lets the cache be ahead of the core.
    #[error("in mode {0} the core may lack what is on the cache")]
    Mode(Mode),
    /// Something is dirty, or is about to be.
    #[error("the core lacks dirty blocks")]
    Dirty,
    /// A stop is under way.
    #[error("the cache is being stopped")]
    Stopping,
    /// Somebody else has the core, for this reason.
    #[error("{0}")]
    Fenced(String),
}

/// The reason why a management request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ControlError {
    /// The cache is not in use any more.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Somebody else has the core, for this reason.
    #[error("{0}")]
    Fenced(String),
    /// The core alone cannot go on.
    #[error(transparent)]
    NeedsCache(#[from] NeedsCache),
    /// There is no cache whose mode could be another.
    #[error("the cache is gone: the volume is served without it")]
    CacheGone,
    /// A stop is under way.
    #[error("the cache is being stopped")]
    Stopping,
    /// A stop has begun meanwhile.
    #[error("given up: the cache is being stopped")]
    EndedByStop,
    /// The same, of a volume that is served by its core alone.
    #[error("given up: the volume is being stopped")]
    EndedByVolumeStop,
    /// A thaw came first.
    #[error("given up")]
    Thawed,
    /// Another limit came first.
    #[error("given up: the share is to have another size")]
    OtherLimit,
    /// One freeze at a time.
    #[error("the core is frozen already: thaw it first")]
    Frozen,
    /// A block is not what it was at the moment, while the core has nothing good in its place.
    #[error(
        "the core refuses a block of 4 KiB that was overwritten since: it cannot be brought to the moment"
    )]
    Overwritten,
    /// Dirty data is not what was written.
    #[error(
        "dirty data at byte {at} of the volume does not match its checksum: it stays dirty and was not written; \
         overwrite the 4 KiB there, or restore it from a backup"
    )]
    Damaged {
        /// Byte of the volume.
        at: u64,
    },
    /// The core does not take some blocks. Only all shards together know which sectors it is.
    #[error(
        "the core refuses {} of 4 KiB ({why}), which stay dirty on the cache: 'loligo stats' names the sectors and the mend",
        blocks_text(*blocks)
    )]
    Refused {
        /// So many, and those that wait beside them.
        blocks: u64,
        /// The reason why the first of them was refused.
        why: CoreWriteError,
    },
    /// Something near it was refused, so that it is not tried for a while.
    #[error(
        "the core refuses what is beside a dirty block, which is not tried for now: try again in a moment"
    )]
    Waits,
    /// Content of the core that it does not take back stays in memory.
    #[error(
        "the core refuses {blocks} blocks of 4 KiB that it held before ({}), and the cache has no room for them: \
         'loligo stats' names the sectors",
        why.as_ref().map_or_else(String::new, ToString::to_string)
    )]
    NoRoom {
        /// So many.
        blocks: u64,
        /// The reason why the newest of them was refused.
        why: Option<CoreWriteError>,
    },
    /// A flush of what is dirty was left undone.
    #[error("not all of it is in the core: {0}")]
    Incomplete(Box<ControlError>),
    /// Clients are faster than the core.
    #[error(
        "not all of it is in the core: blocks in the MiB at byte {at} of the volume are overwritten faster than they can \
         be brought there; flush again when less is written"
    )]
    Rewritten {
        /// Byte of the volume.
        at: u64,
    },
    /// The core refused a write.
    #[error(transparent)]
    Core(#[from] CoreWriteError),
    /// The core alone is there, and its flush has failed.
    #[error("the core cannot be flushed")]
    CoreFlush,
    /// It was not asked whether to go on with the core alone.
    #[error("this shard does not wait to serve from its core alone")]
    NotWaiting,
    /// A limit that no share can have.
    #[error("a share of {limit} slots: there can be {MIN_SLOTS} to {most}, and none of a cache that stops")]
    Limit {
        /// Slots asked for.
        limit: u32,
        /// Slots that the shard has at most.
        most: u32,
    },
}

fn blocks_text(blocks: u64) -> String {
    match blocks {
        1 => "a block".to_owned(),
        n => format!("{n} blocks"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ControlId, Dev};
    use loligo_block::Op;

    #[test]
    fn a_refusal_makes_no_effect_larger() {
        let told = size_of::<(ControlId, Result<(), ControlError>)>();
        assert!(told <= size_of::<(Dev, Op)>(), "{told}");
    }

    #[test]
    fn texts_count_blocks() {
        let why = CoreWriteError::saying("x");
        let one = ControlError::Refused { blocks: 1, why: why.clone() }.to_string();
        assert!(one.starts_with("the core refuses a block of 4 KiB (writing to the core failed: "), "{one}");
        let all = ControlError::Incomplete(Box::new(ControlError::Refused { blocks: 3, why })).to_string();
        assert!(
            all.starts_with("not all of it is in the core: the core refuses 3 blocks of 4 KiB ("),
            "{all}"
        );
    }
}
