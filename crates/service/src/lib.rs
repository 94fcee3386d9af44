//! Life cycle of a served volume: options, cache and core, threads, control socket, metrics, the stop.
//!
//! [`serve::run`] is `loligo serve`; [`client`] is how other commands talk to a running one; [`offline`] holds what is
//! done to the cache of one that is stopped.

mod app;
mod cache;
pub mod client;
mod control;
mod core;
mod metrics;
mod names;
pub mod offline;
mod progress;
pub mod rbd;
pub mod serve;
mod signals;
mod stats;
mod stop;
pub mod ublk;
