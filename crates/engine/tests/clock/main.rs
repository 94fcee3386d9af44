//! The engine on a virtual clock, over models of flash and a disk: what it does with time, without waiting for any.

mod age;
mod bad_sectors;
mod full;
mod one_command;
mod room;
mod sharded;
mod world;
