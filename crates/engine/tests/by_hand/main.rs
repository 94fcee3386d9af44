//! Claims that need every completion to come when the test says so.

#![allow(clippy::print_stdout)]

mod ack;
mod bad_sectors;
mod destage;
mod doubt;
mod failed_flush;
mod fallback;
mod fenced;
mod freeze;
mod groups;
mod hand;
mod jam;
mod only_copy;
mod passing;
mod reads;
mod refused;
mod rewritten;
mod unreadable;
