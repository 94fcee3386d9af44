//! Ceph's client libraries, loaded when they are first needed: the program starts on hosts that have none.
//!
//! [`Library`] is the table of functions, [`cluster`] a connection and its pools, [`image`] an open RBD image, and
//! [`status`] what anybody may want to know of an image before it becomes a core.

pub mod cluster;
mod error;
mod ffi;
pub mod image;
pub mod spec;
pub mod status;

pub use error::CephError;
pub use ffi::Library;
