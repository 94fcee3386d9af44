//! A pool on disk: one cache device that many cores share.
//!
//! It is cut into extents. Each core's *member* is a cache that is laid out for the largest share it may have, of which only those
//! extents exist that are in use ([`share`]). Who has which stands in one table ([`table`], [`mod@format`]).

pub mod format;
pub mod share;
pub mod table;

pub use format::{Division, PoolSuper};
pub use table::{Member, Owner, Table};

use crate::guard::Says;
use loligo_block::{IoError, KeyedText};
use thiserror::Error;

/// The reason why a pool cannot be made, opened or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PoolError {
    /// Neither place holds the magic: no pool.
    #[error("no Loligo pool: make one with 'loligo cache create'")]
    Absent,
    /// It is one, and cannot be used.
    #[error("the pool is damaged: {0}")]
    Damaged(String),
    /// Made by a later version.
    #[error("the pool was made by a later version ({0}): upgrade before opening it")]
    TooNew(String),
    /// Below [`format::MIN_POOL`].
    #[error("a pool has at least 64 MiB, and {0} bytes are given: give a larger device or --size")]
    TooSmall(u64),
    /// The device is smaller than the pool.
    #[error("the device has {0} bytes, its pool was made with {1}: part of it is missing")]
    Cut(u64, u64),
    /// No such member.
    #[error(
        "the pool has no core {0}: 'loligo cache show' lists those it has, 'loligo cache attach' adds one"
    )]
    NoMember(u16),
    /// It cannot be done, and why.
    #[error("{0}")]
    Refused(KeyedText),
    /// An earlier change failed half way.
    #[error(
        "an earlier change of the pool's table failed: nothing is changed until the pool is opened again"
    )]
    Stuck,
    /// The device failed.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl PoolError {
    /// The weight of a copy that reads so beside another.
    pub fn says(&self) -> Says {
        match self {
            PoolError::Absent => Says::Nothing,
            PoolError::TooNew(_) => Says::Later,
            _ => Says::Damage,
        }
    }
}
