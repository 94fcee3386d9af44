//! Life cycle of a served volume: options, cache and core, threads, control socket, metrics, the stop.
//!
//! [`serve::run`] is `loligo serve`; [`client`] is how other commands talk to a running one; [`offline`] holds what is
//! done to the cache of one that is stopped, [`pool`] what concerns a device that many cores share.

mod absent;
mod app;
pub mod block;
mod cache;
mod change;
pub mod client;
mod control;
mod core;
pub mod daemon;
mod descriptors;
pub mod doctor;
mod home;
pub mod identity;
mod mark;
mod metrics;
mod names;
pub mod offline;
pub mod outcome;
mod patience;
pub mod pool;
pub mod probe;
pub mod profile;
pub mod progress;
pub mod rbd;
mod record;
mod refusals;
mod say;
pub mod serve;
mod signals;
mod stats;
mod stop;
mod systemd;
pub mod ublk;
pub mod veil;
pub mod watch;
