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

use loligo_client::outcome::OrRefused;
use loligo_lab::interrupt::{Interrupted, exit_code};

/// An error found before anything is changed refuses the command, but for an interrupt.
fn before_anything<T>(looked: anyhow::Result<T>) -> anyhow::Result<T> {
    looked.or_else(|why| match exit_code(&why) {
        Interrupted::EXIT_CODE => Err(why),
        _ => Err(why).or_refused(),
    })
}
