//! Ceph's client libraries, loaded when they are first needed: the program starts on hosts that have none.
//!
//! [`Library`] is the table of functions, [`cluster`] a connection and its pools, [`image`] an open RBD image, and
//! [`status`] what anybody may want to know of an image before it becomes a core. [`take`] makes an image a core: [`Attached`]
//! is what all then share, [`RbdDevice`] does its I/O, [`keeper`] goes along with what others do to it, and [`lease`] says
//! whether it is still ours.

mod attached;
pub mod bug;
pub mod cluster;
pub mod cut;
mod device;
mod ear;
mod error;
mod fence;
mod ffi;
mod front;
mod gate;
mod header_lock;
pub mod image;
pub mod keeper;
pub mod layout;
pub mod lease;
mod loss;
pub mod mark;
mod mirror;
mod pools;
pub mod release;
mod sampler;
mod since;
mod snapc;
pub mod spec;
mod stamp;
pub mod status;
pub mod sync_io;
pub mod take;
pub mod witness;

pub use attached::{Attached, Counters, ImageIdentity, Notice};
pub use device::{RbdDevice, geometry};
pub use error::CephError;
pub use ffi::Library;
pub use snapc::SnapContext;
