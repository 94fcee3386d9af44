//! The cache engine as a state machine: events in, effects out. No I/O, no thread, no clock, no entropy.
//!
//! * [`Core`] is one shard: [`Core::step`] for every event, [`Core::settle`] after each batch, [`Core::next_deadline`]
//!   for when to come back.
//! * [`Router`] splits a volume's requests over shards and joins their answers.
//! * [`desk`] is the post between the threads of a volume, [`bare`] the engine of one without a cache, and [`exchange`]
//!   puts the one in the other's place under clients that wait.
//! * [`open`] holds what happens before and after service, over `SyncIo`: format, recover, compare, close, inspect.

pub mod api;
mod audit;
mod back;
pub mod bare;
mod bug;
mod checkpoint;
mod control;
mod core;
pub mod desk;
mod destage;
mod durability;
pub mod exchange;
mod forsaken;
mod freeze;
mod huge;
mod index;
mod intent;
mod journal;
mod locks;
mod lost;
mod map;
mod mutation;
pub mod open;
pub mod params;
pub mod policy;
pub mod pool;
mod read;
mod recent;
pub mod recover;
pub mod resize;
mod room;
mod router;
mod shared_core;
mod slots;
pub mod stats;
mod tables;
mod tag;
mod through;
mod vacate;

pub use crate::core::{Config, Core};
pub use bug::Bug;
pub use destage::Refused;
pub use forsaken::Alone;
pub use index::Meta;
pub use loligo_format::{
    core_label as home, in_place_label as veil, layout, mode, page, record, superblock, units,
};
pub use router::{Part, Router};
pub use shared_core::share;
pub use tables::Tables;
pub use tag::TAG_BITS;
