//! The device or file that a path leads to, whatever its name.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Numbers that tell devices and files apart.
pub type DeviceId = (u64, u64);

/// The identity of what is at `path`; nothing if nothing is there, or it cannot be looked at.
pub fn device_id(path: &Path) -> Option<DeviceId> {
    let meta = std::fs::metadata(path).ok()?;
    Some(if meta.rdev() == 0 { (meta.dev(), meta.ino()) } else { (meta.rdev(), u64::MAX) })
}

/// The name by which others see who has an image: `given`, else `$LOLIGO_IDENTITY`, else the host's.
pub(crate) fn of_controller(given: Option<&str>) -> String {
    let set = || std::env::var("LOLIGO_IDENTITY").ok().filter(|name| !name.is_empty());
    let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    given.map(str::to_owned).or_else(set).unwrap_or_else(host)
}
