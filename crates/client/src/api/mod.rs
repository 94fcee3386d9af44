//! Messages between a service and those who ask it: JSON over its control socket, and TOML in the daemon's file.

pub mod cache_config;
pub mod daemon;
pub mod definition;
pub mod listed;
pub mod pool;
pub mod status;
pub mod volume;
