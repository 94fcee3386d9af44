//! The agent of a pair: one process on each controller, which carries out what the machine of crate `loligo-pair` decides.
//!
//! * [`config`] is the pair's file, the same on both controllers.
//! * [`run`](run::run) is a run: one loop, links, threads for questions.
//! * [`executor`] carries questions out, by [`luns`] on the array, [`monitors`], [`osd`] and [`power`].
//! * [`wire`] is a heartbeat as bytes.
//! * [`setup`] registers the keys, and takes them away.
//! * [`status`] and [`history`] are what operators see, by the socket of `control`.

pub mod client;
pub mod config;
mod control;
pub mod executor;
pub mod history;
pub mod luns;
pub mod monitors;
pub mod osd;
pub mod power;
pub mod run;
pub mod setup;
pub mod status;
mod whole_file;
pub mod wire;
