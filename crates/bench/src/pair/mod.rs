//! Pairs of controllers on real clusters: the [`mod@write`] path, and failures under a client that checks what it reads.
//!
//! [`client`] is that client, a process of its own in the lab's client namespace, of images and of a `volume` by NBD; `ledger` knows what each block may hold. A
//! [`rows::Row`] is a fault with what is expected of it; `scene` is the lab; [`run`] plays a row and writes a
//! [`record::Run`] down; [`outcome`] is the table. A [`drill`] does one of these things to a pair that is in use.

pub mod client;
mod client_process;
pub mod drill;
mod ledger;
mod map;
mod op;
mod options;
pub mod outcome;
pub mod record;
pub mod rows;
mod run;
mod scene;
mod stamp;
mod target;
mod volume;
pub mod write;

pub use options::Options;
pub use run::run;
