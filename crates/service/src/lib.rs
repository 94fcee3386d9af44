//! Life cycle of a served volume: options, cache and core, threads, control socket, metrics, the stop.
//!
//! [`serve::run`] is `loligo serve`; [`client`] is how other commands talk to a running one; [`offline`] holds what is
//! done to the cache of one that is stopped, [`pool`] what concerns a device that many cores share.

mod absent;
pub mod block;
mod cache;
pub mod cache_config;
mod change;
pub mod client;
mod control;
mod core;
pub mod daemon;
mod descriptors;
pub mod first_block;
mod hung_device;
pub mod identity;
mod labelled_core;
pub mod last_cache;
mod memory;
mod metrics;
pub mod names;
pub mod offline;
mod operator_log;
pub mod outcome;
pub mod pool;
pub mod probe;
pub mod profile;
pub mod progress;
pub mod rbd;
mod refusals;
pub mod serve;
mod served_label;
mod signals;
mod stats;
pub mod status;
mod stop;
mod systemd;
pub mod ublk;
pub mod volume_config;
mod volume_state;
pub mod watch;
pub mod words;
