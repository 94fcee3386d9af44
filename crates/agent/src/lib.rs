//! The agent of a pair: one process on each controller, which carries out what the machine of crate `loligo-pair` decides.
//!
//! * [`config`] is the pair's file, the same on both controllers.
//! * [`run`](run::run) is a run: one loop, links, threads for questions.
//! * [`executor`] carries questions out, by [`luns`] on the array, [`monitors`], [`power`] and the [`runner`] of each unit.
//! * [`osd`] and [`volume`] are those that are run; a volume has an [`address`], and [`values`] that are [`kept`] on the array.
//!   An OSD may stand on a volume: it is [`behind`] a cache.
//! * [`peers`] notes its clients there, and [`tickle`] has them connect again after a takeover.
//! * [`wire`] is a heartbeat as bytes.
//! * [`setup`] registers the keys, and takes them away.
//! * [`status`] and [`history`] are what operators see, by the socket of `control`, or by a [`handle`] in the same process.

pub mod address;
mod again;
pub mod behind;
pub mod cancel;
pub mod client;
pub mod config;
mod control;
pub mod executor;
pub mod handle;
pub mod history;
pub mod keeper;
pub mod kept;
pub mod luns;
pub mod monitors;
pub mod osd;
pub mod peers;
pub mod power;
mod pulse;
pub mod run;
pub mod runner;
pub mod setup;
pub mod status;
pub mod tickle;
pub mod values;
pub mod volume;
mod whole_file;
pub mod wire;
