//! Life cycle of a served volume: options, cache and core, label, threads, changes under clients, the stop.
//!
//! [`volume::Volume`] is one that is served. [`offline`] holds what is done to the cache of one that is stopped, [`pool`] what
//! concerns a device that many cores share. Nothing here knows of a daemon: what a volume asks of one are the traits of
//! [`memory`].

mod blank;
pub mod block;
pub mod cache;
pub mod change;
pub mod control_socket;
pub mod core;
pub mod definition;
mod doors;
pub mod first_block;
pub mod held_cache;
pub mod hung_device;
pub mod identity;
pub mod labelled_core;
pub mod last_cache;
pub mod memory;
mod mirror;
pub mod offline;
pub mod options;
pub mod pool;
pub mod probe;
pub mod profile;
pub mod rbd;
mod refusals;
mod reservation;
mod served_label;
pub mod signals;
pub mod stats;
mod stop;
pub mod ublk;
pub mod volume;
pub mod volume_state;
