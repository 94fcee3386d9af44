//! How values are typed.

use loligo_block::{DeviceSpec, parse_size};
use loligo_cache::mode::Mode;
use loligo_export::Way;

/// Bytes, as `4k`, `512M`, `1GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|e| e.to_string())
}

/// A cache line.
pub(crate) fn line_size(text: &str) -> Result<u32, String> {
    match parse_size(text) {
        Ok(n @ (4096 | 8192 | 16384 | 32768 | 65536)) => Ok(n as u32),
        _ => Err("use 4k, 8k, 16k, 32k or 64k".to_owned()),
    }
}

/// A core.
pub(crate) fn core(text: &str) -> Result<DeviceSpec, String> {
    text.parse().map_err(|e: loligo_block::IoError| e.to_string())
}

/// A mode.
pub(crate) fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
}

/// A way for clients.
pub(crate) fn listen(text: &str) -> Result<Way, String> {
    text.parse().map_err(|e: loligo_export::ListenError| e.to_string())
}

/// An RBD image.
pub(crate) fn image(text: &str) -> Result<loligo_ceph::spec::ImageSpec, String> {
    text.parse().map_err(|e: loligo_ceph::CephError| e.to_string())
}
