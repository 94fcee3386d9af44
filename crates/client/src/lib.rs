//! The way commands talk to a running service, without anything that serves: types of the control API
//! ([`api`]), a client for it ([`client`]), the names and outcomes that both sides share, and a look at all
//! volumes again and again ([`watch`]); values of the tuner that drift ([`tune`]).

pub mod api;
pub mod client;
pub mod names;
pub mod outcome;
pub mod progress;
pub mod toml_error;
pub mod tune;
pub mod watch;
