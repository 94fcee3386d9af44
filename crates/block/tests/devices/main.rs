//! Claims about the devices, in one program.

#![allow(clippy::print_stdout)]

mod block_device;
mod common;
mod file_device;
mod hdd_device;
mod hdd_model;
mod layer;
mod layers;
mod locking;
mod mapped;
mod masked_head;
mod write_back;
