//! A file system whose power can be cut: what was not flushed survives in parts, sector by sector.

mod fs;
mod image;

pub use fs::{Lossy, Mounted, Part};
