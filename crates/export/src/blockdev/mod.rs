//! The volume as a block device of the kernel, for kernels without ublk: a loop device over the file of a FUSE mount.
//!
//! [`Claim`] is a name under `/dev/loligo` that is this process's alone, with whatever a killed owner left cleared away;
//! [`BlockDevice`] is the mount, the loop device over it and the links to it. The device does not live through its server:
//! once that is gone, everything asked of it fails, and the next owner of the name has another device under the same link.

mod claim;
mod error;
mod holders;
mod ioctl;
mod links;
mod loops;
mod name;
mod owner;
mod record;
mod served;

pub use claim::Claim;
pub use error::BlockError;
pub use loops::Released;
pub use name::{NAMES, Name};
pub(crate) use owner::Access;
pub use owner::Owner;
pub use served::{BlockDevice, Traits};
