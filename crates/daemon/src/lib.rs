//! Programs that serve volumes: `loligod` serves many, by one file and by command ([`mod@run`]); `loligo serve` serves one in the
//! foreground ([`foreground`]). Both have the control API and the metrics.

mod api;
mod beside;
pub mod config;
mod control;
pub mod daemon;
mod descriptors;
mod device_ids;
pub mod exchange;
mod exclusive;
mod folder;
pub mod foreground;
mod guard;
mod hook;
mod keeper;
mod listed;
mod metrics;
mod missing_pool;
mod ownership;
mod pair;
mod pools;
mod registry;
mod remembered;
mod restart;
pub mod run;
mod sections;
mod started;
pub mod state;
pub mod supervisor;
mod systemd;
mod tune;
mod void;
pub mod volume_set;
mod volumes;
mod writer_lock;

pub use metrics::tune::text as tune_metrics;
pub use tune::TuneNumbers;
