//! Ceph's client libraries, loaded when they are first needed: the program starts on hosts that have none.
//!
//! [`Library`] is the table of functions, [`cluster`] a connection and its pools, [`image`] an open RBD image, and
//! [`status`] what anybody may want to know of an image before it becomes a core. [`attach`] makes an image a core: [`AttachedImage`]
//! is what all then share, [`RbdDevice`] does its I/O, [`quiesce`] goes along with what others do to it, and [`lease`] says
//! whether it is still ours.

pub mod advisory_lock;
pub mod async_io;
pub mod attach;
pub mod attach_marker;
mod attached_image;
pub mod bug;
mod cache_access;
pub mod cancel;
pub mod cluster;
pub mod commands;
mod device;
mod error;
mod fence;
mod ffi;
mod foreign_use;
mod given_up;
mod header_lock;
mod header_watch;
mod identity;
pub mod image;
pub mod layout;
pub mod lease;
pub mod lock_record;
mod lock_stamp;
mod loss;
mod mirror;
pub mod monitors;
mod pools;
pub mod quiesce;
pub mod release;
mod size_watcher;
mod snapc;
pub mod spec;
pub mod status;
mod survey;
pub mod sync_io;
mod waits;
mod write_gate;

pub use attached_image::{AttachedImage, Counters, Notice};
pub use device::{RbdDevice, geometry};
pub use error::CephError;
pub use ffi::Library;
pub use identity::ImageIdentity;
pub use snapc::SnapContext;
pub use survey::SurveyedImage;
