//! The bytes on disk, as docs/format.md describes them: each structure with its encoder and a decoder that survives garbage.
//!
//! * [`superblock`] names a cache, [`layout`] divides its device.
//! * [`page`] holds the checkpoint: index pages, their directory, the root that commits them.
//! * [`record`] is a frame of the journal.
//! * [`core_label`] and [`in_place_label`] mark a core, [`pool`] a device that many cores share.
//! * [`mirror_label`] marks a leg of a mirrored device.
//! * [`guard`] keeps other programs from taking a device for free.

pub mod core_label;
pub mod guard;
pub mod in_place_label;
pub mod layout;
pub mod mirror_label;
pub mod mode;
pub mod page;
pub mod pool;
pub mod record;
pub mod size;
pub mod superblock;
pub mod units;
