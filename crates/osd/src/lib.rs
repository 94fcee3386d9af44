//! Ceph OSDs on volumes of the daemon: made, started, listed and taken away, and caches put under OSDs that exist.
//!
//! Everything that is known of such an OSD is kept with its volume ([`place`]): its folder, its user, the devices beside the data.
//! The cluster hears of a new OSD when its store is whole, and no earlier ([`prepare`]).

pub mod activate;
pub mod adopt;
pub mod behind;
pub mod ceph_volume;
pub mod cluster;
pub mod daemon;
pub mod devices;
pub mod folder;
pub mod labels;
pub mod list;
mod lvm;
pub mod place;
pub mod prepare;
mod raw;
pub mod release;
pub mod remove;
pub mod settings;
mod undo;
mod user;
mod wipe;
