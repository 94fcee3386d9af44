//! Parsers of values as they are typed.

use loligo_block::parse_size;
use loligo_ceph::attach::Destage;
use loligo_export::ExportSpec;
use loligo_export::blockdev::Owner;
use loligo_format::mode::Mode;
use loligo_volume::block::Rotational;
use loligo_volume::core::CoreSpec;
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
    text.parse()
}

/// Seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.trim_end_matches('s')
        .parse()
        .map(Duration::from_secs)
        .map_err(|_| "give a number of seconds".to_owned())
}

/// A tunable with its value, as `seq-cutoff=always`.
pub(crate) fn param(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A mode.
pub(crate) fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
}

/// A way for clients.
pub(crate) fn listen(text: &str) -> Result<ExportSpec, String> {
    text.parse().map_err(|e: loligo_export::ListenError| e.to_string())
}

/// Parses whether a block device has heads.
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

/// A named set of tunables.
pub(crate) fn profile(text: &str) -> Result<&'static loligo_volume::profile::Profile, String> {
    loligo_volume::profile::find(text).map_err(|e| e.to_string())
}
