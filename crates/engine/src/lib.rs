//! The cache engine as a state machine: events in, effects out. No I/O, no thread, no clock, no entropy.
//!
//! * [`Engine`] is one shard: [`Engine::step`] for every event, [`Engine::settle`] after each batch, [`Engine::next_deadline`]
//!   for when to come back.
//! * [`Router`] splits a volume's requests over shards and joins their answers.
//! * [`relay`] is the post between the threads of a volume, [`uncached`] the engine of one without a cache, and [`exchange`]
//!   puts the one in the other's place under clients that wait.
//! * [`open`] holds what happens before and after service, over `SyncIo`: format, recover, compare, close, inspect.

pub mod api;
mod audit;
mod buckets;
mod bug;
mod checkpoint;
mod commit;
mod control;
mod copies;
mod destage;
mod devices;
mod durability;
mod engine;
pub mod exchange;
mod expelled;
mod fallback;
mod fence;
mod flushes;
mod freeze;
mod huge;
mod index;
mod inflow;
mod intake;
mod intent;
mod io_tag;
mod journal;
mod locks;
mod map;
pub mod open;
pub mod params;
mod part_id;
pub mod policy;
pub mod pool;
mod read;
mod recent;
pub mod recover;
pub mod refusal;
pub mod relay;
pub mod resize;
mod router;
mod shared_core;
mod shrink;
mod slots;
mod space;
mod state;
pub mod stats;
mod tables;
pub mod uncached;
mod write;
mod write_back;
mod write_task;
mod write_through;

pub use crate::engine::{Config, Engine};
pub use bug::Bug;
pub use destage::Refused;
pub use fallback::FallbackState;
pub use index::Meta;
pub use io_tag::TAG_BITS;
pub use router::{Part, Router};
pub use shared_core::share;
pub use tables::Tables;
