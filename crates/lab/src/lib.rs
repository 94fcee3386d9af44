//! A real Ceph cluster on this machine: monitor, manager and OSDs of the system's packages, in a folder of their own.
//!
//! A lab is a folder. [`up`](up::up) makes it and starts its daemons, [`down`](down::down) stops them and removes it; what
//! was started is written down at once ([`state`]), so that a lab whose maker was killed can be taken down too. Nothing
//! that this crate did not start is ever signalled, unmounted or removed.

pub mod array;
pub mod ceph;
pub mod child;
pub mod conf;
pub mod config;
pub mod crush;
pub mod down;
pub mod fail;
pub mod interrupt;
pub mod layout;
pub mod links;
mod lock;
pub mod monitor;
mod mons;
mod namespaces;
mod osd;
pub mod pairs;
pub mod process;
pub mod state;
pub mod status;
pub mod up;

/// Hears of each step as it is done.
pub trait Progress {
    /// `text` says what is done now.
    fn step(&mut self, text: &str);
}

impl<F: FnMut(&str)> Progress for F {
    fn step(&mut self, text: &str) {
        self(text);
    }
}
