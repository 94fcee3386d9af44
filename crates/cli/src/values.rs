//! How values are typed.

use loligo_block::parse_size;
use loligo_cache::mode::Mode;
use loligo_ceph::take::Destage;
use loligo_export::Way;
use loligo_export::blockdev::Owner;
use loligo_service::block::Rotational;
use loligo_service::serve::CoreSpec;
use std::time::Duration;

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
pub(crate) fn core(text: &str) -> Result<CoreSpec, String> {
    text.parse()
}

/// A way of destaging.
pub(crate) fn destage(text: &str) -> Result<Destage, String> {
    match text {
        "auto" => Ok(Destage::Auto),
        "grouped" => Ok(Destage::Grouped),
        "librbd" => Ok(Destage::Librbd),
        _ => Err("use auto, grouped or librbd".to_owned()),
    }
}

/// The seconds of a lease.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    match text.trim_end_matches('s').parse() {
        Ok(n @ 2..=25) => Ok(Duration::from_secs(n)),
        _ => Err("2 to 25 seconds: a watch that is not renewed ends after 30".to_owned()),
    }
}

/// Seconds, or 0.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.trim_end_matches('s').parse() {
        Ok(n @ 0..=3600) => Ok(Duration::from_secs(n)),
        _ => Err("0 to 3600 seconds".to_owned()),
    }
}

/// A mode.
pub(crate) fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
}

/// A way for clients.
pub(crate) fn listen(text: &str) -> Result<Way, String> {
    text.parse().map_err(|e: loligo_export::ListenError| e.to_string())
}

/// Whether a block device has heads.
pub(crate) fn rotational(text: &str) -> Result<Rotational, String> {
    text.parse()
}

/// To whom a block device belongs.
pub(crate) fn owner(text: &str) -> Result<Owner, String> {
    text.parse()
}

/// An RBD image.
pub(crate) fn image(text: &str) -> Result<loligo_ceph::spec::ImageSpec, String> {
    text.parse().map_err(|e: loligo_ceph::CephError| e.to_string())
}
