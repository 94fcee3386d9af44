//! A seeded world around the cache engine: devices that reorder, tear, lose, misdirect, rot and fail, clients that
//! overlap, crashes at any point, and an oracle that knows what every sector may read as.
//!
//! One 64-bit seed draws everything; the same seed gives the same run.

pub mod clients;
pub mod config;
pub mod disk;
mod expelled;
pub mod faults;
pub mod life;
pub mod loligo;
pub mod marks;
pub mod mirror;
pub mod oracle;
pub mod pair;
pub mod rng;
pub mod seeds;
pub mod stamp;
pub mod store;
pub mod subject;
pub mod sync;
pub mod trace;
pub mod world;

pub use life::{Failure, Summary, run_seed, run_without};
