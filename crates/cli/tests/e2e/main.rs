//! The real program against real clients: what a user sees of `loligo serve` and its companions.

#![allow(clippy::print_stderr)]

mod clients;
mod control;
mod kill;
mod life;
mod nbd;
mod offline;
mod pool;
mod refusals;
mod rig;
mod tls;
