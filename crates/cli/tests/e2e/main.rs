//! The real program against real clients: what a user sees of `loligo serve` and its companions.

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
